"""Lists and sets (cel-go ext/lists.go version 3 and ext/sets.go, v0.26; apiserver pkg/cel/library/lists.go, 1.36)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cmp_to_key
from typing import Any, Final

from dra_extender.cel.declarations import Library
from dra_extender.cel.equality import compare, compared, contains, is_sortable, same
from dra_extender.cel.errors import Fault, too_costly
from dra_extender.cel.library.operators import add
from dra_extender.cel.values import NONE, Duration, Option, UInt
from dra_extender.cel.work import REFERENCE, Meter

LIBRARY: Final = Library()

_NUMBER: Final = 40
"""Bytes of a number and the reference to it."""

_MAX_COMPARISONS: Final = 1_000_000
_COMPARABLE: Final = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")


def _affordable(comparisons: int) -> None:
    """Raises Abort for more comparisons than a whole evaluation may cost."""
    if comparisons > _MAX_COMPARISONS:
        raise too_costly()


def _look_at(values: list[Any], meter: Meter, times: int = 1) -> None:
    """Charge for comparing each value with `times` others."""
    meter.charge(1 + len(values))
    meter.charge(times * sum(map(compared, values)))


def _look_into(values: list[Any], meter: Meter) -> None:
    """Charge for a look at all parts of values: what upstream's cost of a call depends on."""
    pending: list[Any] = [values]
    seen: set[int] = set()
    while pending:
        value = pending.pop()
        if id(value) not in seen:
            seen.add(id(value))
            meter.charge(1 + len(value))
            parts = value.values() if isinstance(value, dict) else value
            pending += [part for part in parts if part.__class__ is list or isinstance(part, dict)]


@LIBRARY.function("lists.range", "int -> list(int)", metered=True)
def range_(meter: Meter, size: int) -> list[int]:
    _affordable(size)
    meter.charge(1 + max(size, 0) // 16)
    meter.take(size * _NUMBER)
    return list(range(size))


@LIBRARY.method("slice", "list(T), int, int -> list(T)")
def slice_(values: list[Any], start: int, end: int) -> list[Any]:
    if start < 0 or end < 0:
        raise Fault(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise Fault(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if len(values) < end:
        raise Fault(f"cannot slice({start}, {end}), list is length {len(values)}")
    return values[start:end]


LIBRARY.declare("flatten", "list(list(T)) -> list(T)", "list(dyn), int -> list(dyn)", member=True)


@LIBRARY.share("flatten", metered=True)
def flatten(meter: Meter, values: Any, levels: Any = 1) -> list[Any]:
    """The elements of lists in the list, down to a number of levels."""
    if values.__class__ is not list or levels.__class__ is not int:
        raise Fault("no such overload: flatten")
    if levels < 0:
        raise Fault("level must be non-negative")
    meter.charge(1 + len(values) // 4)
    while levels and any(value.__class__ is list for value in values):
        size = sum(len(value) if value.__class__ is list else 1 for value in values)
        _affordable(size)
        meter.charge(1 + (len(values) + size) // 4)
        meter.room(size * REFERENCE)
        flat: list[Any] = []
        for value in values:
            if value.__class__ is list:
                flat += value
            else:
                flat.append(value)
        values, levels = flat, levels - 1
    return list(values)


@LIBRARY.method("distinct", "list(T) -> list(T)", metered=True)
def distinct(meter: Meter, values: list[Any]) -> list[Any]:
    _affordable(len(values) ** 2)
    unique: list[Any] = []
    for value in values:
        if not contains(unique, value, meter):
            unique.append(value)
    return unique


@LIBRARY.share("sort", metered=True)
def sort(meter: Meter, values: Any) -> list[Any]:
    if values.__class__ is not list:
        raise Fault("no such overload: sort")
    return sort_by_keys(meter, values, values)


@LIBRARY.share("@sortByAssociatedKeys", metered=True)
def sort_by_keys(meter: Meter, values: Any, keys: list[Any]) -> list[Any]:
    """The values in the order of their keys, which must be of one type that has an order."""
    if values.__class__ is not list:
        raise Fault("no such overload: @sortByAssociatedKeys")
    _affordable(len(values) ** 2)
    if not values:
        return []
    _look_at(keys, meter, 2 * len(keys).bit_length())
    if not is_sortable(keys[0]):
        raise Fault("list elements must be comparable")
    if any(key.__class__ is not keys[0].__class__ for key in keys):
        raise Fault("list elements must have the same type")
    rank = cmp_to_key(_order)
    pairs = sorted(zip(keys, values, strict=True), key=lambda pair: rank(pair[0]))
    return [value for _, value in pairs]


def _order(left: Any, right: Any) -> int:
    """As `compare`; NaN is as large as anything."""
    try:
        return compare(left, right)
    except Fault:
        return 0


for _kind in _COMPARABLE:
    LIBRARY.declare("sort", f"list({_kind}) -> list({_kind})", member=True)
    LIBRARY.declare("@sortByAssociatedKeys", f"list(T), list({_kind}) -> list(T)", member=True)


LIBRARY.methods(
    {
        ("reverse", "list(T) -> list(T)"): lambda values: values[::-1],
        ("first", "list(V) -> optional(V)"): lambda values: Option(values[0]) if values else NONE,
        ("last", "list(V) -> optional(V)"): lambda values: Option(values[-1]) if values else NONE,
    }
)


@LIBRARY.method("isSorted", *(f"list({kind}) -> bool" for kind in _COMPARABLE), metered=True)
def is_sorted(meter: Meter, values: list[Any]) -> bool:
    """Neighbours that have no order among themselves do not count."""
    _look_at(values, meter)
    for index, value in enumerate(values):
        if not is_sortable(value):
            raise Fault("no such overload")
        if index and _order(values[index - 1], value) > 0:
            return False
    return True


def _extreme(name: str, wanted: int) -> Callable[[Meter, list[Any]], Any]:
    def extreme(meter: Meter, values: list[Any]) -> Any:
        _look_at(values, meter)
        if not values:
            raise Fault(f"{name} called on empty list")
        if not all(map(is_sortable, values)):
            raise Fault("no such overload")
        best = values[0]
        for value in values[1:]:
            if _order(best, value) == -wanted:
                best = value
        return best

    return extreme


for _kind in _COMPARABLE:
    LIBRARY.method("min", f"list({_kind}) -> {_kind}", metered=True)(_extreme("min", -1))
    LIBRARY.method("max", f"list({_kind}) -> {_kind}", metered=True)(_extreme("max", 1))


def _sum(zero: Any) -> Callable[[Meter, list[Any]], Any]:
    def total(meter: Meter, values: list[Any]) -> Any:
        meter.charge(1 + len(values))
        result = zero
        for value in values:
            result = add(meter, result, value)
        return result

    return total


for _kind, _zero in (("int", 0), ("uint", UInt(0)), ("double", 0.0), ("duration", Duration(0))):
    LIBRARY.method("sum", f"list({_kind}) -> {_kind}", metered=True)(_sum(_zero))


def _place(name: str, step: int) -> None:
    @LIBRARY.method(name, "list(A), A -> int", metered=True)
    def place_of(meter: Meter, values: list[Any], wanted: Any) -> int:
        _look_into(values, meter)
        meter.charge(len(values) * compared(wanted))
        return next((place for place in range(len(values))[::step] if same(values[place], wanted, meter)), -1)


_place("indexOf", 1)
_place("lastIndexOf", -1)


@LIBRARY.function("sets.contains", "list(T), list(T) -> bool", metered=True)
def sets_contains(meter: Meter, values: list[Any], wanted: list[Any]) -> bool:
    _affordable(len(values) * len(wanted))
    return all(contains(values, value, meter) for value in wanted)


@LIBRARY.function("sets.equivalent", "list(T), list(T) -> bool", metered=True)
def sets_equivalent(meter: Meter, left: list[Any], right: list[Any]) -> bool:
    return sets_contains(meter, left, right) and sets_contains(meter, right, left)


@LIBRARY.function("sets.intersects", "list(T), list(T) -> bool", metered=True)
def sets_intersects(meter: Meter, left: list[Any], right: list[Any]) -> bool:
    _affordable(len(left) * len(right))
    return any(contains(right, value, meter) for value in left)
