"""What is counted and said when an address has more connections than it may have.

Promises: each connection that was closed or turned away for it is counted; the log has at most one line in half a
minute, however many come.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Literal

import structlog

from dra_extender.scheduling.outcomes import LabelledCounter
from dra_extender.scheduling.ports import Observer

log = structlog.get_logger(__name__)

CrowdResult = Literal["idle_closed", "probes_only", "refused"]

CROWDED_CONNECTIONS: Final = LabelledCounter[CrowdResult](
    "crowded_connections_total",
    "new connections to an address that had --max-connections already",
    "result",
    {
        "idle_closed": "one that waited for its client was closed for it",
        "probes_only": "all others worked, so it may only ask for probes",
        "refused": "closed at once",
    },
)

_QUIET = 30.0
"""Seconds between lines in the log."""


class Crowds:
    """One for all addresses."""

    def __init__(self, observer: Observer, clock: Callable[[], float] = time.monotonic) -> None:
        self._observer = observer
        self._clock = clock
        self._silent_until = float("-inf")

    def met(self, result: CrowdResult, connections: int) -> None:
        """One connection more than the `connections` there may be."""
        self._observer.count(CROWDED_CONNECTIONS, result)
        now = self._clock()
        if now >= self._silent_until:
            self._silent_until = now + _QUIET
            meaning = CROWDED_CONNECTIONS.values[result]
            log.warning("too many connections", limit=connections, result=meaning, setting="--max-connections")
