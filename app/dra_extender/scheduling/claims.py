"""The claims of a pod: which they are, and whether a decision on them is possible now.

Promises: pure. The reason of a refusal is the text of kube-scheduler's own plugin for the first entry that fails. It
depends on the pod and its claims only, not on nodes or on the time.

Rules: Kubernetes 1.36, dynamic-resource-allocation/resourceclaim/{resourceclaim,pod}.go and PreFilter of
pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go. Different from there: a claim that a pod names
twice is allocated and reserved once; a pod with more than `CLAIMS_OF_POD` claims, or `REQUESTS_OF_POD` requests, is
refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Final

import msgspec

from dra_extender.allocation.plan import Failure
from dra_extender.api.core import Pod
from dra_extender.api.resource import (
    MAX_CONSUMERS,
    POD_GROUP_API,
    DeviceRequest,
    ResourceClaim,
    ResourceClaimConsumerReference,
)
from dra_extender.devices.readonly import ReadOnlyCluster, ReadOnlyLedger
from dra_extender.limits import CLAIMS_OF_POD, REQUESTS_OF_POD

ADOPTED: Final = "dra-extender.dev/adopted"
"""Annotation of claims: the last bind that took over a reservation made by an earlier bind."""

TOO_MANY: Final = f"the pod names more than {CLAIMS_OF_POD:,} resource claims"
TOO_LARGE: Final = f"the resource claims of the pod have more than {REQUESTS_OF_POD:,} requests and alternatives"

Lookup = Callable[[str, str], ResourceClaim | None]
"""(namespace, name) to the newest known version of the claim."""


class Unschedulable(msgspec.Struct, frozen=True):
    """The pod cannot run anywhere now: the reason for all nodes."""

    reason: str
    behind: bool = False
    """The watches may be behind: reading the pod or its claims may help."""
    awaiting: str = ""
    """UID of a claim that is being allocated or deallocated: the pod may fit afterwards."""
    terminating: tuple[ResourceClaim, ...] = ()
    """Allocated claims that are being deleted: they keep their devices as long as they are reserved for a consumer."""


class PodClaims(msgspec.Struct, frozen=True):
    """The pod's claims in the order of its spec, each once."""

    allocated: tuple[ResourceClaim, ...]
    pending: tuple[ResourceClaim, ...]


def created_names(pod: Pod) -> dict[str, str | None]:
    """By entry of spec.resourceClaims: the name of the claim created for it; None when it needs no claim."""
    return {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}


def claim_names(pod: Pod) -> list[str]:
    """The names of the pod's claims in its namespace; none as long as one of them has not been created."""
    named = _named(pod)
    return [] if isinstance(named, Unschedulable) else [name for name, _ in named]


def all_claim_names(pod: Pod) -> list[str]:
    """As `claim_names`, and the name of the claim for the pod's extended resources, each once."""
    extended = pod.status.extended_resource_claim_status
    return list(dict.fromkeys([*claim_names(pod), *([extended.resource_claim_name] if extended is not None else ())]))


def known_claims(pod: Pod, store: ReadOnlyLedger) -> list[ResourceClaim]:
    """The claims that the pod names or owns, each once, as far as they are known: also that for extended resources."""
    namespace, uid = pod.metadata.namespace, pod.metadata.uid
    named = (store.get(namespace, name) for name in all_claim_names(pod))
    found = (*named, *store.owned_by(namespace, uid))
    return list({claim.metadata.uid: claim for claim in found if claim is not None}.values())


def _named(pod: Pod) -> list[tuple[str, bool]] | Unschedulable:
    """The names of the pod's claims; True: the pod must own the claim."""
    created = created_names(pod)
    names: list[tuple[str, bool]] = []
    for entry in pod.spec.resource_claims:
        if entry.resource_claim_name:
            names.append((entry.resource_claim_name, False))
        elif entry.resource_claim_template_name:
            if entry.name not in created:
                return Unschedulable(f'pod "{pod.metadata.key}": ResourceClaim not created yet', behind=True)
            name = created[entry.name]
            if name:
                names.append((name, True))
        else:
            return Unschedulable(
                f'pod "{pod.metadata.key}", spec.resourceClaim "{entry.name}": none of the supported fields are set'
            )
    return names


def resolve_claims(pod: Pod, lookup: Lookup, cluster: ReadOnlyCluster) -> tuple[ResourceClaim, ...] | Unschedulable:
    """The pod's claims, each once."""
    if len(pod.spec.resource_claims) > CLAIMS_OF_POD:
        return Unschedulable(TOO_MANY)
    names = _named(pod)
    if isinstance(names, Unschedulable):
        return names
    namespace, group = pod.metadata.namespace, _group(pod, cluster)
    claims: dict[str, ResourceClaim] = {}
    refusal = ""
    behind = False
    terminating: list[ResourceClaim] = []
    for name, owned in names:
        claim = lookup(namespace, name)
        owner = claim.metadata.controller if claim is not None else None
        if claim is None:
            behind = True
            refusal = refusal or f'could not find ResourceClaim "{namespace}/{name}"'
        elif claim.metadata.deletion_timestamp:
            refusal = refusal or f'resourceclaim "{name}" is being deleted'
            if claim.allocation is not None:
                terminating.append(claim)
        elif owned and not claim.owned_by_group(*group) and (owner is None or owner.uid != pod.metadata.uid):
            refusal = refusal or (
                f"ResourceClaim {claim.metadata.key} was not created for Pod {pod.metadata.key} (Pod is not owner)"
            )
        else:
            claims[claim.metadata.uid or claim.metadata.key] = claim
    if refusal:
        return Unschedulable(refusal, behind=behind, terminating=tuple(terminating))
    if any(requests > REQUESTS_OF_POD for requests in accumulate(map(requests_in, claims.values()))):
        return Unschedulable(TOO_LARGE)
    return tuple(claims.values())


def requests_in(claim: ResourceClaim) -> int:
    """The number of requests and alternatives of a claim that is not allocated."""
    requests = claim.spec.devices.requests if claim.allocation is None else ()
    return len(requests) + sum(len(request.first_available) for request in requests)


def _group(pod: Pod, cluster: ReadOnlyCluster) -> tuple[str, str]:
    """The name of the group whose claims the pod may use, and its UID if known: an earlier group is another one."""
    name = pod.group_name if cluster.features.DRAWorkloadResourceClaims else ""
    group = cluster.pod_groups.get(POD_GROUP_API, pod.metadata.namespace, name) if name else None
    return name, group.metadata.uid if group is not None else ""


def consumer(claim: ResourceClaim, pod: Pod, cluster: ReadOnlyCluster) -> ResourceClaimConsumerReference:
    """The consumer that the claim is reserved for when the pod uses it: the pod, or the pod's group if the claim was
    made for the group or is reserved for it already.
    """
    group, owner = _group(pod, cluster), claim.metadata.controller
    if (reserved := claim.reserved_for_group(*group)) is not None:
        return reserved
    if owner is not None and claim.owned_by_group(*group):
        return ResourceClaimConsumerReference("podgroups", owner.name, owner.uid, POD_GROUP_API)
    return ResourceClaimConsumerReference("pods", pod.metadata.name, pod.metadata.uid)


def examine(
    claims: Sequence[ResourceClaim], pod: Pod, *, cluster: ReadOnlyCluster, in_flight: Callable[[ResourceClaim], bool]
) -> PodClaims | Unschedulable | Failure:
    """The claims, allocated and pending; or why no decision on them is possible. `in_flight`: the claim is being
    allocated or deallocated.
    """
    for claim in claims:
        if in_flight(claim):
            found: Unschedulable | Failure | None = Unschedulable(in_flight_reason(claim), awaiting=claim.metadata.uid)
        elif claim.allocation is not None:
            full = len(claim.status.reserved_for) >= MAX_CONSUMERS
            joins = full and not claim.reserved_for(consumer(claim, pod, cluster).uid)
            found = Unschedulable(full_reason(claim)) if joins else None
        else:
            unusable = (_unusable(claim, each, cluster) for each in claim.spec.devices.requests)
            found = next((each for each in unusable if each is not None), None)
        if found is not None:
            return found
    allocated = tuple(claim for claim in claims if claim.allocation is not None)
    return PodClaims(allocated, pending=tuple(claim for claim in claims if claim.allocation is None))


def in_flight_reason(claim: ResourceClaim) -> str:
    """While the claim is being allocated or deallocated."""
    return f"resource claim {claim.metadata.key} is in the process of being allocated"


def preempted_reason(claim: ResourceClaim) -> str:
    """While the claim's pods are being preempted: a preemptor gets its devices, or the claim itself."""
    if claim.allocation is None:
        return in_flight_reason(claim)
    return f"resource claim {claim.metadata.key} will be deallocated: its pods are preempted for another pod"


def unreadable_reason(claim: ResourceClaim) -> str:
    """Until the stored claim can be decoded."""
    return f"resource claim {claim.metadata.key} cannot be read"


def full_reason(claim: ResourceClaim) -> str:
    """When the claim has no room for another consumer."""
    return f"resource claim {claim.metadata.key} is used by {MAX_CONSUMERS} consumers, which is the maximum"


def full_claim(
    pods: Iterable[tuple[Pod, Sequence[ResourceClaim]]], spared: int, cluster: ReadOnlyCluster
) -> ResourceClaim | None:
    """A claim that has no room for all of these pods which use it, except `spared` ones."""
    users: dict[str, tuple[ResourceClaim, dict[str, Pod]]] = {}
    for pod, claims in pods:
        for claim in claims:
            users.setdefault(claim.metadata.uid, (claim, {}))[1][pod.metadata.uid] = pod
    for claim, using in users.values():
        reserved = claim.status.reserved_for
        if len(using) - spared + len(reserved) > MAX_CONSUMERS:
            joining = using.keys() - {user.uid for user in reserved}
            alone = [uid for uid in joining if consumer(claim, using[uid], cluster).resource == "pods"]
            if len(alone) - spared + len(reserved) > MAX_CONSUMERS:
                return claim
    return None


def _unusable(claim: ResourceClaim, request: DeviceRequest, cluster: ReadOnlyCluster) -> Unschedulable | Failure | None:
    """Every class must exist, also those of alternatives that would not be needed."""
    where = f"resource claim {claim.metadata.key}, request {request.name}"
    if request.exactly is not None:
        named = [(request.name, request.exactly.device_class_name)]
    elif not request.first_available:
        return Unschedulable(f"{where}: unknown request type")
    elif not cluster.features.DRAPrioritizedList:
        return Unschedulable(f"{where}: has subrequests, but the DRAPrioritizedList feature is disabled")
    else:
        named = [(f"{request.name}/{sub.name}", sub.device_class_name) for sub in request.first_available]
    for name, device_class in named:
        if not device_class:
            return Failure(f"request {name}: unsupported request type")
        if device_class not in cluster.classes:
            return Unschedulable(f"request {name}: device class {device_class} does not exist")
    return None
