"""resource.k8s.io/v1beta1, decoded into the v1 structs (v1beta2 has the layout of v1 and needs no conversion).

Rules: pkg/apis/resource/v1beta1/conversion.go, Kubernetes 1.36. Devices carry their fields under `basic`;
requests carry those of an exact request directly. Status is the same in all versions: writes need no conversion.
"""

from __future__ import annotations

import msgspec

from dra_extender.api import resource as v1
from dra_extender.api.meta import Object, ObjectMeta


class Device(Object, frozen=True, gc=False):
    name: str
    basic: BasicDevice | None = None


class BasicDevice(v1.Device, frozen=True, gc=False, kw_only=True):
    """The fields of a v1 device; the name stays outside."""

    name: str = ""


class ResourceSliceSpec(v1.ResourceSliceSpec, frozen=True, gc=False, kw_only=True):
    devices: tuple[Device, ...] = ()  # type: ignore[assignment]  # the one field with another layout


class ResourceSlice(Object, frozen=True, gc=False):
    metadata: ObjectMeta
    spec: ResourceSliceSpec

    def convert(self) -> v1.ResourceSlice:
        spec = msgspec.structs.asdict(self.spec)
        spec["node_name"] = self.spec.node_name or None
        spec["all_nodes"] = self.spec.all_nodes or None
        spec["devices"] = tuple(_device(device) for device in self.spec.devices)
        return v1.ResourceSlice(metadata=self.metadata, spec=v1.ResourceSliceSpec(**spec))


class DeviceRequest(v1.ExactDeviceRequest, frozen=True, gc=False, kw_only=True):
    name: str
    first_available: tuple[v1.DeviceSubRequest, ...] = ()


class DeviceClaim(Object, frozen=True, gc=False):
    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[v1.DeviceConstraint, ...] = ()
    config: tuple[v1.DeviceClaimConfiguration, ...] = ()


class ResourceClaimSpec(Object, frozen=True, gc=False):
    devices: DeviceClaim = DeviceClaim()


class ResourceClaim(Object, frozen=True, gc=False):
    metadata: ObjectMeta
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: v1.ResourceClaimStatus = v1.ResourceClaimStatus()

    def convert(self) -> v1.ResourceClaim:
        devices = self.spec.devices
        requests = tuple(_request(request) for request in devices.requests)
        claim = v1.DeviceClaim(requests=requests, constraints=devices.constraints, config=devices.config)
        return v1.ResourceClaim(metadata=self.metadata, spec=v1.ResourceClaimSpec(devices=claim), status=self.status)


def _device(device: Device) -> v1.Device:
    if device.basic is None:
        return v1.Device(name=device.name)
    fields = msgspec.structs.asdict(device.basic)
    fields["name"] = device.name
    return v1.Device(**fields)


def _request(request: DeviceRequest) -> v1.DeviceRequest:
    fields = {field: getattr(request, field) for field in v1.ExactDeviceRequest.__struct_fields__}
    exact = v1.ExactDeviceRequest(**fields)
    present = exact != v1.ExactDeviceRequest()
    return v1.DeviceRequest(
        name=request.name, exactly=exact if present else None, first_available=request.first_available
    )
