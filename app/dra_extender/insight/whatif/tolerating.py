"""Pods and claims as they would be with more tolerations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from msgspec.structs import replace

from dra_extender.api.core import Pod, Toleration
from dra_extender.api.resource import (
    DeviceRequest,
    DeviceSubRequest,
    DeviceToleration,
    ExactDeviceRequest,
    ResourceClaim,
)

S = TypeVar("S", ExactDeviceRequest, DeviceSubRequest)


def tolerant_pod(pod: Pod, more: Sequence[Toleration]) -> Pod:
    """The pod, tolerating the taints of nodes as well."""
    return replace(pod, spec=replace(pod.spec, tolerations=(*pod.spec.tolerations, *more)))


def tolerant_claim(claim: ResourceClaim, more: Sequence[Toleration]) -> ResourceClaim:
    """The claim, tolerating the taints of devices as well, with every request."""
    added = tuple(DeviceToleration(item.key, item.operator, item.value, item.effect) for item in more)
    requests = tuple(_request(request, added) for request in claim.spec.devices.requests)
    devices = replace(claim.spec.devices, requests=requests)
    return replace(claim, spec=replace(claim.spec, devices=devices))


def _request(request: DeviceRequest, more: tuple[DeviceToleration, ...]) -> DeviceRequest:
    exactly = _source(request.exactly, more) if request.exactly is not None else None
    alternatives = tuple(_source(item, more) for item in request.first_available)
    return replace(request, exactly=exactly, first_available=alternatives)


def _source(source: S, more: tuple[DeviceToleration, ...]) -> S:
    return replace(source, tolerations=(*source.tolerations, *more))
