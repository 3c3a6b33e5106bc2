"""Devices of which nothing is in use, and how to leave them so.

A device of its own, shared or not, is one unit; so is everything that counters tie together, such as a GPU with its
partitions. Promises: pure; costs what the pools that are asked about have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from dra_extender.allocation.plan import Plan
from dra_extender.allocation.requests import PreparedClaims
from dra_extender.devices.overlay import Overlay
from dra_extender.devices.pools import NodeView, Pool
from dra_extender.devices.usage import EVERY_DEVICE, PoolID
from dra_extender.placement.devicechooser import reordered
from dra_extender.placement.poolgroups import components

_FRESH: Final = 1 << 30


UnitID = tuple[PoolID, int]


class Units(NamedTuple):
    """Of a pool: the unit of each device, the names in each unit, and the units that can be in use in part."""

    of: Mapping[str, int]
    names: tuple[tuple[str, ...], ...]
    divisible: frozenset[int]


class Wholes:
    """Of one cluster."""

    def __init__(self) -> None:
        self._units: dict[Pool, Units] = {}

    def units(self, pool: Pool) -> Units:
        """Remembered."""
        found = self._units.get(pool)
        if found is None:
            found = self._units[pool] = _units(pool)
        return found

    def in_use(self, state: Overlay, pool: Pool) -> Mapping[int, int]:
        """The units of which something is in use, and of how many devices of each."""
        held, units = state.holdings(pool.id), self.units(pool)
        if held is None:
            return {}
        if EVERY_DEVICE in held.owned:
            return {number: len(names) for number, names in enumerate(units.names)}
        found: dict[int, int] = {}
        for name in (*held.owned, *held.shared):
            number = units.of.get(name)
            if number is not None:
                found[number] = found.get(number, 0) + 1
        return found

    def left(self, state: Overlay, pools: Iterable[Pool]) -> int:
        """How many whole units these pools have."""
        return sum(len(self.units(pool).names) - len(self.in_use(state, pool)) for pool in pools)

    def left_on(self, state: Overlay, node: str) -> int:
        """The same for a known node."""
        view = state.view(node)
        return self.left(state, view.pools) if view is not None else 0


def _units(pool: Pool) -> Units:
    of: dict[str, int] = {}
    names: list[list[str]] = []
    divisible: set[int] = set()
    consuming = [model for model in pool.models if model.traits.consumes]
    tied: dict[str, int] = {}
    for sets in components(pool, consuming):
        divisible.add(len(names))
        tied.update(dict.fromkeys(sets, len(names)))
        names.append([])
    for name, model in zip(pool.names, pool.models, strict=True):
        if model.traits.consumes:
            number = tied[model.traits.consumes[0][0]]
        else:
            number = len(names)
            names.append([])
            if model.traits.multi:
                divisible.add(number)
        of[name] = number
        names[number].append(name)
    return Units(of, tuple(map(tuple, names)), frozenset(divisible))


class BegunFirst:
    """Chooses devices of units that are in use already, the most used ones first; those to `avoid` count as whole. For
    one node in one state.
    """

    def __init__(self, wholes: Wholes, state: Overlay, node: str, avoid: Collection[UnitID] = ()) -> None:
        self._avoid = avoid
        self._wholes = wholes
        self._state = state
        view = state.view(node)
        self._pools = {pool.id: pool for pool in view.pools} if view is not None else {}

    def orders(self, prepared: PreparedClaims, view: NodeView) -> Iterator[NodeView]:
        ranks: list[int] = []
        for pool in view.pools:
            used, units = self._in_use(pool), self._wholes.units(pool)
            ranks += [-used.get(units.of[name], -_FRESH) for name in pool.names]
        order = sorted(range(len(ranks)), key=lambda bit: (ranks[bit], bit))
        if order != list(range(len(ranks))):
            yield reordered(view, order)

    def cost(self, plan: Plan) -> int:
        """How many whole units it begins."""
        fresh: set[UnitID] = set()
        for allocation in plan.allocations:
            for result in allocation.devices.results:
                pool = self._pools.get(result.id[:2])
                if pool is not None and not result.admin_access:
                    number = self._wholes.units(pool).of[result.device]
                    if number not in self._in_use(pool):
                        fresh.add((pool.id, number))
        return len(fresh)

    def summary(self, plan: Plan) -> str:
        return f"begins {self.cost(plan)} whole devices"

    def _in_use(self, pool: Pool) -> Mapping[int, int]:
        used = self._wholes.in_use(self._state, pool)
        return {number: count for number, count in used.items() if (pool.id, number) not in self._avoid}
