"""Traits of devices, the models that devices with equal traits share, and the blocks of devices that slices publish.

Promises: `Traits` are all that a decision may read of a device: a search, a score or an explanation reads nothing else,
and the equivalence cache compares traits as a whole. A decision that needs one more field of the device adds it to the
struct and to `traits_of`, and nowhere else; a field that selectors read goes to `cel.PublishedDevice` instead. The name
of a device and where it can be used are no traits: its pool knows them (`PooledDevice`). Equal lists of devices of one
driver are one `Block`, devices with equal traits have one `DeviceModel`, equal attribute values are one object, for as
long as they are in use.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeVar

import msgspec

from dra_extender.api.quantity import Quantity
from dra_extender.api.resource import Device, DeviceAttribute, DeviceTaint
from dra_extender.cel import PublishedDevice
from dra_extender.devices.content import Interner, SharedValues, digest
from dra_extender.devices.validity import stands_alone

CounterID = tuple[str, str]
"""(counter set, counter)."""

Consumption = tuple[tuple[str, str, int], ...]
"""What a device consumes: (counter set, counter, nano units)."""

ACTIVE_EFFECTS: Final = ("NoSchedule", "NoExecute")
"""Taints with other effects, None and unknown ones included, keep no pod away."""


class Traits(PublishedDevice, frozen=True, gc=False, omit_defaults=True):
    """What a device is, whatever its name is: what selectors read of it, and what other rules do. Immutable."""

    consumes: Consumption = ()
    partition: bool = False
    """`consumesCounters` is set."""
    taints: tuple[DeviceTaint, ...] = ()
    """Only those with an active effect, without the time at which they were added."""
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    binds_to_node: bool = False

    def attribute(self, name: str) -> DeviceAttribute | None:
        """The attribute with this full name (`domain/id`), or without the domain when that is the driver's; None when
        there is none.
        """
        found = self.attributes.get(name)
        if found is None:
            domain, _, identifier = name.partition("/")
            if domain == self.driver:
                return self.attributes.get(identifier)
        return found


def traits_of(driver: str, device: Device) -> Traits:
    """The traits of a device as its slice and the taint rules describe it."""
    return Traits.of(
        driver,
        device,
        consumes=consumption(device),
        partition=bool(device.consumes_counters),
        taints=active_taints(device),
        binding_conditions=device.binding_conditions,
        binding_failure_conditions=device.binding_failure_conditions,
        binds_to_node=device.binds_to_node is True,
    )


def consumption(device: Device) -> Consumption:
    """Counters the device consumes, in nano units."""
    if not device.consumes_counters:
        return ()
    return tuple((*counter, amount.nano) for counter, amount in counters_consumed(device))


def counters_consumed(device: Device) -> Iterator[tuple[CounterID, Quantity]]:
    """The counters that the device consumes while it is in use, and how much of each."""
    for part in device.consumes_counters:
        for name, counter in part.counters.items():
            yield (part.counter_set, name), counter.value


def active_taints(device: Device) -> tuple[DeviceTaint, ...]:
    """The taints that keep pods away."""
    if not device.taints:
        return ()
    return tuple(
        msgspec.structs.replace(taint, time_added=None) if taint.time_added else taint
        for taint in device.taints
        if taint.effect in ACTIVE_EFFECTS
    )


T = TypeVar("T")

REMEMBERED: Final = 512
"""A model forgets its answers when it has this many."""
MANY_ATTRIBUTES: Final = 64
LONG_TEXT: Final = 256


class DeviceModel:
    """Traits, and what was found out about them.

    `bare` and `rest` are equal for models whose traits are equal but for their attributes, or for ordinary ones. An
    attribute is ordinary when it has a plain value that nothing but itself depends on: versions, lists and unknown or
    overlong values are not, because one that cannot be used makes every selector fail on the device; nor is an unusual
    number of attributes, on which the cost of a selector may depend.

    Both are made on demand: a decision about one node never compares models.
    """

    __slots__ = ("__weakref__", "_bare", "_rest", "memo", "traits")

    def __init__(self, traits: Traits) -> None:
        self.traits = traits
        self._bare = self._rest = b""
        self.memo: dict[Any, Any] = {}
        """Where callers may remember what follows from the traits alone. Use `remember`, which keeps it small."""

    @property
    def bare(self) -> bytes:
        """What the traits are without their attributes."""
        if not self._bare:
            self._bare = digest(_bare(self.traits))
        return self._bare

    @property
    def rest(self) -> bytes:
        """What the traits are without their ordinary attributes."""
        if not self._rest:
            attributes = self.traits.attributes
            odd = {name: value for name, value in attributes.items() if not _ordinary(value)}
            many = len(attributes) if len(attributes) > MANY_ATTRIBUTES else 0
            self._rest = digest(_bare(self.traits), odd, many) if odd or many else self.bare
        return self._rest

    def prepare(self, values: SharedValues) -> None:
        """Make `bare` and `rest` of shared values, so that no question has to do it for all devices there are."""
        self._bare, self._rest = values.hashable(self.bare), values.hashable(self.rest)

    def remember(self, key: Any, value: T, most: int = REMEMBERED) -> T:
        """Keep `value` under `key` in `memo`, which has at most `most` entries."""
        if len(self.memo) >= most:
            self.memo.clear()
        self.memo[key] = value
        return value


def _bare(traits: Traits) -> Traits:
    return msgspec.structs.replace(traits, attributes={})


def _ordinary(attribute: DeviceAttribute) -> bool:
    value = attribute.value
    return type(value) in (bool, int) or (type(value) is str and len(value) <= LONG_TEXT)


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
        self._blocks = Interner(self._made)
        self._models = Interner(DeviceModel)
        self._values = SharedValues()

    def of(self, driver: str, devices: tuple[Device, ...]) -> Block:
        """The block of these devices."""
        return self._blocks.of((driver, digest(devices)), driver, devices)

    def _made(self, driver: str, devices: tuple[Device, ...]) -> Block:
        shared_devices = tuple(map(self._shared, devices))
        block = Block(shared_devices, tuple(self._model(driver, device) for device in shared_devices))
        for model in block.models:
            model.prepare(self._values)
        return block

    def _model(self, driver: str, device: Device) -> DeviceModel:
        """One model for devices with equal traits, for as long as it is in use."""
        traits = traits_of(driver, device)
        return self._models.of(digest(traits), traits)

    def _shared(self, device: Device) -> Device:
        """The same device made of shared values."""
        values = self._values
        return msgspec.structs.replace(
            device,
            attributes={name: values.hashable(attribute) for name, attribute in device.attributes.items()},
            capacity=values.of(device.capacity),
            consumes_counters=values.of(device.consumes_counters),
            taints=values.of(device.taints),
        )
