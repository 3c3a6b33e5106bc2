"""What fails a contest, and how counters are read."""

from __future__ import annotations

import json

import pytest

from dra_extender.service.audit import CONFLICT
from tools.contention.entrants import entrants
from tools.contention.history import IN_TREE, OURS, ClaimVersion, History, PodVersion, Version
from tools.contention.outcome import Outcome, Replica, Told, api_conflicts, told_in

GPU = "gpu.example.com/node-1/gpu-0"
METRICS = """\
# TYPE dra_extender_conflicts_total counter
dra_extender_conflicts_total{reason="device_taken"} 3.0
dra_extender_conflicts_total{reason="claim_changed"} 0.0
# TYPE dra_extender_conflicts_created gauge
dra_extender_conflicts_created{reason="device_taken"} 1.7e+09
# TYPE dra_extender_violations_reported_total counter
dra_extender_violations_reported_total 2.0
# TYPE dra_extender_ready gauge
dra_extender_ready 1.0
"""


def allocated(version: int, index: int, writer: str) -> ClaimVersion:
    name = f"pod-{index:04}"
    return ClaimVersion(version, f"claim-{name}", f"default/{name}", frozenset((GPU,)), writer, frozenset((name,)))


def free(version: int, index: int) -> ClaimVersion:
    return ClaimVersion(version, f"claim-pod-{index:04}", f"default/pod-{index:04}")


def running(version: int, index: int) -> PodVersion:
    name = f"pod-{index:04}"
    return PodVersion(version, name, f"default/{name}", "a", (f"default/{name}",), "node-1", "Running")


def outcome(versions: list[Version], *told: Told) -> Outcome:
    history = History()
    history.replay(versions)
    replica = Replica("a", METRICS, frozenset(told))
    return Outcome(entrants(2, ["a"]), history, 1.0, {"pod-0000": 0.5}, {}, [replica], {}, 0)


TURNS: list[Version] = [
    allocated(1, 0, OURS),
    running(2, 0),
    free(3, 0),
    allocated(4, 1, OURS),
    running(5, 1),
    free(6, 1),
]


def twice(writer: str) -> list[Version]:
    first: list[Version] = [allocated(1, 0, OURS), running(2, 0)]
    return [*first, allocated(3, 1, writer), running(4, 1), free(5, 0), free(6, 1)]


BOTH = Told(GPU, frozenset(("default/pod-0000", "default/pod-0001")))
AND_ONE_MORE = Told(GPU, frozenset((*BOTH.claims, "default/x")))
OTHERS = Told(GPU, frozenset(("default/pod-0000", "default/x")))


@pytest.mark.parametrize(
    ("versions", "told", "problem"),
    [
        (TURNS, [], ""),
        (twice(OURS), [BOTH], "ours wrote second and bound its pod"),
        (twice(IN_TREE), [BOTH], ""),
        (twice(IN_TREE), [AND_ONE_MORE], ""),
        (twice(IN_TREE), [OTHERS], "no replica has told of it"),
        (TURNS[:3], [], "pod pod-0001 has never run"),
        (TURNS[:5], [], "claim default/pod-0001 is still allocated at the end"),
        ([running(1, 0), *TURNS[3:]], [], "claim default/pod-0000 is not allocated"),
    ],
    ids=["in turns", "by ours", "by the in-tree scheduler", "three at once", "not told of", "not run", "left", "early"],
)
def test_a_broken_promise_is_a_problem(versions: list[Version], told: list[Told], problem: str) -> None:
    made = outcome(versions, *told)
    problems = made.problems()
    assert bool(problems) is bool(problem)
    assert all(problem in text for text in problems[:1])
    assert made.verdict().endswith(f"violations: {len(problems)}")


def test_the_verdict_counts_what_ours_has_given_twice() -> None:
    assert outcome(TURNS).verdict() == "2 of 2 pods ran, 0 devices in two claims of ours, violations: 0"
    assert outcome(twice(OURS), BOTH).verdict() == "2 of 2 pods ran, 1 devices in two claims of ours, violations: 1"
    assert outcome(twice(IN_TREE), BOTH).verdict() == "2 of 2 pods ran, 0 devices in two claims of ours, violations: 0"


def test_counters_are_read_by_label_and_zeros_left_out() -> None:
    assert outcome(TURNS).replicas[0].counters() == {("conflicts", "device_taken"): 3, ("violations_reported", ""): 2}


def test_what_a_replica_told_is_read_from_its_log() -> None:
    lines = [
        {"event": "listening"},
        {"event": CONFLICT, "subject": GPU, "claims": "default/pod-0000, default/pod-0001"},
    ]
    assert told_in("\n".join(map(json.dumps, lines))) == frozenset((BOTH,))


def test_refused_writes_are_counted_by_verb_and_resource() -> None:
    line = 'apiserver_request_total{{code="{}",resource="{}",subresource="{}",verb="{}"}} {}'
    page = [
        "# TYPE apiserver_request_total counter",
        line.format(409, "resourceclaims", "status", "PATCH", 4),
        line.format(200, "resourceclaims", "status", "PATCH", 90),
        line.format(409, "pods", "binding", "POST", 1),
        line.format(409, "leases", "", "PUT", 7),
    ]
    assert api_conflicts("\n".join(page)) == {"PATCH resourceclaims/status": 4, "POST pods/binding": 1}


def test_all_schedulers_get_the_same_mix_of_pods() -> None:
    made = entrants(48, ["a", "b", "c"])
    for scheduler in "abc":
        mine = [pod for pod in made if pod.scheduler == scheduler]
        assert len(mine) == 16
        assert sum(pod.claim == "" for pod in mine) == 4
        assert sum(pod.claim.startswith("shared") for pod in mine) == 2
        assert sum(pod.devices == 2 for pod in mine) == 2
        assert {pod.completes for pod in mine if pod.claim.startswith("shared")} == {False}
        assert sum(pod.completes for pod in mine) in (6, 8)
    claims = [pod.claim for pod in made if pod.makes_claim]
    assert len(claims) == len(set(claims)) == len({pod.claim for pod in made} - {""})
