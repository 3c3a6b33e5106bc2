"""Whole devices: partition groups without a device in use. A device chooser keeps them whole.

A partition group is a device without shared counters, or all devices that share counters, such as a GPU with its
partitions. Promises: pure; the cost depends only on the pools that a question is about.
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


GroupID = tuple[PoolID, int]


class PoolGroups(NamedTuple):
    """Per pool: the group of each device, the devices of each group, and the groups that can be partly in use."""

    of: Mapping[str, int]
    names: tuple[tuple[str, ...], ...]
    divisible: frozenset[int]


class WholeDevices:
    """The whole devices of one cluster. Remembers the groups of each pool."""

    def __init__(self) -> None:
        self._groups: dict[Pool, PoolGroups] = {}

    def groups(self, pool: Pool) -> PoolGroups:
        found = self._groups.get(pool)
        if found is None:
            found = self._groups[pool] = _groups(pool)
        return found

    def in_use(self, state: Overlay, pool: Pool) -> Mapping[int, int]:
        """The partition groups in use, and for each the number of its devices in use."""
        held, groups = state.holdings(pool.id), self.groups(pool)
        if held is None:
            return {}
        if EVERY_DEVICE in held.owned:
            return {number: len(names) for number, names in enumerate(groups.names)}
        found: dict[int, int] = {}
        for name in (*held.owned, *held.shared):
            number = groups.of.get(name)
            if number is not None:
                found[number] = found.get(number, 0) + 1
        return found

    def left(self, state: Overlay, pools: Iterable[Pool]) -> int:
        """The number of whole groups of these pools."""
        return sum(len(self.groups(pool).names) - len(self.in_use(state, pool)) for pool in pools)

    def left_on(self, state: Overlay, node: str) -> int:
        """The number of whole groups in the pools of the node."""
        view = state.view(node)
        return self.left(state, view.pools) if view is not None else 0


def _groups(pool: Pool) -> PoolGroups:
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
    return PoolGroups(of, tuple(map(tuple, names)), frozenset(divisible))


class PartlyUsedFirst:
    """A chooser that prefers devices of groups in use, the most used first; groups in `avoid` count as whole. For one
    node in one state.
    """

    def __init__(self, wholes: WholeDevices, state: Overlay, node: str, avoid: Collection[GroupID] = ()) -> None:
        self._avoid = avoid
        self._wholes = wholes
        self._state = state
        view = state.view(node)
        self._pools = {pool.id: pool for pool in view.pools} if view is not None else {}

    def orders(self, prepared: PreparedClaims, view: NodeView) -> Iterator[NodeView]:
        ranks: list[int] = []
        for pool in view.pools:
            used, groups = self._in_use(pool), self._wholes.groups(pool)
            ranks += [-used.get(groups.of[name], -_FRESH) for name in pool.names]
        order = sorted(range(len(ranks)), key=lambda bit: (ranks[bit], bit))
        if order != list(range(len(ranks))):
            yield reordered(view, order)

    def cost(self, plan: Plan) -> int:
        """How many whole groups the choice breaks up."""
        fresh: set[GroupID] = set()
        for allocation in plan.allocations:
            for result in allocation.devices.results:
                pool = self._pools.get(result.id[:2])
                if pool is not None and not result.admin_access:
                    number = self._wholes.groups(pool).of[result.device]
                    if number not in self._in_use(pool):
                        fresh.add((pool.id, number))
        return len(fresh)

    def summary(self, plan: Plan) -> str:
        return f"takes from {self.cost(plan)} whole devices"

    def _in_use(self, pool: Pool) -> Mapping[int, int]:
        used = self._wholes.in_use(self._state, pool)
        return {number: count for number, count in used.items() if (pool.id, number) not in self._avoid}
