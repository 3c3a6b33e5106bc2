"""Gangs on real nodes, by annotation: their pods run together, each with its device, or none of them gets one."""

from __future__ import annotations

import pytest

from tests.e2e.gangs import annotation, holding, names
from tests.support.node.case import NodeCase
from tests.support.node.node import Node

pytestmark = pytest.mark.node


def test_the_pods_of_a_gang_run_on_two_nodes_once_all_of_them_exist(case: NodeCase, node: Node, other: Node) -> None:
    case.serve(node, "a", "b")
    case.driver_on(other).start([{"devices": [{"name": "c"}]}])
    case.until_published(3)
    *early, last = names("worker", 3)
    for pod in early:
        case.pod_with_claim(pod, **annotation(case, "train", 3))
    for pod in early:
        case.until_refused(pod, "2 of 3 pods exist")
    assert holding(case, early) == []
    case.pod_with_claim(last, **annotation(case, "train", 3))
    seen = {pod: case.devices_in(node_of(case, pod, node, other), pod) for pod in (*early, last)}
    assert seen == {pod: case.devices(pod) for pod in seen}
    assert sorted(seen.values()) == [["a"], ["b"], ["c"]]


def test_a_gang_that_does_not_fit_leaves_its_devices_to_another_pod(case: NodeCase, node: Node) -> None:
    case.serve(node, "a", "b")
    pods = names("worker", 3)
    for pod in pods:
        case.pod_with_claim(pod, **annotation(case, "train", 3))
    for pod in pods:
        case.until_refused(pod, "2 of 3 pods fit together")
    case.pod_with_claim("single")
    assert case.devices_in(node, "single") == case.devices("single")
    assert len(case.devices("single")) == 1
    assert case.bound(pods) == holding(case, pods) == []


def node_of(case: NodeCase, pod: str, *nodes: Node) -> Node:
    """The node that the pod is bound to."""
    name = case.until_bound(pod)
    (found,) = (node for node in nodes if node.name == name)
    return found
