"""The devices of a slice, shared between all slices that publish the same ones, with their models.

Promises: equal devices lists of one driver are one `Block`, equal devices one `DeviceModel`, equal attribute values
one object, for as long as somebody holds them. What is equal is decided by a digest of everything that a selector, a
constraint or the allocator can see.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import msgspec
from cachetools import LRUCache

from app.api.quantity import Quantity
from app.api.resource import Device, DeviceAttribute
from app.devices.models import DeviceModel

P = TypeVar("P")

DIGEST_BYTES = 16
MANY_ATTRIBUTES = 64
LONG_TEXT = 256
SHARED_VALUES = 65_536
"""How many distinct values are kept for sharing; what is rarer (serial numbers) is kept by its devices only."""


def _exact(value: Any) -> Any:
    """A selector can tell how an amount was written, not only how much it is."""
    if isinstance(value, Quantity):
        return (str(value.nano), value.format, value.scale, value.fast)
    raise TypeError(f"{type(value).__name__} is no part of a device")


_encoder = msgspec.json.Encoder(enc_hook=_exact, order="deterministic")
_parts: LRUCache[bytes, Any] = LRUCache(SHARED_VALUES)


def digest(value: Any) -> bytes:
    """The content of structs, lists and maps as a digest; the order of maps does not matter."""
    return blake2b(_encoder.encode(value), digest_size=DIGEST_BYTES).digest()


class Block:
    """Devices in list order; `models[i]` is what device i is apart from its name."""

    __slots__ = ("__weakref__", "devices", "models")

    def __init__(self, devices: tuple[Device, ...], models: tuple[DeviceModel, ...]) -> None:
        self.devices = devices
        self.models = models


class Blocks:
    """The blocks and models in use, by content."""

    def __init__(self) -> None:
        self._blocks: WeakValueDictionary[tuple[str, bytes], Block] = WeakValueDictionary()
        self._models: WeakValueDictionary[tuple[str, bytes], DeviceModel] = WeakValueDictionary()

    def of(self, driver: str, devices: tuple[Device, ...]) -> Block:
        """The block of these devices."""
        key = driver, digest(devices)
        block = self._blocks.get(key)
        if block is None:
            shared = tuple(_shared(device) for device in devices)
            block = self._blocks[key] = Block(shared, tuple(self.model(driver, device) for device in shared))
        return block

    def model(self, driver: str, device: Device) -> DeviceModel:
        """The model of one device."""
        key = driver, digest(msgspec.structs.replace(device, name=""))
        model = self._models.get(key)
        if model is None:
            model = self._models[key] = DeviceModel(driver, device, key[1], _rest(device))
        return model

    def __len__(self) -> int:
        return len(self._blocks)


def _rest(device: Device) -> bytes:
    """The content without ordinary attributes.

    Versions, lists and unknown or overlong values are not ordinary: one that cannot be used makes every selector fail
    on the device. Nor is an unusual number of attributes, on which the cost of a selector may depend.
    """
    odd = {name: value for name, value in device.attributes.items() if not _ordinary(value)}
    many = len(device.attributes) if len(device.attributes) > MANY_ATTRIBUTES else 0
    return digest((msgspec.structs.replace(device, name="", attributes=odd), many))


def _ordinary(attribute: DeviceAttribute) -> bool:
    value = attribute.value
    return type(value) in (bool, int) or (type(value) is str and len(value) <= LONG_TEXT)


def _shared(device: Device) -> Device:
    """The same device made of shared values."""
    return msgspec.structs.replace(
        device,
        attributes={name: _shared_attribute(attribute) for name, attribute in device.attributes.items()},
        capacity=_shared_part(device.capacity),
        consumes_counters=_shared_part(device.consumes_counters),
        taints=_shared_part(device.taints),
    )


@lru_cache(maxsize=SHARED_VALUES)
def _shared_attribute(attribute: DeviceAttribute) -> DeviceAttribute:
    return attribute


def _shared_part(value: P) -> P:
    """The first value of this content that was seen lately."""
    return _parts.setdefault(_encoder.encode(value), value) if value else value
