"""What claims hold of the devices that a node sees: as masks over its view, and as states that pools share.

Promises: immutable. Equal states of pools are one object for as long as it is in use, so comparing them is comparing
identities.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dra_extender.devices.content import Interner
from dra_extender.devices.models import Groups, joined
from dra_extender.devices.pools import NodeView, Pool
from dra_extender.devices.usage import EVERY_DEVICE, Amounts, PoolHoldings, PoolID


class NodeHoldings:
    """Holdings as masks and amounts over one node view. Immutable.

    `owned`: devices that a claim has exclusively. `shared`: consumed amounts by bit, for devices with shares.
    `counters`: what is left, by pool index, set and counter; negative when overdrawn. Pools without counter sets have
    no entry. `groups`: what devices in use have in common, by pool index and set. Linear in the devices of the view and
    what they consume.
    """

    def __init__(self, view: NodeView, pools: Mapping[PoolID, PoolHoldings]) -> None:
        owned = 0
        shared: dict[int, Amounts] = {}
        counters: dict[int, Mapping[str, Mapping[str, int]]] = {}
        groups: dict[int, Mapping[str, Groups]] = {}
        for index, (pool, offset) in enumerate(zip(view.pools, view.offsets, strict=True)):
            held = pools.get(pool.id)
            if pool.counters:
                counters[index] = remaining_counters(pool, held)
                groups[index] = groups_in_use(pool, held)
            owned_here, shared_here = _in_use(pool, held)
            owned |= owned_here << offset
            shared |= {offset + place: amounts for place, amounts in shared_here.items()}
        self.owned = owned
        self.shared = shared
        self.counters = counters
        self.groups = groups


def _in_use(pool: Pool, held: PoolHoldings | None) -> tuple[int, dict[int, Amounts]]:
    """The mask of the devices that a claim has exclusively, and what shares consume, by index of the device."""
    owned: int = 0
    shared: dict[int, Amounts] = {}
    if held is not None:
        if EVERY_DEVICE in held.owned:
            owned = (1 << len(pool.names)) - 1
        for index, name in enumerate(pool.names):
            if name in held.owned:
                owned |= 1 << index
            if name in held.shared:
                shared[index] = held.shared[name]
    return owned, shared


def remaining_counters(pool: Pool, held: PoolHoldings | None) -> Mapping[str, Mapping[str, int]]:
    """What the counter sets of the pool still offer. Every device in use is charged once, also one of another node."""
    if held is None:
        return pool.counters
    left: dict[str, dict[str, int]] | None = None
    for name, consumes in pool.consumers:
        if name in held.owned or name in held.shared:
            if left is None:
                left = {set_name: dict(counters) for set_name, counters in pool.counters.items()}
            for set_name, counter, amount in consumes:
                if counter in left.get(set_name, ()):
                    left[set_name][counter] -= amount
    return pool.counters if left is None else left


def groups_in_use(pool: Pool, held: PoolHoldings | None) -> Mapping[str, Groups]:
    """What the devices in use on each counter set have in common, also those of another node."""
    found: dict[str, Groups] = {}
    if held is not None:
        for name, groups in pool.groups:
            if name in held.owned or name in held.shared:
                for set_name, own in groups:
                    found[set_name] = joined(found.get(set_name), own)
    return found


_Sorted = tuple[tuple[str, int], ...]
Content = tuple[int, tuple[tuple[int, _Sorted], ...], tuple[tuple[str, _Sorted | Groups], ...]]

_UNTOUCHED: Final[Content] = 0, (), ()


class PoolState:
    """`owned`: mask of the devices that a claim has exclusively. `shared`: what shares consume, by index of the device.
    `left`: what the counter sets still offer, by set and counter, and the groups of the devices in use on them.
    """

    __slots__ = ("__weakref__", "left", "owned", "shared")

    def __init__(self, content: Content) -> None:
        self.owned, shared, self.left = content
        self.shared = dict(shared)


class PoolStates:
    """The states in use, by content."""

    def __init__(self) -> None:
        self._states = Interner[PoolState]()
        self._untouched = self._states.of(_UNTOUCHED, PoolState, _UNTOUCHED)

    def of(self, pool: Pool, held: PoolHoldings | None) -> PoolState:
        """The state of a pool of which this is held."""
        if held is None and not pool.counters:
            return self._untouched
        owned, in_shares = _in_use(pool, held)
        shared = tuple((index, _sorted(amounts)) for index, amounts in in_shares.items())
        left = remaining_counters(pool, held) if pool.counters else {}
        offered = sorted((name, _sorted(counters)) for name, counters in left.items())
        groups = sorted(groups_in_use(pool, held).items()) if pool.groups else ()
        content = owned, shared, (*offered, *groups)
        return self._states.of(content, PoolState, content)


def _sorted(amounts: Amounts) -> _Sorted:
    return tuple(sorted(amounts.items()))
