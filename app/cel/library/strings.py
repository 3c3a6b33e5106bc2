"""Text functions (cel-go ext/strings.go version 2, v0.26; `contains` and its like from the standard library).

Positions count code points. Only ASCII letters change case.
"""

from __future__ import annotations

from typing import Any, Final

from app.cel.declarations import Library
from app.cel.equality import describe
from app.cel.errors import Fault
from app.cel.library.operators import bounded

LIBRARY: Final = Library()

_UPPER: Final = {ord(letter): ord(letter) - 32 for letter in "abcdefghijklmnopqrstuvwxyz"}
_LOWER: Final = {upper: lower for lower, upper in _UPPER.items()}
_SPACE: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_ESCAPED: Final = str.maketrans(
    {
        "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
        "\\": "\\\\", '"': '\\"',
    }
)  # fmt: skip


def _out_of_range(index: int) -> Fault:
    return Fault(f"index out of range: {index}")


@LIBRARY.method("contains", "string, string -> bool")
def contains(text: str, part: str) -> bool:
    return part in text


@LIBRARY.method("startsWith", "string, string -> bool")
def starts_with(text: str, prefix: str) -> bool:
    return text.startswith(prefix)


@LIBRARY.method("endsWith", "string, string -> bool")
def ends_with(text: str, suffix: str) -> bool:
    return text.endswith(suffix)


@LIBRARY.method("charAt", "string, int -> string")
def char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise _out_of_range(index)
    return text[index : index + 1]


@LIBRARY.method("indexOf", "string, string -> int")
def index_of(text: str, part: str) -> int:
    return text.find(part)


@LIBRARY.method("indexOf", "string, string, int -> int")
def index_of_from(text: str, part: str, offset: int) -> int:
    if not part:
        return offset
    if offset < 0:
        raise _out_of_range(offset)
    return text.find(part, offset)


@LIBRARY.method("lastIndexOf", "string, string -> int")
def last_index_of(text: str, part: str) -> int:
    return text.rfind(part)


@LIBRARY.method("lastIndexOf", "string, string, int -> int")
def last_index_of_from(text: str, part: str, offset: int) -> int:
    if not part:
        return offset
    if offset < 0:
        raise _out_of_range(offset)
    return text.rfind(part, 0, offset + len(part)) if offset < len(text) else -1


@LIBRARY.method("substring", "string, int -> string")
def substring(text: str, start: int) -> str:
    if not 0 <= start <= len(text):
        raise _out_of_range(start)
    return text[start:]


@LIBRARY.method("substring", "string, int, int -> string")
def substring_until(text: str, start: int, end: int) -> str:
    if start > end:
        raise Fault(f"invalid substring range. start: {start}, end: {end}")
    for index in (start, end):
        if not 0 <= index <= len(text):
            raise _out_of_range(index)
    return text[start:end]


@LIBRARY.method("lowerAscii", "string -> string")
def lower_ascii(text: str) -> str:
    return text.translate(_LOWER)


@LIBRARY.method("upperAscii", "string -> string")
def upper_ascii(text: str) -> str:
    return text.translate(_UPPER)


@LIBRARY.method("trim", "string -> string")
def trim(text: str) -> str:
    return text.strip(_SPACE)


@LIBRARY.method("replace", "string, string, string -> string")
def replace(text: str, old: str, new: str) -> str:
    return replace_some(text, old, new, -1)


@LIBRARY.method("replace", "string, string, string, int -> string")
def replace_some(text: str, old: str, new: str, limit: int) -> str:
    """An empty `old` is found before every character and at the end. A negative limit is none."""
    found = text.count(old)
    bounded(len(text) + (min(found, limit) if limit >= 0 else found) * len(new))
    return text.replace(old, new, min(limit, found))


@LIBRARY.method("split", "string, string -> list(string)")
def split(text: str, separator: str) -> list[str]:
    return text.split(separator) if separator else list(text)


@LIBRARY.method("split", "string, string, int -> list(string)")
def split_some(text: str, separator: str, limit: int) -> list[str]:
    """At most `limit` parts, the last being the rest. A negative limit is none."""
    if limit == 0:
        return []
    if limit < 0:
        return split(text, separator)
    if separator:
        return text.split(separator, min(limit, len(text) + 1) - 1)
    return [*text[: limit - 1], text[limit - 1 :]] if limit < len(text) else list(text)


@LIBRARY.method("join", "list(string) -> string")
def join(parts: list[Any]) -> str:
    return join_with(parts, "")


@LIBRARY.method("join", "list(string), string -> string")
def join_with(parts: list[Any], separator: str) -> str:
    size = 0
    for part in parts:
        if part.__class__ is not str:
            raise Fault(f"join: invalid input: {describe(part)}")
        size += len(part) + len(separator)
    bounded(size)
    return separator.join(parts)


@LIBRARY.function("strings.quote", "string -> string")
def quote(text: str) -> str:
    return f'"{text.translate(_ESCAPED)}"'
