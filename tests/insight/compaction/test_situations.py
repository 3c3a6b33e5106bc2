"""Whom compaction would move where, in situations told in a few words."""

from __future__ import annotations

import pytest

from dra_extender.insight.compaction import EvictionRules
from tests.support.diagnosis.compacting import Compacting, Json, NodeTold, PodTold, budget, told
from tests.support.scheduling.preempting import by_namespace

TAINTED: Json = {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}
SERVES: Json = {"containers": [{"name": "c", "ports": [{"hostPort": 80}]}]}
TOLERATES: Json = {"tolerations": [{"key": "k", "operator": "Exists"}]}

Nodes = dict[str, NodeTold]
PodsTold = dict[str, PodTold]

HALVES: Nodes = {"n1": 2, "n2": 2}
ONE_EACH: PodsTold = {"a": ("n1", "0"), "b": ("n2", "0")}


@pytest.mark.parametrize(
    ("nodes", "pods", "expected"),
    [
        (HALVES, {"a": ("n1", "0")}, "fits n2"),
        (HALVES, ONE_EACH, "n1: a>n2"),
        (HALVES, {"a": ("n1", "0 1"), "b": ("n2", "0")}, ""),
        (HALVES, {"a": ("n1", "0"), "b": ("n2", "0", {"owner": ""})}, "n1: a>n2"),
        (HALVES, {"a": ("n1", "0", {"owner": ""}), "b": ("n2", "0", {"owner": ""})}, ""),
        (HALVES, {"a": ("n1", "0", {"owner": "DaemonSet"}), "b": ("n2", "0")}, "n2: b>n1"),
        (HALVES, {"a": ("n1", "0", {"cpu": 60}), "b": ("n2", "0", {"cpu": 60})}, ""),
        ({"n1": 2, "n2": (2, {"pods": 1})}, ONE_EACH, "n2: b>n1"),
        (HALVES, {"a": ("n1", "0", SERVES), "b": ("n2", "0", SERVES)}, ""),
        ({"n1": 2, "n2": (2, TAINTED)}, ONE_EACH, "n2: b>n1"),
        ({"n1": 2, "n2": (2, {"unschedulable": True})}, ONE_EACH, "n2: b>n1"),
        ({"n1": 2, "n2": (2, TAINTED)}, {"a": ("n1", "0", TOLERATES), "b": ("n2", "0")}, "n1: a>n2"),
        (
            {"n1": 2, "n2": 2, "n3": (1, {"labels": {"disk": "ssd"}})},
            {"a": ("n1", "0", {"nodeSelector": {"disk": "ssd"}}), "b": ("n2", "0", {"owner": ""})},
            "n1: a>n3",
        ),
        (
            HALVES,
            {"a": ("n1", "0", {"nodeSelector": {"disk": "ssd"}}), "b": ("n2", "0", {"nodeSelector": {"disk": "ssd"}})},
            "",
        ),
        ({"n1": 2, "n2": 1, "n3": 1}, {"a": ("n1", "0"), "b": ("n1", "1"), "c": ("n3", "0:500")}, ""),
        (
            {"n1": 2, "n2": 1, "n3": 1},
            {"a": ("n1", "0:500"), "b": ("n1", "1:400"), "c": ("n2", "0:500"), "d": ("n3", "0:600")},
            "n1: a>n2 b>n3",
        ),
        (
            {"n1": 2, "n2": 1, "n3": 1},
            {"a": ("n1", "0:400"), "b": ("n1", "1:500"), "c": ("n2", "0:500"), "d": ("n3", "0:600")},
            "n1: b>n2 a>n3",
        ),
        (HALVES, {"a": ("n1", "0", {"shares": "b"}), "b": ("n2", "0")}, "n2: b>n1"),
        (
            HALVES,
            {
                "a": ("n1", "0", {"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}}),
                "b": ("n2", "0"),
            },
            "n2: b>n1",
        ),
        (HALVES, {"a": ("n1", "0", {"schedulingGroup": {"podGroupName": "g"}}), "b": ("n2", "0")}, "n2: b>n1"),
        (HALVES, {"a": ("n1", "0", {"deletionTimestamp": "2026-01-01T00:00:00Z"}), "b": ("n2", "0")}, "n2: b>n1"),
    ],
    ids=[
        "it fits already",
        "one move suffices",
        "whoever fits nowhere else stays",
        "a pod without a controller is not moved but may be joined",
        "nobody can be moved",
        "pods of a DaemonSet stay",
        "CPU does not suffice elsewhere",
        "a node takes no more pods than it says",
        "two pods with the same port of the node do not meet",
        "a taint keeps pods away",
        "an unschedulable node takes nobody",
        "unless it is tolerated",
        "a node selector is followed",
        "and keeps a pod where it is",
        "not all of those in the way fit elsewhere",
        "several moves, each beside those before it",
        "who finds no place in its turn has the first",
        "a shared claim stays",
        "whom eviction harms stays",
        "members of a group stay",
        "whoever is going already is not told to",
    ],
)
def test_room_for_two_gpus_takes_the_fewest_moves(nodes: Nodes, pods: PodsTold, expected: str) -> None:
    made = Compacting(nodes, pods)
    advice = made.room(2)
    assert told(advice) == expected
    made.act(advice)
    if advice.node:
        assert advice.node in told(made.room(2))
        assert told(made.room(2)).startswith("fits")


def test_the_pod_that_wants_room_needs_cpu_too_and_may_not_be_everywhere() -> None:
    pods: PodsTold = {"a": ("n1", "0", {"cpu": 20}), "b": ("n2", "0", {"cpu": 20})}
    made = Compacting({"n1": 2, "n2": (2, TAINTED)}, pods)
    assert told(made.room(2, pod={"cpu": 60} | TOLERATES)) == "n2: b>n1"
    assert told(made.room(2, pod={"cpu": 60})) == ""
    assert told(made.room(2, pod={"cpu": 65} | TOLERATES)) == ""


@pytest.mark.parametrize(
    ("elsewhere", "expected"),
    [({"n2": 2}, "n1: large>n2"), ({"n2": 1, "n3": 1}, "n1: a>n2 b>n3"), ({"n2": 1}, "")],
)
def test_one_large_pod_goes_rather_than_two_small_ones_if_it_fits_elsewhere(elsewhere: Nodes, expected: str) -> None:
    here: Json = {"labels": {"here": "yes"}}
    pods: PodsTold = {"large": ("n1", "0 1"), "a": ("n1", "2"), "b": ("n1", "3")}
    made = Compacting({"n1": (4, here), **elsewhere}, pods)
    assert told(made.room(2, pod={"nodeSelector": {"here": "yes"}})) == expected


def test_a_budget_that_is_used_up_keeps_its_pods_and_is_named() -> None:
    labels: Json = {"labels": {"app": "db"}}
    made = Compacting({"n1": 2, "n2": 2, "n3": 2}, {"a": ("n1", "0", labels), "b": ("n2", "0"), "c": ("n3", "0 1")})
    advice = made.room(2, rules=EvictionRules(budgets=by_namespace([budget("db", 0, app="db")])))
    assert told(advice) == "n2: b>n1"
    assert advice.kept == {"disruption budget ns/db allows no eviction": ("ns/a",)}
    assert told(made.room(2, rules=EvictionRules(budgets=by_namespace([budget("db", 1, app="db")])))) == "n1: a>n2"


def test_a_budget_is_used_up_by_the_moves_themselves() -> None:
    labels: Json = {"labels": {"app": "db"}}
    made = Compacting({"n1": 2, "n2": 1}, {"a": ("n1", "0:500", labels), "b": ("n1", "1:500", labels)})
    assert told(made.room(2, rules=EvictionRules(budgets=by_namespace([budget("db", 2, app="db")])))) == "n1: a>n2 b>n2"
    assert told(made.room(2, rules=EvictionRules(budgets=by_namespace([budget("db", 1, app="db")])))) == ""


def test_pods_of_other_schedulers_stay_unless_they_are_asked_for() -> None:
    other: Json = {"schedulerName": "default-scheduler"}
    made = Compacting(HALVES, {"a": ("n1", "0", other), "b": ("n2", "0", other)})
    advice = made.room(2, rules=EvictionRules(frozenset({"dra-scheduler"})))
    assert told(advice) == ""
    assert advice.kept == {"scheduled by default-scheduler": ("ns/a", "ns/b")}
    assert told(made.room(2, rules=EvictionRules(frozenset({"dra-scheduler", "default-scheduler"})))) == "n1: a>n2"
    assert told(made.room(2)) == "n1: a>n2"


@pytest.mark.parametrize(
    "spec",
    [
        {"cpu": 60},
        {"containers": [{"name": "c", "resources": {"requests": {"deviceclass.resource.kubernetes.io/gpu": "2"}}}]},
    ],
    ids=["CPU", "an extended resource"],
)
def test_a_pod_without_claims_gets_room_too(spec: Json) -> None:
    pods: PodsTold = {"a": ("n1", "0", {"cpu": 40}), "b": ("n2", "0", {"cpu": 20, "owner": ""})}
    assert told(Compacting(HALVES, pods).room(pod={"resourceClaims": [], **spec})) == "n1: a>n2"
