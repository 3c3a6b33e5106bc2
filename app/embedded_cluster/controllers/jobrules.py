"""What the Job controller decides, apart from how it finds out and writes.

Promises: a pod that has ended is counted exactly once, whatever happens to it: it keeps a finalizer until the status
of its Job names it as uncounted, and is counted when the finalizer is seen to be gone. A Job is over only when all its
pods are.

Source: Kubernetes 1.36, pkg/controller/job (job_controller.go, backoff_utils.go). Pure functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Literal

import msgspec

from dra_extender.api.meta import Condition
from dra_extender.api.times import format_time, parse_time
from embedded_cluster.controllers import jobindexes
from embedded_cluster.controllers.podrules import deletion_order
from embedded_cluster.objects import FullPod, Job, JobStatus, UncountedPods

TRACKING: Final = "batch.kubernetes.io/job-tracking"
"""The finalizer of pods that are not counted yet."""

LONGEST_PAUSE: Final = 600.0
"""Seconds between a failure and the pod that takes the place of the failed one, at most."""

_OVER: Final = {"SuccessCriteriaMet": "Complete", "FailureTarget": "Failed"}
_COMPLETED: Final = ("SuccessCriteriaMet", "CompletionsReached", "Reached expected number of succeeded pods")
_TOO_MANY: Final = ("FailureTarget", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
_TOO_LONG: Final = ("FailureTarget", "DeadlineExceeded", "Job was active longer than specified deadline")

Verdict = tuple[str, str, str]
"""Type, reason and message of the condition that a Job ends with."""


class Note(msgspec.Struct, frozen=True):
    """An event about the Job."""

    reason: str
    text: str
    kind: Literal["Normal", "Warning"] = "Normal"


class Plan(msgspec.Struct, frozen=True):
    """Write the status; then `release` pods of their finalizer; `drop` pods uncounted, `end` others; `create` new ones.

    `create` has the index of each new pod, or None. `again`: seconds after which to look again, whatever happens.
    """

    status: JobStatus
    release: tuple[FullPod, ...] = ()
    drop: tuple[FullPod, ...] = ()
    end: tuple[FullPod, ...] = ()
    create: tuple[int | None, ...] = ()
    again: float | None = None
    notes: tuple[Note, ...] = ()


class Count(msgspec.Struct, frozen=True):
    """The pods of a Job by what they are now, and the numbers of those that have ended."""

    active: tuple[FullPod, ...]
    terminating: int
    succeeded: int
    failed: int
    indexes: frozenset[int]


# --- reading


def condition(status: JobStatus, kind: str) -> Condition | None:
    """The condition of this type when it is True."""
    return next((found for found in status.conditions if found.type == kind and found.status == "True"), None)


def over(job: Job) -> Condition | None:
    """The condition that says that the Job is over."""
    return condition(job.status, "Complete") or condition(job.status, "Failed")


def expiry(job: Job) -> float | None:
    """When the finished Job is to be deleted, in seconds since the epoch; None: never."""
    ended, ttl = over(job), job.spec.ttl_seconds_after_finished
    when = parse_time(ended.last_transition_time or "") if ended is not None else None
    return None if when is None or ttl is None else when.timestamp() + ttl


def result(pod: FullPod) -> Literal["succeeded", "failed", ""]:
    """How the pod ended; one that is being deleted has failed if it has not succeeded."""
    if pod.status.phase == "Succeeded":
        return "succeeded"
    return "failed" if pod.status.phase == "Failed" or pod.metadata.deletion_timestamp is not None else ""


def ended_at(pod: FullPod) -> float:
    """When the pod stopped being ready, in seconds since the epoch; 0 when that is not known."""
    ready = next((found for found in pod.status.conditions if found.type == "Ready"), None)
    when = parse_time((ready.last_transition_time if ready is not None else None) or "")
    return when.timestamp() if when is not None else 0.0


def pause(pods: Sequence[FullPod], first: float, now: float) -> float:
    """Seconds until a failed pod may be replaced: `first` after one failure since the last success, then doubled."""
    good = max((ended_at(pod) for pod in pods if result(pod) == "succeeded"), default=0.0)
    bad = [ended_at(pod) for pod in pods if result(pod) == "failed" and ended_at(pod) > good]
    if not bad:
        return 0.0
    return max(max(bad) + min(first * 2.0 ** (len(bad) - 1), LONGEST_PAUSE) - now, 0.0)


# --- deciding


def plan(job: Job, pods: Sequence[FullPod], now: datetime, *, first_pause: float = 10.0) -> Plan:
    """What is to be done for a Job that is not over."""
    status, release = _track(job, pods)
    if job.metadata.deletion_timestamp is not None:
        return Plan(status, release)
    count = _count(job, status, pods)
    status = _started(job, status, now)
    verdict = _verdict(job, status, count, pods, now)
    if verdict is not None:
        return _finish(job, status, count, verdict, release, now)
    status, notes = _suspended(job, status, now)
    made = Plan(status, release, again=_deadline(job, status, now), notes=notes)
    return _manage(job, made, count, pods, now, first_pause)


def _track(job: Job, pods: Sequence[FullPod]) -> tuple[JobStatus, tuple[FullPod, ...]]:
    """Count what was released, note what has ended since; the pods to release when that is written."""
    status, held = job.status, {pod.metadata.uid: pod for pod in pods if TRACKING in pod.metadata.finalizers}
    known = status.uncounted_terminated_pods
    fresh: dict[str, list[str]] = {"succeeded": [], "failed": []}
    named = {*known.succeeded, *known.failed}
    for uid, pod in held.items():
        if (how := result(pod)) and uid not in named:
            fresh[how].append(uid)
    indexes = jobindexes.parse(status.completed_indexes)
    ended = [pod for pod in held.values() if result(pod) == "succeeded"]
    indexes.update(index for pod in ended if (index := jobindexes.index_of(pod)) is not None)
    kept = UncountedPods(
        (*(uid for uid in known.succeeded if uid in held), *fresh["succeeded"]),
        (*(uid for uid in known.failed if uid in held), *fresh["failed"]),
    )
    indexed = job.spec.completion_mode == "Indexed"
    counted = sum(1 for uid in known.succeeded if uid not in held)
    new = msgspec.structs.replace(
        status,
        succeeded=len(indexes) if indexed else status.succeeded + counted,
        failed=status.failed + sum(1 for uid in known.failed if uid not in held),
        completed_indexes=jobindexes.text(indexes) if indexed else "",
        uncounted_terminated_pods=kept,
    )
    return new, tuple(held[uid] for uid in (*kept.succeeded, *kept.failed))


def _count(job: Job, status: JobStatus, pods: Sequence[FullPod]) -> Count:
    waiting = status.uncounted_terminated_pods
    indexed = job.spec.completion_mode == "Indexed"
    ended = [pod for pod in pods if pod.status.phase in ("Succeeded", "Failed")]
    return Count(
        tuple(pod for pod in pods if not result(pod)),
        sum(1 for pod in pods if pod.metadata.deletion_timestamp is not None and pod not in ended),
        status.succeeded + (0 if indexed else len(waiting.succeeded)),
        status.failed + len(waiting.failed),
        frozenset(jobindexes.parse(status.completed_indexes)),
    )


def _started(job: Job, status: JobStatus, now: datetime) -> JobStatus:
    if status.start_time is not None or job.spec.suspend:
        return status
    return msgspec.structs.replace(status, start_time=format_time(now))


def _verdict(job: Job, status: JobStatus, count: Count, pods: Sequence[FullPod], now: datetime) -> Verdict | None:
    """Why the Job is to end; what was decided once stays."""
    for kind in _OVER:
        if (found := condition(status, kind)) is not None:
            return kind, found.reason, found.message
    spec = job.spec
    restarts = sum(pod.restarts for pod in count.active)
    if count.failed > spec.backoff_limit or (restarts and restarts >= spec.backoff_limit):
        return _TOO_MANY
    left = _deadline(job, status, now)
    if left is not None and left <= 0:
        return _TOO_LONG
    if spec.completions is None:
        return _COMPLETED if count.succeeded and not count.active else None
    return _COMPLETED if count.succeeded >= spec.completions and not count.active else None


def _deadline(job: Job, status: JobStatus, now: datetime) -> float | None:
    """Seconds that the Job may still run."""
    began, most = parse_time(status.start_time or ""), job.spec.active_deadline_seconds
    if began is None or most is None or job.spec.suspend:
        return None
    return began.timestamp() + most - now.timestamp()


def _finish(
    job: Job, status: JobStatus, count: Count, verdict: Verdict, release: tuple[FullPod, ...], now: datetime
) -> Plan:
    """End what runs; say that the Job is over when all of it has ended and is counted."""
    kind, reason, message = verdict
    stamp = format_time(now)
    status = with_condition(status, kind, "True", reason, message, stamp)
    busy = count.active or count.terminating or status.uncounted_terminated_pods != UncountedPods()
    notes: tuple[Note, ...] = ()
    if not busy:
        status = with_condition(status, _OVER[kind], "True", reason, message, stamp)
        good = kind == "SuccessCriteriaMet"
        notes = (Note("Completed", "Job completed") if good else Note(reason, message, "Warning"),)
        if good:
            status = msgspec.structs.replace(status, completion_time=stamp)
    return Plan(_sized(status, count, ()), release, end=count.active, notes=notes)


def _suspended(job: Job, status: JobStatus, now: datetime) -> tuple[JobStatus, tuple[Note, ...]]:
    """Say that the Job is suspended, or is so no longer; its time begins anew then."""
    was, stamp = condition(status, "Suspended") is not None, format_time(now)
    if job.spec.suspend and not was:
        new = with_condition(status, "Suspended", "True", "JobSuspended", "Job suspended", stamp)
        return msgspec.structs.replace(new, start_time=None), (Note("Suspended", "Job suspended"),)
    if was and not job.spec.suspend:
        new = with_condition(status, "Suspended", "False", "JobResumed", "Job resumed", stamp)
        return msgspec.structs.replace(new, start_time=stamp), (Note("Resumed", "Job resumed"),)
    return status, ()


def _manage(job: Job, made: Plan, count: Count, pods: Sequence[FullPod], now: datetime, first_pause: float) -> Plan:
    """As many pods as are wanted: fewer at once, more when the last failure is long enough ago."""
    spec, replace = job.spec, msgspec.structs.replace
    active = sorted(count.active, key=deletion_order)
    if spec.suspend:
        return replace(made, drop=tuple(active), status=_sized(made.status, count, active))
    if spec.completions is None:
        wanted = len(active) if count.succeeded else spec.parallelism
    else:
        wanted = max(min(spec.completions - count.succeeded, spec.parallelism), 0)
    missing = wanted - len(active)
    if missing < 0:
        gone = tuple(active[:-missing])
        return replace(made, drop=gone, status=_sized(made.status, count, gone))
    made = replace(made, status=_sized(made.status, count, ()))
    left = pause(pods, first_pause, now.timestamp()) if missing else 0.0
    if left:
        return replace(made, again=left if made.again is None else min(left, made.again))
    return replace(made, create=_new(job, count, missing))


def _new(job: Job, count: Count, missing: int) -> tuple[int | None, ...]:
    if job.spec.completion_mode != "Indexed":
        return (None,) * missing
    working = {index for pod in count.active if (index := jobindexes.index_of(pod)) is not None}
    return tuple(jobindexes.pending(working | count.indexes, job.spec.completions or 0, missing))


def _sized(status: JobStatus, count: Count, gone: Sequence[FullPod]) -> JobStatus:
    return msgspec.structs.replace(status, active=len(count.active) - len(gone))


# --- writing


def with_condition(status: JobStatus, kind: str, value: str, reason: str, message: str, now: str) -> JobStatus:
    """The status with this condition; its time changes when its value does."""
    before = next((found for found in status.conditions if found.type == kind), None)
    if before is not None and before.status == value:
        return status
    new = Condition(kind, value, reason, message, last_transition_time=now)
    others = tuple(found for found in status.conditions if found.type != kind)
    return msgspec.structs.replace(status, conditions=(*others, new))


def written(status: JobStatus, pods: Sequence[FullPod]) -> dict[str, Any]:
    """The status as a merge patch; what is absent is removed."""
    alive = [pod for pod in pods if not result(pod)]
    uncounted = status.uncounted_terminated_pods
    gone = [pod for pod in pods if pod.metadata.deletion_timestamp is not None]
    return {
        "startTime": status.start_time,
        "completionTime": status.completion_time,
        "active": status.active or None,
        "ready": min(sum(1 for pod in alive if pod.status.phase == "Running"), status.active),
        "terminating": sum(1 for pod in gone if pod.status.phase not in ("Succeeded", "Failed")),
        "succeeded": status.succeeded or None,
        "failed": status.failed or None,
        "completedIndexes": status.completed_indexes or None,
        "uncountedTerminatedPods": {"succeeded": uncounted.succeeded or None, "failed": uncounted.failed or None},
        "conditions": [
            {
                "type": found.type,
                "status": found.status,
                "reason": found.reason,
                "message": found.message,
                "lastProbeTime": found.last_transition_time,
                "lastTransitionTime": found.last_transition_time,
            }
            for found in status.conditions
        ]
        or None,
    }
