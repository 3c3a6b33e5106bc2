"""Gangs with a kube-scheduler that asks about a part of the nodes only: about 100 of 254."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.case import Case
from tests.e2e.gangs import annotation, names
from tests.e2e.ground import SCHEDULER, Ground

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SAMPLING = SCHEDULER + "-sampling"
NAMES = "DRA_EXTENDER_SCHEDULER_NAMES"
NODES = 250


@pytest.fixture(scope="module")
def scheduler(ground: Ground) -> Iterator[str]:
    """The name of one more scheduler that the extender serves. It is content with 100 nodes on which a pod may run."""

    def change(config: dict[str, Any]) -> None:
        config["leaderElection"]["leaderElect"] = False
        config["percentageOfNodesToScore"] = 1
        config["profiles"][0]["schedulerName"] = SAMPLING

    served = ground.extender.environment[NAMES]
    ground.extender.stop()
    ground.extender.environment[NAMES] = f"{served},{SAMPLING}"
    ground.extender.start()
    ground.start_scheduler(SAMPLING, change=change)
    yield SAMPLING
    ground.plane.stop_component(SAMPLING)
    ground.extender.stop()
    ground.extender.environment[NAMES] = served
    ground.extender.start()


def test_members_get_the_nodes_of_the_plan_that_are_not_in_every_call(
    case: Case, ground: Ground, scheduler: str
) -> None:
    nodes = [f"{case.name}-node-{number}" for number in range(NODES)]
    amounts = {"cpu": "8", "memory": "16Gi", "pods": "20"}
    for number, node in enumerate(nodes):
        labels = {"kubernetes.io/hostname": node, "example.com/rack": str(number // 50)}
        case.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "labels": labels}})
        ground.patch(f"/api/v1/nodes/{node}/status", {"status": {"capacity": amounts, "allocatable": amounts}})
    with_devices = [nodes[number] for number in (0, 60, 101, 102, 103, 104, 170, 249)]
    for node in with_devices:
        case.publish(node, 1)
    given = annotation(case, "g", 4)
    given["annotations"]["dra-extender.dev/topology-required"] = "example.com/rack"
    pods = names("g", 4)
    for pod in pods:
        case.pod_with_claim(pod, scheduler=scheduler, **given)
    case.until_runs(*pods)
    assert sorted(map(case.node, pods)) == with_devices[2:6]
    asked = [len(each.json["NodeNames"]) for pod in pods for each in ground.calls.calls("filter", case.key(pod))]
    assert max(asked) < NODES
    ground.eventually(lambda: not any(_nominated(case, pod) for pod in pods), "the end of the nominations")


def _nominated(case: Case, pod: str) -> str:
    return str(case.stored_pod(pod)["status"].get("nominatedNodeName", ""))
