"""Why a pod is not scheduled, and which changes would let it fit. `why`, pod events and the page show the answer.

Promises: a diagnosis makes the decision that the verbs would make now on the same state. It changes nothing and
remembers nothing. It runs in turns. One decision covers a group of nodes, so the work is bounded for any cluster size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

from msgspec.structs import replace

from dra_extender.allocation.plan import Failure
from dra_extender.api.core import Pod
from dra_extender.api.resource import MAX_CONSUMERS, ResourceClaim
from dra_extender.insight.snapshot import INITIALIZED, NODE_POOL, SimulatedPod, snapshot
from dra_extender.insight.why.candidates import EditableClaim, editable_claims, gates_text, requests_of
from dra_extender.insight.why.gangs import JointTrials, gang_places, placed_beside, trials_of
from dra_extender.insight.why.nodegroups import group_nodes, node_groups
from dra_extender.insight.why.reasons import of_nodes
from dra_extender.insight.why.remedies import remedies
from dra_extender.insight.why.report import ClaimState, Diagnosis, NodeGroup, Preempted, Remedy
from dra_extender.insight.why.statements import GangUnplaced, PodRefused, Statement
from dra_extender.insight.why.wording import text_of
from dra_extender.limits import PARTS_OF_POD
from dra_extender.scheduling.claims import Unschedulable, created_names, full_reason
from dra_extender.scheduling.feasibility import PreFilterState
from dra_extender.scheduling.noderules import ResourcesInUse, has_large_affinity, is_large
from dra_extender.scheduling.preemption.evaluator import PreemptionEvaluator
from dra_extender.scheduling.preemption.terms import NoPreemption, PreemptionTerms
from dra_extender.scheduling.reader import listed
from dra_extender.scheduling.readiness import unavailable
from dra_extender.scheduling.turns import QueryBudget, Turns, in_turns
from dra_extender.scheduling.view import View

ADMIN_LABEL = "resource.kubernetes.io/admin-access"
"""The API server accepts claims with admin access only in namespaces with this label."""
EXAMPLES = 5
MOST_ATTRIBUTES = 16
NAMES: Final = 4  # nodes whose labels are read in a unit of work
CLASSES: Final = 8
"""Classes that are named where one is missing."""


def diagnosing(
    view: View,
    pod: Pod,
    names: Sequence[str] | None = None,
    claims: Iterable[ResourceClaim] = (),
    usage: ResourcesInUse | None = None,
) -> Turns[Diagnosis]:
    """Whether the pod fits these nodes (by default all nodes). If it fits none: why, and which changes would help.

    `claims`: claims of the pod that do not exist yet. `usage`: the pods by node, if the caller has them. A
    pod that is too large gets no remedies. If the state changes between turns, the answer mixes both states, except for
    the claims of the pod and its gang.
    """
    whole_view, view = view, view.with_pod(pod)
    living = ResourcesInUse() if usage is None else usage
    simulated = SimulatedPod(pod, snapshot(view, claims, living))
    if pod.spec.node_name:
        return _bound(simulated)
    budget = QueryBudget(simulated.view)
    if usage is None:
        for each in list(view.pods):
            yield from budget.charge(1 + living.put(each))
    known = sorted(view.cluster.nodes) if names is None else list(names)
    nodes = yield from group_nodes(simulated, known, budget, _attributes(simulated))
    whole = of_pod(simulated)
    found = yield from node_groups(nodes, budget)
    fits = [] if whole is not None or any(group.fails for group in found) else [group for group in found if group.fits]
    if large := is_large(pod):
        budget.complete = False
    gang = trials_of(whole_view, simulated, known) if whole is None else None
    reasons: tuple[Statement, ...] = ()
    helping: tuple[Remedy, ...] = ()
    waits = (yield from _of_gang(gang, budget)) if fits and gang is not None else None
    decided = budget.complete
    if waits is not None:
        fits, reasons, helping = [], (waits[0],), waits[1]
    elif not fits:
        reasons = tuple(_reasons(simulated, found))
        if gang is not None:
            nodes.joint, nodes.mates = gang.fit, gang.mates(pod)
        helping = () if large else (yield from remedies(nodes, found, budget))
    if not fits and whole is None:
        starting = yield from _starting(view, known, budget)
        reasons = (*starting, *reasons) if reasons[:1] and reasons[0].rule == "class" else (*reasons, *starting)
    return Diagnosis(
        pod=pod.metadata.key,
        uid=pod.metadata.uid,
        state="fits" if fits else "refused",
        rule=reasons[0].rule if reasons else "",
        summary=_last_error(pod) if fits else text_of(reasons),
        claim=reasons[0].claim if reasons else "",
        nodes=len(nodes.obstacles),
        fits=sum(group.count for group in fits),
        examples=tuple(sorted(name for group in fits for name in group.nodes)[:EXAMPLES]),
        devices_fit=sum(group.count for group in found if group.verdict == "fits"),
        claims=tuple(_claims(simulated)),
        groups=tuple(found),
        statements=reasons,
        remedies=helping,
        unchecked=tuple(_unchecked(simulated)),
        complete=budget.complete or (decided and bool(helping)),
        work=budget.trials,
    )


def _reasons(simulated: SimulatedPod, found: Sequence[NodeGroup]) -> Iterator[Statement]:
    """Why the pod does not fit: its scheduling gate or scheduler, and what would refuse it without that."""
    excluded, refused = _excluded(simulated), _of_claims(simulated)
    yield from filter(None, (excluded, refused))
    if refused is None and not (excluded is not None and any(group.fits for group in found)):
        yield from of_nodes(found, simulated)


def _starting(view: View, names: Sequence[str], budget: QueryBudget) -> Turns[tuple[PodRefused, ...]]:
    """The nodes that Karpenter has not initialized yet: their drivers may publish devices later."""
    yield from budget.charge(1 + len(names) // NAMES)
    known = (node for name in names if (node := view.cluster.nodes.get(name)) is not None)
    found = [node.name for node in known if NODE_POOL in (its := node.metadata.labels) and INITIALIZED not in its]
    text = f"Karpenter has not initialized {listed('node', found[:EXAMPLES])} yet"
    return (PodRefused("pools", text),) if found else ()


def _last_error(pod: Pod) -> str:
    """Why a pod that fits was not bound; empty if it was not tried, or found no node."""
    found = [each.message for each in pod.status.conditions if each.reason == "SchedulerError"]
    return f"the last attempt to bind it failed: {found[0]}" if found else ""


def _of_gang(trials: JointTrials, budget: QueryBudget) -> Turns[tuple[Statement, tuple[Remedy, ...]] | None]:
    """Why a pod that fits alone has to wait for the other pods of its gang, and what helps."""
    gang = trials.gang
    decision = yield from trials.decide(trials.pod, budget)
    if decision is None or decision.node:
        return None
    known = bool(gang.problem or decision.waiting or decision.error)
    places = None if known else (yield from trials.largest(budget))
    if places is None:
        return PodRefused("gang", decision.reason or decision.error), ()
    mate = next((each for each in gang.waiting if each.metadata.uid not in places), trials.pod.pod)
    labels = gang.levels[-1]
    statement = GangUnplaced(
        str(gang.key),
        len(gang.placed),
        max(1, gang.needed),
        tuple(gang_places(places)),
        labels,
        attributes=tuple(gang.attributes),
    )
    beside = placed_beside(trials.pod, places, mate)
    helping: tuple[Remedy, ...] = ()
    if beside is not None:
        inner = QueryBudget(beside.view)
        whole = of_pod(beside)
        nodes = yield from group_nodes(beside, sorted(beside.view.cluster.nodes), inner, _attributes(beside))
        found = yield from node_groups(nodes, inner)
        yield from budget.charge(inner.work)
        budget.complete &= inner.complete
        if not labels and not any(group.fits or group.fails for group in found):
            reasons = (whole,) if whole else of_nodes(found, beside)
            own = tuple(each for each in reasons if not isinstance(each, GangUnplaced))
            statement = replace(statement, pod=mate.metadata.key, reasons=own)
        nodes.joint, nodes.mates = trials.fit, trials.mates(mate)
        helping = yield from remedies(nodes, found, budget)
    weaker = yield from trials.weaker(places, budget)
    return statement, (*helping, *weaker)


def _bound(found: SimulatedPod) -> Diagnosis:
    return Diagnosis(
        pod=found.pod.metadata.key,
        uid=found.pod.metadata.uid,
        state="bound",
        rule="",
        summary=f"bound to node {found.pod.spec.node_name}",
        nodes=len(found.view.cluster.nodes),
        claims=tuple(_claims(found)),
    )


def _unchecked(found: SimulatedPod) -> Iterator[str]:
    """Rules that may apply to the pod and were not checked."""
    affinity = found.pod.spec.affinity
    if has_large_affinity(found.pod):
        yield f"node affinity of more than {PARTS_OF_POD:,} requirements"
    if found.pod.spec.topology_spread_constraints:
        yield "topology spread"
    if affinity is not None and (affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None):
        yield "affinity to other pods"
    yield "volumes"
    drafts = (request.exactly for claim in found.snapshot.claims.values() for request in claim.spec.devices.requests)
    if any(request is not None and request.admin_access for request in drafts):
        yield f"label {ADMIN_LABEL} of namespace {found.pod.metadata.namespace}"
    calls = "" if found.view.config.scheduler_names else " and calls dra-extender"
    yield f"whether scheduler {found.scheduler} runs{calls}"


def _attributes(found: SimulatedPod) -> list[str]:
    """Full names of attributes that a changed constraint could compare; empty if no claim has constraints."""
    if not any(editable.claim.spec.devices.constraints for editable in editable_claims(found)):
        return []
    names: dict[str, None] = {}
    for node in list(found.view.cluster.nodes)[:1]:
        seen = found.view.cluster.inventory.view(node)
        for device in seen.devices if seen is not None else ():
            driver = device.model.traits.driver
            for attribute in device.model.traits.attributes:
                names[attribute if "/" in attribute else f"{driver}/{attribute}"] = None
    return sorted(names)[:MOST_ATTRIBUTES]


def _claims(found: SimulatedPod) -> Iterable[ClaimState]:
    for editable in editable_claims(found):
        claim, allocated = editable.claim, None
        if claim.allocation is not None:
            allocated = tuple("/".join(result.id) for result in claim.allocation.devices.results)
        template = editable.spec.meta.name if editable.spec.object == "ResourceClaimTemplate" else ""
        yield ClaimState(claim.metadata.key, editable.entry, template, allocated, len(claim.status.reserved_for))


def explaining(
    view: View, pod: Pod, names: Sequence[str] | None, terms: Callable[[Pod], PreemptionTerms | None]
) -> Turns[Diagnosis]:
    """Like `diagnosing`. If the pod does not fit: also the pods that it or its gang would preempt on its `terms`; they
    are None if preemption is off.
    """
    found = yield from diagnosing(view, pod, names)
    view = view.with_pod(pod)
    known = sorted(view.cluster.nodes) if names is None else list(names)
    if found.state == "refused" and (agreed := terms(pod)) is not None:
        search = PreemptionEvaluator(agreed, known)
        result = yield from in_turns(view.budgets(), lambda budget: search.evaluate(view.with_budget(budget)))
        if isinstance(result, NoPreemption):
            return replace(found, preemption=Preempted(reason=result.reason))
        pods = tuple(victim.pod.metadata.key for victim in result.victims)
        return replace(found, preemption=Preempted(pods, result.node, result.devices()))
    return found


def of_pod(found: SimulatedPod) -> PodRefused | None:
    """The rule that keeps the pod from all nodes; None if no such rule applies."""
    return _excluded(found) or _of_claims(found)


def _excluded(found: SimulatedPod) -> PodRefused | None:
    rule = found.excluding_rule()
    if rule == "scheduling gate":
        names = gates_text(found.pod)
        return PodRefused("scheduling gate", f"the pod is not scheduled until its scheduling gate {names} is removed")
    if rule:
        served = ", ".join(sorted(found.view.config.scheduler_names))
        text = f"scheduler {found.scheduler} does not call dra-extender; these schedulers do: {served}"
        return PodRefused("scheduler", text)
    return None


def _of_claims(found: SimulatedPod) -> PodRefused | None:
    """The first rule about the claims and extended resources of the pod."""
    prefiltered = found.prefiltered
    if isinstance(prefiltered, Unschedulable):
        problems = chain(_missing_claims(found), _unusable_claims(found, prefiltered))
        return next(problems, PodRefused("claim", prefiltered.reason))
    if isinstance(prefiltered, Failure):
        return PodRefused("claim", prefiltered.error)
    if not found.view.cluster.nodes:
        return PodRefused("no nodes", "the cluster has no nodes")
    return next(chain(_failed_claims(found.view, prefiltered), _feature_off(found)), None)


def _failed_claims(view: View, prefiltered: PreFilterState) -> Iterator[PodRefused]:
    for claim in prefiltered.claims.allocated if view.features.binding_conditions else ():
        if problem := unavailable(claim, view.clock.wall(), view.config.binding_conditions_timeout):
            text = f"the devices of claim {claim.metadata.name} did not become ready: {problem}"
            yield PodRefused("claim failed", text, claim.metadata.key)
    for claim, usable in prefiltered.usable_on:
        if usable.only and usable.only not in view.cluster.nodes:
            text = f"claim {claim.metadata.name} is allocated on node {usable.only}, which does not exist"
            yield PodRefused("claim elsewhere", text, claim.metadata.key)


def _feature_off(found: SimulatedPod) -> Iterator[PodRefused]:
    """An extended resource that only a device class provides, while the feature gate is off."""
    view = found.view
    wanted = None if view.features.DRAExtendedResource else view.resources.wanted(found.pod)
    for name, device_class in wanted.classes.items() if wanted is not None else ():
        if not any(name in node.status.allocatable for node in view.cluster.nodes.values()):
            text = f"only device class {device_class} provides {name}, and the feature gate DRAExtendedResource is off"
            yield PodRefused("feature gate", text)


def _missing_claims(found: SimulatedPod) -> Iterator[PodRefused]:
    created = created_names(found.pod)
    for entry in found.pod.spec.resource_claims:
        template, name = entry.resource_claim_template_name, found.claim_names.get(entry.name)
        claim = found.claim(name) if name else None
        if not entry.resource_claim_name and template and entry.name not in created:
            text = f"claim {entry.name} has not been created from template {template}, which may not exist"
            yield PodRefused("claim not created", text)
        elif name and claim is None:
            yield PodRefused("claim missing", f"claim {found.pod.metadata.namespace}/{name} does not exist")
        elif claim is not None and claim.metadata.deletion_timestamp:
            yield PodRefused("claim leaving", f"claim {name} is being deleted", claim.metadata.key)


def _unusable_claims(found: SimulatedPod, refused: Unschedulable) -> Iterator[PodRefused]:
    view = found.view
    for editable in editable_claims(found):
        claim, key, name = editable.claim, editable.claim.metadata.key, editable.claim.metadata.name
        preempted = view.is_preempted(claim, found.pod)
        if view.is_unreadable(claim):
            yield PodRefused("claim unreadable", f"claim {name} cannot be read: correct or delete it", key)
        elif view.in_flight(claim) or (preempted and claim.allocation is None):
            yield PodRefused("claim in flight", f"claim {name} is being allocated", key)
        elif preempted:
            text = f"claim {name} will be deallocated: its pods are preempted for another pod"
            yield PodRefused("claim in flight", text, key)
        elif claim.allocation is None:
            yield from _unusable_classes(found, editable)
        elif refused.reason == full_reason(claim):
            text = f"claim {name} has {MAX_CONSUMERS} consumers, which is the maximum"
            yield PodRefused("claim full", text, key)


def _unusable_classes(found: SimulatedPod, editable: EditableClaim) -> Iterator[PodRefused]:
    classes, key = found.view.cluster.classes, editable.claim.metadata.key
    for request in requests_of(editable):
        if request.alternative and not found.view.features.DRAPrioritizedList:
            text = f"claim {editable.entry}: firstAvailable requires the feature gate DRAPrioritizedList"
            yield PodRefused("feature gate", text, key)
        if (name := request.source.device_class_name) not in classes:
            few = ", ".join(sorted(classes)[:CLASSES]) + (", …" if len(classes) > CLASSES else "")
            text = f"{request.part.label}: device class {name} does not exist (classes: {few or 'none'})"
            text += ", so the other alternatives are not tried" if request.alternative else ""
            yield PodRefused("class missing", text, key)
