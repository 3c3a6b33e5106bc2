"""The joint decision: a node for each member of a gang, and devices for all claims of the members at once.

Promises
- Pure: a decision on the state of the view, which it does not change.
- Complete: if `needed` members fit on the nodes they may use, the search finds a placement, or ends undecided at its
  limit of work. It places all members if they fit together, else as many as possible.
- The claims of a plan fit together, also where nodes see the same devices or members on several nodes share a claim.
- Members with equal claims and equal nodes are interchangeable, so a gang of equal members needs one search per kind of
  node and number of members, not one per member.
- Nodes on which most members fit come first, so the gang uses few nodes. The last members go where least is left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Final

import msgspec

from dra_extender.allocation.budget import Deferred
from dra_extender.allocation.cache.results import NodeResults
from dra_extender.allocation.plan import NO_SOLUTION, Failure, Unfit
from dra_extender.api.core import NodeAllocatableResourceClaimStatus, Pod
from dra_extender.api.resource import ResourceClaim
from dra_extender.cel import Work, WorkExceeded
from dra_extender.devices.ledger import identity
from dra_extender.devices.nodeselection import parse
from dra_extender.devices.overlay import Planned
from dra_extender.scheduling.feasibility import NodeStatuses, PendingClaims, groups, node_statuses, pending_claims
from dra_extender.scheduling.gangs.kinds import Kind, Member, counts, grouped
from dra_extender.scheduling.nodeallocatable import Taken, reporting
from dra_extender.scheduling.view import View

UNDECIDED: Final = "placing the pods together takes too long"

STEP: Final = 5
"""Units of work for a step of the search, without its decisions on devices."""
NODES_SORTED_PER_UNIT: Final = 4
NODES_PER_UNIT: Final = 8
"""Nodes that are looked up per unit of work."""
CLAIMS_PER_UNIT: Final = 4
PLANS_PER_UNIT: Final = 32
"""Plans in pools that several nodes see are copied, so that the next node sees them: so many per unit."""

HasRoom = Callable[[str, Sequence[Pod]], bool]
"""Whether these pods fit on the node of this name together, apart from devices."""


class Place(msgspec.Struct, frozen=True):
    """The node of a member, and the plans of its pending claims there, shared claims included. The status of the `pod`
    reports what its devices take of the node.
    """

    pod: Pod
    node: str
    planned: tuple[Planned, ...]


class CannotPlace(msgspec.Struct, frozen=True):
    """Fewer members fit together than needed: at most `most`. `reason`: why, for the `pod` if one fits on no node, else
    for the gang. `waiting`: a later decision may place more.
    """

    most: int
    reason: str
    pod: Pod | None = None
    waiting: bool = False


class _Aborted(Exception):
    """The attempt to schedule a member has to be aborted; the text says why."""


def place(
    view: View, members: Sequence[Member], needed: int, has_room: HasRoom
) -> Mapping[str, Place] | CannotPlace | Failure:
    """By UID: a place for at least `needed` of the members. Raises TurnSpent."""
    search = _JointSearch(view, has_room)
    try:
        return view.decisions.budget.attempt(lambda work: search.find(members, needed, work))
    except WorkExceeded:
        return CannotPlace(search.most, UNDECIDED, waiting=True)
    except Deferred as waiting:
        return CannotPlace(search.most, str(waiting), waiting=True)
    except _Aborted as problem:
        return Failure(str(problem))


def capacities(view: View, members: Sequence[Member]) -> Mapping[str, int] | None:
    """By node, if any member fits there by its devices: how many do at most, each kind counted alone. None when this is
    unknown. Raises TurnSpent.
    """
    search = _JointSearch(view, lambda node, pods: True)
    try:
        view.decisions.budget.attempt(lambda work: search.begin(members, work))
    except (_Aborted, Deferred, WorkExceeded):
        return None
    return None if search._waiting else sum((Counter(kind.capacity) for kind in search.kinds), Counter())


class _JointSearch:
    def __init__(self, view: View, has_room: HasRoom) -> None:
        self.most = 0
        self._view = view
        self._has_room = has_room
        self.kinds: Sequence[Kind] = ()
        self._on: dict[str, Counter[int]] = {}
        """By node: how many members of each kind are there."""
        self._fits: dict[tuple[str, tuple[tuple[int, int], ...]], bool] = {}
        self._taken: dict[str, NodeAllocatableResourceClaimStatus | None] = {}
        """What the devices of the plan take of their nodes."""
        self._waiting = ""
        self._work: Work | None = None

    def begin(self, members: Sequence[Member], work: Work | None) -> None:
        """Find the kinds of these members, and how many of each fit on a node."""
        self._work = work
        self._charge(len(members))
        self.kinds = [Kind(group) for group in grouped(self._view, members)]
        self._charge(sum(kind.cost * len(kind.members) for kind in self.kinds))
        for kind in self.kinds:
            kind.capacity = self._capacities(kind)

    def find(self, members: Sequence[Member], needed: int, work: Work | None) -> Mapping[str, Place] | CannotPlace:
        """Raises WorkExceeded, TurnSpent, Deferred and _Aborted."""
        self.begin(members, work)
        infeasible = next((kind for kind in self.kinds if not kind.capacity), None)
        bounds = [min(len(kind.members), sum(kind.capacity.values())) for kind in self.kinds]
        self.most = sum(bounds)
        if self.most >= needed:
            for wanted in counts(bounds, needed):
                self._charge(STEP + len(wanted) ** 2 // 50)
                found = self._place(wanted)
                if found is not None:
                    return found
            self.most = needed - 1
        if self._waiting:
            raise Deferred(self._waiting)
        if infeasible is not None:
            pod, nodes = infeasible.members[0].prefiltered.pod, infeasible.members[0].nodes
            refused = node_statuses(self._view, infeasible.members[0].prefiltered, nodes).refused
            commonest = Counter(refused.values()).most_common(1)
            return CannotPlace(self.most, commonest[0][0] if commonest else NO_SOLUTION, pod)
        return CannotPlace(self.most, NO_SOLUTION)

    def _charge(self, units: int) -> None:
        if self._work is not None:
            self._work.charge(units)

    def _capacities(self, kind: Kind) -> dict[str, int]:
        """By node, the number of members of the kind that fit there by their devices. Equal nodes are searched once."""
        first, most = kind.members[0], len(kind.members)
        self._charge(len(first.nodes) // NODES_PER_UNIT)
        fits = self._fitting(node_statuses(self._view, first.prefiltered, first.nodes))
        found: dict[str, int] = {}
        for claims, group in groups(self._view, first.prefiltered, fits, {}):
            for names in filter(None, self._view.decisions.classes(claims, group)):
                found.update(dict.fromkeys(names, self._count(kind, names[0], most, len(claims))))
        return {name: found[name] for name in fits}

    def _count(self, kind: Kind, name: str, most: int, claims: int) -> int:
        """How many members of the kind fit on the node, where one does. `claims`: to allocate for each of them."""
        low, high, growing = 1, most, True
        while low < high:
            count = min(high, 2 * low) if growing else (low + high + 1) // 2
            self._charge(STEP + count * (1 + claims // CLAIMS_PER_UNIT))
            if self._fits_by_devices(kind.members[:count], name):
                low = count
            else:
                high, growing = count - 1, False
        return low

    def _fits_by_devices(self, members: Sequence[Member], name: str) -> bool:
        claims = self._claims(members, name)
        return claims is not None and bool(self._fitting(self._view.decisions.node_results(claims, (name,))))

    def _claims(self, members: Sequence[Member], name: str) -> Sequence[ResourceClaim] | None:
        """The claims to allocate for the members on the node, each once; None when a member cannot be there."""
        node = self._view.cluster.nodes[name]
        pending = [pending_claims(member.prefiltered, node) for member in members]
        known = [each.claims for each in pending if isinstance(each, PendingClaims)]
        distinct = {identity(claim): claim for claim in chain.from_iterable(known)}
        return list(distinct.values()) if len(known) == len(pending) else None

    def _fitting(self, found: NodeStatuses | NodeResults) -> Sequence[str]:
        if found.error:
            raise _Aborted(found.error)
        if found.waiting:
            self._waiting = next(iter(found.refused.values()))
        return found.fits

    def _is_feasible(self, node: str, counts: Counter[int]) -> bool:
        """Whether this many members of each kind fit on the node together."""
        key = node, tuple(sorted(counts.items()))
        found = self._fits.get(key)
        if found is None:
            members = [each for kind, count in counts.items() for each in self.kinds[kind].members[:count]]
            self._charge(sum(self.kinds[kind].cost * count for kind, count in counts.items()))
            fits = sum(count > 0 for count in counts.values()) < 2 or self._fits_by_devices(members, node)
            pods = self._pods(members, node, self._taken_alone(members, node)) if fits else None
            found = self._fits[key] = pods is not None and self._has_room(node, pods)
        return found

    def _taken_alone(self, members: Sequence[Member], name: str) -> Taken:
        """What the devices of these members take of the node, if no other members are placed."""
        claims = self._claims(members, name) if self._view.features.DRANodeAllocatableResources else None
        amounts = self._view.decisions.node_results(claims, (name,)).amounts.get(name, ()) if claims else ()
        return dict(zip(map(identity, claims or ()), amounts, strict=False))

    def _pods(self, members: Sequence[Member], name: str, taken: Taken) -> Sequence[Pod] | None:
        """The pods of the members. See `reporting`."""
        if not taken and not any(member.prefiltered.amounts for member in members):
            return [member.prefiltered.pod for member in members]
        found = ((each.prefiltered, self._claims((each,), name) or ()) for each in members)
        return reporting(((each.pod, claims, each.amounts) for each, claims in found), taken)

    def _place(
        self, wanted: Sequence[int], number: int = -1, remaining: int = 0, start: int = 0
    ) -> Mapping[str, Place] | None:
        """Place the `wanted` members of each kind, depth first: kind by kind and node by node, as many on a node as
        fit, then fewer. The nodes of kind `number` from index `start` on get its `remaining` members.
        """
        while remaining == 0:
            if number + 1 == len(self.kinds):
                return self._plan()
            number, remaining, start = number + 1, wanted[number + 1], 0
            self._order_nodes(self.kinds[number], remaining)
        kind = self.kinds[number]
        for index in range(start, len(kind.order)):
            self._charge(STEP)
            if kind.left[index] < remaining:
                return None
            name = kind.order[index]
            there = self._on.get(name, Counter())
            if not self._is_feasible(name, there + Counter({number: 1})):
                continue
            for count in range(min(remaining, kind.capacity[name]), 0, -1):
                together = there + Counter({number: count})
                if self._is_feasible(name, together):
                    self._on[name] = together
                    found = self._place(wanted, number, remaining - count, index + 1)
                    if found is not None:
                        return found
                    self._charge(STEP)
            if there:
                self._on[name] = there
            else:
                del self._on[name]
        return None

    def _order_nodes(self, kind: Kind, wanted: int) -> None:
        """Order the nodes of the kind: first nodes that the gang uses, then nodes on which most members fit. The
        last members go where fewest more would fit.
        """
        self._charge(STEP + len(kind.capacity) // NODES_SORTED_PER_UNIT)
        order = [name for name in kind.capacity if name in self._on]
        fresh = [name for name in kind.capacity if name not in self._on]
        fresh.sort(key=kind.capacity.__getitem__, reverse=True)
        left = wanted - sum(kind.capacity[name] for name in order)
        while fresh and left > 0 and kind.capacity[fresh[0]] < left:
            left -= kind.capacity[fresh[0]]
            order.append(fresh.pop(0))
        if fresh and left > 0:
            least = min([kind.capacity[name] for name in fresh if kind.capacity[name] >= left])
            chosen = next(name for name in fresh if kind.capacity[name] == least)
            fresh.remove(chosen)
            order.append(chosen)
        kind.order = [*order, *fresh]
        kind.left = [0]
        for name in reversed(kind.order):
            kind.left.append(kind.left[-1] + kind.capacity[name])
        kind.left.reverse()

    def _plan(self) -> Mapping[str, Place] | None:
        """Plan the devices of all members on their nodes; None when two nodes need the same devices."""
        taken: Counter[int] = Counter()
        members: dict[str, list[Member]] = {name: [] for name in self._on}
        for name, numbers in self._on.items():
            for kind, count in numbers.items():
                members[name] += self.kinds[kind].members[taken[kind] : taken[kind] + count]
                taken[kind] += count
        claims: dict[str, ResourceClaim] = {}
        nodes: dict[str, list[str]] = {}
        for name, there in members.items():
            for claim in chain.from_iterable(self._claims((member,), name) or () for member in there):
                claims[identity(claim)] = claim
                nodes.setdefault(identity(claim), []).append(name)
        planned = self._node_by_node(claims, nodes)
        if planned is None and len(self._on) > 1:
            planned = self._together(claims, nodes)
        if planned is None:
            return None
        found: dict[str, Place] = {}
        for name, there in members.items():
            pods = self._pods(there, name, self._taken)
            if pods is None or (self._taken and not self._has_room(name, pods)):
                return None
            for member, pod in zip(there, pods, strict=True):
                own = self._claims((member,), name) or ()
                found[member.uid] = Place(pod, name, tuple(planned[identity(claim)] for claim in own))
        return found

    def _node_by_node(
        self, claims: Mapping[str, ResourceClaim], nodes: Mapping[str, Sequence[str]]
    ) -> Mapping[str, Planned] | None:
        """Plan node by node. It may fail if nodes see the same devices, or members on two nodes share a claim."""
        planned: dict[str, Planned] = {}
        self._taken = {}
        view, state, held = self._view, self._view.overlay(), 0
        first: dict[str, list[ResourceClaim]] = {}
        for key, names in nodes.items():
            first.setdefault(names[0], []).append(claims[key])
        views = [seen for name in first if (seen := state.view(name)) is not None]
        seeing = Counter(pool.id for each in views for pool in each.pools)
        for name, own in first.items():
            found = view.decisions.with_state(state).plan(own, name, once=True)
            if isinstance(found, Failure):
                raise _Aborted(found.error)
            if isinstance(found, Unfit):
                return None
            self._taken.update(zip(map(identity, own), found.amounts, strict=False))
            plans = list(zip(own, found.allocations, strict=True))
            planned.update(zip(map(identity, own), plans, strict=True))
            shared = [each for each in plans if any(seeing[it.id[:2]] > 1 for it in each[1].devices.results)]
            if shared:
                held += len(shared)
                self._charge(held // PLANS_PER_UNIT)
                state = state.holding(shared)
        return planned if self._are_usable(planned, nodes) else None

    def _together(
        self, claims: Mapping[str, ResourceClaim], nodes: Mapping[str, Sequence[str]]
    ) -> Mapping[str, Planned] | None:
        found = self._view.decisions.plan_together(list(claims.values()), [nodes[key] for key in claims])
        if isinstance(found, Failure):
            raise _Aborted(found.error)
        if isinstance(found, Unfit):
            return None
        self._taken = dict(zip(claims, found.amounts, strict=False))
        planned = dict(zip(claims, zip(claims.values(), found.allocations, strict=True), strict=True))
        return planned if self._are_usable(planned, nodes) else None

    def _are_usable(self, planned: Mapping[str, Planned], nodes: Mapping[str, Sequence[str]]) -> bool:
        """Whether each claim can be used on all of its nodes."""
        known = self._view.cluster.nodes
        selectors = ((planned[key][1].node_selector, names) for key, names in nodes.items() if len(names) > 1)
        return all(
            selector is None or all(parse(selector)(name, known[name].metadata.labels) for name in names)
            for selector, names in selectors
        )
