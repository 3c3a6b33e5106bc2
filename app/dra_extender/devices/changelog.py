"""The log of changed nodes or pools, from which each reader learns what to compute again."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class ChangeLog(Generic[T]):
    """The last changes, `capacity` at most. A position is the number of changes so far."""

    def __init__(self, capacity: int = 1 << 16) -> None:
        self._capacity = capacity
        self._notes: list[T] = []
        self.position = 0
        """The position of a reader that knows all changes. Only the log sets it."""

    def note(self, changed: T) -> None:
        self.position += 1
        self._notes.append(changed)
        if len(self._notes) > self._capacity:
            del self._notes[: len(self._notes) // 2]

    def note_all(self) -> None:
        self.position += 1
        self._notes = []

    def since(self, position: int) -> Iterable[T] | None:
        """What changed after `position`, each once; None: everything may have changed."""
        first = self.position - len(self._notes)
        if position < first:
            return None
        notes = self._notes[position - first :]
        return notes if len(notes) < 2 else set(notes)
