"""When device taints of effect NoExecute end a pod. Pure functions.

Source: Kubernetes 1.36, pkg/controller/devicetainteviction/device_taint_eviction.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from dra_extender.api.resource import (
    DeviceID,
    DeviceRequestAllocationResult,
    DeviceTaint,
    DeviceTaintRule,
    DeviceToleration,
    ResourceClaim,
    ResourceSlice,
)
from dra_extender.api.times import parse_time
from embedded_cluster.objects import FullPod
from embedded_cluster.podclaims import Lookup, owns, recorded

NO_EXECUTE = "NoExecute"

TaintsOf = Callable[[DeviceID], Iterable[DeviceTaint]]


def slice_taints(slices: Iterable[ResourceSlice]) -> dict[DeviceID, tuple[DeviceTaint, ...]]:
    """NoExecute taints by device, from the slices of the newest generation of each pool."""
    newest: dict[tuple[str, str], int] = {}
    kept = list(slices)
    for part in kept:
        pool = (part.spec.driver, part.spec.pool.name)
        newest[pool] = max(newest.get(pool, 0), part.spec.pool.generation)
    found: dict[DeviceID, tuple[DeviceTaint, ...]] = {}
    for part in kept:
        spec = part.spec
        if spec.pool.generation != newest[spec.driver, spec.pool.name]:
            continue
        for device in spec.devices:
            taints = tuple(taint for taint in device.taints if taint.effect == NO_EXECUTE)
            if taints:
                found[spec.driver, spec.pool.name, device.name] = taints
    return found


def rule_selects(rule: DeviceTaintRule, device: DeviceID) -> bool:
    """By the names in the allocation, so devices that are no longer published are selected too."""
    selector = rule.spec.device_selector
    if selector is None:
        return False
    wanted = (selector.driver, selector.pool, selector.device)
    return all(want is None or want == have for want, have in zip(wanted, device, strict=True))


def tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    """For eviction the effect must be named: an empty one, which tolerates everything at allocation, does not count."""
    if toleration.effect != NO_EXECUTE or (toleration.key and toleration.key != taint.key):
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


def device_eviction(result: DeviceRequestAllocationResult, taints: Iterable[DeviceTaint]) -> float | None:
    """Seconds since the epoch at which one allocated device ends its consumers; None when its taints do not."""
    times = [_eviction(result.tolerations, taint) for taint in taints if taint.effect == NO_EXECUTE]
    return min((time for time in times if time is not None), default=None)


def _eviction(tolerations: Sequence[DeviceToleration], taint: DeviceTaint) -> float | None:
    seconds = []
    for toleration in tolerations:
        if tolerates(toleration, taint):
            if toleration.toleration_seconds is None:
                return None
            seconds.append(max(toleration.toleration_seconds, 0))
    added = parse_time(taint.time_added or "")
    return (added.timestamp() if added is not None else 0.0) + min(seconds, default=0)


def claim_eviction(claim: ResourceClaim, taints_of: TaintsOf) -> float | None:
    """The earliest over the devices of an allocated claim, adminAccess included; None when nothing evicts."""
    results = claim.allocation.devices.results if claim.allocation is not None else ()
    times = [device_eviction(result, taints_of(result.id)) for result in results]
    return min((time for time in times if time is not None), default=None)


def pod_eviction(pod: FullPod, lookup: Lookup, taints_of: TaintsOf) -> float | None:
    """When the pod must go; None when it may stay. Claims for extended resources are not considered upstream either."""
    if not pod.spec.node_name or pod.status.phase in ("Succeeded", "Failed"):
        return None
    times = []
    for entry in pod.spec.resource_claims:
        name = entry.resource_claim_name or recorded(pod, entry.name)[1]
        claim = lookup(pod.metadata.namespace, name) if name else None
        if claim is None or not claim.reserved_for(pod.metadata.uid):
            continue
        if entry.resource_claim_template_name and not owns(pod, claim):
            continue
        times.append(claim_eviction(claim, taints_of))
    return min((time for time in times if time is not None), default=None)


def rule_condition(rule: DeviceTaintRule, pending: Mapping[str, int], evicted: int, now: str) -> dict[str, str]:
    """The EvictionInProgress condition of a rule. `pending`: namespace -> pods that still have to go."""
    waiting = sum(pending.values())
    if rule.spec.taint.effect == "None":
        status, reason, message = "False", "NoEffect", ""
    elif rule.spec.taint.effect != NO_EXECUTE:
        status, reason, message = "False", "OtherEffect", ""
    elif waiting:
        status, reason = "True", "PodsPendingEviction"
        pods = f"{waiting} pod{'s need' if waiting > 1 else ' needs'}"
        message = f"{pods} to be evicted in {len(pending)} different namespace{'s' if len(pending) > 1 else ''}."
    else:
        status, reason, message = "False", "Completed" if evicted else "NotStarted", ""
    if evicted:
        message = f"{message} {evicted} pod{'s' if evicted > 1 else ''} evicted since starting the controller.".strip()
    return {
        "type": "EvictionInProgress",
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": now,
    }
