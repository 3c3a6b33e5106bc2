"""Run-time values.

| CEL | Python |
|---|---|
| null, bool, int, double, string, bytes | None, bool, int, float, str, bytes |
| uint | `UInt` |
| list | list |
| map | dict: `Domains` and dict for those of a device, `Map` for all others |
| optional | `Option` |
| type | `TypeValue` |
| timestamp, duration | `Timestamp`, `Duration` |
| Quantity, Semver | the classes of `dra_extender.api` |
| IP, CIDR, URL, named format | the classes of `dra_extender.cel.library` |

Code distinguishes the classes by `value.__class__`, because to Python True is an int.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Final

from dra_extender.api.quantity import Quantity
from dra_extender.api.semver import Semver
from dra_extender.cel.errors import Abort, Fault

INT_MAX: Final = 2**63 - 1
INT_MIN: Final = -(2**63)
UINT_MAX: Final = 2**64 - 1


class UInt(int):
    """An unsigned 64-bit integer."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{int(self)}u"


class Map(dict[Any, Any]):
    """A map made by an expression. Strings and ints are keys as they are, others as `map_key` makes them."""

    __slots__ = ()


class Domains(dict[str, dict[str, Any]]):
    """`device.attributes` or `device.capacity`: looking up a domain that does not exist finds an empty map."""

    __slots__ = ()


EMPTY: Final[dict[str, Any]] = {}


class SumQuantity(Quantity):
    """The result of adding to or subtracting from a quantity: not comparable when on the right of `==`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class TypeValue:
    """A type as a value: what `type(x)` gives."""

    name: str


@dataclass(slots=True, eq=False)
class Option:
    """An optional value; `NONE` is the empty one. Whoever needs the value takes `content`."""

    value: Any

    @property
    def content(self) -> Any:
        """The value. Raises Fault if it was lost."""
        value = self.value
        if value.__class__ is Lost:
            raise Fault(f"unsupported conversion to ref.Val: {value.kind}")
        return value


@dataclass(slots=True, eq=False)
class Lost:
    """What became of a value of an extension type that upstream cannot put back into an optional."""

    kind: str


NONE: Final = Option(None)
"""The one optional without a value (an optional of null has one)."""


@dataclass(slots=True, order=True)
class Duration:
    """A span of time in nanoseconds, within int64."""

    nanos: int


@dataclass(slots=True, order=True)
class Timestamp:
    """An instant in nanoseconds since 1970, and the offset from UTC (seconds) it was written with."""

    nanos: int
    offset: int = field(default=0, compare=False)


class Opaque:
    """A value of an extension library: has a name, and equality only with its own kind."""

    __slots__ = ()
    type_name: str = ""
    hashable: bool = True
    extent: int = 0
    """How many characters it has, as far as it takes time to deal with them."""

    @property
    def identity(self) -> Hashable:
        """What makes it the same key in a map: texts or bytes, as in `map_key`."""
        return id(self)

    @property
    def size(self) -> int:
        """As in `size_of`."""
        return 1

    def same(self, other: Any) -> bool:
        """True when `other`, of the same class, is equal."""
        return bool(self.identity == other.identity)


_NAMES: Final[dict[type, str]] = {
    type(None): "null_type", bool: "bool", int: "int", UInt: "uint", float: "double", str: "string", bytes: "bytes",
    list: "list", dict: "map", Map: "map", Domains: "map", Option: "optional_type", TypeValue: "type",
    Timestamp: "google.protobuf.Timestamp", Duration: "google.protobuf.Duration",
    Quantity: "kubernetes.Quantity", SumQuantity: "kubernetes.Quantity", Semver: "kubernetes.Semver",
}  # fmt: skip

CLASSES: Final = {name: class_ for class_, name in _NAMES.items() if name not in ("map", "kubernetes.Quantity")}
"""The class of the values of a type, where there is just one."""


def type_name(value: Any) -> str:
    name = _NAMES.get(value.__class__)
    return name if name is not None else str(value.type_name)


def size_of(value: Any) -> int:
    """How many characters, bytes, elements or entries a value has, or bytes an address; 1 for what has no size."""
    kind = value.__class__
    if kind is int or kind is bool:
        return 1
    if kind is str or kind is list or kind is bytes or isinstance(value, dict):
        return len(value)
    if isinstance(value, Opaque):
        return value.size
    if kind is Option and value is not NONE:
        return size_of(value.value)
    return 1


#
# In a map 1, 1u, 1.0 and true are four keys, to Python they are one. Keys other than strings and ints are therefore
# wrapped. Any number of large integers and 200 doubles have one hash; the hashes of texts and bytes have a secret.

Key = Any


@dataclass(slots=True, eq=False)
class OtherKey:
    """A key that is neither string nor int: equal to keys of the same identity."""

    value: Any
    identity: Hashable

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OtherKey) and self.identity == other.identity

    def __hash__(self) -> int:
        return hash(self.identity)


def map_key(value: Any) -> Key:
    """The stored form of a key. Raises Abort for what upstream cannot hash."""
    kind = value.__class__
    if kind is str or kind is int:
        return value
    if kind is bool or kind is float or kind is UInt or value is None:
        return OtherKey(value, (kind, repr(value + 0.0) if kind is float and value == value else value))
    if kind is Semver or kind is bytes or (isinstance(value, Opaque) and not value.hashable):
        raise Abort(f"internal error: a value of type {type_name(value)} cannot be hashed")
    if kind is Duration or kind is Timestamp:
        return OtherKey(value, (kind, hex(value.nanos)))
    if kind is TypeValue:
        return OtherKey(value, (kind, value.name))
    return OtherKey(value, (kind, value.identity if isinstance(value, Opaque) else id(value)))


def key_value(key: Key) -> Any:
    """The key a stored key stands for."""
    return key.value if key.__class__ is OtherKey else key


_MISSING: Final = object()


def find(entries: dict[Key, Any], value: Any) -> tuple[Any, bool]:
    """The entry for a key and whether there is one. Numbers find keys of other numeric types."""
    if entries.__class__ is not Map:
        if value.__class__ is str:
            found = entries.get(value, _MISSING)
            if found is not _MISSING:
                return found, True
        return EMPTY, entries.__class__ is Domains
    if not entries:
        return None, False
    key = map_key(value)
    found = entries.get(key, _MISSING)
    if found is not _MISSING:
        return found, True
    for kind in other_kinds(value):
        found = entries.get(map_key(kind(value)), _MISSING) if kind is not float else _MISSING
        if found is not _MISSING:
            return found, True
    return None, False


def contains_key(entries: dict[Key, Any], value: Any) -> bool:
    """True when the map itself has the key: `in`, which does not see the empty maps of unknown domains."""
    return value in entries if value.__class__ is str else entries.__class__ is Map and find(entries, value)[1]


def other_kinds(value: Any) -> tuple[type, ...]:
    """The other numeric types that a number is converted to without loss (to double always)."""
    kind = value.__class__
    if kind is int:
        return (float, UInt) if value >= 0 else (float,)
    if kind is UInt:
        return (float, int) if value <= INT_MAX else (float,)
    if kind is float and value.is_integer():
        signed: tuple[type, ...] = (int,) if -(2.0**63) < value < 2.0**63 else ()
        return (*signed, UInt) if 0 <= value < 2.0**64 else signed
    return ()
