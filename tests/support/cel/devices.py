"""Devices as selectors see them, from plain values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from dra_extender.api.quantity import Quantity
from dra_extender.api.resource import DeviceAttribute, DeviceCapacity
from dra_extender.api.semver import VersionText
from dra_extender.cel import CelGates, DeviceView, PublishedDevice

_KINDS = {VersionText: "version", str: "string", bool: "bool", int: "int"}


def attribute(value: Any) -> DeviceAttribute:
    """The attribute with this value; a list takes the kind of its first element, an empty one is of texts. A value of
    another type becomes an attribute of a type that is not known.
    """
    several = value if isinstance(value, list) else [value]
    kind = _KINDS.get(type(several[0])) if several else "string"
    if kind is None:
        return DeviceAttribute()
    plain = [str(item) if kind == "version" else item for item in several]
    return msgspec.convert({f"{kind}s": plain} if isinstance(value, list) else {kind: plain[0]}, DeviceAttribute)


def published(
    driver: str, attributes: Mapping[str, Any] = {}, capacity: Mapping[str, str] = {}, multi: bool = False
) -> PublishedDevice:
    return PublishedDevice(
        driver=driver,
        attributes={name: attribute(value) for name, value in attributes.items()},
        capacity={name: DeviceCapacity(Quantity.parse(value)) for name, value in capacity.items()},
        multi=multi,
    )


def view_of(
    driver: str,
    attributes: Mapping[str, Any] = {},
    capacity: Mapping[str, str] = {},
    multi: bool = False,
    gates: CelGates = CelGates(),
) -> DeviceView:
    return DeviceView.build(published(driver, attributes, capacity, multi), gates)
