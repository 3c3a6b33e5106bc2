"""`dra-extender allocate`: decisions offline, one scenario per line in, one answer per line out."""

from __future__ import annotations

import sys
from time import perf_counter_ns
from typing import Annotated, Any
from uuid import uuid4

import typer

from app.cli.lines import answer_lines


def allocate(
    explain: Annotated[bool, typer.Option("--explain", help="add the reasons: what each rule took away")] = False,
) -> None:
    """Decide allocations offline, from JSON lines to JSON lines.

    A scenario has `name`, `node`, `slices`, `classes`, `claims` (to be allocated together), and perhaps
    `allocatedClaims`, `taintRules` and `features` (the gates that are on; absent = all). The answer has `kind`
    (allocated, unschedulable or error), `allocations`, `error`, `steps` and `micros`. The exit status is 1 when a line
    could not be read.
    """
    from app.allocation.scenario import answer

    def decided(case: dict[str, Any]) -> dict[str, Any]:
        return answer(case, share_ids=lambda: str(uuid4()), nanoseconds=perf_counter_ns, reasons=explain)

    unreadable = answer_lines(sys.stdin.buffer, sys.stdout.buffer, decided, _complain)
    raise typer.Exit(1 if unreadable else 0)


def _complain(name: str, problem: str) -> dict[str, Any]:
    return {"name": name, "kind": "error", "allocations": None, "error": problem, "steps": 0, "micros": 0}
