"""The rules that keep a pod from all nodes, whatever its devices are: gates, scheduler, missing and unusable claims."""

from __future__ import annotations

from typing import Final

from dra_extender.allocation.plan import Failure
from dra_extender.api.resource import MAX_CONSUMERS, ResourceClaim
from dra_extender.insight.snapshot import SimulatedPod
from dra_extender.insight.why.statements import PodRefused
from dra_extender.scheduling.claims import Unschedulable, full_reason

CLASSES: Final = 8
"""Classes that are named where one is missing."""


def of_pod(found: SimulatedPod) -> PodRefused | None:
    """The rule that keeps the pod from all nodes; None if no such rule applies."""
    rule = found.is_kept_out()
    if rule == "scheduling gate":
        names = ", ".join(gate.name for gate in found.pod.spec.scheduling_gates)
        return PodRefused("scheduling gate", f"the pod is not scheduled until its scheduling gate {names} is removed")
    if rule:
        served = ", ".join(sorted(found.view.config.scheduler_names))
        text = f"scheduler {found.scheduler} does not call dra-extender; these schedulers do: {served}"
        return PodRefused("scheduler", text)
    if isinstance(found.prefiltered, Unschedulable):
        return _missing_claim(found) or _unusable_claim(found) or PodRefused("claim", found.prefiltered.reason)
    if isinstance(found.prefiltered, Failure):
        return PodRefused("claim", found.prefiltered.error)
    if not found.view.cluster.nodes:
        return PodRefused("no nodes", "the cluster has no nodes")
    return None


def _missing_claim(found: SimulatedPod) -> PodRefused | None:
    created = {status.name for status in found.pod.status.resource_claim_statuses}
    for entry in found.pod.spec.resource_claims:
        template = entry.resource_claim_template_name
        if not entry.resource_claim_name and template and entry.name not in created:
            text = f"claim {entry.name} has not been created yet: check that template {template} exists"
            return PodRefused("claim not created", text)
        name = found.claim_names.get(entry.name)
        claim = found.claim(name) if name else None
        if name and claim is None:
            return PodRefused("claim missing", f"claim {found.pod.metadata.namespace}/{name} does not exist")
        if claim is not None and claim.metadata.deletion_timestamp:
            return PodRefused("claim leaving", f"claim {claim.metadata.key} is being deleted", claim.metadata.key)
    return None


def _unusable_claim(found: SimulatedPod) -> PodRefused | None:
    view = found.view
    for name in found.claim_names.values():
        claim = found.claim(name)
        if claim is None:
            continue
        key = claim.metadata.key
        if view.is_unreadable(claim):
            return PodRefused("claim unreadable", f"claim {key} cannot be read: correct or delete it", key)
        preempted = view.is_preempted(claim, found.pod)
        if view.in_flight(claim) or (preempted and claim.allocation is None):
            return PodRefused("claim in flight", f"claim {key} is being allocated", key)
        if preempted:
            text = f"claim {key} will be deallocated: its pods are preempted for another pod"
            return PodRefused("claim in flight", text, key)
        if claim.allocation is not None:
            if isinstance(found.prefiltered, Unschedulable) and found.prefiltered.reason == full_reason(claim):
                return PodRefused("claim full", f"claim {key} has {MAX_CONSUMERS} consumers, which is the maximum", key)
        elif (problem := _unusable_class(found, claim)) is not None:
            return problem
    return None


def _unusable_class(found: SimulatedPod, claim: ResourceClaim) -> PodRefused | None:
    classes, key = found.view.cluster.classes, claim.metadata.key
    for request in claim.spec.devices.requests:
        if request.first_available and not found.view.features.DRAPrioritizedList:
            text = f"claim {key}: firstAvailable requires the feature gate DRAPrioritizedList"
            return PodRefused("feature gate", text, key)
        exact = (request.exactly.device_class_name,) if request.exactly is not None else ()
        for name in (*exact, *(source.device_class_name for source in request.first_available)):
            if name not in classes:
                few = ", ".join(sorted(classes)[:CLASSES]) + (", …" if len(classes) > CLASSES else "")
                text = f"claim {key}: device class {name} does not exist (classes: {few or 'none'})"
                return PodRefused("class missing", text, key)
    return None
