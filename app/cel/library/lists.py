"""Lists and sets (cel-go ext/lists.go version 3 and ext/sets.go, v0.26; apiserver pkg/cel/library/lists.go, 1.36)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cmp_to_key
from typing import Any, Final

from app.cel.declarations import Library
from app.cel.equality import compare, contains, equal, is_sortable
from app.cel.errors import Fault, too_costly
from app.cel.library.operators import add
from app.cel.values import NONE, Duration, Option, UInt

LIBRARY: Final = Library()

_MAX_RANGE: Final = 1_000_000
_MAX_COMPARISONS: Final = 1_000_000
_COMPARABLE: Final = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")


def _affordable(comparisons: int) -> None:
    """Raises Abort for more comparisons than a whole evaluation may cost."""
    if comparisons > _MAX_COMPARISONS:
        raise too_costly()


def _same(left: Any, right: Any) -> bool:
    try:
        return equal(left, right)
    except Fault:
        return False


# --- Parts and order ------------------------------------------------------------------------------------------------


@LIBRARY.function("lists.range", "int -> list(int)")
def range_(size: int) -> list[int]:
    if size > _MAX_RANGE:
        raise too_costly()
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


@LIBRARY.share("flatten")
def flatten(values: Any, levels: Any = 1) -> list[Any]:
    """The elements of lists in the list, down to a number of levels."""
    if values.__class__ is not list or levels.__class__ is not int:
        raise Fault("no such overload: flatten")
    if levels < 0:
        raise Fault("level must be non-negative")
    while levels and any(value.__class__ is list for value in values):
        flat: list[Any] = []
        for value in values:
            if value.__class__ is list:
                flat += value
            else:
                flat.append(value)
            _affordable(len(flat))
        values, levels = flat, levels - 1
    return list(values)


@LIBRARY.method("reverse", "list(T) -> list(T)")
def reverse(values: list[Any]) -> list[Any]:
    return values[::-1]


@LIBRARY.method("distinct", "list(T) -> list(T)")
def distinct(values: list[Any]) -> list[Any]:
    _affordable(len(values) ** 2)
    unique: list[Any] = []
    for value in values:
        if not contains(unique, value):
            unique.append(value)
    return unique


@LIBRARY.share("sort")
def sort(values: Any) -> list[Any]:
    if values.__class__ is not list:
        raise Fault("no such overload: sort")
    return sort_by_keys(values, values)


@LIBRARY.share("@sortByAssociatedKeys")
def sort_by_keys(values: Any, keys: list[Any]) -> list[Any]:
    """The values in the order of their keys, which must be of one type that has an order."""
    if values.__class__ is not list:
        raise Fault("no such overload: @sortByAssociatedKeys")
    _affordable(len(values) ** 2)
    if not values:
        return []
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


for _kind in ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes"):
    LIBRARY.declare("sort", f"list({_kind}) -> list({_kind})", member=True)
    LIBRARY.declare("@sortByAssociatedKeys", f"list(T), list({_kind}) -> list(T)", member=True)


@LIBRARY.method("first", "list(V) -> optional(V)")
def first(values: list[Any]) -> Option:
    return Option(values[0]) if values else NONE


@LIBRARY.method("last", "list(V) -> optional(V)")
def last(values: list[Any]) -> Option:
    return Option(values[-1]) if values else NONE


# --- Kubernetes -----------------------------------------------------------------------------------------------------


@LIBRARY.method("isSorted", *(f"list({kind}) -> bool" for kind in _COMPARABLE))
def is_sorted(values: list[Any]) -> bool:
    """Neighbours that have no order among themselves do not count."""
    for index, value in enumerate(values):
        if not is_sortable(value):
            raise Fault("no such overload")
        if index and _order(values[index - 1], value) > 0:
            return False
    return True


def _extreme(name: str, wanted: int) -> Callable[[list[Any]], Any]:
    def extreme(values: list[Any]) -> Any:
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
    LIBRARY.method("min", f"list({_kind}) -> {_kind}")(_extreme("min", -1))
    LIBRARY.method("max", f"list({_kind}) -> {_kind}")(_extreme("max", 1))


def _sum(zero: Any) -> Callable[[list[Any]], Any]:
    def total(values: list[Any]) -> Any:
        result = zero
        for value in values:
            result = add(result, value)
        return result

    return total


for _kind, _zero in (("int", 0), ("uint", UInt(0)), ("double", 0.0), ("duration", Duration(0))):
    LIBRARY.method("sum", f"list({_kind}) -> {_kind}")(_sum(_zero))


@LIBRARY.method("indexOf", "list(A), A -> int")
def index_of(values: list[Any], wanted: Any) -> int:
    return next((index for index, value in enumerate(values) if _same(value, wanted)), -1)


@LIBRARY.method("lastIndexOf", "list(A), A -> int")
def last_index_of(values: list[Any], wanted: Any) -> int:
    return next((index for index in range(len(values) - 1, -1, -1) if _same(values[index], wanted)), -1)


# --- Sets -----------------------------------------------------------------------------------------------------------


@LIBRARY.function("sets.contains", "list(T), list(T) -> bool")
def sets_contains(values: list[Any], wanted: list[Any]) -> bool:
    _affordable(len(values) * len(wanted))
    return all(contains(values, value) for value in wanted)


@LIBRARY.function("sets.equivalent", "list(T), list(T) -> bool")
def sets_equivalent(left: list[Any], right: list[Any]) -> bool:
    return sets_contains(left, right) and sets_contains(right, left)


@LIBRARY.function("sets.intersects", "list(T), list(T) -> bool")
def sets_intersects(left: list[Any], right: list[Any]) -> bool:
    _affordable(len(left) * len(right))
    return any(contains(right, value) for value in left)
