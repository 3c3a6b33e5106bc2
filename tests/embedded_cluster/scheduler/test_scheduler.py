"""The scheduler against a scripted extender: what arrives there, what pods show, what wakes them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from aiohttp import web

from embedded_cluster.cluster import EmbeddedCluster
from embedded_cluster.scheduler import takeover
from embedded_cluster.scheduler.config import SchedulerConfig
from tests.support.embedded.extender import ScriptedExtender

Make = Callable[..., dict[str, Any]]
NO_FIT = (
    "0/3 nodes are available: 3 cannot allocate all claims. "
    "preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
)


def quick(url: str) -> SchedulerConfig:
    """The takeover configuration with backoffs that tests can wait for."""
    return msgspec.structs.replace(
        takeover(url, ("dra-scheduler",)), pod_initial_backoff_seconds=0.05, pod_max_backoff_seconds=0.2
    )


@pytest.fixture
async def scheduling(cluster: EmbeddedCluster, extender: ScriptedExtender) -> EmbeddedCluster:
    await cluster.schedule_with(extender.url, quick(extender.url))
    return cluster


def binding(cluster: EmbeddedCluster) -> Callable[[dict[str, Any]], Awaitable[dict[str, str]]]:
    """An extender's bind that does nothing but bind."""

    async def bind(args: dict[str, Any]) -> dict[str, str]:
        name, namespace = args["PodName"], args["PodNamespace"]
        meta = {"name": name, "uid": args["PodUID"]}
        target = {"kind": "Node", "name": args["Node"]}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
        await cluster.client.create(f"/api/v1/namespaces/{namespace}/pods/{name}/binding", msgspec.json.encode(body))
        return {"Error": ""}

    return bind


async def settle(cluster: EmbeddedCluster, extender: ScriptedExtender) -> int:
    """Wait until no more calls come; returns how many have."""
    await cluster.wait_until(cluster.settled, what="a cluster with nothing to do")
    return len(extender.calls)


async def test_a_pod_goes_through_filter_prioritize_and_bind(
    scheduling: EmbeddedCluster, extender: ScriptedExtender, pod: Make
) -> None:
    extender.answers["prioritize"] = lambda args: [{"Host": "node-2", "Score": 9}]
    extender.answers["bind"] = binding(scheduling)
    await scheduling.apply([pod("p")])
    await scheduling.wait_until(lambda: scheduling.running("default", "p"))
    assert [verb for verb, _ in extender.calls] == ["filter", "prioritize", "bind"]
    found = scheduling.pod("default", "p")
    assert found is not None and found.spec.node_name == "node-2"
    await scheduling.wait_until(lambda: scheduling.events("default", "p"))
    assert scheduling.events("default", "p") == [("Scheduled", "Successfully assigned default/p to node-2")]


async def test_requests_look_as_those_of_kube_scheduler(
    scheduling: EmbeddedCluster, extender: ScriptedExtender, pod: Make
) -> None:
    extender.answers["bind"] = binding(scheduling)
    await scheduling.apply([pod("p")])
    await scheduling.wait_until(lambda: extender.counts["bind"])
    (_, filter_args), (_, prioritize_args), (_, bind_args) = extender.calls
    assert list(filter_args) == ["Pod", "Nodes", "NodeNames"] == list(prioritize_args)
    assert filter_args["Nodes"] is None and sorted(filter_args["NodeNames"]) == ["node-1", "node-2", "node-3"]
    assert list(filter_args["Pod"]) == ["metadata", "spec", "status"]
    assert "managedFields" not in filter_args["Pod"]["metadata"]
    assert list(bind_args) == ["PodName", "PodNamespace", "PodUID", "Node"]
    assert bind_args["PodUID"] == filter_args["Pod"]["metadata"]["uid"]
    headers = extender.raw[0][1]
    assert headers["Content-Type"] == "application/json" and headers["User-Agent"] == "Go-http-client/1.1"
    assert "Transfer-Encoding" not in headers


async def test_a_single_survivor_is_bound_without_prioritize(
    scheduling: EmbeddedCluster, extender: ScriptedExtender, pod: Make
) -> None:
    extender.answers["filter"] = lambda args: {"NodeNames": ["node-3"]}
    extender.answers["bind"] = binding(scheduling)
    await scheduling.apply([pod("p")])
    await scheduling.wait_until(lambda: scheduling.running("default", "p"))
    assert extender.counts == {"filter": 1, "bind": 1}


async def test_a_refused_pod_says_why_and_is_tried_twice_then_never(
    scheduling: EmbeddedCluster, extender: ScriptedExtender, pod: Make
) -> None:
    extender.refuse("cannot allocate all claims")
    await scheduling.apply([pod("p")])
    assert await settle(scheduling, extender) == 2
    found = scheduling.pod("default", "p")
    assert found is not None and found.condition is not None
    assert (found.condition.status, found.condition.reason, found.condition.message) == (
        "False",
        "Unschedulable",
        NO_FIT,
    )
    assert {("FailedScheduling", NO_FIT)} == set(scheduling.events("default", "p"))


@pytest.mark.parametrize(
    ("stimulus", "calls"),
    [
        ("own annotation", 1),
        ("own condition", 1),
        ("claim created", 1),
        ("claim annotated", 1),
        ("class created", 1),
        ("node annotated", 1),
        ("node heartbeat", 0),
        ("bound pod's status", 1),
        ("unbound pod created", 0),
        ("slice changed", 0),
        ("nothing", 0),
    ],
)
async def test_refused_pods_wake_as_observed_with_kube_scheduler(
    scheduling: EmbeddedCluster, extender: ScriptedExtender, pod: Make, claim: Make, stimulus: str, calls: int
) -> None:
    cluster = scheduling
    await cluster.apply([claim("before"), pod("bound", scheduler="nobody", nodeName="node-1")])
    await cluster.wait_until(lambda: cluster.running("default", "bound"))
    extender.refuse("cannot allocate all claims")
    await cluster.apply([pod("p")])
    await cluster.wait_until(lambda: extender.of("filter", "p") == 2)
    before = await settle(scheduling, extender)
    annotated = {"metadata": {"annotations": {"touched": "yes"}}}

    async def patch(path: str, body: dict[str, Any]) -> None:
        await cluster.client.patch(path, msgspec.json.encode(body))

    pods = "/api/v1/namespaces/default/pods"
    claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
    stimuli: dict[str, Callable[[], Awaitable[Any]]] = {
        "own annotation": lambda: patch(f"{pods}/p", annotated),
        "own condition": lambda: patch(f"{pods}/p/status", {"status": {"message": "changed"}}),
        "claim created": lambda: cluster.apply([claim("other")]),
        "claim annotated": lambda: patch(f"{claims}/before", annotated),
        "class created": lambda: cluster.apply(
            [{"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "c"}, "spec": {}}]
        ),
        "node annotated": lambda: patch("/api/v1/nodes/node-1", annotated),
        "node heartbeat": lambda: patch("/api/v1/nodes/node-1/status", {"status": {"phase": "Running"}}),
        "bound pod's status": lambda: patch(f"{pods}/bound/status", {"status": {"message": "changed"}}),
        "unbound pod created": lambda: cluster.apply([pod("q", scheduler="nobody")]),
        "slice changed": lambda: cluster.driver.taint("node-1", "gpu-0", "k", "NoSchedule"),
        "nothing": lambda: asyncio.sleep(0),
    }
    await stimuli[stimulus]()
    assert await settle(scheduling, extender) - before == calls


async def test_filter_errors_are_scheduler_errors_and_retried_without_events(
    scheduling: EmbeddedCluster, extender: ScriptedExtender, pod: Make
) -> None:
    extender.answers["filter"] = lambda args: {"Error": "no inventory yet"}
    await scheduling.apply([pod("p")])
    await scheduling.wait_until(lambda: extender.of("filter", "p") >= 3)
    found = scheduling.pod("default", "p")
    assert found is not None and found.condition is not None
    assert (found.condition.reason, found.condition.message) == ("SchedulerError", "no inventory yet")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda args: web.Response(status=503), "failed filter with extender at URL URL/scheduler/filter, code 503"),
        (lambda args: web.Response(status=204), "failed filter with extender at URL URL/scheduler/filter, code 204"),
        (lambda args: web.Response(text=""), "EOF"),
        (
            lambda args: {"NodeNames": ["nope"]},
            'extender "URL/scheduler" claims a filtered node "nope" which is not found in the input node list',
        ),
    ],
)
async def test_answers_that_do_not_count_are_told_in_kube_schedulers_words(
    scheduling: EmbeddedCluster, extender: ScriptedExtender, pod: Make, answer: Any, message: str
) -> None:
    extender.answers["filter"] = answer
    await scheduling.apply([pod("p")])

    def told() -> str:
        found = scheduling.pod("default", "p")
        return found.condition.message if found is not None and found.condition is not None else ""

    await scheduling.wait_until(told)
    assert told().replace(extender.url, "URL") == message


async def test_an_unreachable_extender_fails_attempts_until_it_is_back(
    cluster: EmbeddedCluster, extender: ScriptedExtender, pod: Make
) -> None:
    scheduler = await cluster.schedule_with("http://127.0.0.1:1", quick("http://127.0.0.1:1"))
    await cluster.apply([pod("p")])
    await cluster.wait_until(lambda: scheduler.extenders.made["filter"] >= 2)
    found = cluster.pod("default", "p")
    assert found is not None and found.condition is not None
    assert 'Post "http://127.0.0.1:1/scheduler/filter": dial tcp 127.0.0.1:1: connect: ' in found.condition.message
    extender.answers["bind"] = binding(cluster)
    await cluster.schedule_with(extender.url, quick(extender.url))
    await cluster.wait_until(lambda: cluster.running("default", "p"))


async def test_a_failed_bind_is_tried_again_from_the_start(
    scheduling: EmbeddedCluster, extender: ScriptedExtender, pod: Make
) -> None:
    bind = binding(scheduling)
    extender.answers["bind"] = lambda args: {"Error": "device taken"} if extender.counts["bind"] == 1 else bind(args)
    await scheduling.apply([pod("p")])
    await scheduling.wait_until(lambda: scheduling.running("default", "p"))
    assert extender.counts["bind"] == 2 and extender.counts["filter"] == 2
    assert ("FailedScheduling", "device taken") in scheduling.events("default", "p")


async def test_a_slow_bind_does_not_hold_up_the_next_pod(
    scheduling: EmbeddedCluster, extender: ScriptedExtender, pod: Make
) -> None:
    bind, released = binding(scheduling), asyncio.Event()

    async def slow(args: dict[str, Any]) -> dict[str, str]:
        if args["PodName"] == "first":
            await released.wait()
        return await bind(args)

    extender.answers["bind"] = slow
    await scheduling.apply([pod("first")])
    await scheduling.wait_until(lambda: extender.of("bind", "first"))
    await scheduling.apply([pod("second")])
    await scheduling.wait_until(lambda: scheduling.running("default", "second"))
    assert not scheduling.running("default", "first")
    released.set()
    await scheduling.wait_until(lambda: scheduling.running("default", "first"))


async def test_a_bound_pod_whose_reply_was_lost_is_not_tried_again(
    scheduling: EmbeddedCluster, extender: ScriptedExtender, pod: Make
) -> None:
    bind = binding(scheduling)

    async def lost(args: dict[str, Any]) -> web.Response:
        await bind(args)
        await asyncio.sleep(0.2)
        return web.Response(status=500)

    extender.answers["bind"] = lost
    await scheduling.apply([pod("p")])
    await scheduling.wait_until(lambda: scheduling.running("default", "p"))
    await settle(scheduling, extender)
    assert extender.counts == {"filter": 1, "prioritize": 1, "bind": 1}


async def test_pods_wait_unseen_until_their_claims_exist(
    scheduling: EmbeddedCluster, extender: ScriptedExtender, pod: Make, claim: Make
) -> None:
    extender.answers["bind"] = binding(scheduling)
    await scheduling.apply([pod("p", claims={"gpu": "late"})])
    assert await settle(scheduling, extender) == 0
    found = scheduling.pod("default", "p")
    assert found is not None and found.condition is None, "gated pods are told nothing"
    await scheduling.apply([claim("late")])
    await scheduling.wait_until(lambda: extender.of("bind", "p"))


async def test_generated_claims_open_the_gate(
    scheduling: EmbeddedCluster, extender: ScriptedExtender, pod: Make, claim: Make
) -> None:
    extender.answers["bind"] = binding(scheduling)
    await scheduling.apply([claim("one", template=True), pod("p", templates={"gpu": "one"})])
    await scheduling.wait_until(lambda: extender.of("bind", "p"))
    names = [status["name"] for status in extender.calls[0][1]["Pod"]["status"]["resourceClaimStatuses"]]
    assert names == ["gpu"]


async def test_pods_of_other_schedulers_and_gated_pods_are_left_alone(
    scheduling: EmbeddedCluster, extender: ScriptedExtender, pod: Make
) -> None:
    await scheduling.apply([pod("other", scheduler="nobody"), pod("gated", schedulingGates=[{"name": "wait"}])])
    assert await settle(scheduling, extender) == 0


async def test_the_extender_is_not_asked_about_nodes_that_do_not_fit_anyway(
    scheduling: EmbeddedCluster, extender: ScriptedExtender, pod: Make
) -> None:
    extender.refuse("cannot allocate all claims")
    await scheduling.apply([pod("p", nodeSelector={"kubernetes.io/hostname": "node-2"})])
    await scheduling.wait_until(lambda: extender.of("filter", "p"))
    assert extender.calls[0][1]["NodeNames"] == ["node-2"]
    await settle(scheduling, extender)
    found = scheduling.pod("default", "p")
    assert found is not None and found.condition is not None
    assert found.condition.message == (
        "0/3 nodes are available: 1 cannot allocate all claims, 2 node(s) didn't match Pod's node affinity/selector. "
        "preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
    )


async def test_a_nominated_node_is_asked_for_alone_first(
    scheduling: EmbeddedCluster, extender: ScriptedExtender, pod: Make
) -> None:
    extender.refuse("cannot allocate all claims")
    await scheduling.apply([pod("p")])
    await settle(scheduling, extender)
    before = len(extender.calls)
    body = msgspec.json.encode({"status": {"nominatedNodeName": "node-2"}})
    await scheduling.client.patch("/api/v1/namespaces/default/pods/p/status", body)
    await settle(scheduling, extender)
    asked = [args["NodeNames"] for _, args in extender.calls[before:]]
    assert asked[0] == ["node-2"] and len(asked[1]) == 3
    found = scheduling.pod("default", "p")
    assert found is not None and found.status.nominated_node_name == ""


async def test_foreign_and_repeated_scores_do_no_harm(
    scheduling: EmbeddedCluster, extender: ScriptedExtender, pod: Make
) -> None:
    extender.answers["prioritize"] = lambda args: [
        {"host": "node-1", "score": 4},
        {"Host": "nowhere", "Score": 1000},
        {"Host": "node-2", "Score": 3},
        {"Host": "node-2", "Score": 3},
    ]
    extender.answers["bind"] = binding(scheduling)
    await scheduling.apply([pod("p")])
    await scheduling.wait_until(lambda: scheduling.running("default", "p"))
    found = scheduling.pod("default", "p")
    assert found is not None and found.spec.node_name == "node-2"


async def test_scores_that_cannot_be_read_are_left_out(
    scheduling: EmbeddedCluster, extender: ScriptedExtender, pod: Make
) -> None:
    extender.answers["prioritize"] = lambda args: [{"Host": "node-1", "Score": 4.5}]
    extender.answers["bind"] = binding(scheduling)
    await scheduling.apply([pod("p")])
    await scheduling.wait_until(lambda: scheduling.running("default", "p"))
    assert "bind" in [verb for verb, _ in extender.calls]
