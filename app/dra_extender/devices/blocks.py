"""The devices of a slice with their models, and what follows from them alone: found out once for all slices with the
same devices.

Promises: equal lists of devices of one driver are one `Block`, devices with equal traits have one `DeviceModel`, equal
attribute values are one object, for as long as somebody holds them.
"""

from __future__ import annotations

import msgspec

from dra_extender.api.resource import Device
from dra_extender.devices.content import Interner, digest, shared, shared_hashable
from dra_extender.devices.models import DeviceModel, DeviceModels
from dra_extender.devices.validity import stands_alone


class Block:
    """Devices in list order; `names[i]` and `models[i]` are those of device i. Immutable.

    `late`: one has binding conditions. `stands_alone`: a pool of these alone has no defect.
    """

    __slots__ = ("__weakref__", "devices", "late", "models", "names", "stands_alone")

    def __init__(self, devices: tuple[Device, ...], models: tuple[DeviceModel, ...]) -> None:
        self.devices = devices
        self.models = models
        self.names = tuple([device.name for device in devices])
        self.late = any(model.traits.binding_conditions for model in models)
        self.stands_alone = stands_alone(devices)


class Blocks:
    """The blocks in use, by content."""

    def __init__(self) -> None:
        self._blocks = Interner(_shared_block)
        self._models = DeviceModels()

    def of(self, driver: str, devices: tuple[Device, ...]) -> Block:
        """The block of these devices."""
        return self._blocks.of((driver, digest(devices)), driver, devices, self._models)


def _shared_block(driver: str, devices: tuple[Device, ...], models: DeviceModels) -> Block:
    """Made of shared values, and ready to be compared, so that no question has to do it for all devices there are."""
    shared_devices = tuple(_shared(device) for device in devices)
    block = Block(shared_devices, tuple(models(driver, device) for device in shared_devices))
    for model in block.models:
        _ = model.rest
    return block


def _shared(device: Device) -> Device:
    """The same device made of shared values."""
    return msgspec.structs.replace(
        device,
        attributes={name: shared_hashable(attribute) for name, attribute in device.attributes.items()},
        capacity=shared(device.capacity),
        consumes_counters=shared(device.consumes_counters),
        taints=shared(device.taints),
    )
