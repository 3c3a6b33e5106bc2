"""Static types, as cel-go v0.26 knows them (common/types/types.go).

`dyn` and `any` are wildcards that unify with everything; they differ only in what a selector may return.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

_MAX_WEIGHT: Final = 5000
"""A map of maps of maps… doubles its type with every level; this is far beyond anything written by hand."""


class TypeTooLarge(ValueError):
    """A type that is only there to exhaust the checker."""


@dataclass(frozen=True, slots=True)
class Type:
    """A type with its parameters. `nullable` marks the protobuf wrapper types; it does not take part in equality."""

    kind: str
    name: str
    params: tuple[Type, ...] = ()
    nullable: bool = field(default=False, compare=False)
    weight: int = field(default=1, init=False, compare=False, repr=False)
    is_open: bool = field(default=False, init=False, compare=False, repr=False)
    """True when it contains type variables."""

    def __post_init__(self) -> None:
        if self.params:
            weight = 1 + sum(part.weight for part in self.params)
            if weight > _MAX_WEIGHT:
                raise TypeTooLarge(f"the type of an expression has more than {_MAX_WEIGHT} parts")
            object.__setattr__(self, "weight", weight)
            object.__setattr__(self, "is_open", any(part.is_open for part in self.params))
        elif self.kind == "param":
            object.__setattr__(self, "is_open", True)

    @property
    def is_dynamic(self) -> bool:
        return self.kind == "dyn" or self.kind == "any"

    @property
    def is_optional(self) -> bool:
        return self.kind == "opaque" and self.name == "optional_type"

    def __str__(self) -> str:
        if self.kind == "param":
            return self.name
        if self.kind == "null":
            return "null"
        if self.nullable:
            return f"wrapper({self.name})"
        if self.params:
            return f"{self.name}({', '.join(map(str, self.params))})"
        return self.name


BOOL: Final = Type("bool", "bool")
BYTES: Final = Type("bytes", "bytes")
DOUBLE: Final = Type("double", "double")
INT: Final = Type("int", "int")
NULL: Final = Type("null", "null_type")
STRING: Final = Type("string", "string")
UINT: Final = Type("uint", "uint")
DURATION: Final = Type("duration", "google.protobuf.Duration")
TIMESTAMP: Final = Type("timestamp", "google.protobuf.Timestamp")
DYN: Final = Type("dyn", "dyn")
ANY: Final = Type("any", "any")
ERROR: Final = Type("error", "error")
TYPE: Final = Type("type", "type")
DEVICE: Final = Type("struct", "kubernetes.DRADevice")
QUANTITY: Final = Type("opaque", "kubernetes.Quantity")
SEMVER: Final = Type("opaque", "kubernetes.Semver")
URL: Final = Type("opaque", "kubernetes.URL")
NAMED_FORMAT: Final = Type("opaque", "kubernetes.NamedFormat")
IP: Final = Type("opaque", "net.IP")
CIDR: Final = Type("opaque", "net.CIDR")

NAMED: Final = {
    kind.name: kind
    for kind in (
        BOOL, BYTES, DOUBLE, INT, NULL, STRING, UINT, DURATION, TIMESTAMP, DYN, ANY, TYPE,
        QUANTITY, SEMVER, URL, NAMED_FORMAT, IP, CIDR,
    )
}  # fmt: skip


def list_of(element: Type) -> Type:
    return Type("list", "list", (element,))


def map_of(key: Type, value: Type) -> Type:
    return Type("map", "map", (key, value))


def type_of(kind: Type) -> Type:
    return Type("type", "type", (kind,))


def optional_of(value: Type) -> Type:
    return Type("opaque", "optional_type", (value,))


def param(name: str) -> Type:
    return Type("param", name)


def wrapper_of(kind: Type) -> Type:
    return Type(kind.kind, kind.name, kind.params, nullable=True)
