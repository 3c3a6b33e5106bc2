"""What a device is, apart from its name: the part that equal devices share.

Promises: a `DeviceModel` is immutable and holds amounts as exact integers (nano units); two devices with equal content
may share one model, so whatever is computed from a model (a selector's answer, a taint check) is computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, TypeVar

import msgspec

from app.api.quantity import Quantity
from app.api.resource import AttributeValue, Device, DeviceCapacity, DeviceTaint, attribute_values

Consumption = tuple[tuple[str, str, int], ...]
"""What a device consumes: (counter set, counter, nano units)."""

ACTIVE_EFFECTS: Final = ("NoSchedule", "NoExecute")
"""All other effects, None and unknown ones, keep nobody away."""


T = TypeVar("T")

REMEMBERED: Final = 512
"""How many answers a model remembers before it starts anew."""


class DeviceModel:
    """The static part of a device, without its name, its pool and its node selection."""

    __slots__ = (
        "__weakref__",
        "attributes",
        "binding_conditions",
        "binding_failure_conditions",
        "binds_to_node",
        "capacity",
        "consumes",
        "device",
        "driver",
        "key",
        "memo",
        "multi",
        "rest",
        "taints",
    )

    driver: str
    device: Device
    """One of the devices of this model; its name says nothing."""
    attributes: Mapping[str, AttributeValue | None]
    """As published, without a default domain; None marks a value of an unknown type."""
    capacity: Mapping[str, DeviceCapacity]
    consumes: Consumption
    taints: tuple[DeviceTaint, ...]
    """Only those with an active effect."""
    multi: bool
    """`allowMultipleAllocations`, whatever the features are."""
    memo: dict[Any, Any]
    """Where callers may remember what follows from the model alone. Use `remember`, which keeps it small."""
    key: bytes
    """Equal keys mean equal content, whatever the driver is; empty when nobody computed it."""
    rest: bytes
    """As `key`, but ordinary attributes do not count: those with a plain value that nothing but itself depends on."""

    def __init__(self, driver: str, device: Device, key: bytes = b"", rest: bytes = b"") -> None:
        self.driver = driver
        self.device = device
        self.key = key
        self.rest = rest
        self.attributes = attribute_values(device.attributes)
        self.capacity = device.capacity
        self.consumes = consumption(device)
        self.taints = tuple(taint for taint in device.taints if taint.effect in ACTIVE_EFFECTS)
        self.multi = device.allow_multiple_allocations is True
        self.binding_conditions = device.binding_conditions
        self.binding_failure_conditions = device.binding_failure_conditions
        self.binds_to_node = device.binds_to_node is True
        self.memo = {}

    def remember(self, key: Any, value: T) -> T:
        """Keep `value` under `key` in `memo`."""
        if len(self.memo) >= REMEMBERED:
            self.memo.clear()
        self.memo[key] = value
        return value

    def attribute(self, name: str) -> DeviceModelAttribute:
        """The attribute with this full name (`domain/id`), or without the domain when that is the driver's.

        The result is (present, value): an attribute of an unknown type is present with the value None.
        """
        attributes = self.attributes
        if name in attributes:
            return True, attributes[name]
        domain, _, identifier = name.partition("/")
        if domain == self.driver and identifier in attributes:
            return True, attributes[identifier]
        return False, None

    @property
    def amounts(self) -> Mapping[str, Quantity]:
        """The capacity without policies, as selectors see it."""
        return {name: capacity.value for name, capacity in self.capacity.items()}


DeviceModelAttribute = tuple[bool, AttributeValue | None]

ModelSource = Callable[[str, Device], DeviceModel]
"""(driver, device) -> its model; a source may answer equal devices with one object."""


def consumption(device: Device) -> Consumption:
    """Counters the device consumes, in nano units."""
    return tuple(
        (part.counter_set, name, counter.value.nano)
        for part in device.consumes_counters
        for name, counter in part.counters.items()
    )


class DeviceModels:
    """A source that shares models between devices of equal content, for as long as it lives."""

    def __init__(self) -> None:
        self._models: dict[tuple[str, bytes], DeviceModel] = {}

    def __call__(self, driver: str, device: Device) -> DeviceModel:
        key = driver, _content(device)
        model = self._models.get(key)
        if model is None:
            model = self._models[key] = DeviceModel(driver, device)
        return model


def _content(device: Device) -> bytes:
    return _encoder().encode(msgspec.structs.replace(device, name=""))


@lru_cache(maxsize=1)
def _encoder() -> msgspec.json.Encoder:
    return msgspec.json.Encoder(enc_hook=_exact, order="deterministic")


def _exact(value: object) -> object:
    """A selector can tell how an amount was written, not only how much it is."""
    if isinstance(value, Quantity):
        return str(value.nano), value.format, value.scale, value.fast
    raise TypeError(f"{type(value).__name__} is no part of a device")
