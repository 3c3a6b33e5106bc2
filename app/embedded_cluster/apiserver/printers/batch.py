"""Jobs."""

from __future__ import annotations

from typing import Final

from dra_extender.api.times import parse_time
from embedded_cluster.apiserver.ages import duration
from embedded_cluster.apiserver.printers.cells import AGE, NAME, OF_A_TEMPLATE, Row, age, name_of, template_cells
from embedded_cluster.apiserver.registry import Column, Printer
from embedded_cluster.apiserver.statuses import JSON


def job_status(obj: JSON) -> str:
    """The word that kubectl shows for a Job."""
    conditions = obj.get("status", {}).get("conditions") or ()
    holds = {condition["type"] for condition in conditions if condition.get("status") == "True"}
    over = next((name for name in ("Complete", "Failed") if name in holds), "")
    if over or obj["metadata"].get("deletionTimestamp"):
        return over or "Terminating"
    return next((name for name in ("Suspended", "FailureTarget", "SuccessCriteriaMet") if name in holds), "Running")


def _completions(spec: JSON, succeeded: int) -> str:
    if "completions" in spec:
        return f"{succeeded}/{spec['completions']}"
    parallelism = spec.get("parallelism", 0)
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def _lasted(status: JSON, now: float) -> str:
    started, ended = parse_time(status.get("startTime") or ""), parse_time(status.get("completionTime") or "")
    if started is None:
        return ""
    return duration((ended.timestamp() if ended is not None else now) - started.timestamp())


def _job_row(obj: JSON, now: float) -> Row:
    spec, status = obj.get("spec", {}), obj.get("status", {})
    return [
        name_of(obj),
        job_status(obj),
        _completions(spec, status.get("succeeded", 0)),
        _lasted(status, now),
        age(obj, now),
        *template_cells(spec),
    ]


JOB: Final = Printer(
    (
        NAME,
        Column("Status"),
        Column("Completions"),
        Column("Duration"),
        AGE,
        *OF_A_TEMPLATE,
    ),
    _job_row,
)
