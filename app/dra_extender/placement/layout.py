"""Which units a pool is made of, and which of its devices belong to which unit.

Promises: pure. Devices that other nodes have, or of which it cannot be said, belong to none. Devices tied together by
counter sets, directly or through others, are one unit; its counters are numbered in the order in which the pool lists
them, so units that are equal but for the names of their counter sets are equal.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple
from weakref import WeakValueDictionary

import msgspec

from dra_extender.allocation.signatures import PoolSignatures
from dra_extender.devices.content import Belongings, digest
from dra_extender.devices.holdings import remaining_counters
from dra_extender.devices.models import DeviceModel
from dra_extender.devices.nodes import SeenPool
from dra_extender.devices.pools import Pool
from dra_extender.devices.usage import EVERY_DEVICE, NO_AMOUNTS, Amounts, PoolHoldings
from dra_extender.placement.units import Member, Tie, Unit, Units, used_of

Counter = tuple[str, str]
"""Counter set and counter."""


class _Tied(NamedTuple):
    """Devices with common counters: per device its name and member."""

    counters: tuple[Counter, ...]
    tie: Tie
    devices: tuple[tuple[str, Member], ...]


class Layout:
    """Of one pool. `units` in the order of the pool."""

    __slots__ = ("_plain", "_pool", "_shared", "_tied", "_units", "idle")

    def __init__(self, pool: Pool, plain: tuple[tuple[str, DeviceModel], ...], tied: tuple[_Tied, ...], units: Units,
                 *, shares: bool) -> None:  # fmt: skip
        self._pool = pool
        self._plain = plain
        self._tied = tied
        self._units = units
        self._shared = shares
        self.idle = self._of(None)
        """The units when nothing is held."""

    def units(self, held: PoolHoldings | None) -> tuple[Unit, ...]:
        """The units when this is held."""
        return self.idle if held is None else self._of(held)

    def _of(self, held: PoolHoldings | None) -> tuple[Unit, ...]:
        owned = held.owned if held is not None else frozenset[str]()
        shared = held.shared if held is not None else {}
        if EVERY_DEVICE in owned:
            return self._withheld()
        found: list[Unit] = []
        for name, model in self._plain:
            if name in owned:
                found.append(self._units.gone(self._units.weight(model)))
            else:
                used: Amounts | None = shared.get(name)
                several = self._shared and model.traits.multi
                found.append(
                    self._units.device(model, used_of(used) if used is not None else None, shared=several)
                    if several or used is None
                    else self._units.gone(self._units.weight(model))
                )
        if self._tied:
            left = remaining_counters(self._pool, held)
            for tied in self._tied:
                members = [member for name, member in tied.devices if name not in owned and name not in shared]
                amounts = tuple(left.get(name, NO_AMOUNTS).get(counter, 0) for name, counter in tied.counters)
                found.append(self._units.counted(tied.tie, members, amounts))
        return tuple(found)

    def _withheld(self) -> tuple[Unit, ...]:
        """The units when nothing of the pool may be given away: who has what of it cannot be told."""
        plain = [self._units.gone(self._units.weight(model)) for _, model in self._plain]
        return (*plain, *(self._units.gone(tied.tie.whole) for tied in self._tied))


class Layouts:
    """The layouts of pools. `pools` says which devices have equal signatures."""

    def __init__(self, pools: PoolSignatures, units: Units, *, shares: bool, counters: bool) -> None:
        self._pools = pools
        self._units = units
        self._shares = shares
        self._counters = counters
        self._by_pool: Belongings[SeenPool, Layout] = Belongings()
        self._stripped: WeakValueDictionary[Hashable, DeviceModel] = WeakValueDictionary()

    def of(self, seen: SeenPool, pool: Pool) -> Layout:
        """The layout of what is seen; `pool` is what it shows."""
        known = self._by_pool.get(id(seen))
        return known.value if known is not None else self._by_pool.give(seen, self._layout(seen, pool))

    def _layout(self, seen: SeenPool, pool: Pool) -> Layout:
        plain: list[tuple[str, DeviceModel]] = []
        consuming: list[tuple[str, DeviceModel]] = []
        signature = self._pools.of(seen, pool)
        for name, (model, locality) in zip(pool.names, signature.devices, strict=True):
            if not locality:
                kind = consuming if self._counters and model.traits.consumes else plain
                kind.append((name, model))
        return Layout(pool, tuple(plain), tuple(self._tie(pool, consuming)), self._units, shares=self._shares)

    def _tie(self, pool: Pool, consuming: list[tuple[str, DeviceModel]]) -> Iterable[_Tied]:
        for sets in components(pool, [model for _, model in consuming]):
            counters = tuple(
                (name, counter) for name in pool.counters if name in sets for counter in pool.counters[name]
            )
            numbers = {counter: number for number, counter in enumerate(counters)}
            devices = tuple(
                (device, Member(self._strip(model), _charge(model, numbers)))
                for device, model in consuming
                if model.traits.consumes[0][0] in sets
            )
            total = tuple(pool.counters[name][counter] for name, counter in counters)
            members = [member for _, member in devices]
            whole = max(self._units.weight(member.model) for member in members)
            yield _Tied(counters, Tie.of(total, whole, members), devices)

    def _strip(self, model: DeviceModel) -> DeviceModel:
        """One for all models that differ only by the counters they consume."""
        without = msgspec.structs.replace(model.traits, consumes=())
        return self._stripped.setdefault(digest(without), model)


def _charge(model: DeviceModel, numbers: dict[Counter, int]) -> tuple[tuple[int, int], ...]:
    charge: dict[int, int] = {}
    for name, counter, amount in model.traits.consumes:
        number = numbers.get((name, counter))
        if number is not None:
            charge[number] = charge.get(number, 0) + amount
    return tuple(charge.items())


def components(pool: Pool, models: Iterable[DeviceModel]) -> list[set[str]]:
    """The counter sets of the pool, those together that some device ties together."""
    found: list[set[str]] = []
    for model in models:
        names = {name for name, _, _ in model.traits.consumes}
        touching = [known for known in found if known & names]
        found = [known for known in found if not known & names]
        found.append(names.union(*touching))
    order = {name: number for number, name in enumerate(pool.counters)}
    return sorted(found, key=lambda names: min(order.get(name, len(order)) for name in names))
