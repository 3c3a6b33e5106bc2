"""Room is made for important pods, with the whole service, scheduler, kubelet and claim controller."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from dra_extender.kube.resources import PODS
from dra_extender.scheduling.nomination.nominations import is_preempting
from embedded_cluster.cluster import EmbeddedCluster
from tests.support.embedded.manifests import with_classes
from tests.support.flows.flow import Flow

Make = Callable[..., dict[str, Any]]


@pytest.fixture
async def flow() -> AsyncIterator[Flow]:
    """Two nodes with one GPU each, and a service that preempts."""
    async with EmbeddedCluster(nodes=2, devices=1, fabric_delay=0.1) as cluster:
        running = Flow(cluster)
        await running.start(preemption="on")
        await running.schedule()
        yield running
        await running.stop()
        cluster.check()
        assert running.wrong() == []


async def filled(flow: Flow, claim: Make, pod: Make, **labels: str) -> None:
    """Both GPUs are taken, by pods with these labels."""
    pods = [pod(name, templates={"gpu": "one"}) for name in ("a", "b")]
    for made in pods:
        made["metadata"]["labels"] = labels
    await flow.cluster.apply([claim("one", template=True), *pods])
    await flow.cluster.wait_until(lambda: flow.cluster.running("default", "a", "b"))


def important(pod: Make, name: str = "p", priority: int = 10) -> dict[str, Any]:
    made = pod(name, templates={"gpu": "one"})
    made["spec"]["priority"] = priority
    return made


def left(flow: Flow) -> set[str]:
    """Names of pods that are there."""
    return {pod.metadata.name for pod in flow.cluster.pods("default")}


def counted(flow: Flow, metric: str, result: str) -> float:
    """A counter of the service."""
    assert flow.service is not None
    found = re.search(rf'^{metric}{{result="{result}"}} (.+)$', flow.service.metrics.exposition().decode(), re.M)
    return float(found[1]) if found is not None else 0.0


async def test_an_important_pod_gets_the_device_of_another_one(flow: Flow, claim: Make, pod: Make) -> None:
    await filled(flow, claim, pod)
    await flow.cluster.apply(with_classes([important(pod)]))
    await flow.cluster.wait_until(lambda: flow.cluster.running("default", "p"))
    assert len(left(flow) & {"a", "b"}) == 1
    await flow.cluster.wait_until(lambda: not is_preempting(flow.pod("default", "p")))


async def test_a_budget_is_followed_and_respected(flow: Flow, claim: Make, pod: Make) -> None:
    await filled(flow, claim, pod, app="protected")
    meta = {"name": "budget", "namespace": "default"}
    spec = {"minAvailable": 2, "selector": {"matchLabels": {"app": "protected"}}}
    await flow.cluster.apply(
        [{"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": spec}]
    )
    await flow.cluster.apply(with_classes([important(pod)]))
    await flow.cluster.wait_until(lambda: flow.reason("default", "p")[0] == "Unschedulable")
    await flow.cluster.wait_until(lambda: counted(flow, "dra_extender_preemptions_total", "hopeless") > 0)
    assert left(flow) == {"a", "b", "p"}


async def keep(flow: Flow, name: str, *finalizers: str) -> None:
    """As long as a pod has finalizers it is going, and does not go."""
    body = msgspec.json.encode({"metadata": {"finalizers": list(finalizers)}})
    await flow.cluster.client.patch(PODS.path("default", name), body)


async def test_a_restart_in_the_middle_loses_nothing(flow: Flow, claim: Make, pod: Make) -> None:
    cluster = flow.cluster
    await filled(flow, claim, pod)
    for name in ("a", "b"):
        await keep(flow, name, "example.com/keep")
    await cluster.apply(with_classes([important(pod), important(pod, "low", 0)]))
    await cluster.wait_until(lambda: is_preempting(flow.pod("default", "p")))
    await flow.kill()
    await flow.start(preemption="on")
    for name in ("a", "b"):
        await keep(flow, name)
    await cluster.wait_until(lambda: cluster.running("default", "p"))
    assert len(left(flow) & {"a", "b"}) == 1
    assert not cluster.running("default", "low")
