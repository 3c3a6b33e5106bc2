"""Pods are nominated ahead of the queue, with the whole service, scheduler, kubelet and claim controller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from embedded_cluster.cluster import EmbeddedCluster
from tests.support.flows.flow import Flow

Make = Callable[..., dict[str, Any]]
NAMES = ("a", "b", "c")


@pytest.fixture
async def flow() -> AsyncIterator[Flow]:
    """Two nodes with two GPUs each, a service that nominates, and no scheduler yet."""
    async with EmbeddedCluster(nodes=2, devices=2, fabric_delay=0.1) as cluster:
        running = Flow(cluster)
        await running.start(nominate="always")
        yield running
        await running.stop()
        cluster.check()
        assert running.wrong() == []


def nominated(flow: Flow, name: str) -> str:
    return flow.pod("default", name).status.nominated_node_name


async def test_nominated_pods_are_bound_with_one_look_at_one_node_each(flow: Flow, claim: Make, pod: Make) -> None:
    cluster = flow.cluster
    await cluster.apply([claim("one", template=True), *(pod(name, templates={"gpu": "one"}) for name in NAMES)])
    await cluster.wait_until(lambda: all(nominated(flow, name) for name in NAMES))
    nodes = {name: nominated(flow, name) for name in NAMES}
    await flow.schedule()
    await cluster.wait_until(lambda: cluster.running("default", *NAMES))
    assert {name: flow.pod("default", name).spec.node_name for name in NAMES} == nodes
    assert sorted((call.pod, call.nodes) for call in flow.calls if call.verb == "filter") == [
        (f"default/{name}", 1) for name in NAMES
    ]
    assert [nominated(flow, name) for name in NAMES] == ["", "", ""]


async def test_a_service_that_was_killed_replaces_its_nominations(flow: Flow, claim: Make, pod: Make) -> None:
    cluster = flow.cluster
    await cluster.apply([claim("one", template=True), pod("a", templates={"gpu": "one"})])
    await cluster.wait_until(lambda: bool(nominated(flow, "a")))
    node = nominated(flow, "a")
    await flow.kill()
    service = await flow.start(nominate="always")
    await cluster.wait_until(lambda: b'nominations_ahead_total{result="made"} 1.0' in service.metrics.exposition())
    await asyncio.sleep(0)
    assert nominated(flow, "a") == node


async def test_with_nomination_turned_off_nothing_of_it_stays(flow: Flow, claim: Make, pod: Make) -> None:
    cluster = flow.cluster
    await cluster.apply([claim("one", template=True), pod("a", templates={"gpu": "one"})])
    await cluster.wait_until(lambda: bool(nominated(flow, "a")))
    await flow.kill()
    await flow.start(nominate="never")
    await cluster.wait_until(lambda: not nominated(flow, "a"))
    await flow.schedule()
    await cluster.apply([pod("b", templates={"gpu": "one"})])
    await cluster.wait_until(lambda: cluster.running("default", "a", "b"))
    asked = {call.pod: call.nodes for call in flow.calls if call.verb == "filter"}
    assert asked == {"default/a": 2, "default/b": 2}, "every node is looked at again"
    assert [nominated(flow, name) for name in "ab"] == ["", ""]
