"""Regular expressions by RE2, as in Go (cel-go common/stdlib, v0.26; apiserver pkg/cel/library/regex.go, 1.36).

RE2 takes time in proportion to the text, at worst times the size of the program that a pattern becomes; and no more
memory than it is given for a pattern.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import re2
from cachetools import LRUCache

from dra_extender.cel.declarations import Library
from dra_extender.cel.errors import Fault, shown
from dra_extender.cel.work import REFERENCE, Meter, Patterns, part_bytes

LIBRARY: Final = Library()

_MEMORY: Final = (256 * 2**10, 8 * 2**20)
"""Bytes for one pattern. A pattern that exceeds the first limit gets the second, which is RE2's default."""
_ALL_PATTERNS: Final = 48 * 2**20

_PIECE: Final = 10
_UNICODE_CLASS: Final = 400
_MAX_REPEAT: Final = 1000
_LARGEST: Final = 1_000_000
_MADE: Final = 4
"""Instructions made per unit of work."""
_EXECUTED: Final = 256
"""Instructions times characters that are searched per unit of work."""
_READ: Final = 32
"""Characters that are searched per unit of work, however small the pattern."""
_MATCH: Final = 4
"""Units of work for a match."""
_OFTEN: Final = 2**20
_GROUP: Final = 16
"""Bytes that a search keeps for a group at an instruction."""

_COUNT: Final = re.compile(r"\{([0-9]+)(?:,([0-9]*))?\}")
_UNBOUNDED: Final = re.compile(r"[*+{]")

LIBRARY.declare("matches", "string, string -> bool")
LIBRARY.declare("matches", "string, string -> bool", member=True)


class Pattern:
    """A compiled pattern: the size of its program, and the most memory it takes. `copied`: the bytes of a search."""

    __slots__ = ("copied", "instructions", "is_bounded", "memory", "regex")

    def __init__(self, text: str, regex: Any, memory: int) -> None:
        self.regex = regex
        self.instructions: int = regex.programsize + regex.groups**2  # a search may copy all groups at each of them
        self.copied: int = _GROUP * regex.groups * regex.programsize
        self.is_bounded = _UNBOUNDED.search(text) is None
        self.memory = memory + 4 * len(text)

    def work(self, length: int) -> int:
        return 2 + length // _READ + length * self.instructions // _EXECUTED


def pattern_cache() -> Patterns:
    """A cache of patterns that is bounded by their memory."""
    return LRUCache[str, Pattern](maxsize=_ALL_PATTERNS, getsizeof=lambda pattern: pattern.memory)


def pattern(text: str, meter: Meter) -> Pattern:
    r"""The compiled pattern. Raises ValueError for what Go refuses; that includes `\C`, which RE2 knows."""
    known: Pattern | None = meter.patterns.get(text)
    if known is not None:
        return known
    meter.charge(compiling(text))
    if "\\C" in text and _has_any_byte(text):
        raise ValueError(r"invalid escape sequence: \C")
    made = _made(text)
    if made.memory <= _ALL_PATTERNS:
        meter.patterns[text] = made
    return made


def compiling(text: str) -> int:
    """The work of compiling a pattern: its pieces become instructions, as often as they are repeated."""
    repeats = 1
    for found in _COUNT.finditer(text):
        repeats = min(_MAX_REPEAT, repeats * max(1, *(int(digits[:4]) for digits in found.groups() if digits)))
    piece = _UNICODE_CLASS if "\\p" in text or "\\P" in text else _PIECE
    return 20 + min(len(text) * repeats * piece, max(_LARGEST, len(text))) // _MADE


def _made(text: str) -> Pattern:
    """Raises ValueError."""
    problem: Exception = ValueError()
    for memory in _MEMORY:
        options = re2.Options()
        options.log_errors = False
        options.max_mem = memory
        options.never_capture = True  # named groups are still captured
        try:
            return Pattern(text, re2.compile(text, options), memory)
        except UnicodeEncodeError as error:
            raise ValueError(f"invalid regular expression: {error.reason}") from None
        except re2.error as error:
            problem = error
        finally:
            re2.purge()  # its own cache is bounded by number only
    raise ValueError(f"invalid regular expression: {shown(_message(problem))}")


def _message(error: Exception) -> str:
    reason = error.args[0] if error.args else error
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)


def _has_any_byte(text: str) -> bool:
    r"""True when `\C` stands outside of `\Q…\E`."""
    unquoted = re.sub(r"\\Q.*?(?:\\E|\Z)", "", text, flags=re.DOTALL)
    return "C" in re.findall(r"\\(.)", unquoted, flags=re.DOTALL)


def _charge(meter: Meter, compiled: Pattern, length: int) -> None:
    meter.charge(compiled.work(length))
    meter.room(compiled.copied)


def _compiled(text: str, meter: Meter) -> Pattern:
    try:
        return pattern(text, meter)
    except ValueError as error:
        raise Fault(str(error)) from None


@LIBRARY.share("matches", metered=True)
def matches(meter: Meter, text: Any, regex: Any) -> bool:
    if text.__class__ is not str:
        raise Fault("no such overload: matches")
    if regex.__class__ is not str:
        raise Fault("no such overload")
    found = _compiled(regex, meter)
    _charge(meter, found, len(text))
    return found.regex.search(text) is not None


@LIBRARY.method("find", "string, string -> string", metered=True)
def find(meter: Meter, text: str, regex: str) -> str:
    compiled = _compiled(regex, meter)
    _charge(meter, compiled, len(text))
    found = compiled.regex.search(text)
    return "" if found is None else str(found.group())


@LIBRARY.method("findAll", "string, string -> list(string)", "string, string, int -> list(string)", metered=True)
def find_all(meter: Meter, text: str, regex: str, limit: int = -1) -> list[str]:
    """At most `limit` matches; all when it is negative. An empty match right after another match does not count."""
    compiled = _compiled(regex, meter)
    if not regex:
        count = len(text) + 1 if limit < 0 else min(limit, len(text) + 1)  # before every character and at the end
        meter.charge(count // _READ)
        meter.room(count * REFERENCE)
        return [""] * count
    matched: list[str] = []
    size = checked = 0
    for part in _matches(meter, compiled, text.encode()) if limit else ():
        matched.append(part)
        size += part_bytes(part)
        if size > checked:
            meter.room(size)
            checked = size + _OFTEN
        if len(matched) == limit:
            break
    meter.take(size)
    return matched


def _matches(meter: Meter, compiled: Pattern, data: bytes) -> Iterator[str]:
    """All matches in a text, which is encoded once. A match that starts within a character is empty, and none."""
    _charge(meter, compiled, len(data))
    previous = -1
    for found in compiled.regex.finditer(data):
        start, end = found.span()
        meter.charge(_MATCH if compiled.is_bounded else _MATCH + compiled.work(len(data) - end))
        if end != start or (start != previous and not (start < len(data) and data[start] & 0xC0 == 0x80)):
            yield data[start:end].decode()
        previous = end
