"""Which nodes are feasible for a pod, and which allocations binding it to one node needs. All verbs decide with it.

Promises: a decision does no I/O and does not await, so it is made on one state of the cluster. It changes nothing.
Texts are constant per reason and never name a node.

Rules: Kubernetes 1.36, PreFilter and Filter of
pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go. If a node has two reasons, the claim that cannot
be allocated there is reported, not the allocated claim that cannot be used there.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from dra_extender.allocation.budget import Deferred
from dra_extender.allocation.plan import NOT_SYNCED, Failure, NodeAmounts, Plan, Unfit
from dra_extender.api.core import Node, NodeAllocatableResourceClaimStatus, Pod
from dra_extender.api.resource import AllocationResult, ResourceClaim
from dra_extender.devices.ledger import identity
from dra_extender.devices.nodeselection import Matcher, NodeSelectorError, only_node, parse
from dra_extender.scheduling import extended, readiness
from dra_extender.scheduling.claims import PodClaims, Unschedulable, examine, preempted_reason, unreadable_reason
from dra_extender.scheduling.nodeallocatable import ClaimAmounts, Demand, Room, demand_of, demand_on, of_allocated
from dra_extender.scheduling.noderules import parts_of
from dra_extender.scheduling.outcomes import FilterResult
from dra_extender.scheduling.view import View

NOT_AVAILABLE = "resourceclaim not available on the node"

PER_UNIT: Final = 4
"""Requirements of a node selector that are parsed, or compared with a node, per unit of work."""


class UsableOn(NamedTuple):
    """The nodes on which an allocated claim can be used. `only`: the name of the only one, if the selector names it;
    `size`: the requirements of the selector. `skips`: its devices skip operations of the kubelet.
    """

    matches: Matcher
    only: str | None = None
    size: int = 0
    skips: bool = False

    def __call__(self, node: Node) -> bool:
        return self.matches(node.metadata.name, node.metadata.labels) and (not self.skips or node.may_skip_operations)


NOWHERE: Final = UsableOn(lambda name, labels: False, "")
EVERYWHERE: Final = UsableOn(lambda name, labels: True)


class PreFilterState(msgspec.Struct, frozen=True):
    """The part of a decision on a pod that does not depend on the node. `wanted`: the extended resources that devices
    may provide. `existing`: the claim for extended resources that an earlier attempt created.
    """

    pod: Pod
    claims: PodClaims
    wanted: extended.ExtendedResources | None
    existing: ResourceClaim | None
    order: tuple[ResourceClaim, ...]
    """All claims in the order of the pod's spec, then the existing one for extended resources."""
    usable_on: tuple[tuple[ResourceClaim, UsableOn], ...]
    """One entry per allocated claim."""
    amounts: ClaimAmounts = ()
    made: dict[str, extended.Requests] = msgspec.field(default_factory=dict)
    """The requests for each extended resource that devices of a node provide."""
    through_devices: dict[frozenset[str], PendingClaims] = msgspec.field(default_factory=dict)
    """See `pending_claims`, by the extended resources that devices provide. Decisions know the claims by identity."""


PreFilterResult = PreFilterState | Unschedulable | Failure


class NodeStatuses(msgspec.Struct, frozen=True):
    """Unless there is an `error`, every node is in `fits`, in the caller's order, or in `refused` with the reason."""

    fits: list[str]
    refused: dict[str, str]
    error: str = ""
    blocking: tuple[ResourceClaim, ...] = ()
    """Allocated claims that are the only obstacle on some node, and claims that are being deleted."""
    awaiting: str = ""
    """What the refused pod waits for: the UID of a claim in flight, the key of a gang, or `WORKERS`."""
    waiting: bool = False
    """Some nodes are refused only because work was deferred, or the call has reached `call_work`."""

    @property
    def result(self) -> FilterResult:
        """What metrics count."""
        return "error" if self.error else "fits" if self.fits else "refused"


class PendingClaims(msgspec.Struct, frozen=True):
    """The claims to allocate for a pod on one node. `requests`: the extended resources that devices provide on this
    node. If the claim for them does not exist yet, it is the last of `claims`.
    """

    claims: tuple[ResourceClaim, ...]
    requests: extended.Requests | None = None


class NodeAllocation(msgspec.Struct, frozen=True):
    """What has to be written to bind the pod to one node. `allocations[i]` is for `pending[i]`."""

    prefiltered: PreFilterState
    pending: tuple[ResourceClaim, ...]
    allocations: tuple[AllocationResult, ...]
    requests: extended.Requests | None
    """The pod's extended resources on this node; their claim is the last of `claims`."""
    choice: str = ""
    """What the placement policy says about the devices, for people; empty when the first that fit were taken."""
    statuses: tuple[NodeAllocatableResourceClaimStatus, ...] = ()

    @property
    def claims(self) -> tuple[ResourceClaim, ...]:
        """All claims of the pod: in the order of its spec, then the one for extended resources."""
        of_pod = (*self.prefiltered.claims.allocated, *self.pending)
        order = {claim.metadata.uid: index for index, claim in enumerate(self.prefiltered.order)}
        return tuple(sorted(of_pod, key=lambda claim: order.get(claim.metadata.uid, len(order))))


def pre_filter(
    view: View,
    pod: Pod,
    found: tuple[ResourceClaim, ...] | Unschedulable | None = None,
    usable: dict[Hashable, UsableOn] | None = None,
) -> PreFilterResult:
    """The part of a decision that does not depend on the node. `found`: `view.claims_of(pod)`, if the caller has it.
    `usable`: results that calls for several pods share, so that each claim and selector is examined once.
    """
    found = view.claims_of(pod) if found is None else found
    if isinstance(found, Unschedulable):
        return found
    wanted = view.wanted(pod)
    existing = None
    if wanted is not None:
        existing = extended.existing_claim(pod, view.ledger.owned_by(pod.metadata.namespace, pod.metadata.uid))
        if existing is not None:
            if existing.allocation is None or existing.metadata.deletion_timestamp:
                return Unschedulable(extended.CANNOT_SCHEDULE)
            found = (*found, existing)
    unreadable = next(filter(view.is_unreadable, found), None)
    if unreadable is not None:
        return Unschedulable(unreadable_reason(unreadable))
    preempted = next((claim for claim in found if view.is_preempted(claim, pod)), None)
    if preempted is not None:
        return Unschedulable(preempted_reason(preempted), awaiting=preempted.metadata.uid)
    claims = examine(found, pod, in_flight=view.in_flight, cluster=view.cluster)
    if not isinstance(claims, PodClaims):
        return claims
    known: dict[Hashable, UsableOn] = {} if usable is None else usable
    try:
        usable_on = tuple(
            (claim, known.get(key := identity(claim)) or known.setdefault(key, _usable_on(view, claim, known)))
            for claim in claims.allocated
        )
    except NodeSelectorError as error:
        return Failure(f"node selector of an allocated claim: {error}")
    except Deferred as deferred:
        return Unschedulable(str(deferred))
    amounts = of_allocated(view, pod, claims.allocated) if view.features.DRANodeAllocatableResources else ()
    if not isinstance(amounts, tuple):
        return amounts
    return PreFilterState(pod, claims, wanted, existing, order=found, usable_on=usable_on, amounts=amounts)


def _usable_on(view: View, claim: ResourceClaim, parsed: dict[Hashable, UsableOn]) -> UsableOn:
    """Raises NodeSelectorError and TurnSpent. `parsed`: equal selectors are parsed once."""
    now, limit = view.clock.wall(), view.config.binding_conditions_timeout
    is_unavailable = view.features.binding_conditions and readiness.unavailable(claim, now, limit)
    if is_unavailable or view.may_conflict(claim):
        return NOWHERE
    allocation = claim.allocation or AllocationResult()
    selector = allocation.node_selector
    skips = any(result.skip_node_operations for result in allocation.devices.results)
    if selector is None:
        return EVERYWHERE._replace(skips=skips)
    if selector not in parsed:
        only, size = only_node(selector), selector.size
        if only is None:
            view.decisions.budget.spend(size // PER_UNIT)
        parsed[selector] = UsableOn(parse(selector), only, size)
    return parsed[selector]._replace(skips=skips)


def node_statuses(view: View, prefiltered: PreFilterResult, names: Sequence[str]) -> NodeStatuses:
    """Which of these nodes fit the pod. `names` has no duplicates."""
    if isinstance(prefiltered, Unschedulable):
        refused = dict.fromkeys(names, prefiltered.reason)
        return NodeStatuses(fits=[], refused=refused, blocking=prefiltered.terminating, awaiting=prefiltered.awaiting)
    if isinstance(prefiltered, Failure):
        return NodeStatuses(fits=[], refused={}, error=prefiltered.error)
    refused = {}
    allocatable: list[str] = []
    taking: dict[str, tuple[Sequence[ResourceClaim], NodeAmounts]] = {}
    waiting = False
    for claims, group in groups(view, prefiltered, names, refused):
        if not claims:
            allocatable.extend(group)
            continue
        results = view.decisions.node_results(claims, group)
        if results.error:
            return NodeStatuses(fits=[], refused={}, error=results.error)
        waiting = waiting or results.waiting
        refused = refused | results.refused if refused else results.refused
        allocatable = allocatable + results.fits if allocatable else results.fits
        taking.update((name, (claims, amounts)) for name, amounts in results.amounts.items())
    try:
        fits, blocking = _where_usable(view, prefiltered, allocatable, refused)
        if taking or prefiltered.amounts:
            fits = _with_room(view, prefiltered, fits, taking, refused)
    except Deferred as deferred:
        return NodeStatuses(fits=[], refused=dict.fromkeys(names, str(deferred)), waiting=True)
    if prefiltered.wanted is not None:
        fitting = set(fits)
        fits = [name for name in names if name in fitting]
    return NodeStatuses(fits=fits, refused=refused, blocking=blocking, waiting=waiting)


def groups(
    view: View, prefiltered: PreFilterState, names: Sequence[str], refused: dict[str, str]
) -> Iterable[tuple[Sequence[ResourceClaim], Sequence[str]]]:
    """Group the nodes by the claims to allocate there. The claims differ only in the extended resources that devices
    provide. A node that cannot take the pod is added to `refused`, with the reason. If all nodes have the same claims
    to allocate, unknown nodes stay in the group, because the allocation refuses them.
    """
    nodes, wanted = view.cluster.nodes, prefiltered.wanted
    if wanted is None and prefiltered.claims.pending:
        return [(prefiltered.claims.pending, names)]  # node_results refuses unknown nodes
    knows = view.cluster.knows
    known = list(filter(knows, names))
    if len(known) < len(names):
        refused.update((name, NOT_SYNCED) for name in names if not knows(name))
    if wanted is None:
        return [((), known)]
    by_resources: dict[frozenset[str] | None, list[str]] = {}
    for name in known:
        by_resources.setdefault(extended.through_devices(wanted, nodes[name]), []).append(name)
    found: list[tuple[Sequence[ResourceClaim], Sequence[str]]] = []
    for resources, group in by_resources.items():
        pending = _with_extended(prefiltered, wanted, resources)
        if isinstance(pending, Unfit):
            refused.update(dict.fromkeys(group, pending.reason))
        else:
            found.append((pending.claims, group))
    return found


def typical(
    view: View, prefiltered: PreFilterState, names: Sequence[str]
) -> tuple[Sequence[ResourceClaim], Sequence[str]]:
    """The claims to allocate on most of these nodes, and the nodes with these claims. For a pod without extended
    resources these are all nodes.
    """
    if prefiltered.wanted is None:
        return prefiltered.claims.pending, names
    return max(groups(view, prefiltered, names, {}), key=lambda group: len(group[1]), default=((), ()))


def pending_claims(prefiltered: PreFilterState, node: Node) -> PendingClaims | Unfit:
    """The claims to allocate for the pod on the node."""
    if prefiltered.wanted is None:
        return PendingClaims(prefiltered.claims.pending)
    return _with_extended(prefiltered, prefiltered.wanted, extended.through_devices(prefiltered.wanted, node))


def _with_extended(
    prefiltered: PreFilterState, wanted: extended.ExtendedResources, resources: frozenset[str] | None
) -> PendingClaims | Unfit:
    """The claims to allocate on a node whose devices provide these resources. `resources` None: the pod cannot fit."""
    if resources is None:
        return Unfit(extended.CANNOT_FIT, 0)
    if extended.is_oversized(prefiltered.pod):
        return Unfit(extended.TOO_MANY, 0)
    if resources in prefiltered.through_devices:
        return prefiltered.through_devices[resources]
    requests = extended.requests_of(prefiltered.pod, wanted, resources, prefiltered.made)
    pending = prefiltered.claims.pending
    if prefiltered.existing is not None:
        if prefiltered.existing.spec.devices.requests != requests.requests:
            return Unfit(extended.CANNOT_SCHEDULE, 0)
    elif requests.requests:
        pending = (*pending, extended.synthetic_claim(prefiltered.pod, requests))
    return prefiltered.through_devices.setdefault(
        resources, PendingClaims(pending, requests if requests.requests else None)
    )


def _where_usable(
    view: View, prefiltered: PreFilterState, names: list[str], refused: dict[str, str]
) -> tuple[list[str], tuple[ResourceClaim, ...]]:
    """(the nodes on which all allocated claims can be used, the claims that cannot be used on some node). Charges the
    comparisons of nodes with selectors; is otherwise linear in the nodes and in the claims.
    """
    if not prefiltered.usable_on:
        return names, ()
    asked = frozenset(names)
    found: dict[UsableOn, frozenset[str]] = {EVERYWHERE: asked}
    blocking: list[ResourceClaim] = []
    for claim, usable in prefiltered.usable_on:
        if usable not in found and usable.only is not None and not usable.skips:
            found[usable] = asked & {usable.only}
        elif usable not in found:
            view.decisions.budget.spend(len(asked) * (1 + usable.size) // PER_UNIT)
            found[usable] = frozenset(name for name in asked if usable(view.cluster.nodes[name]))
        if len(found[usable]) < len(asked):
            blocking.append(claim)
    fit = asked.intersection(*found.values())
    refused.update((name, NOT_AVAILABLE) for name in names if name not in fit)
    return [name for name in names if name in fit], tuple(blocking)


def _with_room(
    view: View,
    prefiltered: PreFilterState,
    names: list[str],
    taking: dict[str, tuple[Sequence[ResourceClaim], NodeAmounts]],
    refused: dict[str, str],
) -> list[str]:
    """The nodes that have room for what the devices take: `taking` has the pending claims. Linear in the nodes."""
    budget, pod, demands = view.decisions.budget, prefiltered.pod, dict[tuple[int, int], Demand]()
    budget.spend(len(names) // PER_UNIT)
    found, parts = budget.found, 1 + parts_of(pod) // PER_UNIT
    known = demand_of, pod.metadata.uid, *((identity(claim), each) for claim, each in prefiltered.amounts)
    room = Room(view, pod)
    nothing: tuple[Sequence[ResourceClaim], NodeAmounts] = (), ()
    for name in names:
        claims, amounts = taking.get(name, nothing)
        key = id(claims), id(amounts)  # nodes of an equivalence class share them
        if key not in demands:
            content = *known, tuple(map(identity, claims)), amounts
            if content not in found:
                budget.spend(parts)
                found[content] = demand_of(pod, claims, amounts, prefiltered.amounts)
            demands[key] = found[content]
        if reason := room.refusal(demands[key], view.cluster.nodes[name]):
            refused[name] = reason
    return [name for name in names if name not in refused]


def allocate_pod(view: View, pod: Pod, name: str) -> NodeAllocation | Unfit | Unschedulable | Failure:
    """`pre_filter`, then `allocate`."""
    return allocate(view, pre_filter(view, pod), name)


def allocate(view: View, prefiltered: PreFilterResult, name: str) -> NodeAllocation | Unfit | Unschedulable | Failure:
    """What has to be written to bind the pod to this node. The caller holds the allocations before its next await."""
    try:
        return try_allocate(view, prefiltered, name)
    except Deferred as waiting:
        return Unfit(str(waiting), 0)


def try_allocate(
    view: View, prefiltered: PreFilterResult, name: str
) -> NodeAllocation | Unfit | Unschedulable | Failure:
    """As `allocate`. Raises Deferred when a worker has to answer first."""
    if not isinstance(prefiltered, PreFilterState):
        return prefiltered
    node = view.cluster.nodes.get(name)
    if node is None:
        return Unfit(NOT_SYNCED, 0)
    pending = pending_claims(prefiltered, node)
    if isinstance(pending, Unfit):
        return pending
    allocations: tuple[AllocationResult, ...] = ()
    amounts: NodeAmounts = ()
    choice = ""
    if pending.claims:
        pod, placement, allocated = prefiltered.pod, view.placement, prefiltered.claims.allocated
        chooser = placement.chooser(pod, pending.claims, name, allocated) if placement is not None else None
        plan = view.decisions.plan(pending.claims, name, chooser)
        if not isinstance(plan, Plan):
            return plan
        allocations, amounts = plan.allocations, plan.amounts
        choice = chooser.summary(plan) if chooser is not None else ""
    if not all(usable(node) for _, usable in prefiltered.usable_on):
        return Unfit(NOT_AVAILABLE, 0)
    demand = demand_on(view, prefiltered.pod, node, pending.claims, amounts, prefiltered.amounts)
    if isinstance(demand, Unfit):
        return demand
    return NodeAllocation(
        prefiltered=prefiltered,
        pending=pending.claims,
        allocations=allocations,
        requests=pending.requests,
        choice=choice,
        statuses=demand.statuses,
    )
