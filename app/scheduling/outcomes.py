"""What scheduling counts. One place for the names, so that metrics and tests mean the same thing."""

from __future__ import annotations

from typing import Final

FILTERED: Final = "filtered"
"""A filter was answered. Labels: untouched (no claims), fits, refused, repeated (from memory), error."""

BOUND: Final = "bound"
"""A bind was answered. Labels: bound, replayed, joined, refused, conflict, failed, waiting, cancelled, late, broken."""

CONFLICTS: Final = "conflicts"
"""Somebody was there before us. Labels: claim (resourceVersion), rival (a device twice), binding (another node)."""

UNKNOWN: Final = "unknown_outcomes"
"""The reply to a write was lost. Labels: the kind of write."""

UNDONE: Final = "undone"
"""A claim's write was taken back. Labels: deallocated, unreserved, fenced, left, gone, failed."""

RUNG: Final = "rung"
"""The doorbell. Labels: rung, failed."""

CLEARED: Final = "cleared"
"""An allocation that nobody used was cleared. Labels: in_the_way, idle, abandoned, leftover, failed."""

BIND_SECONDS: Final = "bind"
FINALIZER_SECONDS: Final = "finalizer"
STATUS_SECONDS: Final = "status"
WATCH_SECONDS: Final = "own_write_on_watch"
BINDING_SECONDS: Final = "binding"


class Silent:
    """An observer that does not count."""

    def count(self, name: str, label: str = "") -> None:
        """Nothing."""

    def took(self, name: str, seconds: float) -> None:
        """Nothing."""
