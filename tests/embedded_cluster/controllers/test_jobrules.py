"""What is decided for a Job: how many pods, which are counted, when it is over."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_extender.api.decoding import convert
from dra_extender.api.times import format_time
from embedded_cluster.controllers import jobindexes, jobrules
from embedded_cluster.controllers.jobrules import TRACKING, Plan
from embedded_cluster.objects import FullPod, Job

Json = dict[str, Any]
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(seconds: float) -> str:
    return format_time(NOW + timedelta(seconds=seconds))


def job(status: Json | None = None, **spec: Any) -> Job:
    meta = {"name": "j", "namespace": "default", "uid": "j"}
    started = {"startTime": at(-60)} | (status or {})
    spec = {"parallelism": 1, "completions": 1} | spec
    return convert(Job, {"metadata": meta, "spec": spec, "status": started})


def pod(
    name: str, phase: str = "Running", *, held: bool = True, ended: float = 0, restarts: int = 0, **meta: Any
) -> FullPod:
    """A pod of the Job; `held`: it has the finalizer, `ended`: seconds from now."""
    meta = {"name": name, "uid": name, "finalizers": [TRACKING] if held else []} | meta
    status = {
        "phase": phase,
        "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": at(ended)}],
        "containerStatuses": [{"name": "c", "restartCount": restarts}],
    }
    return convert(FullPod, {"metadata": meta, "spec": {"nodeName": "n"}, "status": status})


def numbered(name: str, index: int, phase: str = "Running") -> FullPod:
    return pod(name, phase, annotations={jobindexes.INDEX: str(index)})


def decide(found: Job, *pods: FullPod) -> Plan:
    return jobrules.plan(found, pods, NOW, first_pause=10)


def names(pods: Iterable[FullPod]) -> list[str]:
    return [found.metadata.name for found in pods]


def true(plan: Plan) -> dict[str, str]:
    return {found.type: found.reason for found in plan.status.conditions if found.status == "True"}


@pytest.mark.parametrize(
    ("spec", "status", "pods", "create"),
    [
        ({}, {}, [], 1),
        ({}, {}, [pod("a")], 0),
        ({"completions": 5, "parallelism": 3}, {}, [pod("a")], 2),
        ({"completions": 5, "parallelism": 3}, {"succeeded": 4}, [], 1),
        ({"completions": 5, "parallelism": 3}, {"succeeded": 2}, [pod("a", "Succeeded")], 2),
        ({"completions": 5, "parallelism": 0}, {}, [], 0),
        ({"completions": None, "parallelism": 3}, {}, [pod("a")], 2),
        ({"completions": None, "parallelism": 3}, {"succeeded": 1}, [pod("a")], 0),
    ],
    ids=str,
)
def test_as_many_pods_are_made_as_completions_and_parallelism_want(
    spec: Json, status: Json, pods: list[FullPod], create: int
) -> None:
    plan = decide(job(status, **spec), *pods)
    assert plan.create == (None,) * create
    assert not plan.drop and not plan.end


def test_too_many_pods_go_uncounted() -> None:
    plan = decide(job(completions=5, parallelism=1), pod("a", resourceVersion="2"), pod("b", resourceVersion="1"))
    assert (names(plan.drop), names(plan.end), plan.status.active) == (["a"], [], 1)


def test_a_pod_that_has_ended_is_named_then_released_then_counted() -> None:
    found = job(completions=2)
    first = decide(found, pod("a", "Succeeded"))
    assert first.status.uncounted_terminated_pods.succeeded == ("a",)
    assert (first.status.succeeded, names(first.release)) == (0, ["a"])
    waits = {"uncountedTerminatedPods": {"succeeded": ["a"]}}
    again = decide(job(waits, completions=2), pod("a", "Succeeded"))
    assert (again.status, names(again.release)) == (first.status, ["a"]), "nothing is counted twice"
    released = decide(job(waits, completions=2), pod("a", "Succeeded", held=False))
    assert (released.status.succeeded, released.release) == (1, ())
    gone = decide(job(waits, completions=2))
    assert gone.status.succeeded == 1
    assert gone.status.uncounted_terminated_pods.succeeded == ()


def test_a_pod_that_somebody_deletes_has_failed() -> None:
    plan = decide(job(), pod("a", deletionTimestamp=at(0)))
    assert plan.status.uncounted_terminated_pods.failed == ("a",)
    assert names(plan.release) == ["a"]


@pytest.mark.parametrize(
    ("spec", "status", "pods", "reason"),
    [
        ({}, {"succeeded": 1}, [], "CompletionsReached"),
        ({"completions": 0, "parallelism": 0}, {}, [], "CompletionsReached"),
        ({"completions": None, "parallelism": 2}, {"succeeded": 1}, [], "CompletionsReached"),
        ({"completions": None, "parallelism": 2}, {"succeeded": 1}, [pod("a")], ""),
        ({"backoffLimit": 2}, {"failed": 2}, [], ""),
        ({"backoffLimit": 2}, {"failed": 3}, [], "BackoffLimitExceeded"),
        ({"backoffLimit": 0}, {}, [pod("a", restarts=1)], "BackoffLimitExceeded"),
        ({"backoffLimit": 2}, {}, [pod("a", restarts=1)], ""),
        ({"backoffLimit": 2}, {}, [pod("a", restarts=2)], "BackoffLimitExceeded"),
        ({"activeDeadlineSeconds": 61}, {}, [], ""),
        ({"activeDeadlineSeconds": 60}, {}, [], "DeadlineExceeded"),
        ({"activeDeadlineSeconds": 60, "suspend": True}, {}, [], "JobSuspended"),
    ],
    ids=str,
)
def test_when_a_job_ends(spec: Json, status: Json, pods: list[FullPod], reason: str) -> None:
    reasons = set(true(decide(job(status, **spec), *pods)).values())
    assert reasons == ({reason} if reason else set())


def test_a_job_that_fails_ends_its_pods_and_is_over_when_they_are_counted() -> None:
    found = job({"failed": 7}, parallelism=2, completions=9)
    plan = decide(found, pod("a"), pod("b", deletionTimestamp=at(0)))
    assert (true(plan), names(plan.end), names(plan.release)) == (
        {"FailureTarget": "BackoffLimitExceeded"},
        ["a"],
        ["b"],
    )
    target = {"type": "FailureTarget", "status": "True", "reason": "BackoffLimitExceeded", "message": "m"}
    last = decide(job({"failed": 8, "conditions": [target], "uncountedTerminatedPods": {"failed": ["a"]}}))
    assert true(last) == {"FailureTarget": "BackoffLimitExceeded", "Failed": "BackoffLimitExceeded"}
    assert (last.status.failed, last.status.completion_time) == (9, None)
    assert [note.reason for note in last.notes] == ["BackoffLimitExceeded"]


def test_a_job_that_succeeds_says_when() -> None:
    plan = decide(job({"succeeded": 1}))
    assert true(plan) == {"SuccessCriteriaMet": "CompletionsReached", "Complete": "CompletionsReached"}
    assert plan.status.completion_time == at(0)
    assert [note.text for note in plan.notes] == ["Job completed"]


def test_a_suspended_job_has_no_pods_and_begins_anew() -> None:
    plan = decide(job(suspend=True), pod("a"))
    assert (names(plan.drop), plan.create, plan.status.active) == (["a"], (), 0)
    assert (true(plan), plan.status.start_time) == ({"Suspended": "JobSuspended"}, None)
    before = {"startTime": None, "conditions": [{"type": "Suspended", "status": "True", "reason": "JobSuspended"}]}
    resumed = decide(job(before))
    assert (true(resumed), resumed.status.start_time, resumed.create) == ({}, at(0), (None,))
    assert [note.reason for note in resumed.notes] == ["Resumed"]


@pytest.mark.parametrize(
    ("pods", "pause"),
    [
        ([pod("a", "Failed", ended=-4)], 6),
        ([pod("a", "Failed", ended=-40)], 0),
        ([pod("a", "Failed", ended=-40), pod("b", "Failed", ended=-4)], 16),
        ([pod("a", "Failed", ended=-8), pod("b", "Succeeded", ended=-4)], 0),
        ([pod("a", "Succeeded", ended=-8), pod("b", "Failed", ended=-4)], 6),
        ([pod(name, "Failed", ended=-10) for name in "abcdefghijkl"], 590),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else str(len(value)),
)
def test_a_failed_pod_is_replaced_after_a_pause_that_grows(pods: list[FullPod], pause: int) -> None:
    plan = decide(job(completions=20, backoffLimit=20), *pods)
    assert plan.again == (pause or None)
    assert bool(plan.create) == (pause == 0)


def test_the_next_look_is_at_the_deadline_if_that_comes_first() -> None:
    plan = decide(job(activeDeadlineSeconds=63), pod("a", "Failed", ended=-1))
    assert (plan.again, plan.create) == (3, ())


def test_indexes_are_done_once_each() -> None:
    found = job({"completedIndexes": "0,3-5"}, completionMode="Indexed", completions=8, parallelism=3)
    plan = decide(found, numbered("a", 1), numbered("b", 6, "Succeeded"))
    assert plan.status.completed_indexes == "0,3-6"
    assert (plan.status.succeeded, plan.create) == (5, (2, 7))


@pytest.mark.parametrize(
    ("indexes", "text"),
    [([], ""), ([4], "4"), ([0, 1], "0,1"), ([0, 1, 2], "0-2"), ([7, 2, 1, 0, 9, 8], "0-2,7-9"), ([1, 3, 5], "1,3,5")],
)
def test_indexes_are_written_as_ranges(indexes: list[int], text: str) -> None:
    assert jobindexes.text(indexes) == text


@given(st.sets(st.integers(0, 60)))
def test_indexes_are_read_as_they_are_written(indexes: set[int]) -> None:
    assert jobindexes.parse(jobindexes.text(indexes)) == indexes


def test_a_finished_job_goes_after_its_time() -> None:
    done = {"type": "Complete", "status": "True", "lastTransitionTime": at(-10)}
    finished = job({"conditions": [done]}, ttlSecondsAfterFinished=30)
    assert jobrules.expiry(finished) == NOW.timestamp() + 20
    assert jobrules.expiry(job({"conditions": [done]})) is None
    assert jobrules.expiry(job(ttlSecondsAfterFinished=30)) is None
