"""`dra-extender allocate`: decisions offline, one scenario per line in, one answer per line out."""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any, Final
from uuid import uuid4

import typer

from dra_extender.cli.output import FAILED, NO, YES


def allocate() -> None:
    """Allocate devices offline: one scenario per JSON line in, one answer per JSON line out.

    A scenario has `name`, `node`, `slices`, `classes`, `claims` (allocated together), and optionally `allocatedClaims`,
    `taintRules`, `features` (the feature gates that are on; by default all of 1.36) and `release` (1.36, the default,
    or 1.37: the Kubernetes release whose rules hold). Defaults are those of the API server. A field that is unknown or
    has the wrong type is an error. The answer has `kind` (allocated, unschedulable or error), `allocations`, `error`,
    `steps` and `micros`.

    Exit status: 0 if all claims were allocated, 1 if some were not, 2 if a line is not a valid scenario.
    """
    from dra_extender.allocation.scenario import answer
    from dra_extender.cli.scenarios import answer_lines, strict

    def decide(case: dict[str, Any]) -> dict[str, Any]:
        return answer(strict(case), share_ids=lambda: str(uuid4()), nanoseconds=perf_counter_ns)

    def refuse(name: str, problem: str) -> dict[str, Any]:
        return {"name": name, "kind": "error", "allocations": None, "error": problem, "steps": 0, "micros": 0}

    raise typer.Exit(max((_STATUSES[found["kind"]] for found in answer_lines(decide, refuse)), default=YES))


_STATUSES: Final = {"allocated": YES, "unschedulable": NO, "error": FAILED}
