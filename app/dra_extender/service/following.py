"""Is the cluster followed well enough to decide? If not, this is what is said about it.

`Following` promises: nothing is decided before every kind of objects was listed once, or while the watch of a kind has
not worked for longer than the settings allow: one that is opened and fails on the same event again does not work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from dra_extender.http.health import Check
from dra_extender.http.metrics import Reading
from dra_extender.kube.reflector import Progress


class Following:
    """`progress` is that of every kind; after `gap` seconds without a working watch a kind counts as not followed.
    `longest_gap` is what every verb asks first: the longest of all kinds, infinite while one was not listed.
    """

    def __init__(
        self,
        progress: Callable[[], Sequence[Progress]],
        gap: float,
        longest_gap: Callable[[], float] = lambda: math.inf,
    ) -> None:
        self._progress = progress
        self._gap = gap
        self._longest_gap = longest_gap

    def unavailable(self) -> str:
        """Why nothing may be decided now, with the kinds it is about; empty when it may."""
        if self._longest_gap() <= self._gap:
            return ""
        kinds = self._progress()
        listing = [f"{kind.kind} ({kind.problem or 'listing'})" for kind in kinds if not kind.synced]
        if listing:
            return f"not synced: {', '.join(listing)}"
        behind = [f"{kind.kind} for {kind.behind:.0f} s ({kind.problem})" for kind in kinds if kind.behind > self._gap]
        return f"not watching: {', '.join(behind)}" if behind else ""

    def checks(self) -> list[Check]:
        """One per kind. What is not watched at the moment says so, and is fine as long as the gap allows."""
        return [
            Check(
                name=kind.kind,
                ok=kind.synced and kind.behind <= self._gap,
                problem="" if kind.synced and not kind.behind else kind.problem or "listing",
            )
            for kind in self._progress()
        ]

    def readings(self) -> Iterator[Reading]:
        """The metrics that say how well each kind is followed."""
        for kind in self._progress():
            yield Reading("objects", kind.objects, kind.kind)
            yield Reading("undecodable_objects", kind.undecodable, kind.kind)
            yield Reading("watch_gap_seconds", kind.behind, kind.kind)
            yield Reading("lists_total", kind.lists, kind.kind)
            yield Reading("stuck_watches_total", kind.stuck, kind.kind)
            yield Reading("watches_total", kind.watches, kind.kind)
            yield Reading("watch_events_total", kind.events, kind.kind)
