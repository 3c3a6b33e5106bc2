"""`dra-extender allocate`: decisions offline, one scenario per line in, one answer per line out."""

from __future__ import annotations

import sys
from time import perf_counter_ns
from typing import Annotated, Any, Final
from uuid import uuid4

import typer

from dra_extender.cli.lines import answer_lines
from dra_extender.cli.statuses import FAILED, NO, YES


def allocate(
    explain: Annotated[bool, typer.Option("--explain", help="add the reasons: what each rule took away")] = False,
) -> None:
    """Decide allocations offline, from JSON lines to JSON lines.

    A scenario has `name`, `node`, `slices`, `classes`, `claims` (to be allocated together), and perhaps
    `allocatedClaims`, `taintRules` and `features` (the gates that are on; absent = all). Defaults are those of the API
    server; a field that is misspelt, or of another type, is an error. The answer has `kind`
    (allocated, unschedulable or error), `allocations`, `error`, `steps` and `micros`.

    Exit status: 0 when all was allocated, 1 when something was not, 2 when a line is no scenario, or names what is not
    there.
    """
    from dra_extender.allocation.scenario import answer
    from dra_extender.cli.strictness import strict, worded

    status = YES

    def decided(case: dict[str, Any]) -> dict[str, Any]:
        nonlocal status
        try:
            case = strict(case)
        except ValueError as problem:
            status = FAILED
            return _complain(str(case.get("name") or ""), str(problem))
        found = answer(case, share_ids=lambda: str(uuid4()), nanoseconds=perf_counter_ns, reasons=explain)
        found["error"] = worded(found["error"])
        status = max(status, _STATUSES[found["kind"]])
        return found

    unreadable = answer_lines(sys.stdin.buffer, sys.stdout.buffer, decided, _complain)
    raise typer.Exit(FAILED if unreadable else status)


_STATUSES: Final = {"allocated": YES, "unschedulable": NO, "error": FAILED}


def _complain(name: str, problem: str) -> dict[str, Any]:
    return {"name": name, "kind": "error", "allocations": None, "error": problem, "steps": 0, "micros": 0}
