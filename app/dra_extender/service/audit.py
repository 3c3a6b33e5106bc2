"""The audit of all claims: whether two of them are allocated the same device, by whichever allocator.

The extender prevents double allocation with its own writes; an in-tree scheduler or a person that writes later can
still cause it. `AllocationAudit` promises: each violation is reported once when it appears (log, events on the first
`REPORTED` claims) and once when it ends: by a check of all, or at once if it is noticed, unless it involves a running
bind, which verifies and undoes its own writes until its pod is bound. Checks use a small share of the time, in turns.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from dra_extender.api.resource import ResourceClaim
from dra_extender.devices.audit import Violation
from dra_extender.scheduling.reader import Reader
from dra_extender.scheduling.turns import Turns, run

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


@dataclass(slots=True, eq=False)
class AllocationAudit:
    """`_violations` reads the state, `_claim` finds a claim by its key, `_report` writes an event for a `_reader`."""

    _violations: Callable[[], Iterable[Sequence[Violation]]]
    _claim: Callable[[str], ResourceClaim | None]
    _report: Report
    _reader: Callable[[str], Reader]
    current: tuple[Violation, ...] = ()
    """The violations of the last check, and those noticed since."""
    _noticed: set[Violation] = field(default_factory=set)
    """Since the last check began."""
    reported: int = 0
    """Number of violations reported so far."""

    def check(self) -> Turns[float]:
        """The seconds that it took."""
        found, self._noticed = set[Violation](), set()
        seconds, started = 0.0, time.perf_counter()
        for part in self._violations():
            found.update(part)
            seconds += time.perf_counter() - started
            yield
            started = time.perf_counter()
        found |= self._noticed
        before, self.current = self.current, tuple(sorted(found))
        for violation in sorted(found.difference(before)):
            self._appeared(violation)
        for violation in sorted(set(before) - found):
            log.info("violation is over", kind=violation.kind, subject=violation.subject)
        return seconds + time.perf_counter() - started

    def notice(self, found: Iterable[Violation], undecided: Callable[[ResourceClaim], bool]) -> None:
        """Report violations that an event has caused. `undecided`: whether a running bind relies on the claim."""
        for violation in found:
            if violation not in self.current and not any(map(undecided, self._involved(violation))):
                self._noticed.add(violation)
                self.current = (*self.current, violation)
                self._appeared(violation)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(max(PERIOD, _SHARE * await run(self.check())))

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
        return list(filter(None, map(self._claim, violation.claims)))
