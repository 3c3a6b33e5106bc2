"""What compiling and evaluating use: work, which the caller limits, and memory, which has one limit for everybody.

Neither is Kubernetes' cost (`cost.py`). That is a part of the answer; it measures neither time nor memory.

One unit of work is about one microsecond of CPython on a slow machine: the evaluation of one node of an expression, or
a kilobyte of text that is copied. Work is charged before it is done, inside single operations too.

The memory limit covers all values that an evaluation makes, also values that it does not need any more. Values smaller
than `SMALL` are not counted: Kubernetes' cost bounds how many of them there can be.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any, Final

from dra_extender.api.semver import Semver
from dra_extender.cel.errors import Abort
from dra_extender.cel.values import Opaque, Option, UInt

LIMIT: Final = 64 * 2**20
"""How many bytes the values that an evaluation makes may take."""

SMALL: Final = 1024
MANY: Final = 128
"""A list of fewer elements is small."""

REFERENCE: Final = 8
TEXT: Final = 56
"""Bytes of a reference, and of a text without its characters."""

_ENTRY: Final = 120
_SIZED: Final[frozenset[Any]] = frozenset((str, bytes, list))
_PLAIN: Final[frozenset[Any]] = frozenset((bool, int, UInt, float, type(None)))

Patterns = MutableMapping[str, Any]
"""A cache of compiled regular expressions, by their texts."""


class WorkExceeded(Exception):
    """The limit of work does not suffice. Neither an answer nor an error of the expression: ask again with more."""


@dataclass(slots=True, eq=False)
class Work:
    """So many units of work. What is refused is not taken off, so that the rest can be spent on something else."""

    left: int

    def charge(self, units: int) -> None:
        """Take off some units. Raises WorkExceeded when there are not as many left."""
        left = self.left - units
        if left < 0:
            raise WorkExceeded(f"{units} units of work are more than the {self.left} that are left")
        self.left = left


def unlimited() -> Work:
    """More work than anything can take, for workers and commands."""
    return Work(2**62)


class Meter:
    """Counts the work and the memory of one compilation or evaluation, and holds the patterns that it may use."""

    __slots__ = ("charge", "made", "patterns", "work")

    def __init__(self, work: Work, patterns: Patterns | None = None) -> None:
        self.work = work
        self.charge = work.charge
        self.patterns: Patterns = {} if patterns is None else patterns
        self.made = 0

    def room(self, size: int) -> None:
        """Check that the limit allows another value of this size, in bytes. Raises Abort."""
        if size >= SMALL and self.made + size > LIMIT:
            raise Abort(f"operation cancelled: the values take more than {LIMIT >> 20} MiB of memory", "too large")

    def take(self, size: int) -> None:
        """Count the bytes of a new value, if possible before it is made. Raises Abort."""
        if size >= SMALL:
            self.room(size)
            self.made += size

    def keep(self, value: Any) -> None:
        """Count a new value, without its elements. Raises Abort."""
        self.take(own_bytes(value))


def text_bytes(text: str) -> int:
    """The most that the characters of a text take."""
    return len(text) * (1 if text.isascii() else 4)


def own_bytes(value: Any) -> int:
    """The memory of a value without its elements."""
    kind = value.__class__
    if kind is str:
        return text_bytes(value)
    if kind is list:
        return len(value) * REFERENCE
    if kind is bytes:
        return len(value)
    return len(value) * _ENTRY if isinstance(value, dict) else 0


def part_bytes(text: str) -> int:
    """The memory of a new text in a list. CPython shares texts of one ASCII character."""
    return REFERENCE if len(text) < 2 and text.isascii() else REFERENCE + TEXT + text_bytes(text)


def length(values: tuple[Any, ...]) -> int:
    """How many characters and elements there are in the values, without those of elements."""
    total = 0
    for value in values:
        kind = value.__class__
        if kind in _SIZED:
            total += len(value)
        elif kind not in _PLAIN:
            total += _extent(value)
    return total


def _extent(value: Any) -> int:
    """The characters in a version, an optional or a value of an extension type."""
    kind = value.__class__
    while kind is Option:
        value = value.value
        kind = value.__class__
    if kind is Semver:
        return len(value.text)
    if isinstance(value, Opaque):
        return value.extent
    return len(value) if kind in _SIZED else 0
