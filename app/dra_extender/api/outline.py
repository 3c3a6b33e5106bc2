"""Where the parts of a JSON text begin and end, for objects that cannot be decoded.

Decoders recurse, so an object that is nested deeply enough cannot be decoded at all, not even to learn which one it is.
`Outline` promises: no recursion, a number of steps that is proportional to the text and limited, and no allocation but
of what is returned. It finds brackets and strings; what is between them may be anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

STEPS: Final = 50_000
"""Runs of brackets that are passed in some ten milliseconds. The API server writes metadata first: far fewer."""

_SPACE = rb"[ \t\r\n]*+"
_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_KEY: Final = re.compile(_SPACE + rb"(" + _STRING + rb")" + _SPACE + rb":" + _SPACE, re.DOTALL)
_RUN: Final = re.compile(rb'(?:[^"\[\]{}]++|' + _STRING + rb")*+([\[{]++|[\]}]++)", re.DOTALL)
_TEXT: Final = re.compile(_STRING, re.DOTALL)
_SCALAR: Final = re.compile(_STRING + rb"|[^\s,\[\]{}]++", re.DOTALL)
_OPEN: Final = re.compile(_SPACE + rb"([\[{])" + _SPACE)
_NEXT: Final = re.compile(_SPACE + rb"," + _SPACE)
_IDENTITY: Final = frozenset({"name", "namespace", "uid", "resourceVersion"})

_string = msgspec.json.Decoder(str)


class OutlineError(ValueError):
    """No such part, or too many steps to find it."""


class Outline:
    """The parts of `data` by the offset at which they begin. `steps` limits all questions together; None: no limit."""

    def __init__(self, data: bytes | msgspec.Raw, steps: int | None = STEPS) -> None:
        self.data = bytes(data)
        self._left = steps

    def members(self, start: int = 0) -> Iterator[tuple[str, int]]:
        """The names and values of the object at `start`. What follows a value is not looked at before it is asked for.
        Raises OutlineError.
        """
        for at in self._parts(start, b"{"):
            found = _KEY.match(self.data, at)
            if found is None:
                raise OutlineError("a member has no name")
            yield self.text(found.start(1)), found.end()

    def member(self, name: str, start: int = 0) -> int:
        """Where the first value of this name begins. Raises OutlineError without one."""
        for key, at in self.members(start):
            if key == name:
                return at
        raise OutlineError(f"no member {name}")

    def elements(self, start: int = 0) -> Iterator[int]:
        """Where the elements of the array at `start` begin. Raises OutlineError."""
        return self._parts(start, b"[")

    def text(self, start: int) -> str:
        """The string at `start`; empty for another value, and for one that is not Unicode."""
        found = _TEXT.match(self.data, start)
        try:
            return _string.decode(found.group()) if found else ""
        except ValueError:
            return ""

    def value(self, start: int) -> msgspec.Raw:
        """The text of the value at `start`. Raises OutlineError."""
        return msgspec.Raw(self.data[start : self._end(start)])

    def _parts(self, start: int, bracket: bytes) -> Iterator[int]:
        """Where the members of an object begin, with their names, or the elements of an array."""
        found = _OPEN.match(self.data, start)
        if found is None or found.group(1) != bracket:
            raise OutlineError(f"no {bracket.decode()}")
        at = found.end()
        while self.data[at : at + 1] not in (b"}", b"]"):
            self._step()
            yield at
            key = _KEY.match(self.data, at) if bracket == b"{" else None
            end = self._end(key.end() if key else at)
            comma = _NEXT.match(self.data, end)
            if comma is None:
                if self.data[end:].lstrip()[:1] not in (b"}", b"]"):
                    raise OutlineError("torn off")
                return
            at = comma.end()

    def _end(self, start: int) -> int:
        """Where the value at `start` ends."""
        if self.data[start : start + 1] not in (b"{", b"["):
            scalar = _SCALAR.match(self.data, start)
            if scalar is None:
                raise OutlineError("no value")
            return scalar.end()
        depth, at = 0, start
        while True:
            self._step()
            run = _RUN.match(self.data, at)  # never `search`: that would start again at every byte
            if run is None:
                raise OutlineError("torn off")
            first, at = run.span(1)
            depth += at - first if self.data[first] in b"[{" else first - at
            if depth <= 0:
                return at + depth  # brackets beyond the last belong to what is around the value

    def _step(self) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                raise OutlineError("too many steps")


def depth(data: bytes) -> int:
    """How deeply the brackets of a JSON text are nested."""
    deepest = level = at = 0
    while run := _RUN.match(data, at):
        first, at = run.span(1)
        level += at - first if data[first] in b"[{" else first - at
        deepest = max(deepest, level)
    return deepest


def identity(data: bytes | msgspec.Raw) -> dict[str, str]:
    """Those of name, namespace, uid and resourceVersion that are strings in the metadata of an object."""
    outline = Outline(data)
    found: dict[str, str] = {}
    try:
        for key, at in outline.members(outline.member("metadata")):
            if key in _IDENTITY:
                found[key] = outline.text(at)
                if len(found) == len(_IDENTITY):
                    break
    except OutlineError:
        pass  # what was found before still tells the object from others
    return found
