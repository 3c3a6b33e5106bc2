"""Looking over everybody's shoulder: claims that hold what other claims hold, by whoever wrote them.

The extender prevents double allocation by what it writes itself; an in-tree scheduler or a person who writes second
can still cause it. `Audit` promises that each violation is told once when it appears (log, event on every claim
involved) and once when it is over, and that looking never takes more than a small share of the time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

import structlog

from app.api.resource import ResourceClaim
from app.devices.audit import Violation

log = structlog.get_logger(__name__)

PERIOD = 1.0
_SHARE = 20
"""The pause is at least so many times as long as the last look took."""

Tell = Callable[[ResourceClaim, str], object]


class Audit:
    """`violations` reads the state, `claim` finds a claim by "namespace/name", `tell` says something about it."""

    def __init__(
        self,
        violations: Callable[[], Iterable[Violation]],
        claim: Callable[[str, str], ResourceClaim | None],
        tell: Tell,
    ) -> None:
        self._violations = violations
        self._claim = claim
        self._tell = tell
        self.current: tuple[Violation, ...] = ()

    def look(self) -> None:
        """One look at everything."""
        found = tuple(self._violations())
        for violation in found:
            if violation not in self.current:
                self._report(violation)
        for violation in self.current:
            if violation not in found:
                log.info("violation is over", kind=violation.kind, subject=violation.subject)
        self.current = found

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            started = time.perf_counter()
            self.look()
            await asyncio.sleep(max(PERIOD, _SHARE * (time.perf_counter() - started)))

    def _report(self, violation: Violation) -> None:
        log.error(
            "claims hold the same",
            kind=violation.kind,
            subject=violation.subject,
            claims=", ".join(violation.claims),
            detail=violation.detail,
        )
        for name in violation.claims:
            namespace, _, short = name.rpartition("/")
            claim = self._claim(namespace, short)
            if claim is not None:
                others = ", ".join(other for other in violation.claims if other != name)
                self._tell(claim, f"{violation.subject} is also held by {others or 'another allocation'}")
