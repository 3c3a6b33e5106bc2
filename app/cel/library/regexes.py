"""Regular expressions by RE2, as in Go (cel-go common/stdlib, v0.26; apiserver pkg/cel/library/regex.go, 1.36)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

import re2

from app.cel.declarations import Library
from app.cel.errors import Fault

LIBRARY: Final = Library()

_OPTIONS: Final = re2.Options()
_OPTIONS.log_errors = False
_SHORT: Final = 1024
_ANY_BYTE: Final = re.compile(r"(?:\\\\)*\\C")

LIBRARY.declare("matches", "string, string -> bool")
LIBRARY.declare("matches", "string, string -> bool", member=True)


@lru_cache(maxsize=1024)
def pattern(text: str) -> Any:
    r"""The compiled pattern. Raises ValueError for what Go refuses; that includes `\C`, which RE2 knows."""
    if _ANY_BYTE.search(text) is not None and _has_any_byte(text):
        raise ValueError(r"invalid escape sequence: \C")
    try:
        return re2.compile(text, _OPTIONS)
    except (re2.error, UnicodeEncodeError) as error:
        raise ValueError(f"invalid regular expression: {_message(error)}") from None


def _message(error: Exception) -> str:
    reason = error.args[0] if error.args else error
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)


def _has_any_byte(text: str) -> bool:
    r"""True when `\C` stands outside of `\Q…\E`."""
    unquoted = re.sub(r"\\Q.*?(?:\\E|\Z)", "", text, flags=re.DOTALL)
    return "C" in re.findall(r"\\(.)", unquoted, flags=re.DOTALL)


def _compiled(text: str) -> Any:
    try:
        return pattern(text)
    except ValueError as error:
        raise Fault(str(error)) from None


@lru_cache(maxsize=65536)
def search(text: str, regex: str) -> bool:
    """True when `regex` matches somewhere in a short `text`. Remembered: matching costs a hundred times a look-up."""
    return _compiled(regex).search(text) is not None


@LIBRARY.share("matches")
def matches(text: Any, regex: Any) -> bool:
    if text.__class__ is not str:
        raise Fault("no such overload: matches")
    if regex.__class__ is not str:
        raise Fault("no such overload")
    if len(text) > _SHORT:
        return _compiled(regex).search(text) is not None
    return search(text, regex)


@LIBRARY.method("find", "string, string -> string")
def find(text: str, regex: str) -> str:
    found = _compiled(regex).search(text)
    return "" if found is None else str(found.group())


@LIBRARY.method("findAll", "string, string -> list(string)")
def find_all(text: str, regex: str) -> list[str]:
    return find_some(text, regex, -1)


@LIBRARY.method("findAll", "string, string, int -> list(string)")
def find_some(text: str, regex: str, limit: int) -> list[str]:
    """At most `limit` matches; all when it is negative. An empty match right after another match does not count."""
    compiled = _compiled(regex)
    matched: list[str] = []
    place, previous_end = 0, -1
    while place <= len(text) and (limit < 0 or len(matched) < limit):
        found = compiled.search(text, place)
        if found is None:
            break
        start, end = found.span()
        if end != start or start != previous_end:
            matched.append(text[start:end])
        place = end if end > place else place + 1
        previous_end = end
    return matched
