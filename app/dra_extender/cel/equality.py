"""When values are equal, and how they are ordered (cel-go common/types, v0.26; apiserver pkg/cel, 1.36)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from dra_extender.api.quantity import Quantity
from dra_extender.api.semver import Semver
from dra_extender.cel.errors import Abort, Fault, shown
from dra_extender.cel.values import (
    NONE,
    Duration,
    Opaque,
    Option,
    SumQuantity,
    Timestamp,
    UInt,
    find,
    key_value,
    type_name,
)
from dra_extender.cel.work import Meter, length

_NUMBERS: Final = frozenset((int, UInt, float))
_MAX_COMPARISONS: Final = 1_000_000
_CHARACTERS: Final = 4096
"""How many characters are compared per unit of work."""
_INNER: Final = 64
"""How many are if they are not those of a text."""


def compared(value: Any) -> int:
    """The work of comparing a value, without its elements, with another one."""
    kind = value.__class__
    if kind is str or kind is bytes:
        return 1 + len(value) // _CHARACTERS
    return 1 if kind is list or kind in _NUMBERS else 1 + length((value,)) // _INNER


def equal(left: Any, right: Any, meter: Meter) -> bool:
    """`left == right`. Raises Fault when `left` is of an extension type and `right` is of another type."""
    kind, other = left.__class__, right.__class__
    if left is None or right is None:
        return left is right
    if kind is other and (kind is str or kind is int or kind is bool or kind is bytes):
        return bool(left == right)
    if kind in _NUMBERS:
        one, another = _converted(left, right)
        return other in _NUMBERS and bool(one == another)
    while left.__class__ is Option and right.__class__ is Option and left is not NONE and right is not NONE:
        left, right = left.content, right.content
    if left.__class__ is not kind:
        return equal(left, right, meter)
    if kind is list or isinstance(left, dict):
        return _aggregates_equal(left, right, meter)
    return _others_equal(left, right)


def equal_sum(left: Any, right: Any, meter: Meter) -> bool:
    """`left == right` where `left` is written as a sum of lists: elements that cannot be compared are an error, not
    equal.
    """
    if not (left.__class__ is list and right.__class__ is list) or len(left) != len(right):
        return equal(left, right, meter)
    meter.charge(1 + len(left))
    fault: Fault | None = None
    for one, other in zip(left, right, strict=True):
        try:
            if not equal(one, other, meter):
                return False
        except Fault as error:
            fault = fault or error
    if fault is not None:
        raise fault
    return True


def same(left: Any, right: Any, meter: Meter) -> bool:
    """`left == right`; what cannot be compared is not equal."""
    try:
        return equal(left, right, meter)
    except Fault:
        return False


def contains(elements: list[Any], value: Any, meter: Meter) -> bool:
    """`value in elements`: elements that cannot be compared are not equal."""
    meter.charge(1 + len(elements) * compared(value))
    return any(same(value, element, meter) for element in elements)


def _aggregates_equal(left: Any, right: Any, meter: Meter) -> bool:
    """Lists or maps, whose parts may be shared many times over. Parts that cannot be compared count as equal."""
    comparisons = 0
    pending: list[Iterator[tuple[Any, Any]]] = [iter([(left, right)])]
    while pending:
        pair = next(pending[-1], None)
        if pair is None:
            pending.pop()
            continue
        left, right = pair
        comparisons += 1
        if comparisons > _MAX_COMPARISONS:
            raise Abort("operation cancelled: the values to be compared are too large")
        meter.charge(compared(left))
        if left.__class__ is list:
            if right.__class__ is not list or len(left) != len(right):
                return False
            pending.append(zip(left, right, strict=True))
        elif isinstance(left, dict):
            if not isinstance(right, dict) or len(left) != len(right):
                return False
            pending.append(_entries(left, right))
        else:
            try:
                if not equal(left, right, meter):
                    return False
            except Fault:
                pass
    return True


def _entries(left: dict[Any, Any], right: dict[Any, Any]) -> Iterator[tuple[Any, Any]]:
    """The values of equal keys. A key that `right` does not have is a difference."""
    for key, value in left.items():
        other, present = find(right, key_value(key))
        yield (value, other) if present else (True, False)


def _converted(left: Any, right: Any) -> tuple[Any, Any]:
    """Two numbers to be compared: if one is a double, the other is converted to double, which loses digits."""
    if left.__class__ is float:
        return left, _as_double(right, left)
    return (_as_double(left, right), right) if right.__class__ is float else (left, right)


def _as_double(value: Any, other: float) -> Any:
    """`value` as a double, unless `other` is outside the range of its type."""
    if value.__class__ is int:
        return float(value) if -(2.0**63) <= other <= 2.0**63 else value
    if value.__class__ is UInt:
        return float(value) if 0 <= other <= 2.0**64 else int(value)
    return value


def _others_equal(left: Any, right: Any) -> bool:
    kind, other = left.__class__, right.__class__
    if isinstance(left, Quantity):
        if other is SumQuantity or not isinstance(right, Quantity):
            raise Fault("no such overload")
        return left.nano == right.nano
    if kind is Semver or isinstance(left, Opaque):
        if kind is not other:
            raise Fault("no such overload")
        return left.same(right) if isinstance(left, Opaque) else bool(left == right)
    return kind is other and bool(left == right)


def order(left: Any, right: Any) -> int:
    """-1, 0 or 1, for values that Python orders as CEL does."""
    return int(left > right) - int(left < right)


def compare(left: Any, right: Any, operator: str = "compare") -> int:
    """-1, 0 or 1. Raises Fault when the values have no order."""
    kind, other = left.__class__, right.__class__
    if kind in _NUMBERS and other in _NUMBERS:
        if left != left or right != right:
            raise Fault("NaN values cannot be ordered")
        return order(*_converted(left, right))
    if kind not in _COMPARABLE:
        raise Fault(f"no such overload: {operator}")
    if kind is not other:
        raise Fault("no such overload")
    return order(left, right)


_COMPARABLE: Final = frozenset((*_NUMBERS, str, bytes, bool, Duration, Timestamp))


def is_sortable(value: Any) -> bool:
    """True for values of a type that has an order."""
    return value.__class__ in _COMPARABLE


def describe(value: Any) -> str:
    if value.__class__ is str:
        return shown(value)
    return f"{value}" if value.__class__ in (int, UInt, float) else type_name(value)
