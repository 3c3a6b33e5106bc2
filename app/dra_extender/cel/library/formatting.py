"""`"%s is %d".format([…])` (cel-go ext/formatting.go, v0.26): carried out, and checked when all is literal."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isinf, isnan
from typing import Any, Final

from dra_extender.cel.declarations import Library
from dra_extender.cel.errors import Fault
from dra_extender.cel.library.conversions import bytes_to_string, double_to_string, duration_to_string
from dra_extender.cel.library.strings import ESCAPED
from dra_extender.cel.library.times import format_timestamp
from dra_extender.cel.syntax import Expr, ListNode, MapNode
from dra_extender.cel.values import Duration, Timestamp, TypeValue, UInt, key_value, type_name
from dra_extender.cel.work import Meter, text_bytes

LIBRARY: Final = Library()

_DEFAULT_PRECISION: Final = 6
_MAX_PRECISION: Final = 1_000_000
_WIDEST: Final = 400
_WIDEST_ESCAPE: Final = 6
_SEPARATED: Final = 4
_WRITTEN: Final = 256
"""How many bytes are written per unit of work."""

_SUPERSCRIPTS: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_CLAUSE: Final = re.compile(r"(?:\.([0-9]*))?(.?)", re.DOTALL)
_SPECIAL_TEXTS: Final = {"NaN": "NaN", "Infinity": "∞", "-Infinity": "-∞"}

Clause = tuple[str, int | None]
"""A verb and its precision."""
Verb = Callable[[Any, int | None], str]
"""Writes a value with a precision."""


def _parts(text: str) -> Iterator[str | Clause]:
    """Plain text and clauses, in turn. Raises Fault at an invalid clause."""
    place = 0
    while place < len(text):
        percent = text.find("%", place)
        if percent < 0:
            yield text[place:]
            return
        if percent > place:
            yield text[place:percent]
        if text[percent + 1 : percent + 2] == "%":
            yield "%"
            place = percent + 2
            continue
        found = _CLAUSE.match(text, percent + 1)
        if found is None or not found[2]:
            raise Fault("unexpected end of string")
        yield _clause(found)
        place = found.end()


def _clause(found: re.Match[str]) -> Clause:
    digits, verb = found[1], found[2]
    if digits == "" or (digits is not None and len(digits) > 18):
        raise Fault("could not parse formatting clause: error while parsing precision")
    if verb not in "sdfebxXo":
        raise Fault(f'could not parse formatting clause: unrecognized formatting clause "{verb}"')
    return verb, None if digits is None else int(digits)


@LIBRARY.method("format", "string, list(dyn) -> string", metered=True)
def format_(meter: Meter, text: str, values: list[Any]) -> str:
    result: list[str] = []
    estimate = _Estimate(meter, text_bytes(text))
    used = 0
    for part in _parts(text):
        if part.__class__ is tuple:
            if used >= len(values):
                raise Fault(f"index {used} out of range")
            verb, precision = part
            estimate.add(values[used], precision)
            part = _VERBS[str(verb)](values[used], precision)
            used += 1
        result.append(str(part))
    return "".join(result)


@dataclass(slots=True, eq=False)
class _Estimate:
    """The most bytes a text can have, added up and charged for before any is made of a value."""

    _meter: Meter
    _size: int

    def add(self, value: Any, precision: int | None) -> None:
        """A value that is going to be formatted. Raises Abort when the whole text takes too much memory."""
        self._add(min(precision or 0, _MAX_PRECISION))
        pending = [value]
        while pending:
            found = pending.pop()
            kind = found.__class__
            if kind is str:
                self._add(_WIDEST_ESCAPE * len(found) if found is not value else 2 * text_bytes(found))
            elif kind is bytes:
                self._add(2 * len(found))
            elif kind is list:
                self._add(_SEPARATED * len(found))
                pending += found
            elif isinstance(found, dict):
                self._add(_SEPARATED * len(found))
                pending += (part for entry in found.items() for part in entry)
            else:
                self._add(_WIDEST)

    def _add(self, size: int) -> None:
        self._size += size
        self._meter.charge(1 + size // _WRITTEN)
        self._meter.room(self._size)


def _refused(what: str, value: Any) -> Fault:
    return Fault(f"error during formatting: {what}, was given {type_name(value)}")


def _string(value: Any, _: int | None) -> str:
    kind = value.__class__
    if kind is str:
        return str(value)
    if kind is list:
        return f"[{', '.join(_member(element) for element in value)}]"
    if isinstance(value, dict):
        return _map(value)
    convert = _TO_STRING.get(kind)
    if convert is None:
        raise _refused("string clause can only be used on values with a text form", value)
    return convert(value)


def _integers(form: str, refusal: str, *kinds: type) -> Verb:
    def write(value: Any, _: int | None) -> str:
        kind: type = value.__class__
        if kind is int or kind is UInt or kind in kinds:
            return format(int(value), form)
        raise _refused(refusal, value)

    return write


def _special(value: Any) -> str | None:
    """The text of a number that is not finite; also of the texts NaN, Infinity and -Infinity. None for all others."""
    if value.__class__ is str:
        return _SPECIAL_TEXTS.get(value)
    if isnan(value):
        return "NaN"
    if isinf(value):
        return "∞" if value > 0 else "-∞"
    return None


def _precision(value: Any, precision: int | None, refusal: str) -> int:
    """The precision, or the default one. Raises Fault if the value is not a double."""
    if value.__class__ is not float and not (value.__class__ is str and value in _SPECIAL_TEXTS):
        raise _refused(refusal, value)
    return _DEFAULT_PRECISION if precision is None else precision


def _fixed(value: Any, precision: int | None) -> str:
    digits = _precision(value, precision, "fixed-point clause can only be used on doubles")
    special = _special(value)
    if special is not None:
        return special
    if digits > _MAX_PRECISION:
        raise Fault("error during formatting: precision is out of range")
    return format(abs(value) if value == 0 else value, f",.{digits}f")


def _scientific(value: Any, precision: int | None) -> str:
    """Always six digits: upstream takes the precision for a width."""
    width = _precision(value, precision, "scientific clause can only be used on doubles")
    if width > _MAX_PRECISION:
        raise Fault("error during formatting: precision is out of range")
    special = _special(value)
    if special is not None:
        return special.rjust(width)
    mantissa, _, exponent = format(abs(value) if value == 0 else value, ".6e").partition("e")
    power = f"{int(exponent):03d}" if exponent[0] == "-" else f"{int(exponent):02d}"
    return f"{mantissa}×10{power.translate(_SUPERSCRIPTS)}".rjust(width)


def _hexadecimal(value: Any, _: int | None) -> str:
    if value.__class__ is int or value.__class__ is UInt:
        return format(int(value), "x")
    if value.__class__ is str:
        return str(value.encode().hex())
    if value.__class__ is bytes:
        return str(value.hex())
    raise _refused("only integers, bytes and strings can be formatted as hex", value)


_VERBS: Final[dict[str, Verb]] = {
    "s": _string,
    "d": _integers("d", "decimal clause can only be used on integers"),
    "f": _fixed,
    "e": _scientific,
    "b": _integers("b", "only integers and bools can be formatted as binary", bool),
    "x": _hexadecimal,
    "X": lambda value, precision: _hexadecimal(value, precision).upper(),
    "o": _integers("o", "octal clause can only be used on integers"),
}

_TO_STRING: Final[dict[type, Callable[[Any], str]]] = {
    int: lambda value: str(int(value)),
    UInt: lambda value: str(int(value)),
    float: double_to_string,
    bool: lambda value: "true" if value else "false",
    bytes: bytes_to_string,
    Timestamp: format_timestamp,
    Duration: duration_to_string,
    TypeValue: lambda value: str(value.name),
    type(None): lambda _: "null",
}


def _member(value: Any) -> str:
    """A value as it could be written in an expression."""
    kind = value.__class__
    if kind is str:
        return _quoted(value)
    if kind is bytes:
        return "b" + _quoted(bytes_to_string(value))
    if kind is float:
        return _quoted(double_to_string(value)) if isnan(value) or isinf(value) else f"{value:.6f}"
    if kind is Timestamp:
        return f"timestamp({_quoted(format_timestamp(value))})"
    if kind is Duration:
        return f"duration({_quoted(duration_to_string(value))})"
    if kind in _TO_STRING or kind is list or isinstance(value, dict):
        return _string(value, None)
    raise Fault(f"error during formatting: no formatting function for {type_name(value)}")


def _map(entries: dict[Any, Any]) -> str:
    pairs = []
    for stored, value in entries.items():
        key = key_value(stored)
        if key.__class__ not in (str, bool, int, UInt):
            raise Fault(f"error during formatting: no formatting function for map key of type {type_name(key)}")
        pairs.append((_member(key), _member(value)))
    pairs.sort(key=lambda pair: pair[0])
    return f"{{{', '.join(f'{key}:{value}' for key, value in pairs)}}}"


def _quoted(text: str) -> str:
    """In double quotes, as Go's %q."""
    return f'"{text.translate({ord(each): _go_character(each) for each in set(text)})}"'


def _go_character(character: str) -> str:
    escaped = ESCAPED.get(ord(character))
    if escaped is not None:
        return escaped
    if character.isprintable():
        return character
    point = ord(character)
    if point < 0x80:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"


_INTEGERS: Final = ("int", "uint")
_KINDS: Final = {
    "d": _INTEGERS, "o": _INTEGERS, "f": ("double", "string"), "e": ("double", "string"), "b": (*_INTEGERS, "bool"),
    "x": (*_INTEGERS, "string", "bytes"), "X": (*_INTEGERS, "string", "bytes"),
}  # fmt: skip
_STRING_KINDS: Final = frozenset(
    ("list", "map", "int", "uint", "double", "bool", "string", "timestamp", "bytes", "duration", "type", "null", "dyn")
)


def check_literal(text: str, arguments: ListNode) -> tuple[str, Expr | None]:
    """What is wrong with a format and its arguments, and where; an empty text when nothing is."""
    used = 0
    try:
        for part in _parts(text):
            if not isinstance(part, tuple):
                continue
            if used >= len(arguments.elements):
                return f"index {used} out of range", arguments
            argument = arguments.elements[used]
            used += 1
            if part[0] == "s":
                misfit = _unprintable(argument)
            else:
                misfit = None if argument.type.kind in ("dyn", *_KINDS[part[0]]) else argument
            if misfit is not None:
                return f"%{part[0]} cannot format a value of type {misfit.type}", misfit
    except Fault as fault:
        return str(fault), arguments
    if used < len(arguments.elements):
        return (
            f"too many arguments supplied to string.format (expected {used}, got {len(arguments.elements)})",
            arguments,
        )
    return "", None


def _unprintable(argument: Expr) -> Expr | None:
    """The part of an argument that has no text form."""
    pending = [argument]
    while pending:
        node = pending.pop()
        if node.type.kind not in _STRING_KINDS:
            return node
        if isinstance(node, ListNode | MapNode):
            pending += node.children
    return None
