"""Traits: all that a decision may read of a device.

Promises: made once per device from what the slice (and taint rules) say. A search, a score or an explanation reads
nothing else of a device, and the cache of verdicts compares traits as a whole: a decision that needs one more field of
the device adds it here, in the struct and in `traits_of`, and nowhere else.

What a device is called and where it can be used are no traits: its pool knows that (`PooledDevice`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from dra_extender.api.quantity import Quantity
from dra_extender.api.resource import (
    AttributeValue,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceTaint,
    attribute_values,
)

CounterID = tuple[str, str]
"""(counter set, counter)."""

Consumption = tuple[tuple[str, str, int], ...]
"""What a device consumes: (counter set, counter, nano units)."""

ACTIVE_EFFECTS: Final = ("NoSchedule", "NoExecute")
"""All other effects, None and unknown ones, keep nobody away."""


class Traits(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What a device is, whatever its name is. Immutable."""

    driver: str
    attributes: Mapping[str, DeviceAttribute] = {}
    """As published, without a default domain."""
    capacity: Mapping[str, DeviceCapacity] = {}
    """With request policies."""
    consumes: Consumption = ()
    partition: bool = False
    """`consumesCounters` is set."""
    taints: tuple[DeviceTaint, ...] = ()
    """Only those with an active effect, without the time at which they were added."""
    multi: bool = False
    """`allowMultipleAllocations`, whatever the features are."""
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

    @property
    def attribute_values(self) -> Mapping[str, AttributeValue | None]:
        """The plain values, as selectors see them; None marks a value of an unknown type."""
        return attribute_values(self.attributes)

    @property
    def amounts(self) -> Mapping[str, Quantity]:
        """The capacity without policies, as selectors see it."""
        return {name: capacity.value for name, capacity in self.capacity.items()}


def traits_of(driver: str, device: Device) -> Traits:
    """The traits of a device as its slice and the taint rules describe it."""
    return Traits(
        driver=driver,
        attributes=device.attributes,
        capacity=device.capacity,
        consumes=consumption(device),
        partition=bool(device.consumes_counters),
        taints=active_taints(device),
        multi=device.allow_multiple_allocations is True,
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
