"""What is held in a pool, without names: the same object for all pools of which the same devices are held alike.

Promises: equal states are one object as long as somebody holds it, so comparing is comparing identities.
"""

from __future__ import annotations

from typing import Final

from dra_extender.devices.content import Interner
from dra_extender.devices.holdings import Amounts, PoolHoldings, remaining_counters
from dra_extender.devices.pools import Pool
from dra_extender.devices.uses import EVERY_DEVICE

Content = tuple[
    int,
    tuple[tuple[int, tuple[tuple[str, int], ...]], ...],
    tuple[tuple[str, tuple[tuple[str, int], ...]], ...],
]


_UNTOUCHED: Final[Content] = 0, (), ()


class PoolState:
    """`owned`: mask of the devices somebody has exclusively. `shared`: what shares consume, by index of the device.
    `left`: what the counter sets still offer, by set and counter.
    """

    __slots__ = ("__weakref__", "left", "owned", "shared")

    def __init__(self, content: Content) -> None:
        self.owned, shared, self.left = content
        self.shared = dict(shared)


class PoolStates:
    """The states in use, by content."""

    def __init__(self) -> None:
        self._states = Interner(PoolState)
        self._untouched = self._states.of(_UNTOUCHED, _UNTOUCHED)

    def of(self, pool: Pool, held: PoolHoldings | None) -> PoolState:
        """The state of a pool of which this is held."""
        if held is None and not pool.counters:
            return self._untouched
        owned = 0
        shared: list[tuple[int, tuple[tuple[str, int], ...]]] = []
        if held is not None:
            if EVERY_DEVICE in held.owned:
                owned = (1 << len(pool.names)) - 1
            for index, name in enumerate(pool.names):
                if name in held.owned:
                    owned |= 1 << index
                if name in held.shared:
                    shared.append((index, _sorted(held.shared[name])))
        left = remaining_counters(pool, held) if pool.counters else {}
        content = owned, tuple(shared), tuple(sorted((name, _sorted(counters)) for name, counters in left.items()))
        return self._states.of(content, content)


def _sorted(amounts: Amounts) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(amounts.items()))
