"""The devices of a slice, shared between all slices that publish the same ones, with their models.

Promises: equal lists of devices of one driver are one `Block`, devices with equal traits have one `DeviceModel`, equal
attribute values are one object, for as long as somebody holds them.
"""

from __future__ import annotations

import msgspec

from app.api.resource import Device
from app.devices.content import Interner, digest, shared, shared_hashable
from app.devices.models import DeviceModel, DeviceModels


class Block:
    """Devices in list order; `models[i]` is the model of device i."""

    __slots__ = ("__weakref__", "devices", "models")

    def __init__(self, driver: str, devices: tuple[Device, ...], models: DeviceModels) -> None:
        self.devices = tuple(_shared(device) for device in devices)
        self.models: tuple[DeviceModel, ...] = tuple(models(driver, device) for device in self.devices)


class Blocks:
    """The blocks in use, by content."""

    def __init__(self) -> None:
        self._blocks = Interner(Block)
        self._models = DeviceModels()

    def of(self, driver: str, devices: tuple[Device, ...]) -> Block:
        """The block of these devices."""
        return self._blocks.of((driver, digest(devices)), driver, devices, self._models)


def _shared(device: Device) -> Device:
    """The same device made of shared values."""
    return msgspec.structs.replace(
        device,
        attributes={name: shared_hashable(attribute) for name, attribute in device.attributes.items()},
        capacity=shared(device.capacity),
        consumes_counters=shared(device.consumes_counters),
        taints=shared(device.taints),
    )
