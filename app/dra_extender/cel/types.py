"""Static types and which of them fit which: cel-go's algorithm (common/types/types.go, checker/types.go, v0.26).

`dyn` and `any` are wildcards that fit everything; they differ only in what a selector may return. Types may share parts
many times over, as those of a map whose keys and values are one variable do. Work is charged for every part that is
looked at, and the same part is looked at once where that is possible.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from dra_extender.cel.work import Work

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
TYPE: Final = Type("type", "type")
DEVICE: Final = Type("struct", "kubernetes.DRADevice")
QUANTITY: Final = Type("opaque", "kubernetes.Quantity")
SEMVER: Final = Type("opaque", "kubernetes.Semver")
URL: Final = Type("opaque", "kubernetes.URL")
NAMED_FORMAT: Final = Type("opaque", "kubernetes.NamedFormat")
IP: Final = Type("opaque", "net.IP")
CIDR: Final = Type("opaque", "net.CIDR")


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


_SCALARS = frozenset(
    ("bool", "bytes", "double", "int", "string", "uint", "duration", "timestamp", "struct")
)  # compared by kind and name
_NULLABLE = frozenset(("opaque", "struct", "duration", "timestamp"))
_PARAMETRIC = frozenset(("opaque", "list", "map"))
_COPIED: Final = 64
"""How many variables are copied per unit of work."""
_MADE: Final = 3
"""Units of work to make a type."""


@dataclass(slots=True, eq=False)
class Substitution:
    """What the type variables of one expression stand for so far. A failed attempt leaves it as it was."""

    _work: Work
    _bound: dict[str, Type] = field(default_factory=dict)

    def fits(self, left: Type, right: Type) -> bool:
        """True when the types agree; variables are bound accordingly then."""
        return self.fit_all((left,), (right,))

    def fit_all(self, left: tuple[Type, ...], right: tuple[Type, ...]) -> bool:
        """True when the types, as many on the left as on the right, agree one by one; variables are bound then."""
        before = self._bound
        self._work.charge(1 + len(left) + len(before) // _COPIED)
        self._bound = dict(before)
        if all(map(self._assignable, left, right)):
            return True
        self._bound = before
        return False

    def resolve(self, kind: Type, unbound_to_dyn: bool = False) -> Type:
        """`kind` with bound variables replaced; unbound ones stay, or become dyn."""
        return self._resolved(kind, unbound_to_dyn, {}) if kind.is_open else kind

    def resolve_all(self, kinds: Iterable[Type]) -> list[Type]:
        """The final types, in which unbound variables are dyn."""
        known: dict[int, Type] = {}
        return [self._resolved(kind, True, known) if kind.is_open else kind for kind in kinds]

    def _resolved(self, kind: Type, unbound_to_dyn: bool, known: dict[int, Type]) -> Type:
        """`known` has what became of parts already, by their identity."""
        found = known.get(id(kind))
        if found is not None:
            return found
        self._work.charge(_MADE)
        if kind.kind != "param":
            parts = [self._resolved(part, unbound_to_dyn, known) if part.is_open else part for part in kind.params]
            found = Type(kind.kind, kind.name, tuple(parts))
        elif (bound := self._bound.get(kind.name)) is not None:
            found = self._resolved(bound, unbound_to_dyn, known) if bound.is_open else bound
        else:
            found = DYN if unbound_to_dyn else kind
        known[id(kind)] = found
        return found

    def _assignable(self, left: Type, right: Type) -> bool:
        if left is right:
            return True
        if right.kind == "param":
            valid, bound = self._substitutable(left, right)
            if valid:
                return True
            if bound:
                return False
        if left.kind == "param":
            return self._substitutable(right, left)[0]
        if left.is_dynamic or right.is_dynamic:
            return True
        if left.kind == "null":
            return _accepts_null(right)
        if right.kind == "null":
            return _accepts_null(left)
        if left.kind in _SCALARS:
            return left.kind == right.kind and left.name == right.name
        if left.kind == "type":
            return right.kind == "type"
        if left.kind in _PARAMETRIC:
            self._work.charge(1 + len(left.params))
            return (
                left.kind == right.kind
                and left.name == right.name
                and len(left.params) == len(right.params)
                and all(map(self._assignable, left.params, right.params))
            )
        return False

    def _substitutable(self, kind: Type, variable: Type) -> tuple[bool, bool]:
        """Two answers: can `variable` stand for `kind`, and did it stand for something before?"""
        if kind == variable:
            return True, True
        bound = self._bound.get(variable.name)
        if bound is not None:
            if kind is not bound:
                self._work.charge(min(kind.weight, bound.weight))
            if kind == bound:
                return True, True
            if not self._assignable(kind, bound):
                return False, True
            general = most_general(kind, bound)
            if self._absent(variable, general, set()):
                self._bound[variable.name] = general
            return True, True
        if self._absent(variable, kind, set()):
            self._bound[variable.name] = kind
            return True, False
        return False, False

    def _absent(self, variable: Type, within: Type, seen: set[int]) -> bool:
        """The occurs check: `variable` is not a part of `within`; nor is it of parts that were `seen`."""
        if not within.is_open or id(within) in seen:
            return True
        self._work.charge(1)
        if variable == within:
            return False
        seen.add(id(within))
        if within.kind == "param":
            bound = self._bound.get(within.name)
            return bound is None or self._absent(variable, bound, seen)
        return all(self._absent(variable, part, seen) for part in within.params)


def most_general(left: Type, right: Type) -> Type:
    """The more general of two types that agree. They were compared before, at no less work."""
    return left if _at_most_as_specific(left, right) else right


def _at_most_as_specific(left: Type, right: Type) -> bool:
    if left is right or left.is_dynamic or left.kind == "param":
        return True
    if right.is_dynamic or right.kind == "param":
        return False
    if left.kind != right.kind:
        return False
    if left.kind in _PARAMETRIC:
        return (
            left.name == right.name
            and len(left.params) == len(right.params)
            and all(_at_most_as_specific(one, other) for one, other in zip(left.params, right.params, strict=True))
        )
    return left.kind == "type" or left == right


def _accepts_null(kind: Type) -> bool:
    return kind.kind in _NULLABLE or kind.kind == "null" or kind.nullable
