"""What the resourceclaim controller decides, apart from how it finds out and writes.

Source: Kubernetes 1.36, pkg/controller/resourceclaim/controller.go. Pure functions from state to the next writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

from dra_extender.api.core import Pod
from dra_extender.api.resource import FINALIZER, ResourceClaim, ResourceClaimConsumerReference
from embedded_cluster.objects import ClaimTemplate
from embedded_cluster.podclaims import Lookup, has_claims, owns, recorded

POD_CLAIM_NAME_ANNOTATION = "resource.kubernetes.io/pod-claim-name"
_LONGEST_BASE = 57
"""Characters of generateName; the API server adds five and cuts at 63."""

# --- pods


class Wanted(msgspec.Struct, frozen=True):
    """An entry made from a template; `claim` is None when the claim has to be created."""

    entry: str
    template: str
    claim: str | None


def wanted_claims(pod: Pod, lookup: Lookup, owned: Iterable[ResourceClaim]) -> list[Wanted]:
    """The claims that the pod's templates must have led to. `owned`: the claims whose controller owner is the pod."""
    mine = {
        claim.metadata.annotations[POD_CLAIM_NAME_ANNOTATION]: claim.metadata.name
        for claim in sorted(owned, key=lambda claim: claim.metadata.version, reverse=True)
        if POD_CLAIM_NAME_ANNOTATION in claim.metadata.annotations and claim.metadata.deletion_timestamp is None
    }
    found = []
    for entry in pod.spec.resource_claims:
        if not entry.resource_claim_template_name:
            continue
        known, name = recorded(pod, entry.name)
        if known and name is None:
            continue  # the entry needs no claim
        claim = lookup(pod.metadata.namespace, name) if name else None
        current = name if claim is not None and owns(pod, claim) else mine.get(entry.name)
        found.append(Wanted(entry.name, entry.resource_claim_template_name, current))
    return found


def needs_work(pod: Pod, lookup: Lookup, owned: Iterable[ResourceClaim]) -> bool:
    """True when claims must be created or named in the pod's status, or a bound pod must be put into reservedFor.

    Never for a pod that has ended. Kubernetes 1.36 has no such check, so that its controller makes the claims of such a
    pod again whenever it has deleted them, and reserves shared ones again: a known bug there.
    """
    if pod.metadata.deletion_timestamp is not None or pod.finished or not has_claims(pod):
        return False
    if any(
        want.claim is None or recorded(pod, want.entry)[1] != want.claim for want in wanted_claims(pod, lookup, owned)
    ):
        return True
    return next(iter(unreserved(pod, lookup)), None) is not None


def unreserved(pod: Pod, lookup: Lookup) -> list[ResourceClaim]:
    """Allocated claims that lack a reservation for this bound pod, even claims that do not fit its node."""
    if not pod.spec.node_name:
        return []
    found = []
    for entry in pod.spec.resource_claims:
        name = entry.resource_claim_name or recorded(pod, entry.name)[1]
        if name is None:
            continue
        claim = lookup(pod.metadata.namespace, name)
        if claim is None or (entry.resource_claim_template_name and not owns(pod, claim)):
            break
        if claim.allocation is not None and not claim.reserved_for(pod.metadata.uid):
            found.append(claim)
    return found


def base_name(pod: str, entry: str) -> str:
    """generateName of a generated claim, cut so that the API server need not cut the hyphens."""
    whole = f"{pod}-{entry}-"
    total = len(whole)
    if total <= _LONGEST_BASE:
        return whole
    # Cut both in proportion; the hyphen between them stays, the trailing one goes.
    return f"{pod[: len(pod) * _LONGEST_BASE // total]}-{entry[: len(entry) * _LONGEST_BASE // total]}"


def instantiate(pod: Pod, entry: str, template: ClaimTemplate, api_version: str) -> dict[str, Any]:
    """The claim to create for one entry of the pod, ready to be encoded."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.metadata.uid, "controller": True}
    return {
        "apiVersion": api_version,
        "kind": "ResourceClaim",
        "metadata": {
            "generateName": base_name(pod.metadata.name, entry),
            "namespace": pod.metadata.namespace,
            "labels": dict(template.spec.metadata.labels),
            "annotations": {**template.spec.metadata.annotations, POD_CLAIM_NAME_ANNOTATION: entry},
            "ownerReferences": [owner],
        },
        "spec": template.spec.spec,
    }


# --- claims

Standing = Literal["keep", "drop", "ask"]
"""What becomes of a consumer in reservedFor; "ask": read the pod from the API server."""


def standing(consumer: ResourceClaimConsumerReference, cached: Pod | None, *, known_deleted: bool) -> Standing:
    """What becomes of a consumer's reservation. `cached`: the pod of that name, if there is one."""
    if consumer.api_group or consumer.resource != "pods":
        return "keep"
    if known_deleted:
        return "drop"
    if cached is None:
        return "ask"
    return "drop" if cached.metadata.uid != consumer.uid or cached.finished else "keep"


class StatusWrite(msgspec.Struct, frozen=True):
    """Write these reservations; `deallocate` clears the allocation in the same write."""

    reserved_for: tuple[ResourceClaimConsumerReference, ...]
    deallocate: bool


class RemoveFinalizer(msgspec.Struct, frozen=True):
    """Take the finalizer off, so that the claim may go."""


class DeleteClaim(msgspec.Struct, frozen=True):
    """Delete it: the pod that it was made for is done."""


ClaimAction = StatusWrite | RemoveFinalizer | DeleteClaim


def clean_up(
    claim: ResourceClaim, consumers: Sequence[ResourceClaimConsumerReference], *, owner_done: bool
) -> list[ClaimAction]:
    """The writes that are due, in order. `consumers`: the reservations that stay.

    Deallocation and release of the finalizer happen only when the last consumer goes or the claim is being deleted:
    an allocation that was never reserved stays.
    """
    protected = FINALIZER in claim.metadata.finalizers
    dropped = len(consumers) < len(claim.status.reserved_for)
    actions: list[ClaimAction] = []
    if dropped:
        deallocate = not consumers and protected
        actions.append(StatusWrite(tuple(consumers), deallocate=deallocate and claim.allocation is not None))
        if deallocate:
            actions.append(RemoveFinalizer())
    elif claim.metadata.deletion_timestamp is not None and protected and not consumers:
        if claim.allocation is not None:
            actions.append(StatusWrite((), deallocate=True))
        actions.append(RemoveFinalizer())
    if not consumers and claim.metadata.deletion_timestamp is None and owner_done:
        actions.append(DeleteClaim())
    return actions
