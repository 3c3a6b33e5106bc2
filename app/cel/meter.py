"""What one evaluation uses: work, which is charged to the caller's allowance, and memory, which has a limit.

The limit goes for all values that are alive at one time. Values smaller than `SMALL` are not looked at: what upstream
counts as costs bounds how many of them there can be. Of the others the meter keeps a list; when they might exceed the
limit, those that nothing else refers to are given up, and what is left is what is alive.
"""

from __future__ import annotations

from sys import getrefcount
from typing import Any, Final

from app.cel.errors import Abort
from app.cel.work import Work, unlimited

LIMIT: Final = 64 * 2**20
"""How many bytes the values of an evaluation may take at one time."""

SMALL: Final = 1024
MANY: Final = 128
"""A list of fewer elements is small."""

REFERENCE: Final = 8
TEXT: Final = 56
"""Bytes of a reference, and of a text beside its characters."""

_ENTRY: Final = 120
_SIZED: Final[frozenset[Any]] = frozenset((str, bytes, list))
_SWEPT: Final = 16
"""How many values are looked at per unit of work."""


def text_bytes(text: str, length: int | None = None) -> int:
    """The most that a text takes; or one of another length with the same characters."""
    return (len(text) if length is None else length) * (1 if text.isascii() else 4)


def own_bytes(value: Any) -> int:
    """What a value takes, without its elements."""
    kind = value.__class__
    if kind is str:
        return text_bytes(value)
    if kind is list:
        return len(value) * REFERENCE
    if kind is bytes:
        return len(value)
    return len(value) * _ENTRY if isinstance(value, dict) else 0


def part_bytes(text: str) -> int:
    """What a new text in a list takes; one character of ASCII is not made anew."""
    return REFERENCE if len(text) < 2 and text.isascii() else REFERENCE + TEXT + text_bytes(text)


class Meter:
    """See the module."""

    __slots__ = ("_held", "_taken", "work")

    def __init__(self, work: Work) -> None:
        self.work = work
        self._held: list[tuple[Any, int]] = []
        self._taken = 0

    def charge(self, units: int) -> None:
        """Take off some units of work. Raises TooMuch when there are not as many left."""
        self.work.charge(units)

    def room(self, size: int) -> None:
        """Make sure that a value of so many bytes may be made. Raises Abort."""
        if size >= SMALL and self._taken + size > LIMIT:
            self._make_room(size)

    def keep(self, value: Any, size: int | None = None) -> None:
        """Count a value that was made; its size is that of its own if it is not given. Raises Abort."""
        if size is None:
            size = own_bytes(value)
        if size < SMALL:
            return
        self._held.append((value, size))
        self._taken += size
        if self._taken > 2 * LIMIT:
            self._make_room(0)

    def _make_room(self, size: int) -> None:
        """Give up what only the meter refers to, at the latest when twice the limit is taken. Raises Abort."""
        if size > LIMIT:
            raise too_large()
        if self._taken + size <= 2 * LIMIT:
            return
        self.charge(1 + len(self._held) // _SWEPT)
        values: dict[int, tuple[Any, int]] = {}
        while self._held:  # what contains others was made after them, and goes first
            value, bytes_ = self._held.pop()
            values[id(value)] = value, max(bytes_, values.get(id(value), (None, 0))[1])
        alive = []
        for identity in list(values):
            value, bytes_ = values.pop(identity)
            if getrefcount(value) > _OURS:
                alive.append((value, bytes_))
        self._held = alive[::-1]
        self._taken = sum(bytes_ for _, bytes_ in alive)
        if self._taken + size > LIMIT:
            raise too_large()


_OURS: Final = 2
"""References to a value that nothing but `_make_room` knows: its variable, and the argument of `getrefcount`."""


class _Free(Meter):
    """For evaluations whose work and memory are bounded beforehand."""

    __slots__ = ()

    def charge(self, units: int) -> None:
        """Nothing is counted."""

    def keep(self, value: Any, size: int | None = None) -> None:
        """Nothing is counted."""


FREE: Final = _Free(unlimited())


def length(values: tuple[Any, ...]) -> int:
    """How many characters and elements there are in the values, without those of elements."""
    total = 0
    for value in values:
        if value.__class__ in _SIZED:
            total += len(value)
    return total


def too_large() -> Abort:
    """The values of an evaluation take too much memory."""
    return Abort(f"operation cancelled: the values take more than {LIMIT >> 20} MiB of memory", "too large")
