"""A device as selectors see it, and what they read of it.

A `DeviceView` is built once when a device becomes known: names are split into domain and id, versions parsed. A device
with a value that cannot be used has an error: every evaluation on it fails, as upstream's do, but building never
raises.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Final

import msgspec

from dra_extender.api.quantity import Quantity
from dra_extender.api.semver import Semver, VersionText
from dra_extender.cel.environment import CelGates
from dra_extender.cel.errors import CelRuntimeError
from dra_extender.cel.values import Domains

Scalar = int | bool | str | VersionText
AttributeValue = Scalar | tuple[Scalar, ...] | list[Scalar]
Read = tuple[str, str, str]
"""("attributes" or "capacity", domain, id)"""

_UNUSABLE_HINT: Final = "the device cannot be used until it is fixed"


class ReadSet(msgspec.Struct, frozen=True):
    """What an expression reads of a device. `everything` when it iterates or computes what to read."""

    driver: bool = False
    allow_multiple: bool = False
    entries: tuple[Read, ...] = ()
    domains: tuple[tuple[str, str], ...] = ()
    """("attributes" or "capacity", domain): whether the domain exists is read."""
    everything: bool = False


class DeviceView:
    """A device at run time.

    `attribute_values` and `capacity_values` map "domain/id" to value. `error` is the error of every evaluation, if the
    device has a value that cannot be used.
    """

    __slots__ = (
        "_attributes",
        "_capacity",
        "_everything",
        "allow_multiple",
        "attribute_values",
        "capacity_values",
        "driver",
        "error",
    )

    driver: str
    allow_multiple: bool
    attribute_values: dict[str, Any]
    capacity_values: dict[str, Any]
    error: CelRuntimeError | None
    _attributes: Domains | None
    _capacity: Domains | None
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
        self.error = None
        self._attributes = self._capacity = self._everything = None
        self.attribute_values = values = dict[str, Any]()
        for name, raw in sorted(attributes.items(), key=_qualified_first):
            try:
                values[name if "/" in name else f"{driver}/{name}"] = _value(raw, gates)
            except ValueError as problem:
                self.error = CelRuntimeError(f"attribute {name}: {problem}", _UNUSABLE_HINT)
                break
        self.capacity_values = {
            name if "/" in name else f"{driver}/{name}": quantity
            for name, quantity in sorted(capacity.items(), key=_qualified_first)
        }
        return self

    @property
    def attributes(self) -> Domains:
        """Domain to id to value."""
        if self._attributes is None:
            self._attributes = _by_domain(self.attribute_values)
        return self._attributes

    @property
    def capacity(self) -> Domains:
        """Domain to id to quantity."""
        if self._capacity is None:
            self._capacity = _by_domain(self.capacity_values)
        return self._capacity

    @property
    def fields(self) -> dict[str, Any]:
        """The device as a map."""
        return {
            "driver": self.driver,
            "allowMultipleAllocations": self.allow_multiple,
            "attributes": self.attributes,
            "capacity": self.capacity,
        }

    def root(self, name: str) -> dict[str, Any]:
        """The device: the only variable."""
        return self.fields

    def read_key(self, reads: ReadSet) -> Hashable:
        """The values an expression reads, with their types: equal keys get equal answers."""
        error = self.error
        if error is not None:
            return error.message
        if reads.everything:
            return self._all_values()
        key: list[Hashable] = []
        if reads.driver:
            key.append(self.driver)
        if reads.allow_multiple:
            key.append(self.allow_multiple)
        for kind, domain, id_ in reads.entries:
            values = self.attribute_values if kind == "attributes" else self.capacity_values
            value = values.get(f"{domain}/{id_}")
            key.append(value if value.__class__ is str else _typed(value))
        for kind, domain in reads.domains:
            key.append(domain in (self.attributes if kind == "attributes" else self.capacity))
        return tuple(key)

    def _all_values(self) -> Hashable:
        """Everything there is, in the order in which it would be iterated."""
        if self._everything is None:
            parts = tuple(
                tuple((name, _typed(value)) for name, value in values.items())
                for values in (self.attribute_values, self.capacity_values)
            )
            self._everything = (self.driver, self.allow_multiple, *parts)
        return self._everything


def _typed(value: Any) -> Hashable:
    """A value together with what distinguishes it from equal values: type, text of versions, form of quantities."""
    kind = value.__class__
    if kind is list:
        return (list, tuple(map(_typed, value)))
    if kind is Semver:
        return (Semver, value.text)
    if isinstance(value, Quantity):
        return (Quantity, value.nano, value.fast, value.scale, value.format)
    return (kind, value)


def _by_domain(values: Mapping[str, Any]) -> Domains:
    domains = Domains()
    for name, value in values.items():
        domain, _, id_ = name.partition("/")
        domains.setdefault(domain, {})[id_] = value
    return domains


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
    except ValueError as problem:
        raise ValueError(f"parse semantic version: {problem}") from None
