"""Pods that lose their devices on real nodes: to a taint rule, or to a pod of higher priority."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dra_extender.api.resource import GROUP
from dra_extender.kube.resources import discover
from tests.e2e.extender import ROOT
from tests.support.node.case import NodeCase
from tests.support.node.ground import NodeGround
from tests.support.node.node import Node

pytestmark = pytest.mark.node
needs = pytest.mark.needs


def deployment(case: NodeCase, name: str, template: str) -> None:
    """A Deployment of one pod with a claim from a template."""
    labels = {"app": name}
    spec = {
        "schedulerName": "dra-scheduler",
        "terminationGracePeriodSeconds": 1,
        "containers": [case.container(["t"])],
        "resourceClaims": [{"name": "t", "resourceClaimTemplateName": template}],
    }
    pods = {"metadata": {"labels": labels}, "spec": spec}
    body = {"replicas": 1, "selector": {"matchLabels": labels}, "template": pods}
    case.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": case.where(name), "spec": body})


def running(case: NodeCase) -> list[str]:
    """The names of the pods that run, and are not about to end."""
    items = case.ground.get(f"/api/v1/namespaces/{case.name}/pods")["items"]
    alive = [item for item in items if "deletionTimestamp" not in item["metadata"]]
    return [item["metadata"]["name"] for item in alive if item["status"].get("phase") == "Running"]


@needs("DRADeviceTaints", "DRADeviceTaintRules")
def test_a_taint_rule_evicts_a_pod_and_its_replacement_runs_on_another_node(
    case: NodeCase, node: Node, other: Node
) -> None:
    for each in (node, other):
        case.driver_on(each).start([{"devices": [{"name": "gpu"}]}])
    case.until_published(2)
    case.template("template")
    deployment(case, "app", "template")
    (evicted,) = case.ground.eventually(lambda: running(case), "a running pod")
    first, second = (node, other) if case.node(evicted) == node.name else (other, node)
    assert case.devices_in(first, evicted) == ["gpu"]
    selector = {"driver": case.driver, "pool": first.name, "device": "gpu"}
    taint = {"key": "example.com/broken", "effect": "NoExecute"}
    served = case.ground.run(discover(case.ground.client)).taint_rules
    body = {"deviceSelector": selector, "taint": taint}
    meta = {"name": case.name}
    case.apply({"apiVersion": f"{GROUP}/{served}", "kind": "DeviceTaintRule", "metadata": meta, "spec": body})
    (replacement,) = case.ground.eventually(lambda: set(running(case)) - {evicted}, "a replacement")
    assert case.node(replacement) == second.name
    assert case.devices_in(second, replacement) == ["gpu"]
    case.ground.eventually(lambda: not case.phase(evicted), "the end of the evicted pod")


@pytest.fixture
def preemption(ground: NodeGround) -> Iterator[None]:
    ground.plane.kubectl("apply", f"--filename={ROOT / 'manifests' / 'preemption' / 'permissions.yaml'}")
    for mode in ("on", "off"):
        ground.extender.stop()
        ground.extender.environment["DRA_EXTENDER_PREEMPTION"] = mode
        ground.extender.start()
        if mode == "on":
            yield


@pytest.mark.usefixtures("preemption")
def test_a_preemptor_runs_with_the_device_of_its_victim(case: NodeCase, node: Node) -> None:
    case.serve(node, "only")
    case.pod_with_claim("victim")
    assert case.devices_in(node, "victim") == ["only"]
    meta = {"name": f"{case.name}-high"}
    case.apply({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": meta, "value": 1000})
    case.ground.eventually(lambda: case.is_admitted(priorityClassName=meta["name"]), "admission")
    case.pod_with_claim("preemptor", priorityClassName=meta["name"])
    assert case.devices_in(node, "preemptor") == ["only"]
    case.ground.eventually(lambda: not case.phase("victim"), "the end of the victim")
    assert case.devices("victim") == []
