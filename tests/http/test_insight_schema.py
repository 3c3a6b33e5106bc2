"""What people and monitoring may ask conforms to the schema at /openapi.json, whatever they send.

The application is called directly. Behind it stands a small cluster in which something of everything has happened:
devices that are held, shared, and on their way; pods that were refused; objects that cannot be decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import cache
from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import given, settings
from hypothesis import strategies as st
from schemathesis.specs.openapi.checks import positive_data_acceptance

from dra_extender.api.core import Pod
from dra_extender.api.decoding import convert
from dra_extender.api.events import Undecodable
from dra_extender.api.meta import ObjectKey
from dra_extender.api.resource import (
    AllocationResult,
)
from dra_extender.devices.audit import Violation
from dra_extender.http.application import create_app, health_router
from dra_extender.http.authorization import READ_BY_POST, TokenAuthorizer
from dra_extender.http.insight import insight_router
from dra_extender.http.metrics import Metrics
from dra_extender.http.protocol import PROBES
from dra_extender.insight.devicereport.report import STATES
from dra_extender.insight.problems import Check, ClusterProblem, cluster_problems
from dra_extender.insight.shadow import Outcome, RuleReport, ShadowExample, ShadowReport
from dra_extender.kube.access import AccessDecision, Reviews, UserInfo
from dra_extender.scheduling.outcomes import Reading
from dra_extender.scheduling.preemption.terms import PreemptionTerms
from dra_extender.scheduling.turns import Turns
from dra_extender.scheduling.view import View
from tests.support.examples import examples
from tests.support.simulation.objects import DRIVER, make_claim, make_class, make_node, make_pod, make_slice
from tests.support.simulation.world import Service, World, replay

PODS = ("bound", "sharing", "starting", "refused", "waiting", "plain", "placed")
NODES = ("n1", "n2", "n3", "n4")
ABOUT_POD = "/insight/diagnosis"
DEVICE = {"driver": DRIVER, "pool": "n1", "device": "a"}
QUERIES: dict[str, dict[str, str]] = {
    ABOUT_POD: {"pod": "default/plain"},
    "/insight/headroom": {"class": "gpu"},
    "/insight/device": DEVICE,
}
"""What has to be asked for, by path."""
SHARED = {
    "name": "shared",
    "allowMultipleAllocations": True,
    "capacity": {"memory": {"value": "80Gi", "requestPolicy": {"default": "10Gi"}}},
}


class Scripted:
    """What insight and health ask of the service."""

    def __init__(self, state: Callable[[], View | None]) -> None:
        self._state = state

    def unknown(self) -> str:
        return "" if self._state() else "the API server has not been reached yet"

    @property
    def view(self) -> View:
        state = self._state()
        assert state is not None
        return state

    def terms(self, pod: Pod) -> PreemptionTerms | None:
        return PreemptionTerms(preemptor=pod)

    def problems(self) -> Generator[None, None, Sequence[ClusterProblem]]:
        yield
        twice = Violation("device", f"{DRIVER}/n1/a", ("default/bound", "other/thief"), "allocated twice")
        return list(cluster_problems(self.view.cluster, [], [twice], ["patch resourceclaims/status"]))

    def shadow(self) -> Turns[ShadowReport]:
        found = ShadowReport("2026-01-01T00:00:00Z", "pack", (RuleReport("refused"),))
        ours, theirs = Outcome(why="class"), Outcome("n1", (DRIVER,))
        found.add("refused", ShadowExample("default/p", "default-scheduler", found.since, theirs, ours, 0.0))
        yield
        return found

    def live(self) -> Sequence[Check]:
        return [Check(name="tasks", ok=True)]

    def ready(self) -> Sequence[Check]:
        return [Check(name="verbs", ok=not self.unknown(), problem=self.unknown())]


class Suspicious(Reviews):
    """Knows one token, of a user who may do nothing."""

    def __init__(self) -> None: ...

    async def user_of(self, token: str) -> UserInfo | None:
        return UserInfo("nobody") if token == "known" else None

    async def may(self, user: UserInfo, attributes: Mapping[str, str]) -> AccessDecision:
        return AccessDecision()


def application(state: Callable[[], View | None], readers: TokenAuthorizer | None = None) -> FastAPI:
    service = Scripted(state)
    metrics = Metrics()
    metrics.read_from(lambda: [Reading("ready", float(not service.unknown()))])
    return create_app([health_router(service, metrics), insight_router(service)], readers)


@cache
def busy() -> View:
    """The state of a service after an eventful minute."""
    services: list[Service] = []

    async def story(world: World) -> None:
        world.add(make_class(), make_class("broken"), *(make_node(name) for name in NODES))
        world.add(make_slice("n1", ["a", "b"]), make_slice("n2", ["a"]), make_slice("n3", [SHARED]))
        claims = {"bound": 1, "sharing": 1, "starting": 1, "refused": 9}
        world.add(*(make_claim(name, count=count) for name, count in claims.items()))
        pods = {name: make_pod(name, name) for name in claims}
        pods |= {"waiting": make_pod("waiting", "missing"), "plain": make_pod("plain")}
        world.add(*pods.values(), make_pod("placed", node="n4"))
        service = world.service()
        service.start()
        await world.settle()
        assert await service.bind(pods["bound"], "n1") == ""
        assert await service.bind(pods["sharing"], "n3") == ""
        for name in ("refused", "waiting"):
            assert not (await service.filter(pods[name])).NodeNames
        service.extender.apply(Undecodable(ObjectKey("DeviceClass", "broken"), "spec.selectors: nonsense"))
        service.extender.apply(Undecodable(ObjectKey("ResourceSlice", "unreadable"), "spec.devices: nonsense"))
        await world.settle()
        services.append(service)

    replay(story)
    (service,) = services
    starting = service.cluster.ledger.by_uid("uid-starting")
    assert starting is not None
    device = {"request": "r", "driver": DRIVER, "pool": "n2", "device": "a"}
    allocation = convert(AllocationResult, {"devices": {"results": [device]}})
    service.cluster.ledger.hold(starting, allocation, owner="uid-starting")
    return service.extender.view


@pytest.fixture(scope="module", autouse=True)
def _busy() -> None:
    """It has an event loop of its own, so it cannot happen inside a request."""
    busy()


after = schemathesis.openapi.from_asgi("/openapi.json", application(busy))
after.config.checks.negative_data_rejection.expected_statuses.append("413")  # a body that is too large is refused, too
unknown = application(lambda: None)


@after.parametrize()
@settings(max_examples=examples(30))
def test_before_the_cluster_is_known_answers_conform(case: Any) -> None:
    excluded = [schemathesis.checks.not_a_server_error]  # 503 is the answer here
    assert case.call_and_validate(app=unknown, excluded_checks=excluded).status_code != 500


@after.parametrize()
@settings(max_examples=examples(60))
def test_whatever_is_asked_answers_conform(case: Any) -> None:
    # Of the Kubernetes objects in a simulation the schema says nothing.
    excluded = [positive_data_acceptance] if case.operation.path == "/v1/simulate" else []
    assert case.call_and_validate(excluded_checks=excluded).status_code < 500


@pytest.mark.parametrize(("headers", "want"), [({}, 401), ({"Authorization": "Bearer known"}, 403)])
def test_who_may_not_read_gets_an_answer_that_conforms(headers: dict[str, str], want: int) -> None:
    guarded = application(busy, TokenAuthorizer(Suspicious()))
    protected = [path for path in after if path not in PROBES]
    assert len(protected) == 9
    for path in protected:
        query = QUERIES.get(path, {})
        if path in READ_BY_POST:
            case = after[path]["POST"].Case(headers=headers, body={})
        else:
            case = after[path]["GET"].Case(headers=headers, query=query)
        answer = case.call(app=guarded)
        case.validate_response(answer)
        assert answer.status_code == want


def test_parameters_that_are_too_long_get_an_answer_that_conforms() -> None:
    paths = list(after)
    assert set(paths) > PROBES
    for path in paths:
        case = after[path]["POST" if path in READ_BY_POST else "GET"].Case(query={"of": "nothing" * 2_000})
        answer = case.call()
        case.validate_response(answer)
        assert answer.status_code == 414


@given(
    pod=st.sampled_from(PODS),
    nodes=st.lists(st.sampled_from(NODES), max_size=4),
    accept=st.sampled_from(["*/*", "application/json", "text/plain"]),
)
def test_what_is_said_of_real_pods_conforms(pod: str, nodes: list[str], accept: str) -> None:
    case = after[ABOUT_POD]["GET"].Case(query={"pod": f"default/{pod}", "node": nodes}, headers={"Accept": accept})
    assert case.call_and_validate().status_code == 200


@given(
    query=st.fixed_dictionaries(
        {},
        optional={
            "node": st.lists(st.sampled_from(NODES), max_size=4),
            "driver": st.just(DRIVER),
            "class": st.just("gpu"),
            "state": st.lists(st.sampled_from(list(STATES)), max_size=3),
            "namespace": st.sampled_from(["default", "none"]),
            "limit": st.integers(1, 500),
            "after": st.sampled_from(["", f"{DRIVER}/n1"]),
        },
    )
)
def test_pages_of_real_devices_conform(query: dict[str, Any]) -> None:
    assert after["/insight/devices"]["GET"].Case(query=query).call_and_validate().status_code == 200


@given(query=st.fixed_dictionaries({"class": st.just("gpu")}, optional={"count": st.integers(1, 32)}))
def test_the_headroom_of_a_real_class_conforms(query: dict[str, Any]) -> None:
    assert after["/insight/headroom"]["GET"].Case(query=query).call_and_validate().status_code == 200


@given(
    body=st.fixed_dictionaries(
        {},
        optional={
            "addNodes": st.lists(
                st.fixed_dictionaries({"like": st.sampled_from(NODES), "count": st.integers(1, 3)}), max_size=2
            ),
            "withoutPods": st.lists(st.sampled_from(PODS).map("default/{}".format), max_size=2, unique=True),
            "drain": st.lists(st.sampled_from(NODES), max_size=2, unique=True),
            "pods": st.lists(st.sampled_from(PODS).map("default/{}".format), max_size=2, unique=True),
        },
    )
)
def test_what_would_be_of_real_pods_and_nodes_conforms(body: dict[str, Any]) -> None:
    assert after["/insight/whatif"]["POST"].Case(body=body).call_and_validate().status_code == 200


@given(
    body=st.fixed_dictionaries(
        {"pod": st.sampled_from(PODS).map("default/{}".format)},
        optional={
            "count": st.integers(1, 5),
            "nodes": st.lists(st.sampled_from(NODES), max_size=4),
            "newNodes": st.lists(st.fixed_dictionaries({"like": st.sampled_from(NODES)}), max_size=2),
        },
    )
)
def test_simulations_of_real_pods_conform(body: dict[str, Any]) -> None:
    assert after["/v1/simulate"]["POST"].Case(body=body).call_and_validate().status_code == 200


@given(pool=st.sampled_from(NODES), device=st.sampled_from(["a", "b", "shared"]))
def test_the_details_of_real_devices_conform(pool: str, device: str) -> None:
    case = after["/insight/device"]["GET"].Case(query=DEVICE | {"pool": pool, "device": device})
    there = (pool, device) in {("n1", "a"), ("n1", "b"), ("n2", "a"), ("n3", "shared")}
    assert case.call_and_validate().status_code == (200 if there else 404)
