"""When a replica decides and is ready, and why it is not."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dra_extender.kube.access import Permission
from dra_extender.kube.lease import LeaderElection
from dra_extender.kube.reflector import Reflector
from dra_extender.service.engine import Engine, WatchHealth
from dra_extender.service.replica import Replica

GAP = 30.0


Watched = Reflector[Any]


def kind(
    name: str = "Node", *, synced: bool = True, behind: float = 0.0, problem: str = "", optional: bool = False
) -> Watched:
    resource = SimpleNamespace(kind=name, optional=optional)
    return cast(Watched, SimpleNamespace(resource=resource, synced=synced, behind=behind, problem=problem))


def engine(*kinds: Watched) -> Engine:
    """As much of one as a replica needs."""
    health = WatchHealth(kinds, GAP)
    synced = all(each.synced for each in kinds)
    watches = SimpleNamespace(synced=synced)
    return cast(Engine, SimpleNamespace(watch_health=health, watches=watches, warming="", strategy=None))


def cold() -> Engine:
    """One that knows the cluster and has not looked at it yet."""
    health = WatchHealth([kind()], GAP)
    watches = SimpleNamespace(synced=True)
    return cast(Engine, SimpleNamespace(watch_health=health, watches=watches, warming="not warm", strategy=None))


def election(*, leading: bool, holder: str = "") -> LeaderElection:
    return cast(LeaderElection, SimpleNamespace(leading=leading, holder=holder))


READY: dict[str, Any] = {"engine": engine(kind()), "election": election(leading=True), "elects": True}


STANDBY = READY | {"election": election(leading=False, holder="other")}
FORWARDS = STANDBY | {"forwards": True}
LISTING, LATE = engine(kind(synced=False)), engine(kind(behind=GAP + 1, problem="x"))
BIND, LIST = Permission("create", "", "pods", "bind pods", "binding"), Permission("list", "", "nodes", "follow nodes")
GROUPS = Permission("list", "scheduling.k8s.io", "podgroups", "follow podgroups", optional=True)
DENIED = f"permission missing: {BIND}"
NOT_SYNCED, UNREACHED = "not synced: Node (listing)", "the API server has not been reached yet"


@pytest.mark.parametrize(
    ("state", "unavailable", "unready", "fit"),
    [
        (READY, "", "", True),
        (READY | {"forwards": True}, "", "", True),
        (READY | {"elects": False, "election": None}, "", "", True),
        (READY | {"election": None}, *["standby: nobody leads"] * 2, True),
        (READY | {"election": election(leading=False)}, *["standby: nobody leads"] * 2, True),
        (STANDBY, *["standby: other leads"] * 2, True),
        (FORWARDS, "standby: other leads", "", True),
        (READY | {"engine": None}, UNREACHED, UNREACHED, False),
        (READY | {"engine": LISTING}, NOT_SYNCED, NOT_SYNCED, False),
        (READY | {"engine": cold()}, "not warm", "not warm", False),
        (READY | {"missing": [BIND, LIST]}, *[DENIED] * 2, False),
        (READY | {"failure": "RuntimeError: boom"}, *["failed: RuntimeError: boom"] * 2, False),
        # The first reason is named first, and forwarding does not replace fitness.
        (READY | {"failure": "boom", "engine": None}, "failed: boom", "failed: boom", False),
        (READY | {"engine": None, "missing": [BIND]}, UNREACHED, UNREACHED, False),
        (FORWARDS | {"missing": [BIND]}, *[DENIED] * 2, False),
        (FORWARDS | {"missing": [GROUPS]}, "standby: other leads", "", True),
        (FORWARDS | {"engine": LISTING}, NOT_SYNCED, NOT_SYNCED, False),
        (FORWARDS | {"engine": LATE}, *["not watching: Node for 31 s (x)"] * 2, False),
        (FORWARDS | {"engine": cold()}, "not warm", "not warm", False),
    ],
)
def test_a_replica_names_the_first_reason_against_decisions_and_against_calls(
    state: dict[str, Any], unavailable: str, unready: str, fit: bool
) -> None:
    replica = Replica(**state)
    assert (replica.unavailable(), replica.unready(), replica.could_lead()) == (unavailable, unready, fit)


def test_a_replica_that_leaves_is_not_ready_and_leaves_decisions_to_another_one() -> None:
    replica = Replica(**READY)
    replica.leaving = True
    assert (replica.unready(), replica.leads()) == ("shutting down", False)
    assert replica.could_lead(), "or it would give the lease back before binds under way have ended"
    assert replica.unavailable() == "standby: nobody leads"


def test_without_election_a_replica_that_leaves_decides_until_its_gate_is_closed() -> None:
    replica = Replica(**READY | {"elects": False, "election": None})
    replica.leaving = True
    assert (replica.unready(), replica.leads(), replica.unavailable()) == ("shutting down", True, "")
    replica.close()
    assert replica.unavailable() == "shutting down"


def test_a_closed_gate_says_so_whatever_else_is_wrong() -> None:
    replica = Replica(failure="boom")
    replica.close()
    assert (replica.leaving, replica.unavailable(), replica.unready()) == (True, "shutting down", "shutting down")


@pytest.mark.parametrize(
    ("kinds", "reason"),
    [
        ([kind(), kind("Pod")], ""),
        ([kind(behind=GAP)], ""),
        ([kind("Pod", synced=False), kind("Node", synced=False, problem="forbidden")],
         "not synced: Pod (listing), Node (forbidden)"),
        ([kind("Pod"), kind(behind=GAP + 1, problem="connection refused")],
         "not watching: Node for 31 s (connection refused)"),
        ([kind("Pod", synced=False), kind(behind=GAP + 1)], "not synced: Pod (listing)"),
    ],
)  # fmt: skip
def test_nothing_is_decided_before_all_is_listed_or_while_a_kind_is_not_watched(
    kinds: list[Watched], reason: str
) -> None:
    assert WatchHealth(kinds, GAP).unavailable() == reason


def test_an_optional_kind_is_never_a_reason_against_decisions_and_its_problem_is_shown() -> None:
    denied = kind("PodGroup", synced=False, behind=math.inf, problem="forbidden", optional=True)
    health = WatchHealth([kind(), denied], GAP)
    assert health.unavailable() == ""
    assert [(check.ok, check.problem) for check in health.checks()] == [(True, ""), (True, "forbidden")]


def test_a_kind_that_is_not_watched_for_a_moment_is_fine_and_says_why() -> None:
    (check,) = WatchHealth([kind(behind=1.0, problem="connection refused")], GAP).checks()
    assert (check.ok, check.problem) == (True, "connection refused")


def test_a_standby_knows_the_cluster_and_decides_nothing() -> None:
    replica = Replica(**STANDBY)
    assert replica.unavailable() == "standby: other leads"
    assert replica.unknown() == ""


def test_what_is_not_listed_yet_is_unknown() -> None:
    assert Replica().unknown() == "the API server has not been reached yet"
    assert Replica(engine=engine(kind(synced=False))).unknown() == "not synced: Node (listing)"


def test_what_is_not_watched_is_unknown_as_it_is_for_the_verbs() -> None:
    replica = Replica(engine=LATE)
    assert replica.unknown() == replica.unavailable() == "not watching: Node for 31 s (x)"


def test_a_failure_ends_the_life_of_the_service_and_a_missing_leader_only_its_readiness() -> None:
    standby, broken = Replica(**READY | {"election": election(leading=False)}), Replica(failure="boom")
    assert [each.live()[0].ok for each in (standby, broken)] == [True, False]
    assert [each.ready()[0].ok for each in (standby, broken)] == [False, False]


def test_the_verbs_are_the_first_check_and_every_kind_has_one() -> None:
    replica = Replica(engine=engine(kind("Pod"), kind(synced=False, problem="forbidden")))
    checks = replica.ready()
    assert [(check.name, check.ok, check.problem) for check in checks] == [
        ("verbs", False, "not synced: Node (forbidden)"),
        ("Pod", True, ""),
        ("Node", False, "forbidden"),
    ]


@pytest.mark.parametrize(("forwards", "ok"), [(True, True), (False, False)])
def test_a_standby_says_who_leads_and_is_fine_where_calls_are_forwarded(forwards: bool, ok: bool) -> None:
    replica = Replica(**STANDBY | {"forwards": forwards})
    check = next(check for check in replica.ready() if check.name == "leader")
    assert (check.ok, check.problem) == (ok, "other leads")


def test_before_there_is_an_engine_the_metrics_say_that_it_is_not_ready() -> None:
    replica = Replica()
    found = {reading.name: reading.value for reading in replica.readings() if not reading.labels}
    assert found == {"ready": 0.0, "leader": 1.0, "set_backs_total": 0.0}


@pytest.mark.parametrize(
    ("replica", "leading"),
    [
        (Replica(), True),
        (Replica(elects=True), False),
        (Replica(elects=True, election=election(leading=False)), False),
        (Replica(elects=True, election=election(leading=True)), True),
    ],
)
def test_a_replica_leads_without_election_or_while_it_holds_the_lease_and_not_before(
    replica: Replica, leading: bool
) -> None:
    assert replica.leading is leading
    assert next(each.value for each in replica.readings() if each.name == "leader") == leading
