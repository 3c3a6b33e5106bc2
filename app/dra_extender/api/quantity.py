"""An amount such as `40Gi`, `1500m` or `2e3`: exact, immutable, equal by value.

Promises: what parses, how it is rounded and capped, when it counts as an integer and how it is printed is the
behaviour of Kubernetes 1.36 (apimachinery, pkg/api/resource/quantity.go), with two exceptions. Values of more than a
thousand digits are refused, because `1e999999999` must not fill the memory. Decimal values from 1000E on keep the
suffix E, where upstream prints no suffix at all.

Unit of all arithmetic: nano units, as an integer. Nothing smaller can be expressed.
"""

from __future__ import annotations

import math
import re
from enum import StrEnum
from functools import total_ordering
from typing import Any, Final

from dra_extender.limits import DIGITS_OF_QUANTITY

_TEXT: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*+)(?:\.(?P<part>[0-9]*+))?(?P<suffix>[eEinumkKMGTP]*+[+-]?[0-9]*+)"
)

_DECIMAL_SUFFIXES: Final = {
    "n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18,
}  # fmt: skip
_BINARY_SUFFIXES: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_NAMES: Final = {exponent: suffix for suffix, exponent in _DECIMAL_SUFFIXES.items()}
_BINARY_NAMES: Final = ("", *_BINARY_SUFFIXES)

_NANO: Final = 10**9
_MAX_INT64: Final = 2**63 - 1
_MIN_INT64: Final = -(2**63)
_FAST_DIGITS: Final = 18
_FAST_BINARY_DIGITS: Final = 14


class Format(StrEnum):
    """How an amount is printed; upstream's names."""

    DECIMAL_SI = "DecimalSI"
    BINARY_SI = "BinarySI"
    DECIMAL_EXPONENT = "DecimalExponent"


@total_ordering
class Quantity:
    """An exact amount in `nano` units.

    `scale` is the power of ten upstream holds the amount in. `fast` tells whether it holds it as an int64 with that
    scale; only such an amount can be an integer to a selector (`isInteger`). Neither takes part in comparisons.
    """

    __slots__ = ("_text", "fast", "format", "nano", "scale")

    nano: int
    format: Format
    scale: int
    fast: bool
    _text: str | None

    def __init__(
        self,
        nano: int,
        format: Format = Format.DECIMAL_SI,
        scale: int = -9,
        fast: bool = False,
        text: str | None = None,
    ) -> None:
        set_ = object.__setattr__
        set_(self, "nano", nano)
        set_(self, "format", format)
        set_(self, "scale", scale)
        set_(self, "fast", fast)
        set_(self, "_text", text)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a Quantity cannot be changed ({name})")

    @classmethod
    def parse(cls, text: str) -> Quantity:
        """The amount in `text`. Raises ValueError naming the text and the problem."""
        if not text:
            raise _invalid(text, "is empty")
        found = _TEXT.fullmatch(text)
        if found is None:
            raise _invalid(
                text, "is not a number with an optional suffix (n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or e3)"
            )
        suffix = found["suffix"]
        if suffix in _DECIMAL_SUFFIXES:
            return _decimal(text, found, _DECIMAL_SUFFIXES[suffix], Format.DECIMAL_SI)
        if suffix in _BINARY_SUFFIXES:
            return _binary(text, found, _BINARY_SUFFIXES[suffix])
        return _decimal(text, found, _exponent(text, suffix), Format.DECIMAL_EXPONENT)

    @classmethod
    def of_value(cls, value: int, format: Format = Format.BINARY_SI) -> Quantity:
        """The whole amount `value`, as upstream's NewQuantity."""
        return cls(value * _NANO, format, scale=0, fast=_MIN_INT64 <= value <= _MAX_INT64)

    @property
    def text(self) -> str:
        """The text upstream would write: the parsed text when it was canonical enough, else the canonical form."""
        text = self._text
        if text is None:
            text = _canonical(self)
            object.__setattr__(self, "_text", text)
        return text

    def value(self, unit: int = _NANO) -> int:
        """The amount as a whole number of units of `unit` nano units, fractions rounded away from zero."""
        return _divide_away_from_zero(self.nano, unit)

    def int64(self) -> int | None:
        """The amount as a selector's `asInteger` sees it; None where upstream has no integer form of it."""
        if not self.fast or self.scale < 0:
            return None
        value = self.nano // _NANO
        return value if _MIN_INT64 <= value <= _MAX_INT64 else None

    def approximate_float(self) -> float:
        """The amount as the nearest double upstream computes: mantissa as double, times a power of ten."""
        mantissa = self.nano // 10 ** (9 + self.scale) if self.nano else 0
        try:
            base = float(mantissa)
        except OverflowError:
            base = float("inf") if mantissa > 0 else float("-inf")
        return base * float(f"1e{self.scale}") if self.scale else base

    def __add__(self, other: Quantity) -> Quantity:
        """The exact sum. Zero takes the format of what is added to it."""
        if not isinstance(other, Quantity):
            return NotImplemented
        return _sum(self, other, self.nano + other.nano)

    def __sub__(self, other: Quantity) -> Quantity:
        """The exact difference. Zero takes the format of what is taken from it."""
        if not isinstance(other, Quantity):
            return NotImplemented
        return _sum(self, other, self.nano - other.nano)

    def __eq__(self, other: object) -> bool:
        return self.nano == other.nano if isinstance(other, Quantity) else NotImplemented

    def __hash__(self) -> int:
        return hash(hex(self.nano))  # of text: any number of integers have one hash

    def __lt__(self, other: object) -> bool:
        return self.nano < other.nano if isinstance(other, Quantity) else NotImplemented

    def __bool__(self) -> bool:
        return self.nano != 0

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Quantity({self.text!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Quantity, (self.nano, self.format, self.scale, self.fast, self._text)


def _invalid(text: str, problem: str) -> ValueError:
    shown = text if len(text) <= 64 else text[:61] + "..."
    return ValueError(f"quantity {shown!r} {problem}")


def _digits(text: str, found: re.Match[str]) -> tuple[str, str]:
    """The digits before the point, without leading zeros, and after it. No digits at all count as zero.

    More than enough digits are refused before anything is computed with them.
    """
    whole, part = found["whole"].lstrip("0") or "0", found["part"] or ""
    if len(whole) + len(part) > DIGITS_OF_QUANTITY:
        raise _invalid(text, f"has more than {DIGITS_OF_QUANTITY} digits")
    return whole, part


def _exponent(text: str, suffix: str) -> int:
    """The number behind `e` or `E`. Like upstream's, it is an int64 of which only the lower 32 bits count."""
    if suffix[:1] not in ("e", "E") or not re.fullmatch(r"[+-]?[0-9]{1,1000}", suffix[1:]):
        raise _invalid(text, f"has the unknown suffix {suffix[:16]!r}")
    exponent = int(suffix[1:])
    if not _MIN_INT64 <= exponent <= _MAX_INT64:
        raise _invalid(text, "has an exponent that is out of range")
    return (exponent + 2**31) % 2**32 - 2**31


def _require_digits(text: str, found: re.Match[str]) -> None:
    if not found["whole"] and not found["part"]:
        raise _invalid(text, "has no digits")


def _decimal(text: str, found: re.Match[str], exponent: int, format: Format) -> Quantity:
    """Digits times a power of ten."""
    whole, part = _digits(text, found)
    number, scale = int(whole + part), exponent - len(part)
    if number and len(whole) + scale > DIGITS_OF_QUANTITY:
        raise _invalid(text, f"has more than {DIGITS_OF_QUANTITY} digits")
    negative = found["sign"] == "-"
    if len(whole) + len(part) <= _FAST_DIGITS and scale >= -9:
        nano = number * 10 ** (9 + scale) if number else 0
        shown = whole + part
        keep = scale % 3 == 0 and not shown.endswith("000") and shown[0] != "0"
        return Quantity(
            -nano if negative else nano, format, scale=scale, fast=True, text=text if keep or text == "0" else None
        )
    _require_digits(text, found)
    if scale >= -9:
        nano = number * 10 ** (9 + scale) if number else 0
    elif -9 - scale > len(whole) + len(part):
        nano = 1 if number else 0
    else:
        nano = _divide_away_from_zero(number, 10 ** (-9 - scale))
    return Quantity(-nano if negative else nano, format)


def _binary(text: str, found: re.Match[str], exponent: int) -> Quantity:
    """Digits times a power of two, capped at the largest int64."""
    whole, part = _digits(text, found)
    number, negative = int(whole + part), found["sign"] == "-"
    if not part and len(whole) + exponent * 3 // 10 <= _FAST_BINARY_DIGITS:
        nano = (number << exponent) * _NANO
        return Quantity(
            -nano if negative else nano, Format.BINARY_SI, scale=0, fast=True, text=text if number & 7 else None
        )
    _require_digits(text, found)
    nano = _divide_away_from_zero((number << exponent) * _NANO, 10 ** len(part))
    if nano > _MAX_INT64 * _NANO:
        return Quantity((-_MAX_INT64 if negative else _MAX_INT64) * _NANO, Format.BINARY_SI, scale=0)
    format = Format.DECIMAL_SI if 0 < nano < _NANO else Format.BINARY_SI
    return Quantity(-nano if negative else nano, format)


def _divide_away_from_zero(number: int, divisor: int) -> int:
    return -(-number // divisor) if number >= 0 else number // divisor


def _sum(left: Quantity, right: Quantity, nano: int) -> Quantity:
    """The result `nano` of adding or subtracting, held as upstream would hold it: with the finer of both scales."""
    format = left.format if left.nano else right.format
    if left.fast and right.fast:
        if not right.nano:
            return Quantity(nano, format, scale=left.scale, fast=True)
        scale = right.scale if not left.nano else min(left.scale, right.scale)
        if _MIN_INT64 <= nano // 10 ** (9 + scale) <= _MAX_INT64:
            return Quantity(nano, format, scale=scale, fast=True)
    return Quantity(nano, format, scale=max(min(left.scale, right.scale), -9))


def _canonical(quantity: Quantity) -> str:
    """Largest suffix that keeps a whole mantissa; binary only for whole numbers from 1024 on, in magnitude."""
    nano = quantity.nano
    if not nano:
        return "0"
    if quantity.format is Format.BINARY_SI and abs(nano) >= 1024 * _NANO and nano % _NANO == 0:
        mantissa, power = nano // _NANO, 0
        while mantissa % 1024 == 0 and power < len(_BINARY_NAMES) - 1:
            mantissa, power = mantissa // 1024, power + 1
        return f"{mantissa}{_BINARY_NAMES[power]}"
    mantissa, exponent = nano, -9
    largest = DIGITS_OF_QUANTITY if quantity.format is Format.DECIMAL_EXPONENT else 18
    while mantissa % 1000 == 0 and exponent < largest:
        mantissa, exponent = mantissa // 1000, exponent + 3
    if quantity.format is Format.DECIMAL_EXPONENT:
        return f"{mantissa}e{exponent}" if exponent else str(mantissa)
    return f"{mantissa}{_DECIMAL_NAMES[exponent]}"


def ratio(amount: int, unit: int = _NANO) -> float:
    """`amount / unit`; infinite if a float cannot hold it."""
    try:
        return amount / unit
    except OverflowError:
        return math.inf if (amount > 0) == (unit > 0) else -math.inf
