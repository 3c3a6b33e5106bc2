"""The diagnosis of a pod, made of what the others find.

Promises: the decision is the one that the verbs would make now, on the same state; nothing is changed or remembered. It
is made in small steps, and the work is bounded whatever the cluster's size: nodes are asked about in groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dra_extender.api.core import Pod
from dra_extender.api.resource import ResourceClaim
from dra_extender.insight.why import summary
from dra_extender.insight.why.edits import claims_with_targets, places
from dra_extender.insight.why.ground import Ground, survey
from dra_extender.insight.why.nodegroups import node_groups
from dra_extender.insight.why.remedies import remedies
from dra_extender.insight.why.report import ClaimState, Diagnosis, NodeGroup
from dra_extender.insight.why.situation import Situation, situation
from dra_extender.scheduling.noderules import Tenants, is_large, unchecked
from dra_extender.scheduling.slices import QueryBudget, Slices, run_at_once
from dra_extender.scheduling.view import View

ADMIN_LABEL = "resource.kubernetes.io/admin-access"
"""The API server takes claims with admin access in namespaces with this label only."""
EXAMPLES = 5
PODS = 1_000
MOST_ATTRIBUTES = 16


def diagnose(
    view: View, pod: Pod, names: Sequence[str] | None = None, claims: Iterable[ResourceClaim] = ()
) -> Diagnosis:
    """Why the pod does not run on these nodes (all by default), and what helps. `claims`: some that it would have."""
    return run_at_once(diagnosing(view, pod, names, claims))


def diagnosing(
    view: View,
    pod: Pod,
    names: Sequence[str] | None = None,
    claims: Iterable[ResourceClaim] = (),
    tenants: Tenants | None = None,
) -> Slices[Diagnosis]:
    """As `diagnose`, in steps of a few milliseconds; no remedies are looked for where the pod itself is too large.
    When the state changes between steps the answer is about both. `tenants`: the pods by node, where that is known.
    """
    living = Tenants() if tenants is None else tenants
    base = situation(view, pod, claims, living)
    if pod.spec.node_name:
        return _bound(base)
    budget = QueryBudget(base.view)
    if tenants is None:
        yield from _added(living, list(view.pods), budget)
    known = sorted(view.cluster.nodes) if names is None else list(names)
    ground = yield from survey(base, known, budget, _attributes(base))
    whole = summary.of_pod(base)
    found = yield from node_groups(ground, budget)
    fits = [] if whole is not None else [group for group in found if group.fits]
    if large := is_large(pod):
        budget.complete = False
    told = whole or (summary.of_nodes(found, _entries(base)) if not fits else summary.Summary("", ""))
    helping = () if fits or large else (yield from remedies(ground, found, budget))
    return Diagnosis(
        pod=pod.metadata.key,
        uid=pod.metadata.uid,
        state="fits" if fits else "refused",
        rule=told.rule,
        summary=told.text,
        claim=told.claim,
        nodes=len(ground.names),
        fits=sum(group.count for group in fits),
        examples=_examples(ground, fits),
        devices_fit=sum(group.count for group in found if group.verdict == "fits"),
        claims=tuple(_claims(base)),
        groups=tuple(found),
        remedies=helping,
        unchecked=tuple(_unchecked(base)),
        complete=budget.complete,
        work=budget.trials,
    )


def _added(tenants: Tenants, pods: Sequence[Pod], budget: QueryBudget) -> Slices[None]:
    """Thousands of pods are too many for one step."""
    for start in range(0, len(pods), PODS):
        portion = pods[start : start + PODS]
        for pod in portion:
            tenants.put(pod)
        if budget.must_yield(1 + len(portion) // 2):
            yield


def _bound(base: Situation) -> Diagnosis:
    pod = base.pod
    return Diagnosis(
        pod=pod.metadata.key,
        uid=pod.metadata.uid,
        state="bound",
        rule="",
        summary=f"bound to node {pod.spec.node_name}",
        nodes=len(base.view.cluster.nodes),
        claims=tuple(_claims(base)),
    )


def _unchecked(base: Situation) -> Iterator[str]:
    """What may count for the pod and was not looked at."""
    yield from unchecked(base.pod)
    wanted = (request.exactly for claim in base.claims.values() for request in claim.spec.devices.requests)
    if any(request is not None and request.admin_access for request in wanted):
        yield f"label {ADMIN_LABEL} of namespace {base.pod.metadata.namespace}"
    if not base.view.config.scheduler_names:
        yield f"whether scheduler {base.scheduler} runs and asks dra-extender"


def _attributes(base: Situation) -> list[str]:
    """What constraints compare that may be tried instead of the pod's: only claims with constraints look at any."""
    constrained = any(claim.spec.devices.constraints for claim, _ in claims_with_targets(base))
    if not constrained:
        return []
    found: dict[str, None] = {}
    for name in list(base.view.cluster.nodes)[:1]:
        seen = base.view.cluster.inventory.view(name)
        for device in seen.devices if seen is not None else ():
            driver = device.model.traits.driver
            for attribute in device.model.traits.attributes:
                found[attribute if "/" in attribute else f"{driver}/{attribute}"] = None
    return sorted(found)[:MOST_ATTRIBUTES]


def _entries(base: Situation) -> summary.Names:
    """How the pod calls its claims: those from templates by the name in its spec."""
    return {
        claim.metadata.key: summary.Name(target.entry, sum(1 for _ in places(claim, target)))
        for claim, target in claims_with_targets(base)
    }


def _examples(ground: Ground, fits: Sequence[NodeGroup]) -> tuple[str, ...]:
    return tuple(sorted(name for group in fits for name in group.nodes)[:EXAMPLES])


def _claims(base: Situation) -> Iterable[ClaimState]:
    for claim, target in claims_with_targets(base):
        allocated = None
        if claim.allocation is not None:
            allocated = tuple("/".join(result.id) for result in claim.allocation.devices.results)
        template = target.name if target.object == "ResourceClaimTemplate" else ""
        consumers = len(claim.status.reserved_for)
        yield ClaimState(claim.metadata.key, target.entry, template, allocated, consumers)
