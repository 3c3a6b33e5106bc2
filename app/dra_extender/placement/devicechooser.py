"""Which devices of its node a pod gets: orders in which the search tries them, and what its solutions cost.

Promises: deterministic; ties keep the published order. An order ranks each device by the cost of taking it alone, for
the first request that can have it. At equal cost, devices that are close to each other and to the pod's other devices
come first. Among these, groups of close devices that are partly used come before unused groups.

Devices are close when they have one PCIe root, NUMA node or NVLink clique. Drivers publish this under names of their
own, so the identifier of an attribute decides, whatever its domain; devices of different drivers can be close.
Closeness is a preference; constraints are the allocator's business.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass
from math import inf
from typing import Final, NamedTuple

from dra_extender.allocation.budget import Deferred, TurnSpent, WorkBudget
from dra_extender.allocation.plan import Plan
from dra_extender.allocation.requests import PreparedClaims
from dra_extender.allocation.selection import candidates, suitability
from dra_extender.api.resource import AllocationResult, ResourceClaim
from dra_extender.devices.pools import NodeView, places
from dra_extender.devices.usage import PartUse, PoolHoldings, PoolID, pool_holdings, uses_of
from dra_extender.placement.freestates import FreeStates
from dra_extender.placement.partitiongroups import TooCostly
from dra_extender.placement.podshape import PodShape
from dra_extender.placement.policies import Cost, Policy

KINDS: Final[Mapping[str, str]] = {
    "pcieroot": "PCIe root",
    "numanode": "NUMA node",
    "numanodeid": "NUMA node",
    "numa": "NUMA node",
    "cliqueid": "NVLink clique",
    "nvlinkclique": "NVLink clique",
}
"""What the identifier of an attribute, in small letters, says about closeness."""


MOST_ORDERS: Final = 16
"""How many orders are tried, one of them by cost alone."""
PER_UNIT: Final = 2
"""Devices that a request may have, per unit of work."""
_NO_GROUP: Final = 1 << 30


class TopologyGroup(NamedTuple):
    """Devices that are close, as a mask."""

    kind: str
    devices: int


class Topology:
    """The groups of a view, kind by kind."""

    def __init__(self, view: NodeView) -> None:
        masks: dict[tuple[str, object], int] = {}
        for bit, device in enumerate(view.devices):
            for name, attribute in device.model.traits.attributes.items():
                kind = KINDS.get(name.rpartition("/")[2].lower())
                if kind is not None and isinstance(attribute.value, str | int):
                    masks[kind, attribute.value] = masks.get((kind, attribute.value), 0) | 1 << bit
        self.groups = tuple(TopologyGroup(kind, mask) for (kind, _), mask in masks.items())

    def distance(self, devices: int) -> int:
        """In how many groups too many these devices are: 0 when they are all close."""
        touched = [group.kind for group in self.groups if group.devices & devices]
        return len(touched) - len(set(touched))

    def unfragmented(self, free: int) -> float:
        """How much of the groups is left in one piece, when these devices are free."""
        return sum(((group.devices & free).bit_count() / group.devices.bit_count()) ** 2 for group in self.groups)

    def begun(self, free: int) -> dict[int, int]:
        """How many devices of its smallest group are free, of each device that has a group."""
        found: dict[int, int] = {}
        for group in self.groups:
            count = (group.devices & free).bit_count()
            for device in places(group.devices):
                found[device] = min(count, found.get(device, count))
        return found


def topology_of(view: NodeView) -> Topology:
    """Remembered by the view."""
    found: Topology | None = view.memo.get(Topology)
    return found if found is not None else view.remember(Topology, Topology(view))


class DeviceCost(NamedTuple):
    """What a choice of devices costs; the first that differs decides. `policy` and `pieces` are the policy's own,
    `distance` is between the pod's devices, `broken` counts groups of close devices that are partly used.
    """

    policy: float
    pieces: float
    distance: int
    broken: float


@dataclass(eq=False)
class DeviceChooser:
    """Chooses for one pod on one node. The budget counts the work. `beside`: the pod's allocated claims."""

    _policy: Policy
    _free_states: FreeStates
    _shape: PodShape
    _node: str
    _budget: WorkBudget
    beside: InitVar[Sequence[ResourceClaim]] = ()

    def __post_init__(self, beside: Sequence[ResourceClaim]) -> None:
        self._free_states.catch_up(self._budget)
        self._before = self._free_states.beside(self._node, {}, self._budget)
        self._view, held = self._free_states.view(self._node)
        self._owned = held.owned
        self._free = self._view.all & ~held.owned & ~sum(1 << bit for bit in held.shared)
        self._own = self._mask(claim.allocation for claim in beside if claim.allocation is not None)

    def orders(self, prepared: PreparedClaims, view: NodeView) -> Iterator[NodeView]:
        """The cheapest devices first; then those of one group of close devices after the other. Charges each order, and
        the cost of each device; no further order when the budget is spent.
        """
        try:
            yield from self._orders(self._costs(prepared, view), view)
        except (TooCostly, TurnSpent, Deferred):
            return

    def _orders(self, costs: Mapping[int, Cost], view: NodeView) -> Iterator[NodeView]:
        if not costs:
            return
        self._budget.spend(len(view.devices))
        topology = topology_of(view)
        begun = topology.begun(self._free)
        ranks = {bit: (cost, begun.get(bit, _NO_GROUP)) for bit, cost in costs.items()}
        wanted = sum(1 << bit for bit in costs)
        groups = [group.devices for group in topology.groups if (group.devices & wanted).bit_count() > 1]
        groups.sort(key=lambda mask: (not mask & self._own, (mask & self._free).bit_count()))
        seen: set[tuple[int, ...]] = {tuple(range(len(view.devices)))}
        for first in (0, *groups[: MOST_ORDERS - 1]):
            self._budget.spend(len(view.devices))
            order = tuple(
                sorted(range(len(view.devices)), key=lambda bit: (not first >> bit & 1, ranks.get(bit, _WORST), bit))
            )
            if order not in seen:
                seen.add(order)
                yield reordered(view, order)

    def cost(self, plan: Plan) -> DeviceCost:
        """Of all devices together."""
        parts: dict[PoolID, dict[str, list[PartUse]]] = {}
        for allocation in plan.allocations:
            for (device, share), used in uses_of(allocation, shares=self._free_states.shares).items():
                parts.setdefault(device[:2], {}).setdefault(device[2], []).append((share, used))
        try:
            policy, pieces = self._cost({pool: pool_holdings(uses) for pool, uses in parts.items()})
        except (TooCostly, TurnSpent):
            policy, pieces = inf, 0.0
        devices = self._mask(plan.allocations)
        topology = topology_of(self._view)
        return DeviceCost(
            policy, pieces, topology.distance(devices | self._own), -topology.unfragmented(self._free & ~devices)
        )

    def summary(self, plan: Plan) -> str:
        """The policy that chose, and the cost, for people."""
        return f"chosen by {self._policy.name} at a cost of {self.cost(plan).policy:.4g}"

    def _mask(self, allocations: Iterable[AllocationResult]) -> int:
        """The devices of the node that these allocations name."""
        bits = self._view.bits
        devices = {result.id for allocation in allocations for result in allocation.devices.results}
        return sum(1 << bits[device] for device in devices if device in bits)

    def _costs(self, prepared: PreparedClaims, view: NodeView) -> Mapping[int, Cost]:
        """By bit, of the devices that a request may have. Devices that leave the same cost the same."""
        found: dict[int, Cost] = {}
        groups = self._free_states.own_groups(self._node, self._budget)
        known: dict[Hashable, Cost] = {}
        left = ~self._owned
        for ask in (ask for request in prepared.requests for ask in request.asks if not ask.admin):
            wanted = candidates(view, ask.filter, self._budget).usable & left
            left &= ~wanted
            self._budget.spend(1 + wanted.bit_count() // PER_UNIT)
            for bit in places(wanted):
                _, _, name = (device := view.devices[bit]).id
                takes = suitability(device.model, ask.filter, self._budget).takes or ()
                several = device.model.traits.multi and self._free_states.shares
                part: PartUse = ("one", dict(takes)) if several else (None, {})
                group = groups.get(device.id)
                key = device.id if group is None else (group.number, takes)
                if key not in known:
                    known[key] = self._cost({device.id[:2]: pool_holdings({name: [part]})})
                found[bit] = known[key]
        return found

    def _cost(self, more: Mapping[PoolID, PoolHoldings]) -> Cost:
        state = self._free_states.beside(self._node, more, self._budget)
        return self._policy.cost(self._before, state.after(state.devices, self._shape), self._budget)


_WORST: Final = ((inf, 0.0), 0)


def reordered(view: NodeView, order: Sequence[int]) -> NodeView:
    """The view with the devices of each pool in this order."""
    positions: list[list[int]] = [[] for _ in view.pools]
    for bit in order:
        pool = bisect_right(view.offsets, bit) - 1
        positions[pool].append(bit - view.offsets[pool])
    pools = [pool.reordered(found) for pool, found in zip(view.pools, positions, strict=True)]
    return NodeView(view.node, pools, view.error)
