"""The audit of all claims: which of them hold what other claims hold, whoever wrote them.

The extender prevents double allocation by what it writes itself; an in-tree scheduler or a person who writes second can
still cause it. `AllocationAudit` promises to report each violation once when it appears (log, event on every claim
involved) and once when it is over, and to spend only a small share of the time looking. `look` finds what lasts;
`notice` takes what a change has just shown, so that a violation that is over quickly is reported as well.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

import structlog

from dra_extender.api.resource import ResourceClaim
from dra_extender.devices.audit import Violation

log = structlog.get_logger(__name__)

CONFLICT = "allocations conflict"
"""What the log says of a violation."""
PERIOD = 1.0
_SHARE = 20
"""The pause is at least so many times as long as the last look took."""

Report = Callable[[ResourceClaim, str], object]


class AllocationAudit:
    """`violations` reads the state, `claim` finds a claim by "namespace/name", `report` says something about it.

    `undecided` claims are those of binds of ours under way, which look for themselves and give way.
    """

    def __init__(
        self,
        violations: Callable[[], Iterable[Violation]],
        claim: Callable[[str], ResourceClaim | None],
        report: Report,
        undecided: Callable[[ResourceClaim], bool] = lambda claim: False,
    ) -> None:
        self._violations = violations
        self._claim = claim
        self._report = report
        self._undecided = undecided
        self._current: dict[Violation, None] = {}
        self.reported = 0
        """How many violations have been reported."""

    @property
    def current(self) -> tuple[Violation, ...]:
        """What was found last, and what was noticed since."""
        return tuple(self._current)

    def notice(self, found: Iterable[Violation]) -> None:
        """A change has shown these. Those that are decided are reported now, whether or not they last until a look."""
        for violation in found:
            if violation not in self._current and not any(map(self._undecided, self._involved(violation))):
                self._current[violation] = None
                self._appeared(violation)

    def look(self) -> None:
        """One look at everything."""
        found = dict.fromkeys(self._violations())
        for violation in found:
            if violation not in self._current:
                self._appeared(violation)
        for violation in self._current:
            if violation not in found:
                log.info("violation is over", kind=violation.kind, subject=violation.subject)
        self._current = found

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            started = time.perf_counter()
            self.look()
            await asyncio.sleep(max(PERIOD, _SHARE * (time.perf_counter() - started)))

    def _appeared(self, violation: Violation) -> None:
        self.reported += 1
        log.error(
            CONFLICT,
            kind=violation.kind,
            subject=violation.subject,
            claims=", ".join(violation.claims),
            detail=violation.detail,
        )
        for claim in self._involved(violation):
            others = ", ".join(other for other in violation.claims if other != claim.metadata.key)
            self._report(claim, f"{violation.subject} is also held by {others or 'another allocation'}")

    def _involved(self, violation: Violation) -> list[ResourceClaim]:
        found = (self._claim(name) for name in violation.claims)
        return [claim for claim in found if claim is not None]
