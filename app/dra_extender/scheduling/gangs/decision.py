"""The decision about one member of a gang: the node that the gang's plan has for it, or why the gang has to wait.

Promises: pure; the filter verb keeps the plan of a decision. A member gets a node only if at least as many members as
the gang needs get one. Members that are bound, and members that filter has offered a node, keep their places if the
others fit as well.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from dra_extender.allocation.constraints import Values
from dra_extender.allocation.plan import NO_SOLUTION, Failure
from dra_extender.api.core import Pod
from dra_extender.api.resource import DeviceID, ResourceClaim
from dra_extender.devices.ledger import identity
from dra_extender.limits import REQUESTS_OF_GANG
from dra_extender.scheduling.claims import (
    Unschedulable,
    claim_names,
    full_claim,
    full_reason,
    known_claims,
    requests_in,
)
from dra_extender.scheduling.feasibility import NodeAllocation, PreFilterState, UsableOn, allocate, pre_filter
from dra_extender.scheduling.gangs.attributes import values_of
from dra_extender.scheduling.gangs.gang import Gang
from dra_extender.scheduling.gangs.joint import NODES_PER_UNIT, CannotPlace, HasRoom, Place, capacities, place
from dra_extender.scheduling.gangs.kinds import Member
from dra_extender.scheduling.gangs.topology import MOST_DOMAINS, Level, domains
from dra_extender.scheduling.noderules import Used, Wants, obstacles_together, parts_of
from dra_extender.scheduling.view import View


class GangDecision(msgspec.Struct, frozen=True, kw_only=True):
    """`node`: where the member goes; empty if the gang has to wait, for the `reason`."""

    node: str = ""
    anywhere: bool = False
    """The member uses no devices and may go to any node of the call, because the others have theirs."""
    reason: str = ""
    error: str = ""
    """Why the attempt has to be aborted."""
    places: Mapping[str, Place] | None = None
    """The new plan; None: the plan stays as it is."""
    values: Values = ()
    """The attribute values that all devices of the new plan have."""
    complete: bool = False
    """The new plan places all members that `pre_filter` lets pass."""
    lost: bool = False
    """The previous plan is no longer feasible."""
    unfit: bool = False
    """Too few members fit on nodes: the gang waits for devices, not for members."""
    sampled: bool = False
    """kube-scheduler asks about a part of the nodes: members are nominated for their nodes."""
    waiting: bool = False
    missing: Sequence[str] = ()
    """Unknown claims (namespace/name) that members name."""

    @property
    def rank(self) -> int:
        """How many members the new plan places; 0 without one."""
        return len(self.places or ())


T = TypeVar("T")

_Examined = tuple[Pod, Any, int, PreFilterState | Unschedulable | Failure, Hashable]
"""A member, its claims, the number of their requests and alternatives, its `pre_filter`, and its `Wants.rules`."""

PART: Final = 4
"""Units of work to examine a part of a member, such as the name of a claim."""

UsedOn = Callable[[str, frozenset[str]], Used]
"""What the pods on the node of this name use, without the pods of these UIDs."""


class GangState(msgspec.Struct, frozen=True):
    """What is known of the gang. `free`: the state without the devices that the gang itself holds. `offered`: the
    members that filter has offered a node. `avoided`: by UID, nodes that kube-scheduler refused for the member lately.
    """

    free: View
    used: UsedOn
    places: Mapping[str, Place] = {}
    offered: Collection[str] = ()
    avoided: Mapping[str, Collection[str]] = {}
    unfiltered: Collection[str] = ()
    """Nodes of the call on which the pod has not passed kube-scheduler's own filters."""
    hypothesis: Hashable = ()
    """Identifies the state if it is hypothetical: a call may decide on several such states."""


def decide(view: View, gang: Gang, prefiltered: PreFilterState, names: Sequence[str], state: GangState) -> GangDecision:
    """The decision for a filter call about the nodes `names`, on the state that the member sees. Raises TurnSpent."""
    uid = prefiltered.pod.metadata.uid
    if gang.problem:
        return GangDecision(reason=gang.problem, lost=True)
    places = _still_valid(state.free, state.places)
    is_enough = sum(each.metadata.uid in places for each in gang.waiting) >= gang.needed
    known = places.get(uid) if is_enough and len(places) == len(state.places) else None
    uses_none = not prefiltered.order and prefiltered.wanted is None
    if known is not None and uses_none:
        return GangDecision(node=known.node, anywhere=True)
    node = known.node if known is not None and known.node in names else ""
    if node and isinstance(allocate(view, prefiltered, node), NodeAllocation):
        return GangDecision(node=node)
    decision = _JointDecision(gang, prefiltered, names, replace(state, places=places))
    refused = decision.refusal()
    for labels in gang.levels if refused is None else ():
        found = decision.at_level(labels)
        state.free.decisions.budget.spend(sum(PART * len(each.planned) for each in (found.places or {}).values()))
        if found.rank and (decision.is_outdated() or len(_still_valid(state.free, found.places or {})) < found.rank):
            decision.found.clear()  # claims changed after an earlier turn
            decision = _JointDecision(gang, prefiltered, names, replace(state, places=places))
            found = decision.refusal() or decision.at_level(labels)
        if found.error or found.rank:
            return found
        refused = found if refused is None or found.waiting > refused.waiting else refused
    return refused or GangDecision(reason=f"{gang.key}: {NO_SOLUTION}")


def _still_valid(free: View, places: Mapping[str, Place]) -> Mapping[str, Place]:
    """The places whose node exists and whose devices no other claim has taken. Linear in the devices of the gang."""
    state = free.overlay().with_plans(each for place in places.values() for each in place.planned)
    return {
        uid: place
        for uid, place in places.items()
        if place.node in free.cluster.nodes
        and all(state.has(claim) or state.is_decided(claim) for claim, _ in place.planned)
    }


class _JointDecision:
    """One decision, for a call about the nodes `names`. `_fixed`: by UID, the members that keep their places."""

    def __init__(self, gang: Gang, asked: PreFilterState, names: Sequence[str], state: GangState) -> None:
        self._gang = gang
        self._asked = asked
        self._uid = asked.pod.metadata.uid
        self._state = state
        self._names = names
        waiting, offered = {pod.metadata.uid for pod in gang.waiting}, state.offered
        others = {uid: each for uid, each in state.places.items() if uid != self._uid}
        self._fixed = {uid: each for uid, each in others.items() if uid in offered or uid not in waiting}
        self._plans = {identity(each[0]): each for other in self._fixed.values() for each in other.planned}
        """By identity of the claim: the plans of fixed members, also for others that share the claim."""
        self._placed_before = sum(uid in self._fixed for uid in waiting)
        self._needed = gang.needed - self._placed_before
        fixed = frozenset((uid, each.node) for uid, each in self._fixed.items())
        parts = GangState, state.hypothesis, frozenset(waiting), fixed
        self.found: dict[Hashable, Any] = state.free.decisions.budget.found.setdefault(parts, {})
        """The results of all turns of the call. A plan is valid while its devices are free and no claim changes."""
        self._wanted: dict[str, Wants] = self._cached("wants", dict)
        self._rules = self._wants(asked.pod).rules
        self._candidates: list[tuple[PreFilterState, Hashable]] = []
        """The members to place, the asked one first, and `Wants.rules` of each."""
        self._refused: list[tuple[Pod, Unschedulable | Failure]] = []
        self._requests = 0
        """Requests and alternatives of the claims of the members, counted for each member."""
        self._examined: dict[str, _Examined] = self._cached("examined", dict)
        self._usable: dict[Hashable, UsableOn] = {}
        for pod in sorted(gang.waiting, key=lambda each: each.metadata.uid != self._uid):
            if (uid := pod.metadata.uid) in self._fixed:
                continue
            if uid not in self._examined:
                self._examined[uid] = self._examine(pod)
            _, _, requests, prefiltered, rules = self._examined[uid]
            self._requests += requests
            if self._requests > REQUESTS_OF_GANG:
                break
            if isinstance(prefiltered, PreFilterState):
                self._candidates.append((prefiltered, rules))
            else:
                self._refused.append((pod, prefiltered))

    def is_outdated(self) -> bool:
        """True when claims of members are no longer what they were when a turn of the call examined the members."""
        return any(self._state.free.claims_of(pod) != claims for pod, claims, *_ in self._examined.values())

    def _examine(self, pod: Pod) -> _Examined:
        """Charges what it reads."""
        free = self._state.free
        found = free.claims_of(pod)
        claims = () if isinstance(found, Unschedulable) else found
        requests = sum(map(requests_in, claims))
        results = sum(len(each.allocation.devices.results) for each in claims if each.allocation is not None)
        free.decisions.budget.spend(PART * parts_of(pod) + requests + results)
        known = tuple(map(self._as_planned, claims)) or found
        is_known = known == found and pod.metadata.uid == self._uid
        prefiltered = self._asked if is_known else pre_filter(free, pod, known, self._usable)
        return pod, found, requests, prefiltered, self._wants(pod).rules

    def _wants(self, pod: Pod) -> Wants:
        """What the pod needs of a node. Read once in a call, and again if `reporting` has changed the pod."""
        known = self._wanted.get(pod.metadata.uid)
        if known is None or known.pod is not pod:
            known = self._wanted[pod.metadata.uid] = self._state.free.wants(pod)
        return known

    def _as_planned(self, claim: ResourceClaim) -> ResourceClaim:
        """The claim, allocated as the plan of a fixed member has it."""
        if identity(claim) not in self._plans or claim.allocation is not None or self._state.free.in_flight(claim):
            return claim
        return replace(claim, status=replace(claim.status, allocation=self._plans[identity(claim)][1]))

    def refusal(self) -> GangDecision | None:
        """The refusal if too few members pass `pre_filter`, or their claims are too large; None if they may fit."""
        if self._requests > REQUESTS_OF_GANG:
            text = f"the claims of its pods have more than {REQUESTS_OF_GANG:,} requests and alternatives"
            return GangDecision(reason=f"{self._gang.key}: {text}, counted for each pod")
        known = [each.pod.metadata.uid for each, _ in self._candidates]
        if len(known) < self._needed or self._uid not in known:
            return _too_few(self._gang, len(known) + self._placed_before, self._refused)
        pods, spared = [(each.pod, each.order) for each, _ in self._candidates], len(known) - self._needed
        full = self._cached(full_claim, lambda: full_claim(pods, spared, self._state.free.cluster))
        return GangDecision(reason=f"{self._gang.key}: {full_reason(full)}") if full is not None else None

    def at_level(self, labels: Level) -> GangDecision:
        """The decision with all members on nodes with one value of each of these labels, and with devices that have one
        value of each attribute. It takes the first domain with room for all members, else the one with room for most.
        """
        gang = self._gang
        choices, why = self._attribute_values()
        tries = (self._cached((labels, values), partial(self._with_values, labels, values)) for values in choices)
        best = self._best(tries)
        if best.places:
            places = {uid: self._with_shared_plans(each) for uid, each in best.places.items()}
            best = replace(best, places={**self._fixed, **places})
        if best.error or best.rank or best.waiting or not (labels or gang.attributes):
            return best
        if labels and choices:
            which = self.found.get(("which", labels), "no value")
            why = f"{why}{', or ' if why else ''}{which} of node label {' and '.join(labels)} has room for all pods"
        return replace(best, reason=f"{gang.key}: {why}")

    def _with_shared_plans(self, place: Place) -> Place:
        """The place, with the plans of claims that the member shares with fixed members."""
        claims = map(identity, self._examined[place.pod.metadata.uid][1])
        return replace(place, planned=(*place.planned, *(self._plans[each] for each in claims if each in self._plans)))

    def _best(self, tries: Iterable[GangDecision]) -> GangDecision:
        best: GangDecision | None = None
        for found in tries:
            if found.error or found.complete:
                return found
            if best is None or (found.rank, found.waiting) > (best.rank, best.waiting):
                best = found
        return best or GangDecision(lost=self._needed > 0, unfit=True)

    def _attribute_values(self) -> tuple[Mapping[Values, Collection[str]], str]:
        """See `values_of`."""
        attributes = self._gang.attributes
        find = partial(values_of, self._state.free, attributes, self._fixed_devices())
        return self._cached((values_of, attributes), find) if attributes else ({(): ("",)}, "")

    def _with_values(self, labels: Level, values: Values) -> GangDecision:
        among = self._domains(labels, values)
        if len(among) >= MOST_DOMAINS:
            self.found["which", labels] = f"none of the {MOST_DOMAINS} values that were tried"
        return self._best(self._on_nodes(domain, values) for domain in among)

    def _domains(self, labels: Level, values: Values) -> Sequence[Sequence[str]]:
        nodes, free = self._state.free.cluster.nodes, self._state.free.with_values(values)
        having = self._cached(("having", values), lambda: self._nodes_with(values))
        names = list(nodes) if having is nodes else [name for name in having if name in nodes]
        if not labels:
            return (names,)
        room = self._cached(values, lambda: capacities(free, self._members(*[names] * 3)))
        if room is not None and sum(room.values()) < self._needed:
            return ()
        bound = (*(pod.spec.node_name for pod in self._gang.placed), *(each.node for each in self._fixed.values()))
        free.decisions.budget.spend(len(nodes) // NODES_PER_UNIT)
        found = domains(labels, nodes, room, self._needed, bound)
        return [[name for name in domain if name in having] for domain in found]

    def _nodes_with(self, values: Values) -> Collection[str]:
        """The nodes that may have devices with these values; all nodes if a member needs no device of its own."""
        where, nodes = self._attribute_values()[0][values], self._state.free.cluster.nodes
        added = self._state.free.overlay().hypothetical
        need = (any(claim.spec.devices.requests for claim in each.claims.pending) for each, _ in self._candidates)
        if "" in where or not all(need):
            return nodes
        self._state.free.decisions.budget.spend(len(nodes) // NODES_PER_UNIT)
        return dict.fromkeys(name for name in nodes if name in where or added(name))

    def _cached(self, what: Hashable, find: Callable[[], T]) -> T:
        """The result of `find`, which the turns of a call need only once."""
        if what not in self.found:
            self.found[what] = find()
        result: T = self.found[what]
        return result

    def _fixed_devices(self) -> Iterator[DeviceID]:
        """The devices that members have, or keep."""
        ledger, pods = self._state.free.ledger, (*self._gang.placed, *self._gang.waiting)
        claims = chain.from_iterable(known_claims(pod, ledger) for pod in pods)
        stored = {claim.metadata.uid: claim.allocation for claim in claims if claim.allocation is not None}
        for allocation in (*stored.values(), *(planned for _, planned in self._plans.values())):
            yield from (result.id for result in allocation.devices.results)

    def _on_nodes(self, nodes: Sequence[str], values: Values) -> GangDecision:
        """The decision if all members are on these nodes. Members like the asked one use the nodes of the call first:
        it has passed kube-scheduler's own filters there.
        """
        inside = frozenset(nodes)
        names = [name for name in self._names if name in inside]
        found = self._place(names, names, nodes, values)
        if found.error or found.complete or len(nodes) <= len(names):
            return found
        return self._best((found, self._place(names, nodes, nodes, values)))

    def _place(self, names: Sequence[str], alike: Sequence[str], nodes: Sequence[str], values: Values) -> GangDecision:
        """The decision if the asked member uses `names`, members with equal rules `alike`, and the others `nodes`."""
        gang, asked, free = self._gang, self._asked, self._state.free.with_values(values)
        free.decisions.budget.spend(len(self._candidates) // NODES_PER_UNIT)
        members, needed = self._members(names, alike, nodes), self._needed
        state = free.with_state(free.overlay().holding(self._plans.values()))
        where = values, tuple(nodes), alike is names
        found = self._cached(where, lambda: place(state, members, max(1, needed), self._has_room(names)))
        if isinstance(found, Failure):
            return GangDecision(error=found.error)
        if isinstance(found, CannotPlace):
            who = f"pod {found.pod.metadata.name} fits on no node: " if found.pod is not None else ""
            if not (who or found.waiting):
                who = f"{found.most + self._placed_before} of {max(1, gang.needed)} pods fit together: "
            reason, waits = f"{gang.key}: {who}{found.reason}", found.waiting
            return GangDecision(reason=reason, lost=needed > 0, unfit=not waits, waiting=waits)
        node = found[self._uid].node if self._uid in found else ""
        return GangDecision(
            node=node,
            anywhere=bool(node) and not asked.order and asked.wanted is None,
            reason="" if node else f"{gang.key}: {len(found)} other pods fit",
            places=found,
            values=values,
            complete=len(found) == len(members),
        )

    def _members(self, names: Sequence[str], alike: Sequence[str], nodes: Sequence[str]) -> list[Member]:
        """The members to place, with the nodes they may use."""
        members: list[Member] = []
        for prefiltered, rules in self._candidates:
            uid = prefiltered.pod.metadata.uid
            usable = names if uid == self._uid else alike if rules == self._rules else nodes
            if uid != self._uid and (avoided := self._state.avoided.get(uid)):
                usable = [name for name in usable if name not in avoided]
            members.append(Member(prefiltered, usable, rules))
        return members

    def _has_room(self, names: Collection[str]) -> HasRoom:
        """Whether pods fit on a node together, apart from devices. On the nodes of the call, kube-scheduler's own
        filters have decided for one pod.
        """
        state = self._state
        own = frozenset(pod.metadata.uid for pod in self._gang.waiting)
        nodes = state.free.cluster.nodes
        filtered = frozenset(names).difference(state.unfiltered)
        there: dict[str, list[Pod]] = {}
        for each in self._fixed.values():
            there.setdefault(each.node, []).append(each.pod)

        def has_room(node: str, pods: Sequence[Pod]) -> bool:
            if len(pods) == 1 and node in filtered and not pods[0].status.node_allocatable_resource_claim_statuses:
                return True
            fixed = (self._wants(pod).counted for pod in there.get(node, ()))
            wanted = map(self._wants, pods)
            return not any(True for _ in obstacles_together(wanted, nodes[node], state.used(node, own), fixed))

        return has_room


def _too_few(gang: Gang, known: int, refused: Sequence[tuple[Pod, Unschedulable | Failure]]) -> GangDecision:
    """Too few members can get a node at all."""
    reason = f"{gang.key}: {known} of {gang.needed} pods can be placed"
    missing = [f"{pod.metadata.namespace}/{name}" for pod, _ in refused for name in claim_names(pod)]
    for pod, why in refused[:1]:
        reason += f"; pod {pod.metadata.name}: {why.reason if isinstance(why, Unschedulable) else why.error}"
    return GangDecision(reason=reason, missing=missing)
