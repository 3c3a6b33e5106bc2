"""Conversions between types: `int`, `uint`, `double`, `bool`, `string`, `bytes`, `timestamp`, `duration`.

cel-go common/types v0.26, which reads and prints numbers by Go's strconv and fmt.
"""

from __future__ import annotations

import re
from decimal import Decimal
from math import inf, isinf, isnan, nan
from typing import Final

from dra_extender.cel.declarations import Library
from dra_extender.cel.errors import Fault
from dra_extender.cel.library.operators import int64, uint64
from dra_extender.cel.library.times import (
    format_timestamp,
    from_seconds,
    not_convertible,
    parse_duration,
    parse_timestamp,
    total_seconds,
)
from dra_extender.cel.values import Duration, UInt

LIBRARY: Final = Library()

CONVERSIONS: Final = frozenset(
    ("bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint")
)
"""Calls of these on constants are carried out when the selector is compiled, and fail then."""

_TRUE: Final = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE: Final = frozenset(("0", "f", "F", "FALSE", "false", "False"))
_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9][0-9_]*+(?:\.[0-9_]*+)?|\.[0-9][0-9_]*+)(?:[eE][+-]?[0-9_]+)?")
_HEXADECIMAL: Final = re.compile(
    r"[+-]?0[xX](?:[0-9a-fA-F_]++(?:\.[0-9a-fA-F_]*+)?|_?\.[0-9a-fA-F_]++)[pP][+-]?[0-9_]+"
)
_LONE_UNDERSCORE: Final = re.compile(r"(?<![0-9])_|_(?![0-9])")
_LONE_HEX_UNDERSCORE: Final = re.compile(r"(?<![0-9a-fA-FxX])_|_(?![0-9a-fA-F])")
_SPECIAL: Final = {"inf": inf, "infinity": inf, "nan": nan}


for _kind in ("bool", "bytes", "double", "duration", "int", "string", "timestamp", "uint"):
    LIBRARY.functions({(_kind, f"{_kind} -> {_kind}"): lambda value: value})


@LIBRARY.function("bool", "string -> bool")
def string_to_bool(text: str) -> bool:
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise not_convertible("string", "bool")


@LIBRARY.function("int", "double -> int")
def double_to_int(value: float) -> int:
    if not -(2.0**63) < value < 2.0**63:
        raise Fault("integer overflow")
    return int(value)


@LIBRARY.function("int", "string -> int")
def string_to_int(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,4000}", text) or not -(2**63) <= int(text) < 2**63:
        raise not_convertible("string", "int")
    return int(text)


@LIBRARY.function("uint", "double -> uint")
def double_to_uint(value: float) -> UInt:
    if not 0 <= value < 2.0**64:
        raise Fault("unsigned integer overflow")
    return UInt(value)


@LIBRARY.function("uint", "string -> uint")
def string_to_uint(text: str) -> UInt:
    if not re.fullmatch(r"[0-9]{1,4000}", text) or int(text) >= 2**64:
        raise not_convertible("string", "uint")
    return UInt(text)


@LIBRARY.function("double", "string -> double")
def string_to_double(text: str) -> float:
    """What Go's ParseFloat reads, underscores and hexadecimal numbers included."""
    sign = -1.0 if text[:1] == "-" else 1.0
    special = _SPECIAL.get(text.lstrip("+-").lower() if len(text) - len(text.lstrip("+-")) <= 1 else "")
    if special is not None and not (isnan(special) and text[0] in "+-"):
        return sign * special
    value = _parse_number(text)
    if value is None or isinf(value):
        raise not_convertible("string", "double")
    return value


def _parse_number(text: str) -> float | None:
    """A finite number; underscores only between digits."""
    try:
        if _DECIMAL.fullmatch(text) and not _LONE_UNDERSCORE.search(text):
            return float(text.replace("_", ""))
        if _HEXADECIMAL.fullmatch(text) and not _LONE_HEX_UNDERSCORE.search(text):
            return float.fromhex(text.replace("_", ""))
    except (ValueError, OverflowError):
        return None
    return None


@LIBRARY.function("string", "bytes -> string")
def bytes_to_string(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise Fault("invalid UTF-8 in bytes, cannot convert to string") from None


@LIBRARY.function("string", "double -> string")
def double_to_string(value: float) -> str:
    """As Go's %g: with an exponent below 0.0001 and from a million on."""
    if isnan(value):
        return "NaN"
    if isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if value == 0 or 1e-4 <= abs(value) < 1e6:
        return fixed(repr(value))
    digits, exponent = Decimal(repr(value)).normalize().as_tuple()[1:]
    leading, *others = map(str, digits)
    power = int(exponent) + len(others)
    point = f".{''.join(others)}" if others else ""
    return f"{'-' if value < 0 else ''}{leading}{point}e{'-' if power < 0 else '+'}{abs(power):02d}"


def fixed(text: str) -> str:
    """The repr of a double without an exponent and without a fraction of zero."""
    shown = format(Decimal(text), "f")
    return shown.rstrip("0").rstrip(".") if "." in shown else shown


@LIBRARY.function("string", "duration -> string")
def duration_to_string(span: Duration) -> str:
    return fixed(repr(total_seconds(span))) + "s"


LIBRARY.functions(
    {
        ("bytes", "string -> bytes"): str.encode,
        ("int", "duration -> int"): lambda span: span.nanos,
        ("int", "timestamp -> int"): lambda time: time.nanos // 10**9,
        ("int", "uint -> int"): lambda value: int64(int(value)),
        ("uint", "int -> uint"): uint64,
        ("double", "int -> double"): float,
        ("double", "uint -> double"): float,
        ("string", "bool -> string"): lambda value: "true" if value else "false",
        ("string", "int -> string"): lambda value: str(int(value)),
        ("string", "uint -> string"): lambda value: str(int(value)),
        ("string", "timestamp -> string"): format_timestamp,
        ("string", "IP -> string"): lambda address: address.text,
        ("string", "CIDR -> string"): lambda block: block.text,
        ("duration", "string -> duration"): parse_duration,
        ("timestamp", "int -> timestamp"): from_seconds,
        ("timestamp", "string -> timestamp"): parse_timestamp,
    }
)


@LIBRARY.function("duration", "int -> duration")
def int_to_duration(_: int) -> Duration:
    raise not_convertible("int", "google.protobuf.Duration")
