"""Values and functions of Kubernetes: quantities, semantic versions, `includes`.

Rules: Kubernetes 1.36, apiserver pkg/cel/library/quantity.go and semverlib.go, dynamic-resource-allocation/cel.
"""

from __future__ import annotations

from typing import Any, Final

from dra_extender.api.quantity import Format, Quantity
from dra_extender.api.semver import Semver
from dra_extender.cel.declarations import Library
from dra_extender.cel.equality import compared, order, same
from dra_extender.cel.errors import Fault, parses
from dra_extender.cel.values import SumQuantity
from dra_extender.cel.work import Meter, text_bytes

LIBRARY: Final = Library()

_INT_MIN: Final = -(2**63)


@LIBRARY.function("quantity", "string -> Quantity")
def quantity(text: str) -> Quantity:
    try:
        return Quantity.parse(text)
    except ValueError as error:
        raise Fault(str(error)) from None


@LIBRARY.method("asInteger", "Quantity -> int")
def as_integer(value: Quantity) -> int:
    integer = value.int64()
    if integer is None:
        raise Fault("cannot convert value to integer")
    return integer


def _subtract(left: Quantity, right: Quantity) -> Quantity:
    if left.fast and right.fast and right.nano < 0 and right.nano == _INT_MIN * 10 ** (9 + right.scale):
        wrapped = left + right  # upstream adds the negated int64, and the smallest one is its own negation
        if wrapped.fast:
            return _sum(wrapped)
    return _sum(left - right)


def _sum(value: Quantity) -> SumQuantity:
    return SumQuantity(value.nano, value.format, scale=value.scale, fast=value.fast)


LIBRARY.functions(
    {
        ("isQuantity", "string -> bool"): lambda text: parses(Quantity.parse, text),
        ("sign", "Quantity -> int"): lambda value: (value.nano > 0) - (value.nano < 0),
    }
)
LIBRARY.methods(
    {
        ("isInteger", "Quantity -> bool"): lambda value: value.int64() is not None,
        ("asApproximateFloat", "Quantity -> double"): lambda value: value.approximate_float(),
        ("isGreaterThan", "Quantity, Quantity -> bool"): lambda left, right: left.nano > right.nano,
        ("isLessThan", "Quantity, Quantity -> bool"): lambda left, right: left.nano < right.nano,
        ("compareTo", "Quantity, Quantity -> int"): lambda left, right: order(left.nano, right.nano),
        ("add", "Quantity, Quantity -> Quantity"): lambda left, right: _sum(left + right),
        ("add", "Quantity, int -> Quantity"): lambda left, right: _sum(
            left + Quantity.of_value(right, Format.DECIMAL_EXPONENT)
        ),
        ("sub", "Quantity, Quantity -> Quantity"): _subtract,
        ("sub", "Quantity, int -> Quantity"): lambda left, right: _subtract(
            left, Quantity.of_value(right, Format.DECIMAL_EXPONENT)
        ),
    }
)


_IDENTIFIER: Final = 160
"""Bytes that an identifier takes."""


@LIBRARY.function("semver", "string -> Semver", "string, bool -> Semver", metered=True)
def semver(meter: Meter, text: str, normalize: bool = False) -> Semver:
    size = _affordable(meter, text)
    try:
        version = Semver.parse(text, normalize)
    except ValueError as error:
        raise Fault(str(error)) from None
    meter.take(size)
    return version


def _affordable(meter: Meter, text: str) -> int:
    """How many bytes the version takes: each of its identifiers is an object."""
    identifiers = text.count(".")
    meter.charge(identifiers)
    meter.room(_IDENTIFIER * identifiers)
    return _IDENTIFIER * identifiers + text_bytes(text)


@LIBRARY.function("isSemver", "string -> bool", "string, bool -> bool", metered=True)
def is_semver(meter: Meter, text: str, normalize: bool = False) -> bool:
    _affordable(meter, text)
    return parses(Semver.parse, text, normalize)


def _signed(number: int) -> int:
    """Upstream stores uint64 numbers as int64."""
    return number - 2**64 if number >= 2**63 else number


LIBRARY.methods(
    {
        ("isGreaterThan", "Semver, Semver -> bool"): lambda left, right: left.key > right.key,
        ("isLessThan", "Semver, Semver -> bool"): lambda left, right: left.key < right.key,
        ("compareTo", "Semver, Semver -> int"): lambda left, right: order(left.key, right.key),
        ("major", "Semver -> int"): lambda value: _signed(value.key[0]),
        ("minor", "Semver -> int"): lambda value: _signed(value.key[1]),
        ("patch", "Semver -> int"): lambda value: _signed(value.key[2]),
    }
)


def includes_of(is_1_37: bool) -> Library:
    """`includes`, which examines 48 elements in Kubernetes 1.36 and all of them from 1.37 on."""
    library = Library()

    @library.method("includes", "dyn, dyn -> bool", metered=True)
    def includes(meter: Meter, target: Any, value: Any) -> bool:
        """True when a list contains the value, or a single value equals it. What cannot be compared is not equal."""
        if target.__class__ is not list:
            return same(target, value, meter)
        examined = len(target) if is_1_37 else 48
        meter.charge(examined * compared(value))
        if any(same(element, value, meter) for element in target[:examined]):
            return True
        if len(target) > examined:
            raise Fault(f"'includes' function cannot be applied to lists longer than {examined} values")
        return False

    return library
