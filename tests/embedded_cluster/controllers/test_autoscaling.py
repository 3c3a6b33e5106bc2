"""Autoscalers where nothing is measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from dra_extender.api.decoding import convert
from dra_extender.api.meta import Condition
from embedded_cluster.cluster import EmbeddedCluster
from embedded_cluster.controllers.autoscaling import decide, shown
from embedded_cluster.objects import Autoscaler
from tests.embedded_cluster.controllers.test_replicas import deployment
from tests.support.embedded.kubectl import Kubectl, needs_kubectl, rows

Json = dict[str, Any]


def wish(kind: str = "Deployment", least: int = 2, most: int = 5, metric: str = "Resource") -> Autoscaler:
    target = {"apiVersion": "apps/v1", "kind": kind, "name": "d"}
    spec = {"scaleTargetRef": target, "minReplicas": least, "maxReplicas": most, "metrics": [{"type": metric}]}
    return convert(Autoscaler, {"metadata": {"name": "h", "namespace": "default"}, "spec": spec})


@pytest.mark.parametrize(
    ("found", "current", "size", "reasons"),
    [
        (wish(), None, None, ["FailedGetScale"]),
        (wish("StatefulSet"), None, None, ["FailedGetScale"]),
        (wish(), 0, None, ["SucceededGetScale", "ScalingDisabled"]),
        (wish(), 1, 2, ["SucceededRescale"]),
        (wish(), 9, 5, ["SucceededRescale"]),
        (wish(), 3, None, ["SucceededGetScale", "FailedGetResourceMetric"]),
        (wish(metric="External"), 3, None, ["SucceededGetScale", "FailedGetExternalMetric"]),
        (wish(metric="Mood"), 3, None, ["SucceededGetScale", "InvalidMetricSourceType"]),
    ],
)
def test_bounds_are_kept_and_the_rest_is_said_to_be_missing(
    found: Autoscaler, current: int | None, size: int | None, reasons: list[str]
) -> None:
    decision = decide(found, current)
    assert decision.size == size
    assert [condition.reason for condition in decision.conditions] == reasons


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    first = shown((), decide(wish(), 3).conditions, "t1")
    before = tuple(convert(Condition, found) for found in first)
    again = shown(before, decide(wish(metric="Pods"), 3).conditions, "t2")
    assert [(found["type"], found["reason"], found["lastTransitionTime"]) for found in again] == [
        ("AbleToScale", "SucceededGetScale", "t1"),
        ("ScalingActive", "FailedGetPodsMetric", "t1"),
    ]
    lost = shown(before, decide(wish(), None).conditions, "t3")
    assert [found["lastTransitionTime"] for found in lost] == ["t3", "t1"]


@needs_kubectl
async def test_kubectl_autoscale_keeps_the_size_in_bounds_and_says_what_is_missing(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    kubectl = Kubectl(cluster.kubeconfig, tmp_path)
    await cluster.apply([deployment(1)])
    made = await kubectl("autoscale", "deployment", "d", "--min=2", "--max=3", "--cpu-percent=60")
    assert made == "horizontalpodautoscaler.autoscaling/d autoscaled\n"
    await cluster.wait_until(lambda: len(cluster.pods()) == 2, what="it has the least size")
    await kubectl("wait", "--for=condition=ScalingActive=False", "hpa/d", "--timeout=90s")
    assert rows(await kubectl("get", "hpa"))[1][:7] == ["d", "Deployment/d", "cpu:", "<unknown>/60%", "2", "3", "2"]
    told = await kubectl("describe", "hpa", "d")
    assert "the embedded cluster measures nothing, since no containers run; use kubectl scale" in told
    assert "New size: 2; reason: Current number of replicas below Spec.MinReplicas" in told
    await kubectl("scale", "deployment", "d", "--replicas=9")
    await cluster.wait_until(lambda: len(cluster.pods()) == 3, what="it has the largest size")
    await cluster.delete("deployments", "d", "default")
    await kubectl("wait", "--for=condition=AbleToScale=False", "hpa/d", "--timeout=90s")
    assert 'deployments.apps "d" not found' in await kubectl("describe", "hpa", "d")


async def test_what_is_written_in_the_old_version_keeps_what_only_the_new_one_knows(cluster: EmbeddedCluster) -> None:
    memory = {"type": "Resource", "resource": {"name": "memory", "target": {"type": "Value", "averageValue": "1Gi"}}}
    behavior = {"scaleDown": {"stabilizationWindowSeconds": 60}}
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "none"}
    body: Json = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"}}
    body["spec"] = {"scaleTargetRef": target, "maxReplicas": 3, "metrics": [memory], "behavior": behavior}
    root = "/apis/autoscaling/{}/namespaces/default/horizontalpodautoscalers"
    await cluster.client.create(root.format("v2"), msgspec.json.encode(body))
    old = msgspec.json.decode(await cluster.client.get(root.format("v1") + "/h"))
    old["spec"]["targetCPUUtilizationPercentage"] = 50
    await cluster.client.replace(root.format("v1") + "/h", msgspec.json.encode(old))
    new = msgspec.json.decode(await cluster.client.get(root.format("v2") + "/h"))
    assert [metric["resource"]["name"] for metric in new["spec"]["metrics"]] == ["cpu", "memory"]
    assert new["spec"]["behavior"] == behavior
    assert "annotations" not in new["metadata"]
