"""Traits of devices, the models that devices with equal traits share, and the device lists of slices.

Promises: a search, a score or an explanation reads nothing of a device but its `Traits`, and the equivalence cache
compares whole traits. A new field that decisions read is added to the struct and to `traits_of`; a field that selectors
read is added to `cel.PublishedDevice`. The name and the node selection of a device are not traits (`PooledDevice` has
them). While in use, equal lists of devices of one driver are one `DeviceList`, devices with equal traits have one
`DeviceModel`, and equal attribute values are one object.

Compatibility groups: devices in use on one counter set have a group in common, or none of them has groups (Kubernetes
1.37, structured/internal/experimental/compatibility_groups.go).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from dra_extender.api.quantity import Quantity
from dra_extender.api.resource import Device, DeviceAttribute, DeviceTaint, NodeAllocatableResource
from dra_extender.cel import PublishedDevice
from dra_extender.devices.content import Interner, SharedValues, digest
from dra_extender.devices.nodeselection import NodeSelection
from dra_extender.devices.validity import valid_alone

CounterID = tuple[str, str]
"""(counter set, counter)."""

Consumption = tuple[tuple[str, str, int], ...]
"""What a device consumes: (counter set, counter, nano units)."""

ACTIVE_EFFECTS: Final = ("NoSchedule", "NoExecute")
"""The effects that keep pods away. Other effects do not, also None and unknown effects."""


class Traits(PublishedDevice, frozen=True, gc=False, omit_defaults=True):
    """All properties of a device that decisions read. Immutable."""

    consumes: Consumption = ()
    partition: bool = False
    """`consumesCounters` is set."""
    groups: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """The compatibility groups of the counter sets on which it has some."""
    taints: tuple[DeviceTaint, ...] = ()
    """The taints with an active effect, without `timeAdded`."""
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    binds_to_node: bool = False
    node_allocatable_resources: dict[str, NodeAllocatableResource] = msgspec.field(default_factory=dict)

    def attribute(self, name: str) -> DeviceAttribute | None:
        """The attribute with this full name (`domain/id`); the driver's own domain may be left out. None without it."""
        return attribute_of(self.driver, self.attributes, name)


def attribute_of(driver: str, attributes: Mapping[str, DeviceAttribute], name: str) -> DeviceAttribute | None:
    """See `Traits.attribute`."""
    found = attributes.get(name)
    if found is None:
        domain, _, identifier = name.partition("/")
        if domain == driver:
            return attributes.get(identifier)
    return found


def traits_of(driver: str, device: Device) -> Traits:
    """The traits of a published device, to which taint rules have been applied."""
    return Traits.of(
        driver,
        device,
        consumes=consumption(device),
        partition=bool(device.consumes_counters),
        groups=tuple(
            (part.counter_set, tuple(sorted(part.compatibility_groups)))
            for part in device.consumes_counters
            if part.compatibility_groups
        ),
        taints=tuple(
            msgspec.structs.replace(taint, time_added=None) if taint.time_added else taint
            for taint in device.taints
            if taint.effect in ACTIVE_EFFECTS
        ),
        binding_conditions=device.binding_conditions,
        binding_failure_conditions=device.binding_failure_conditions,
        binds_to_node=device.binds_to_node is True,
        node_allocatable_resources=device.node_allocatable_resources,
    )


def consumption(device: Device) -> Consumption:
    """Counters the device consumes, in nano units."""
    return tuple((*counter, amount.nano) for counter, amount in counters_consumed(device))


def counters_consumed(device: Device) -> Iterator[tuple[CounterID, Quantity]]:
    """The counters that the device consumes while it is in use, and how much of each."""
    for part in device.consumes_counters:
        for name, counter in part.counters.items():
            yield (part.counter_set, name), counter.value


T = TypeVar("T")

REMEMBERED: Final = 512
"""A model forgets its answers when it has this many."""
MANY_ATTRIBUTES: Final = 64
LONG_TEXT: Final = 256


class Memo:
    """`memo`: results that follow from the object alone, by key. `remember` bounds their number."""

    __slots__ = ()
    memo: dict[Any, Any]

    def remember(self, key: Any, value: T, most: int = REMEMBERED) -> T:
        """Keep `value` under `key` in `memo`, which has at most `most` entries."""
        if len(self.memo) >= most:
            self.memo.clear()
        self.memo[key] = value
        return value


class DeviceModel(Memo):
    """Traits, and memoised results that follow from them.

    Models with equal `bare` differ only in attributes; models with equal `rest` differ only in ordinary attributes. An
    attribute is ordinary if only selectors that name it depend on it: a bool, an int or a short text. `rest` has the
    other attributes (an invalid version, list or long text makes every selector fail on the device), and the number of
    attributes when it is large (it can make selectors expensive).
    """

    __slots__ = ("__weakref__", "bare", "memo", "rest", "traits")

    def __init__(self, traits: Traits, shared: Callable[[bytes], bytes] = bytes) -> None:
        """`shared` makes equal digests one object."""
        attributes, bare = traits.attributes, msgspec.structs.replace(traits, attributes={})
        odd = {name: value for name, value in attributes.items() if not _ordinary(value)}
        many = len(attributes) if len(attributes) > MANY_ATTRIBUTES else 0
        self.traits = traits
        self.bare = shared(digest(bare))
        """Digest of the traits without attributes."""
        self.rest = shared(digest(bare, odd, many)) if odd or many else self.bare
        """Digest of the traits without ordinary attributes."""
        self.memo = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return DeviceModel, (self.traits,)


def _ordinary(attribute: DeviceAttribute) -> bool:
    value = attribute.value
    return type(value) in (bool, int) or (type(value) is str and len(value) <= LONG_TEXT)


class Partitions(NamedTuple):
    """What the devices of a slice consume of counters. `needs`: the counter sets and counters that have to be defined.
    `grouped`: a device has compatibility groups.
    """

    consumers: tuple[tuple[str, Traits], ...] = ()
    needs: frozenset[str | CounterID] = frozenset()
    grouped: bool = False


_NO_PARTITIONS: Final = Partitions()


class DeviceList:
    """The devices of a slice, in its order; `names[i]` and `models[i]` belong to device i. Immutable.

    `late`: a device has binding conditions. `valid_alone`: a pool of these devices only has no defect.
    """

    __slots__ = ("__weakref__", "_partitions", "_selections", "devices", "late", "models", "names", "valid_alone")

    def __init__(self, devices: tuple[Device, ...], models: tuple[DeviceModel, ...]) -> None:
        self.devices = devices
        self.models = models
        self.names = tuple([device.name for device in devices])
        self.late = any(model.traits.binding_conditions for model in models)
        self.valid_alone = valid_alone(devices)
        self._selections: tuple[NodeSelection, ...] | None = None
        self._partitions: Partitions | None = None

    @property
    def selections(self) -> tuple[NodeSelection, ...]:
        """The nodes that can use each device, where devices of the slice select nodes of their own."""
        if self._selections is None:
            self._selections = tuple(map(NodeSelection, self.devices))
        return self._selections

    @property
    def partitions(self) -> Partitions:
        if self._partitions is None:
            named = zip(self.names, self.models, strict=True)
            consumers = tuple([(name, model.traits) for name, model in named if model.traits.partition])
            parts = [part for device in self.devices for part in device.consumes_counters]
            needs = {(part.counter_set, name) for part in parts for name in part.counters}
            sets = {part.counter_set for part in parts}
            grouped = any(part.compatibility_groups for part in parts)
            self._partitions = Partitions(consumers, frozenset((*needs, *sets)), grouped) if parts else _NO_PARTITIONS
        return self._partitions


class DeviceLists:
    """The device lists in use, one per content."""

    def __init__(self) -> None:
        self._device_lists = Interner[DeviceList]()
        self._models = Interner[DeviceModel]()
        self._values = SharedValues()

    def of(self, driver: str, devices: tuple[Device, ...]) -> DeviceList:
        return self._device_lists.of((driver, digest(devices)), self._made, driver, devices)

    def _made(self, driver: str, devices: tuple[Device, ...]) -> DeviceList:
        shared_devices = tuple(map(self._shared, devices))
        return DeviceList(shared_devices, tuple(self._model(driver, device) for device in shared_devices))

    def _model(self, driver: str, device: Device) -> DeviceModel:
        """The one model of devices with equal traits."""
        traits = traits_of(driver, device)
        return self._models.of(digest(traits), DeviceModel, traits, self._values.hashable)

    def _shared(self, device: Device) -> Device:
        """An equal device with shared values."""
        values = self._values
        return msgspec.structs.replace(
            device,
            attributes={name: values.hashable(attribute) for name, attribute in device.attributes.items()},
            capacity=values.of(device.capacity),
            consumes_counters=values.of(device.consumes_counters),
            taints=values.of(device.taints),
        )


Groups = frozenset[str]
"""What the devices in use on a counter set have in common; empty if they have no groups."""

SetGroups = tuple[tuple[str, Groups], ...]
"""The groups of one device, by counter set that it consumes."""

_NONE_LEFT: Final[Groups] = frozenset(("",))
"""Devices in use that have no group in common: nothing is compatible with them."""


def declared_groups(traits: Traits) -> SetGroups:
    """Of a device with these traits."""
    declared: Mapping[str, Iterable[str]] = dict(traits.groups)
    names = dict.fromkeys(name for name, _, _ in traits.consumes)
    return tuple((name, frozenset(declared.get(name, ()))) for name in names)


def admits(in_use: Groups | None, groups: Groups) -> bool:
    """Whether a device may join those in use; None: no device is in use."""
    if in_use is None or not in_use or not groups:
        return in_use is None or in_use == groups
    return not in_use.isdisjoint(groups)


def joined(in_use: Groups | None, groups: Groups) -> Groups:
    """What is common to the devices in use and one more."""
    if in_use is None:
        return groups
    return in_use & groups or _NONE_LEFT if in_use and groups else in_use
