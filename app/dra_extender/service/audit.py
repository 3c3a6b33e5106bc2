"""The audit of all claims: whether two of them are allocated the same device, by whichever allocator.

The extender prevents double allocation with its own writes; an in-tree scheduler or a person that writes later can
still cause it. `AllocationAudit` promises: each violation is reported once when it appears (log, events on the first
`REPORTED` claims) and once when it ends; the audit uses a small share of the time. `check` finds violations that last;
`notice` takes violations that a change has just caused, so it also reports short ones.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final

import structlog

from dra_extender.api.resource import ResourceClaim
from dra_extender.devices.audit import Violation
from dra_extender.scheduling.reader import Reader

log = structlog.get_logger(__name__)

CONFLICT: Final = "allocations conflict"
"""The log message of a violation."""
PERIOD: Final = 1.0
NAMED: Final = 10
"""How many claims of a violation are named."""
REPORTED: Final = 100
"""On how many claims of a violation the others are reported."""
_SHARE: Final = 20
"""The pause is at least this many times as long as the last check."""

Report = Callable[[ResourceClaim, str], object]


class AllocationAudit:
    """`violations` reads the state, `claim` finds a claim by "namespace/name", `report` writes an event about a claim.
    `reader`: who reads the events of a namespace. Claims for which `undecided` is true belong to running binds, which
    verify and undo their own writes.
    """

    def __init__(
        self,
        violations: Callable[[], Iterable[Violation]],
        claim: Callable[[str], ResourceClaim | None],
        report: Report,
        reader: Callable[[str], Reader],
        undecided: Callable[[ResourceClaim], bool] = lambda claim: False,
    ) -> None:
        self._violations = violations
        self._claim = claim
        self._report = report
        self._reader = reader
        self._undecided = undecided
        self._current: dict[Violation, None] = {}
        self.reported = 0
        """Number of violations reported so far."""

    @property
    def current(self) -> tuple[Violation, ...]:
        """The violations of the last check, and those noticed since."""
        return tuple(self._current)

    def notice(self, found: Iterable[Violation]) -> None:
        """Report violations that a change has caused, unless they involve a running bind."""
        for violation in found:
            if violation not in self._current and not any(map(self._undecided, self._involved(violation))):
                self._current[violation] = None
                self._appeared(violation)

    def check(self) -> None:
        found = dict.fromkeys(self._violations())
        for violation in found:
            if violation not in self._current:
                self._appeared(violation)
        for violation in self._current:
            if violation not in found:
                log.info("violation is over", kind=violation.kind, subject=violation.subject)
        self._current = found

    async def run(self) -> None:
        while True:
            started = time.perf_counter()
            self.check()
            await asyncio.sleep(max(PERIOD, _SHARE * (time.perf_counter() - started)))

    def _appeared(self, violation: Violation) -> None:
        self.reported += 1
        subject, claims = violation.subject, violation.claims
        named = ", ".join(claims[:NAMED]) + (f" and {len(claims) - NAMED} more" if len(claims) > NAMED else "")
        log.error(CONFLICT, kind=violation.kind, subject=subject, claims=named, detail=violation.detail)
        for claim in self._involved(violation)[:REPORTED]:
            others = [other for other in claims[: NAMED + 1] if other != claim.metadata.key][:NAMED]
            text = self._reader(claim.metadata.namespace).listed("claim", others) or "another allocation"
            left = len(claims) - 1 - len(others)
            self._report(claim, f"{subject} is also held by {text}" + (f", and {left} more" if left > 0 else ""))

    def _involved(self, violation: Violation) -> list[ResourceClaim]:
        found = (self._claim(name) for name in violation.claims)
        return [claim for claim in found if claim is not None]
