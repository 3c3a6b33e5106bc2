"""Which claims a pod has: the rules shared by claim controller, kubelet, eviction and scheduler.

Source: Kubernetes 1.36, staging/src/k8s.io/dynamic-resource-allocation/resourceclaim. Pure functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from dra_extender.api.core import Pod, PodResourceClaim
from dra_extender.api.resource import ResourceClaim

Lookup = Callable[[str, str], ResourceClaim | None]
"""(namespace, name) -> the claim, or None."""


class Unready(Exception):
    """An entry of the pod cannot be resolved; the text says why, as Kubernetes says it."""


class Entry(msgspec.Struct, frozen=True):
    """One entry of spec.resourceClaims and the name of its claim; None when it was decided that none is needed."""

    spec: PodResourceClaim
    claim: str | None


def has_claims(pod: Pod) -> bool:
    """True when the pod asks for claims or has one for extended resources."""
    return bool(pod.spec.resource_claims) or pod.status.extended_resource_claim_status is not None


def recorded(pod: Pod, entry: str) -> tuple[bool, str | None]:
    """(True, its claim's name or None) for an entry that status.resourceClaimStatuses knows, else (False, None)."""
    for status in pod.status.resource_claim_statuses:
        if status.name == entry:
            return True, status.resource_claim_name or None
    return False, None


def known_names(pod: Pod) -> Iterator[str]:
    """The names of all the pod's claims that are known, the one for extended resources included."""
    for entry in pod.spec.resource_claims:
        name = entry.resource_claim_name or recorded(pod, entry.name)[1]
        if name:
            yield name
    if (extended := pod.status.extended_resource_claim_status) is not None and extended.resource_claim_name:
        yield extended.resource_claim_name


def owns(pod: Pod, claim: ResourceClaim) -> bool:
    """True when the pod is the controller owner of the claim."""
    owner = claim.metadata.controller
    return owner is not None and owner.uid == pod.metadata.uid and claim.metadata.namespace == pod.metadata.namespace


def entries(pod: Pod) -> Iterator[Entry]:
    """The entries with the names of their claims. Raises Unready at the first that has none yet."""
    where = f'pod "{pod.metadata.namespace}/{pod.metadata.name}"'
    for spec in pod.spec.resource_claims:
        if spec.resource_claim_name:
            yield Entry(spec, spec.resource_claim_name)
        elif spec.resource_claim_template_name:
            known, name = recorded(pod, spec.name)
            if not known:
                raise Unready(f"{where}: ResourceClaim not created yet")
            yield Entry(spec, name)
        else:
            raise Unready(f'{where}, spec.resourceClaim "{spec.name}": none of the supported fields are set')


def claims(pod: Pod, lookup: Lookup) -> Iterator[ResourceClaim]:
    """The pod's claims that exist and are its own or its group's, in order. Raises Unready at the first that is not."""
    namespace = pod.metadata.namespace
    for entry in entries(pod):
        if entry.claim is None:
            continue
        claim = lookup(namespace, entry.claim)
        if claim is None:
            raise Unready(f'could not find ResourceClaim "{namespace}/{entry.claim}"')
        if entry.spec.resource_claim_template_name and not (owns(pod, claim) or claim.owned_by_group(pod.group_name)):
            raise Unready(
                f"ResourceClaim {namespace}/{entry.claim} was not created for "
                f"Pod {namespace}/{pod.metadata.name} (Pod is not owner)"
            )
        yield claim
