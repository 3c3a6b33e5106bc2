"""Which nodes changed since somebody last looked: the log that keeps derived tables incremental.

Promises: `since` names every node that changed after the reader's position, possibly more, never less. The log is
bounded; a reader that fell too far behind hears that everything may have changed.
"""

from __future__ import annotations

from collections.abc import Iterable


class ChangeLog:
    """Positions grow by one per noted node. `capacity`: how many notes are kept."""

    def __init__(self, capacity: int = 1 << 16) -> None:
        self._capacity = capacity
        self._first = 0
        self._notes: list[int] = []

    @property
    def position(self) -> int:
        """Where a reader stands that knows everything up to now."""
        return self._first + len(self._notes)

    def note(self, node: int) -> None:
        """The node with this index changed."""
        self._notes.append(node)
        if len(self._notes) > self._capacity:
            kept = self._notes[len(self._notes) // 2 :]
            self._first += len(self._notes) - len(kept)
            self._notes = kept

    def note_all(self) -> None:
        """Every node changed: whoever reads next starts over."""
        self._first += len(self._notes) + 1
        self._notes = []

    def since(self, position: int) -> Iterable[int] | None:
        """The nodes that changed after `position`, each once; None when all of them may have."""
        if position < self._first:
            return None
        notes = self._notes[position - self._first :]
        return notes if len(notes) < 2 else set(notes)
