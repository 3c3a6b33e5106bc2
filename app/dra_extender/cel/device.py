"""A device as selectors see it, the table of its fields, and what a selector reads of it.

A `DeviceView` is built once per device: names are split into domain and id, versions are parsed. Building never raises.
If a value of the device cannot be used, every evaluation on the device fails with the same error, as upstream's does.

To add a field that selectors read, add it to `PublishedDevice`, which takes it from the slice, and to `FIELDS`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, Self

import msgspec

from dra_extender.api.quantity import Quantity
from dra_extender.api.resource import Device, DeviceAttribute, DeviceCapacity
from dra_extender.api.semver import Semver, VersionText
from dra_extender.cel import types
from dra_extender.cel.errors import CelRuntimeError
from dra_extender.cel.syntax import Call, Expr, Ident, Index, Macro, Select, Variable
from dra_extender.cel.syntax import Literal as LiteralNode
from dra_extender.cel.types import Type
from dra_extender.cel.values import Domains

_UNUSABLE_HINT: Final = "the device cannot be used until it is fixed"


class CelGates(msgspec.Struct, frozen=True):
    """The feature gates of the cluster that change the language.

    `list_attributes` is DRAListTypeAttributes, `consumable_capacity` is DRAConsumableCapacity. Without them new
    selectors have no `includes` and no `device.allowMultipleAllocations`. `stored` selectors always have both, because
    the API server may have accepted them while the gates were on; an allocator sees only stored selectors (Kubernetes
    1.36, dynamic-resource-allocation/cel/compile.go). `derived`: the expression computes an attribute instead of
    selecting devices (Kubernetes 1.37). `is_1_37`: fields may be in backticks, and the values of attributes lists, as
    in Kubernetes 1.37, also without `list_attributes`.
    """

    list_attributes: bool = False
    consumable_capacity: bool = True
    stored: bool = False
    derived: bool = False
    is_1_37: bool = False


class PublishedDevice(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What selectors may read of a device, as its slice publishes it. Immutable."""

    driver: str
    attributes: Mapping[str, DeviceAttribute] = {}
    """As published, without a default domain."""
    capacity: Mapping[str, DeviceCapacity] = {}
    """With request policies."""
    multi: bool = False
    """`allowMultipleAllocations`, whatever the features are."""

    @classmethod
    def of(cls, driver: str, device: Device, **more: Any) -> Self:
        """The device of a slice; `more` are fields of a subclass."""
        return cls(
            driver=driver,
            attributes=device.attributes,
            capacity=device.capacity,
            multi=device.allow_multiple_allocations is True,
            **more,
        )


class Field(NamedTuple):
    """A field of `device`: its type, its value, and when selectors have it."""

    type: Type
    read: Callable[[PublishedDevice], Any]
    exists: Callable[[CelGates], bool] = lambda gates: True


FIELDS: Final[Mapping[str, Field]] = {
    "driver": Field(types.STRING, lambda device: device.driver),
    "allowMultipleAllocations": Field(
        types.BOOL, lambda device: device.multi, lambda gates: gates.consumable_capacity or gates.stored
    ),
}
"""The fields of `device` with one value. `attributes` and `capacity` are maps of maps, by domain and id."""


Section = str
"""attributes or capacity."""


class ReadSet(msgspec.Struct, frozen=True):
    """What an expression reads of a device. `everything` when it iterates or computes what to read."""

    fields: tuple[str, ...] = ()
    """Names in `FIELDS`."""
    entries: tuple[tuple[Section, str, str], ...] = ()
    """(section, domain, id)."""
    domains: tuple[tuple[Section, str], ...] = ()
    """(section, domain): whether the domain exists is read."""
    everything: bool = False


@dataclass(slots=True, eq=False)
class DeviceView:
    """A device at run time.

    `attributes` and `capacity` map "domain/id" to value. `error` is the error of every evaluation, if the device has a
    value that cannot be used.
    """

    published: PublishedDevice
    attributes: dict[str, Any] = dataclasses.field(default_factory=dict)
    capacity: dict[str, Any] = dataclasses.field(default_factory=dict)
    error: CelRuntimeError | None = None
    _as_map: dict[str, Any] | None = None
    _everything: Hashable = None

    @classmethod
    def build(cls, published: PublishedDevice, gates: CelGates = CelGates()) -> Self:
        """The view of a device.

        If a name is there both with the driver's domain and without one, the one without is used (upstream uses the one
        that Go iterates last).
        """
        self, driver = cls(published), published.driver
        for name, capacity in sorted(published.capacity.items(), key=_qualified_first):
            self.capacity[_qualified(name, driver)] = capacity.value
        for name, attribute in sorted(published.attributes.items(), key=_qualified_first):
            try:
                self.attributes[_qualified(name, driver)] = _value(attribute.value, gates)
            except ValueError as problem:
                self.error = CelRuntimeError(f"attribute {name}: {problem}", _UNUSABLE_HINT)
                break
        return self

    @property
    def driver(self) -> str:
        return self.published.driver

    def field(self, name: str) -> Any:
        """The value of a field in `FIELDS`."""
        return FIELDS[name].read(self.published)

    def entries(self, section: Section) -> dict[str, Any]:
        """The attributes, or the capacity."""
        return self.attributes if section == "attributes" else self.capacity

    @property
    def as_map(self) -> dict[str, Any]:
        if self._as_map is None:
            self._as_map = {name: self.field(name) for name in FIELDS}
            self._as_map |= {"attributes": _by_domain(self.attributes), "capacity": _by_domain(self.capacity)}
        return self._as_map

    def read_key(self, reads: ReadSet) -> Hashable:
        """The values an expression reads, with their types: equal keys get equal answers."""
        if self.error is not None:
            return self.error.message
        if reads.everything:
            return self._all_values()
        key: list[Hashable] = [self.field(name) for name in reads.fields]
        for section, domain, id_ in reads.entries:
            value = self.entries(section).get(f"{domain}/{id_}")
            key.append(value if value.__class__ is str else _typed(value))
        key += [domain in self.as_map[section] for section, domain in reads.domains]
        return tuple(key)

    def _all_values(self) -> Hashable:
        """Everything there is, in the order in which it would be iterated."""
        if self._everything is None:
            parts = [
                tuple((name, _typed(value)) for name, value in found.items())
                for found in (self.attributes, self.capacity)
            ]
            self._everything = (*map(self.field, FIELDS), *parts)
        return self._everything


def _typed(value: Any) -> Hashable:
    """A value together with what distinguishes it from equal values: type, text of versions, form of quantities."""
    kind = value.__class__
    if kind is list:
        return (list, tuple(map(_typed, value)))
    if kind is Semver:
        return (Semver, value.text)
    if isinstance(value, Quantity):
        return (Quantity, value, value.fast, value.scale, value.format)
    return (kind, value)


def _by_domain(values: Mapping[str, Any]) -> Domains:
    domains = Domains()
    for name, value in values.items():
        domain, _, id_ = name.partition("/")
        domains.setdefault(domain, {})[id_] = value
    return domains


def _qualified(name: str, driver: str) -> str:
    return name if "/" in name else f"{driver}/{name}"


def _qualified_first(item: tuple[str, Any]) -> tuple[bool, str]:
    return "/" not in item[0], item[0]


def _value(raw: Any, gates: CelGates) -> Any:
    """The run-time value of an attribute. Raises ValueError."""
    if raw.__class__ is tuple:
        if gates.list_attributes or gates.is_1_37:
            return [_value(element, gates) for element in raw]
    elif raw.__class__ is VersionText:
        try:
            return Semver.parse(raw)
        except ValueError as error:
            raise ValueError(f"parse semantic version: {error}") from None
    elif raw is not None:
        return raw
    raise ValueError("unsupported attribute value")


class Path(NamedTuple):
    """A part of the device: all of it, a field, all domains of a section, one domain, or one entry.

    `name`: the field, or the section (`attributes` or `capacity`).
    """

    part: Literal["device", "field", "domains", "domain", "entry"]
    name: str = ""
    domain: str = ""
    id: str = ""
    optional: bool = False

    def step(self, key: str, optional: bool) -> Path | None:
        """The part that a selection leads to."""
        optional = optional or self.optional
        if self.part == "device":
            if key in ("attributes", "capacity"):
                return Path("domains", key, optional=optional)
            return None if key not in FIELDS or optional else Path("field", key)
        if self.part == "domains":
            return Path("domain", self.name, key, optional=optional)
        if self.part == "domain":
            return Path("entry", self.name, self.domain, key, optional)
        return None


def collect_reads(tree: Expr) -> ReadSet:
    """What an expression reads of a device."""
    reader = _Reader()
    pending = [tree]
    while pending:
        pending += reversed(reader.visit(pending.pop()))
    read = reader.read
    return ReadSet(
        fields=tuple(sorted({path.name for path in read if path.part == "field"})),
        entries=tuple(sorted({path[1:4] for path in read if path.part == "entry"})),
        domains=tuple(sorted({path[1:3] for path in read if path.part == "domain"})),
        everything=any(path.part == "device" for path in read),
    )


class _Reader:
    def __init__(self) -> None:
        self.read: set[Path] = set()
        """Fields, entries, domains of which is read whether they are there, and the device when all of it is read."""
        self._aliases: dict[Variable, Path] = {}
        """Variables of `cel.bind` that stand for a part of the device."""
        self._resolved: dict[int, Path | None] = {}
        """By identity of the node: each selection of a chain is resolved once."""

    def visit(self, node: Expr) -> Sequence[Expr]:
        """Note what the node reads. The parts of it that are still to be visited."""
        path = self._resolve(node)
        if path is not None:
            self._note(path)
            return ()
        if isinstance(node, Select) and node.test:
            operand = self._resolve(node.operand)
            path = None if operand is None else operand.step(node.field, False)
            if path is None:
                return (node.operand,)
            if path.part != "domain":  # every domain is there
                self._note(path)
            return ()
        if isinstance(node, Call) and node.function == "@in" and self._reads_membership(node):
            return ()
        if isinstance(node, Macro) and node.name == "bind":
            path = self._resolve(node.range)
            if path is not None and not path.optional:
                self._aliases[node.bound[0]] = path
                return node.arguments
        return node.children

    def _resolve(self, node: Expr) -> Path | None:
        """The part of the device a node stands for, or None. A test (`has`) stands for none."""
        if isinstance(node, Ident):
            return Path("device") if node.variable is None else self._aliases.get(node.variable)
        if isinstance(node, Select) and not node.test:
            key = node.field
        elif isinstance(node, Index) and isinstance(node.key, LiteralNode) and isinstance(node.key.value, str):
            key = node.key.value
        else:
            return None
        if id(node) not in self._resolved:
            operand = self._resolve(node.operand)
            self._resolved[id(node)] = None if operand is None else operand.step(key, node.optional)
        return self._resolved[id(node)]

    def _reads_membership(self, node: Call) -> bool:
        """`"name" in domain` and `"domain" in device.attributes` read only that."""
        key, container = node.args
        path = self._resolve(container)
        if path is None or path.optional or not isinstance(key, LiteralNode) or not isinstance(key.value, str):
            return False
        member = path.step(key.value, False) if path.part in ("domain", "domains") else None
        if member is not None:
            self.read.add(member)
        return member is not None

    def _note(self, path: Path) -> None:
        self.read.add(path if path.part in ("field", "entry") else Path("device"))
