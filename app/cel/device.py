"""A device as selectors see it, and what they read of it.

A `DeviceView` is built once when a device becomes known: names are split into domain and id, versions parsed. A device
with a value that cannot be used poisons its view: every evaluation on it fails, as upstream's do, but building never
raises.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Final

import msgspec

from app.api.quantity import Quantity
from app.api.semver import Semver, VersionText
from app.cel.environment import CelGates
from app.cel.errors import CelRuntimeError
from app.cel.values import EMPTY, Domains

Scalar = int | bool | str | VersionText
AttributeValue = Scalar | tuple[Scalar, ...] | list[Scalar]
Read = tuple[str, str, str]
"""("attributes" or "capacity", domain, id)"""

_LONG: Final = 1024
_MANY: Final = 256


class ReadSet(msgspec.Struct, frozen=True):
    """What an expression reads of a device. `everything` when it iterates or computes what to read."""

    driver: bool = False
    allow_multiple: bool = False
    entries: tuple[Read, ...] = ()
    domains: tuple[tuple[str, str], ...] = ()
    """("attributes" or "capacity", domain): whether the domain exists is read."""
    everything: bool = False


class DeviceView:
    """A device at run time. `attributes` and `capacity` map domain to id to value.

    `poison` is the error of every evaluation, if the device has a value that cannot be used. `modest` tells that it has
    no more and no longer values than the API allows, so that the cost of simple expressions is bounded.
    """

    __slots__ = ("_everything", "allow_multiple", "attributes", "capacity", "driver", "modest", "poison")

    driver: str
    allow_multiple: bool
    attributes: Domains
    capacity: Domains
    poison: CelRuntimeError | None
    modest: bool
    _everything: Hashable

    @classmethod
    def build(
        cls,
        driver: str,
        attributes: Mapping[str, Any],
        capacity: Mapping[str, Quantity],
        allow_multiple: bool = False,
        gates: CelGates = CelGates(),
    ) -> DeviceView:
        """The view of a device.

        `attributes` maps a name, with or without a domain, to an int, bool, str, VersionText, or a list or tuple of
        these; any other value is one of an unknown type. If a name is there both with the driver's domain and without
        one, the one without is used (upstream it is a matter of luck).
        """
        self = cls()
        self.driver = driver
        self.allow_multiple = allow_multiple
        self.attributes = Domains()
        self.capacity = Domains()
        self.poison = None
        self.modest = len(attributes) + len(capacity) <= _MANY and len(driver) <= _LONG
        self._everything = None
        for name, raw in sorted(attributes.items(), key=_qualified_first):
            try:
                value = _value(raw, gates)
            except ValueError as error:
                self.poison = CelRuntimeError(
                    f"attribute {name}: {error}", "the device cannot be selected until it is fixed"
                )
                break
            domain, id_ = split_name(name, driver)
            self.attributes.setdefault(domain, {})[id_] = value
            self.modest = self.modest and not (value.__class__ in (str, list) and len(value) > _LONG)
        for name, quantity in sorted(capacity.items(), key=_qualified_first):
            domain, id_ = split_name(name, driver)
            self.capacity.setdefault(domain, {})[id_] = quantity
        return self

    @property
    def fields(self) -> dict[str, Any]:
        """The device as a map."""
        return {
            "driver": self.driver,
            "allowMultipleAllocations": self.allow_multiple,
            "attributes": self.attributes,
            "capacity": self.capacity,
        }

    def read_key(self, reads: ReadSet) -> Hashable:
        """The values an expression reads, with their types: equal keys get equal answers."""
        poison = self.poison
        if poison is not None:
            return poison.message
        if reads.everything:
            return self._all_values()
        key: list[Hashable] = []
        if reads.driver:
            key.append(self.driver)
        if reads.allow_multiple:
            key.append(self.allow_multiple)
        attributes, capacity = self.attributes, self.capacity
        for kind, domain, id_ in reads.entries:
            value = (attributes if kind == "attributes" else capacity).get(domain, EMPTY).get(id_)
            kind_ = value.__class__
            if kind_ is str:
                key.append(value)
            else:
                key.append(_typed(value))
        for kind, domain in reads.domains:
            key.append(domain in (attributes if kind == "attributes" else capacity))
        return tuple(key)

    def _all_values(self) -> Hashable:
        """Everything there is, in the order in which it would be iterated."""
        if self._everything is None:
            parts = tuple(
                tuple(
                    (domain, tuple((id_, _typed(value)) for id_, value in entries.items()))
                    for domain, entries in domains.items()
                )
                for domains in (self.attributes, self.capacity)
            )
            self._everything = (self.driver, self.allow_multiple, *parts)
        return self._everything


def _typed(value: Any) -> Hashable:
    """A value together with what tells it from equal values: type, text of versions, form of quantities."""
    kind = value.__class__
    if kind is list:
        return (list, tuple(map(_typed, value)))
    if kind is Semver:
        return (Semver, value.text)
    if isinstance(value, Quantity):
        return (Quantity, value.nano, value.fast, value.scale, value.format)
    return (kind, value)


def split_name(name: str, driver: str) -> tuple[str, str]:
    """Domain and id of the name of an attribute or capacity; the domain is the driver's unless there is a slash."""
    domain, slash, id_ = name.partition("/")
    return (domain, id_) if slash else (driver, name)


def _qualified_first(item: tuple[str, Any]) -> tuple[bool, str]:
    return "/" not in item[0], item[0]


def _value(raw: Any, gates: CelGates) -> Any:
    """The run-time value of an attribute. Raises ValueError."""
    kind = raw.__class__
    if kind is str or kind is bool or kind is int:
        return raw
    if kind is VersionText:
        return _version(raw)
    if (kind is list or kind is tuple) and gates.list_attributes:
        return [_element(element) for element in raw]
    raise ValueError("unsupported attribute value")


def _element(raw: Any) -> Any:
    if raw.__class__ is VersionText:
        return _version(raw)
    if isinstance(raw, str | bool | int):
        return raw
    raise ValueError("unsupported attribute value")


def _version(text: VersionText) -> Semver:
    try:
        return Semver.parse(text)
    except ValueError as error:
        raise ValueError(f"parse semantic version: {error}") from None
