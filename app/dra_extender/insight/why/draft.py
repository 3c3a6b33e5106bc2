"""A pod as a manifest describes it, with the claims it would have: asked about before anything is applied.

Promises: what the API server would fill in is filled in, as far as decisions read it, and templates become claims of
the pod. Nothing is checked: the API server does that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeVar

import msgspec

from dra_extender.api.core import Pod, PodResourceClaimStatus
from dra_extender.api.meta import ObjectMeta, OwnerReference
from dra_extender.api.resource import DeviceClaim, DeviceRequest, DeviceSubRequest, ExactDeviceRequest, ResourceClaim
from dra_extender.api.resource import ResourceClaimSpec as Spec

EXACT: Final = "ExactCount"

S = TypeVar("S", ExactDeviceRequest, DeviceSubRequest)


class Draft(NamedTuple):
    """A pod that nobody has made, and its claims."""

    pod: Pod
    claims: tuple[ResourceClaim, ...]


def draft(
    pod: Pod, claims: Mapping[str, ResourceClaim], templates: Mapping[str, Spec], namespace: str = "default"
) -> Draft:
    """`claims` and specs of `templates` by name, as they stand beside the pod; `namespace` for what names none."""
    namespace = pod.metadata.namespace or namespace
    uid = pod.metadata.uid or f"draft-{pod.metadata.name}"
    meta = msgspec.structs.replace(pod.metadata, namespace=namespace, uid=uid)
    created: list[PodResourceClaimStatus] = []
    found: list[ResourceClaim] = []
    for entry in pod.spec.resource_claims:
        name, template = entry.resource_claim_name, entry.resource_claim_template_name
        if name and name in claims:
            found.append(_placed(claims[name], namespace))
        elif template and template in templates:
            made = f"{meta.name}-{entry.name}"
            owner = OwnerReference(kind="Pod", name=meta.name, uid=uid, api_version="v1", controller=True)
            claim = ObjectMeta(
                name=made, namespace=namespace, uid=f"draft-{namespace}/{made}", owner_references=(owner,)
            )
            found.append(ResourceClaim(claim, defaulted(templates[template])))
            created.append(PodResourceClaimStatus(entry.name, made))
    status = msgspec.structs.replace(pod.status, resource_claim_statuses=tuple(created))
    return Draft(msgspec.structs.replace(pod, metadata=meta, status=status), tuple(found))


def _placed(claim: ResourceClaim, namespace: str) -> ResourceClaim:
    meta = claim.metadata
    namespace = meta.namespace or namespace
    uid = meta.uid or f"draft-{namespace}/{meta.name}"
    meta = msgspec.structs.replace(meta, namespace=namespace, uid=uid)
    return msgspec.structs.replace(claim, metadata=meta, spec=defaulted(claim.spec))


def defaulted(spec: Spec) -> Spec:
    """With what the API server fills in (pkg/apis/resource/v1/defaults.go)."""
    requests = tuple(map(_request, spec.devices.requests))
    devices = DeviceClaim(requests=requests, constraints=spec.devices.constraints, config=spec.devices.config)
    return msgspec.structs.replace(spec, devices=devices)


def _request(request: DeviceRequest) -> DeviceRequest:
    exactly = _source(request.exactly) if request.exactly is not None else None
    return DeviceRequest(request.name, exactly, tuple(map(_source, request.first_available)))


def _source(source: S) -> S:
    mode = source.allocation_mode or EXACT
    count = source.count or (1 if mode == EXACT else 0)
    return msgspec.structs.replace(source, allocation_mode=mode, count=count)
