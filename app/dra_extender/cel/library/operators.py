"""Operators, `size`, `type`, `dyn`, and optional values (cel-go common/stdlib, cel/library.go, v0.26).

The order of the overloads is upstream's: where types are unknown, the first one that fits decides for the others.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from math import copysign, inf, isnan, nan
from typing import Any, Final

from dra_extender.cel.declarations import Library, Run
from dra_extender.cel.equality import compare, compared, contains
from dra_extender.cel.errors import Fault
from dra_extender.cel.library.times import add_duration, add_to_timestamp
from dra_extender.cel.values import (
    CLASSES,
    INT_MAX,
    INT_MIN,
    NONE,
    UINT_MAX,
    Domains,
    Duration,
    Option,
    Timestamp,
    TypeValue,
    UInt,
    contains_key,
    type_name,
)
from dra_extender.cel.work import MANY, REFERENCE, Meter, own_bytes

LIBRARY: Final = Library()

_COPIED: Final = 1024
_ELEMENTS: Final = 64
"""How many bytes and elements of lists are copied per unit of work."""

LIBRARY.declare("!_", "bool -> bool")
LIBRARY.declare("_==_", "A, A -> bool")
LIBRARY.declare("_!=_", "A, A -> bool")
LIBRARY.declare("_?_:_", "bool, A, A -> A")
LIBRARY.declare("@in", "A, list(A) -> bool", "A, map(A, B) -> bool")
LIBRARY.declare("_[_]", "list(A), int -> A", "map(A, B), A -> B")
LIBRARY.declare("_[_]", "optional(list(V)), int -> optional(V)", "optional(map(K, V)), K -> optional(V)")
LIBRARY.declare("_[?_]", "list(V), int -> optional(V)", "optional(list(V)), int -> optional(V)")
LIBRARY.declare("_[?_]", "map(K, V), K -> optional(V)", "optional(map(K, V)), K -> optional(V)")
LIBRARY.declare("-_", "double -> double", "int -> int")
for _name in ("_<_", "_<=_", "_>_", "_>=_"):
    LIBRARY.declare(_name, "bool, bool -> bool")
    LIBRARY.declare(_name, "int, int -> bool", "int, double -> bool", "int, uint -> bool")
    LIBRARY.declare(_name, "uint, uint -> bool", "uint, double -> bool", "uint, int -> bool")
    LIBRARY.declare(_name, "double, double -> bool", "double, int -> bool", "double, uint -> bool")
    LIBRARY.declare(_name, *(f"{kind}, {kind} -> bool" for kind in ("string", "bytes", "timestamp", "duration")))
for _sized in ("bytes", "list(A)", "map(A, B)", "string"):
    LIBRARY.declare("size", f"{_sized} -> int")
    LIBRARY.declare("size", f"{_sized} -> int", member=True)
LIBRARY.declare("type", "A -> type(A)")
LIBRARY.declare("dyn", "A -> dyn")
LIBRARY.declare("cel.@mapInsert", "map(K, V), K, V -> map(K, V)", "map(K, V), map(K, V) -> map(K, V)")


def int64(value: int) -> int:
    if INT_MIN <= value <= INT_MAX:
        return value
    raise Fault("integer overflow")


def uint64(value: int) -> UInt:
    if 0 <= value <= UINT_MAX:
        return UInt(value)
    raise Fault("unsigned integer overflow")


def _arithmetic(name: str, runs: Mapping[str, Run]) -> Run:
    """A binary operator, by its overloads."""
    LIBRARY.declare(name, *runs)
    declared = LIBRARY.overloads[-len(runs) :]
    by_class = {
        tuple(CLASSES[kind.name] for kind in overload.params): run
        for overload, run in zip(declared, runs.values(), strict=True)
    }
    known = {left for left, _ in by_class}

    def carry_out(meter: Meter, left: Any, right: Any) -> Any:
        run = by_class.get((left.__class__, right.__class__))
        if run is None:
            raise Fault("no such overload" if left.__class__ in known else f"no such overload: {name}")
        return run(meter, left, right)

    return LIBRARY.share(name, metered=True)(carry_out)


def _concatenated(meter: Meter, left: Any, right: Any) -> Any:
    if not left or not right:
        return left or right
    size = own_bytes(left) + own_bytes(right)
    if left.__class__ is str and not (left.isascii() and right.isascii()):
        size = 4 * (len(left) + len(right))
    meter.charge(size // _COPIED)
    meter.take(size)
    return left + right


def _joined(meter: Meter, left: list[Any], right: list[Any]) -> list[Any]:
    size = len(left) + len(right)
    meter.charge(size // _ELEMENTS)
    meter.room(size * REFERENCE)
    result = left + right
    if size >= MANY:
        meter.keep(result)
    return result


def _divide_doubles(left: float, right: float) -> float:
    if right != 0:
        return left / right
    if left == 0 or isnan(left):
        return nan
    return copysign(inf, left) * copysign(1.0, right)


def _divided(left: int, right: int, problem: str) -> int:
    """The quotient, rounded towards zero."""
    if right == 0:
        raise Fault(problem)
    quotient = abs(int(left)) // abs(int(right))
    return quotient if (left < 0) == (right < 0) else -quotient


def _remainder(left: int, right: int) -> int:
    quotient = _divided(left, right, "modulus by zero")
    return int(left) - int(right) * (quotient if left.__class__ is UInt else int64(quotient))


add = _arithmetic(
    "_+_",
    {
        "bytes, bytes -> bytes": _concatenated,
        "double, double -> double": lambda _, left, right: left + right,
        "duration, duration -> duration": lambda _, left, right: add_duration(left.nanos, right.nanos),
        "duration, timestamp -> timestamp": lambda _, left, right: add_to_timestamp(right, left.nanos),
        "timestamp, duration -> timestamp": lambda _, left, right: add_to_timestamp(left, right.nanos),
        "int, int -> int": lambda _, left, right: int64(left + right),
        "list(A), list(A) -> list(A)": _joined,
        "string, string -> string": _concatenated,
        "uint, uint -> uint": lambda _, left, right: uint64(int(left) + int(right)),
    },
)
_arithmetic(
    "_-_",
    {
        "double, double -> double": lambda _, left, right: left - right,
        "duration, duration -> duration": lambda _, left, right: add_duration(left.nanos, -right.nanos),
        "int, int -> int": lambda _, left, right: int64(left - right),
        "timestamp, duration -> timestamp": lambda _, left, right: add_to_timestamp(
            left, add_duration(0, -right.nanos).nanos
        ),
        "timestamp, timestamp -> duration": lambda _, left, right: add_duration(left.nanos, -right.nanos),
        "uint, uint -> uint": lambda _, left, right: uint64(int(left) - int(right)),
    },
)
_arithmetic(
    "_*_",
    {
        "double, double -> double": lambda _, left, right: left * right,
        "int, int -> int": lambda _, left, right: int64(left * right),
        "uint, uint -> uint": lambda _, left, right: uint64(int(left) * int(right)),
    },
)
_arithmetic(
    "_/_",
    {
        "double, double -> double": lambda _, left, right: _divide_doubles(left, right),
        "int, int -> int": lambda _, left, right: int64(_divided(left, right, "division by zero")),
        "uint, uint -> uint": lambda _, left, right: UInt(_divided(left, right, "division by zero")),
    },
)
_arithmetic(
    "_%_",
    {
        "int, int -> int": lambda _, left, right: _remainder(left, right),
        "uint, uint -> uint": lambda _, left, right: UInt(_remainder(left, right)),
    },
)


@LIBRARY.share("-_")
def negate(value: Any) -> Any:
    kind = value.__class__
    if kind is int:
        return int64(-value)
    if kind is float:
        return -value
    if kind is Duration:
        return add_duration(0, -value.nanos)
    raise Fault("no such overload" if kind is bool else "no such overload: -_")


def _relation(name: str, holds: Callable[[int, int], bool]) -> None:
    def relate(meter: Meter, left: Any, right: Any) -> bool:
        kind = left.__class__
        if kind is str or kind is bytes:
            meter.charge(compared(left))
        return holds(compare(left, right, name), 0)

    LIBRARY.share(name, metered=True)(relate)


for _name, _holds in (("_<_", operator.lt), ("_<=_", operator.le), ("_>_", operator.gt), ("_>=_", operator.ge)):
    _relation(_name, _holds)


@LIBRARY.share("!_")
def negation(value: Any) -> bool:
    if value is True:
        return False
    if value is False:
        return True
    raise Fault("no such overload")


@LIBRARY.share("@in", metered=True)
def is_in(meter: Meter, value: Any, container: Any) -> bool:
    if container.__class__ is list:
        return contains(container, value, meter)
    if isinstance(container, dict):
        return contains_key(container, value)
    raise Fault("no such overload: @in")


@LIBRARY.share("size")
def size(value: Any) -> int:
    kind = value.__class__
    if kind is str or kind is list or kind is bytes or isinstance(value, dict):
        return len(value)
    raise Fault("no such overload: size")


LIBRARY.share("type")(lambda value: TypeValue(type_name(value)))
LIBRARY.share("dyn")(lambda value: value)


_YEAR_ONE: Final = -62135596800 * 10**9

# The interpreter carries these out: it evaluates the second operand only if it is wanted.
LIBRARY.declare("or", "optional(V), optional(V) -> optional(V)", member=True)
LIBRARY.declare("orValue", "optional(V), V -> V", member=True)


@LIBRARY.method("value", "optional(V) -> V")
def value_of(option: Option) -> Any:
    if option is NONE:
        raise Fault("optional.none() dereference", "no value")
    return option.content


def _is_zero(value: Any) -> bool:
    kind = value.__class__
    if kind in (bool, int, UInt, float, str, bytes, list):
        return not value
    if isinstance(value, dict):
        return not value and kind is not Domains
    if kind is Duration:
        return bool(value.nanos == 0)
    if kind is Timestamp:
        return bool(value.nanos == _YEAR_ONE)
    return value is None


@LIBRARY.function("optional.unwrap", "list(optional(V)) -> list(V)")
@LIBRARY.method("unwrapOpt", "list(optional(V)) -> list(V)")
def unwrap_all(options: list[Any]) -> list[Any]:
    for option in options:
        if option.__class__ is not Option:
            raise Fault("no such overload: optional.unwrap")
    return [option.content for option in options if option is not NONE]


LIBRARY.functions(
    {
        ("optional.of", "V -> optional(V)"): Option,
        ("optional.none", "-> optional(V)"): lambda: NONE,
        ("optional.ofNonZeroValue", "V -> optional(V)"): lambda value: NONE if _is_zero(value) else Option(value),
    }
)
LIBRARY.methods({("hasValue", "optional(V) -> bool"): lambda option: option is not NONE})
