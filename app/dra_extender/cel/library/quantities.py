"""Quantities (apiserver pkg/cel/library/quantity.go, 1.36)."""

from __future__ import annotations

from typing import Final

from dra_extender.api.quantity import Format, Quantity
from dra_extender.cel.declarations import Library
from dra_extender.cel.errors import Fault
from dra_extender.cel.values import SumQuantity

LIBRARY: Final = Library()

_INT_MIN: Final = -(2**63)


@LIBRARY.function("quantity", "string -> Quantity")
def quantity(text: str) -> Quantity:
    try:
        return Quantity.parse(text)
    except ValueError as error:
        raise Fault(str(error)) from None


@LIBRARY.function("isQuantity", "string -> bool")
def is_quantity(text: str) -> bool:
    try:
        Quantity.parse(text)
    except ValueError:
        return False
    return True


@LIBRARY.function("sign", "Quantity -> int")
def sign(value: Quantity) -> int:
    return (value.nano > 0) - (value.nano < 0)


@LIBRARY.method("isInteger", "Quantity -> bool")
def is_integer(value: Quantity) -> bool:
    return value.int64() is not None


@LIBRARY.method("asInteger", "Quantity -> int")
def as_integer(value: Quantity) -> int:
    integer = value.int64()
    if integer is None:
        raise Fault("cannot convert value to integer")
    return integer


@LIBRARY.method("asApproximateFloat", "Quantity -> double")
def as_approximate_float(value: Quantity) -> float:
    return value.approximate_float()


@LIBRARY.method("isGreaterThan", "Quantity, Quantity -> bool")
def is_greater_than(left: Quantity, right: Quantity) -> bool:
    return left.nano > right.nano


@LIBRARY.method("isLessThan", "Quantity, Quantity -> bool")
def is_less_than(left: Quantity, right: Quantity) -> bool:
    return left.nano < right.nano


@LIBRARY.method("compareTo", "Quantity, Quantity -> int")
def compare_to(left: Quantity, right: Quantity) -> int:
    return (left.nano > right.nano) - (left.nano < right.nano)


@LIBRARY.method("add", "Quantity, Quantity -> Quantity")
def add(left: Quantity, right: Quantity) -> Quantity:
    return _sum(left + right)


@LIBRARY.method("add", "Quantity, int -> Quantity")
def add_int(left: Quantity, right: int) -> Quantity:
    return _sum(left + Quantity.of_value(right, Format.DECIMAL_EXPONENT))


@LIBRARY.method("sub", "Quantity, Quantity -> Quantity")
def subtract(left: Quantity, right: Quantity) -> Quantity:
    if left.fast and right.fast and right.nano == _INT_MIN * 10 ** (9 + right.scale):
        wrapped = left + right  # upstream adds the negated int64, and the smallest one is its own negation
        if wrapped.fast:
            return _sum(wrapped)
    return _sum(left - right)


@LIBRARY.method("sub", "Quantity, int -> Quantity")
def subtract_int(left: Quantity, right: int) -> Quantity:
    return subtract(left, Quantity.of_value(right, Format.DECIMAL_EXPONENT))


def _sum(value: Quantity) -> SumQuantity:
    return SumQuantity(value.nano, value.format, scale=value.scale, fast=value.fast)
