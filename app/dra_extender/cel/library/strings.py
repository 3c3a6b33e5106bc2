"""Text functions (cel-go ext/strings.go version 2, v0.26; `contains` and its like from the standard library).

Positions count code points. Only ASCII letters change case.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from dra_extender.cel.declarations import Library
from dra_extender.cel.equality import describe
from dra_extender.cel.errors import Fault
from dra_extender.cel.work import REFERENCE, Meter, part_bytes, text_bytes

LIBRARY: Final = Library()

_SPACE: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
ESCAPED: Final = str.maketrans(
    {
        "\\": "\\\\", '"': '\\"',
        "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
    }
)  # fmt: skip
"""By code point; the backslash is first."""


_COPIED: Final = 1024
"""How many bytes are copied per unit of work."""

_FOUND: Final = 16
"""How many places are dealt with per unit of work."""

_AT_ONCE: Final = 65536
_SHORT: Final = 64


def _out_of_range(index: int) -> Fault:
    return Fault(f"index out of range: {index}")


def _in_bytes(text: str, change: Callable[[bytes], bytes]) -> str:
    """A change of ASCII letters. `str.translate` is ten times slower for a text with other characters."""
    return change(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")


@LIBRARY.function("strings.quote", "string -> string")
def quote(text: str) -> str:
    for code, escape in ESCAPED.items():
        text = text.replace(chr(code), escape)
    return f'"{text}"'


LIBRARY.methods(
    {
        ("contains", "string, string -> bool"): lambda text, part: part in text,
        ("startsWith", "string, string -> bool"): str.startswith,
        ("endsWith", "string, string -> bool"): str.endswith,
        ("indexOf", "string, string -> int"): str.find,
        ("lastIndexOf", "string, string -> int"): lambda text, part: _last(text, part),
        ("lowerAscii", "string -> string"): lambda text: _in_bytes(text, bytes.lower),
        ("upperAscii", "string -> string"): lambda text: _in_bytes(text, bytes.upper),
        ("trim", "string -> string"): lambda text: text.strip(_SPACE),
    }
)


@LIBRARY.method("charAt", "string, int -> string")
def char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise _out_of_range(index)
    return text[index : index + 1]


@LIBRARY.method("indexOf", "string, string, int -> int")
def index_of_from(text: str, part: str, offset: int) -> int:
    if not part:
        return offset
    if offset < 0:
        raise _out_of_range(offset)
    return text.find(part, offset)


@LIBRARY.method("lastIndexOf", "string, string, int -> int")
def last_index_of_from(text: str, part: str, offset: int) -> int:
    if not part:
        return offset
    if offset < 0:
        raise _out_of_range(offset)
    return _last(text[: offset + len(part)], part) if offset < len(text) else -1


def _last(text: str, part: str) -> int:
    """The last place of a part. Python's own search is slow for long parts when it goes backwards."""
    if len(part) <= _SHORT:
        return text.rfind(part)
    place = text[::-1].find(part[::-1])
    return place if place < 0 else len(text) - len(part) - place


@LIBRARY.method("substring", "string, int -> string", "string, int, int -> string")
def substring(text: str, start: int, end: int | None = None) -> str:
    if end is None:
        end = max(start, len(text))
    if start > end:
        raise Fault(f"invalid substring range. start: {start}, end: {end}")
    for index in (start, end):
        if not 0 <= index <= len(text):
            raise _out_of_range(index)
    return text[start:end]


@LIBRARY.method("replace", "string, string, string -> string", "string, string, string, int -> string", metered=True)
def replace(meter: Meter, text: str, old: str, new: str, limit: int = -1) -> str:
    """An empty `old` is found before every character and at the end. A negative limit means no limit."""
    found = text.count(old)
    found = min(found, limit) if limit >= 0 else found
    if not found:
        return text
    size = (len(text) + found * (len(new) - len(old))) * (1 if text.isascii() and new.isascii() else 4)
    meter.charge(found // _FOUND + size // _COPIED)
    meter.room(size)
    return text.replace(old, new, found)


@LIBRARY.method("split", "string, string -> list(string)", "string, string, int -> list(string)", metered=True)
def split(meter: Meter, text: str, separator: str, limit: int = -1) -> list[str]:
    """At most `limit` parts, the last being the rest. A negative limit means no limit."""
    if limit == 0:
        return []
    if not separator:
        return _characters(meter, text, limit if limit > 0 else len(text))
    count = text.count(separator) + 1
    if limit > 0:
        count = min(count, limit)
    meter.charge(count // _FOUND)
    parts: list[str] = []
    size, place = 0, 0
    while count > len(parts):
        more = text[place:].split(separator, min(_AT_ONCE, count - len(parts) - 1))
        if len(parts) + len(more) < count:
            more.pop()  # the rest
        place += sum(map(len, more)) + len(separator) * len(more)
        size += sum(map(part_bytes, more))
        meter.room(size)
        parts += more
    meter.take(size)
    return parts


def _characters(meter: Meter, text: str, limit: int) -> list[str]:
    """The first characters, and the rest in one part."""
    size = min(limit, len(text)) * part_bytes("a" if text.isascii() else "é")
    meter.charge(size // _FOUND // REFERENCE)
    meter.room(size + text_bytes(text))
    parts = [*text[: limit - 1], text[limit - 1 :]] if limit < len(text) else list(text)
    meter.take(size)
    return parts


@LIBRARY.method("join", "list(string) -> string", "list(string), string -> string", metered=True)
def join(meter: Meter, parts: list[Any], separator: str = "") -> str:
    meter.charge(1 + len(parts) // 4)
    size, is_ascii = 0, separator.isascii()
    for part in parts:
        if part.__class__ is not str:
            raise Fault(f"join: invalid input: {describe(part)}")
        size += len(part) + len(separator)
        is_ascii = is_ascii and part.isascii()
    size *= 1 if is_ascii else 4
    meter.charge(size // _COPIED)
    meter.room(size)
    return separator.join(parts)
