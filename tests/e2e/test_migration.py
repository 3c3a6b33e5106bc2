"""What `migrate` predicts is what kube-scheduler with the in-tree plugin does after device plugins are switched off."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from typer.testing import CliRunner

from dra_extender.cli.main import app
from tests.e2e.case import Case
from tests.e2e.ground import Ground

pytestmark = [pytest.mark.e2e, pytest.mark.needs("DRAExtendedResource")]

IN_TREE = "in-tree"
PLUGIN: Mapping[str, int] = {"both-1": 8, "both-2": 8, "plugin": 8, "slices-1": 0, "slices-2": 0, "none": 0}
DEVICES: Mapping[str, int] = {"both-1": 8, "both-2": 8, "slices-1": 8, "slices-2": 8}
PODS: Mapping[str, tuple[int, int]] = {
    "both-1": (8, 1), "both-2": (4, 2), "plugin": (8, 1), "slices-1": (12, 1), "slices-2": (4, 2), "none": (4, 1)
}  # fmt: skip
"""By node: how many pods select it, and how many devices each requests. Four of them do not fit slices-1."""


class Hardware(Case):
    """Six nodes, of which two offer their devices by a plugin and by slices."""

    @property
    def resource(self) -> str:
        return f"{self.name}.example.org/gpu"

    def build(self) -> None:
        self.device_class(f"{self.name}-extended", extendedResourceName=self.resource)
        for node, plugin in PLUGIN.items():
            name = self.host(node)
            self.apply({
                "apiVersion": "v1", "kind": "Node",
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            })  # fmt: skip
            amounts = {"cpu": "4", "memory": "8Gi", "pods": "30"} | ({self.resource: str(plugin)} if plugin else {})
            status = {"capacity": amounts, "allocatable": amounts}
            self.ground.patch(f"/api/v1/nodes/{name}/status", {"status": status})
        for node, devices in DEVICES.items():
            self.publish(self.host(node), devices)
        hard = {f"requests.{self.resource}": "999", f"{self.name}-extended.deviceclass.resource.k8s.io/devices": "999"}
        self.apply({
            "apiVersion": "v1", "kind": "ResourceQuota",
            "metadata": {"name": "team", "namespace": self.name}, "spec": {"hard": hard},
        })  # fmt: skip
        for node, (pods, _) in PODS.items():
            for index in range(pods):
                self.requesting(f"{node}-{index}")

    def used(self) -> dict[str, str]:
        """What a ResourceQuota has counted, once it has counted all pods."""
        path = f"/api/v1/namespaces/{self.name}/resourcequotas/team"
        return dict(self.ground.get(path)["status"]["used"])

    def host(self, name: str) -> str:
        return f"{self.name}-{name}"

    def requesting(self, name: str) -> None:
        """The pod: node and amount follow from its name."""
        node = name.rpartition("-")[0]
        amount = str(PODS[node][1])
        self.pod(name, scheduler=IN_TREE, node=self.host(node), requests={"cpu": "10m", self.resource: amount})

    def places(self) -> dict[str, str] | None:
        """By pod, its node; None until each pod is bound or refused."""
        stored = self.ground.get(f"/api/v1/namespaces/{self.name}/pods")["items"]
        found = {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in stored}
        refused = {
            pod["metadata"]["name"]
            for pod in stored
            for condition in pod["status"].get("conditions", ())
            if condition["type"] == "PodScheduled" and condition["status"] == "False"
        }
        return found if len(found) == 40 and all(node or name in refused for name, node in found.items()) else None

    def switch(self, step: Mapping[str, Any]) -> None:
        """Drain the node, remove its plugin, uncordon it. Controllers create the pods again."""
        node = f"/api/v1/nodes/{step['node']}"
        self.ground.patch(node, {"spec": {"unschedulable": True}})
        gone = [name for name, where in (self.places() or {}).items() if where == step["node"]]
        for name in gone:
            self.delete_pod(name)
        self.ground.eventually(
            lambda: not any(self.ground.pod(f"{self.name}/{name}") for name in gone), "the end of the pods"
        )
        if not step["needs"]:
            amounts = {self.resource: None}
            self.ground.patch(f"{node}/status", {"status": {"capacity": amounts, "allocatable": amounts}})
        self.ground.patch(node, {"spec": {"unschedulable": None}})
        for name in gone:
            self.requesting(name)
        self.ground.eventually(self.places, "a decision on each pod")


@pytest.fixture
def hardware(ground: Ground) -> Iterator[Hardware]:
    made = Hardware(ground)
    made.set_up()
    ground.plane.start_scheduler(IN_TREE, {"profiles": [{"schedulerName": IN_TREE}]})
    try:
        made.build()
        yield made
    finally:
        ground.plane.stop_component(IN_TREE)
        made.tear_down()


def migrate(ground: Ground, *arguments: str) -> Any:
    """The answer, as JSON."""
    where = ["--kubeconfig", str(ground.plane.admin_kubeconfig), "--output", "json"]
    result = CliRunner().invoke(app, ["migrate", *arguments, *where])
    assert result.exit_code in (0, 1), result.output
    return json.loads(result.stdout)


def test_the_scheduler_binds_all_pods_where_the_check_predicts(hardware: Hardware, ground: Ground) -> None:
    ground.eventually(hardware.places, "a decision on each pod")
    found = migrate(ground, "check")
    both = [each["node"] for each in found["nodes"] if each["state"] == "offered twice"]
    assert both == [hardware.host("both-1"), hardware.host("both-2")]
    after = {key: at["node"] for each in found["workloads"] for key, at in each["after"].items()}
    predicted = {key.partition("/")[2]: node for key, node in after.items()}
    assert len(predicted) == 40
    for step in found["order"]:
        hardware.switch(step)
    expected = sum(map(bool, predicted.values()))  # pods that were refused during a drain are tried again
    ground.eventually(lambda: sum(map(bool, (hardware.places() or {}).values())) >= expected, f"{expected} bound pods")
    bound = hardware.places() or {}
    assert bound == predicted
    again = migrate(ground, "check")
    assert not any(each["state"] == "offered twice" for each in again["nodes"])
    for name in ("both-1-0", "both-2-0"):
        claim = hardware.stored_pod(name)["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
        (made,) = (each["claim"] for each in found["workloads"] if f"{hardware.name}/{name}" in each["after"])
        assert hardware.stored_claim(claim)["spec"]["devices"]["requests"] == made["requests"]
    (charge,) = found["quotas"]
    used = hardware.used()
    assert used[charge["name"]] == str(charge["charged"])
    claiming = [name for name, node in bound.items() if node not in ("", hardware.host("plugin"))]
    held = sum(PODS[name.rpartition("-")[0]][1] for name in claiming)
    assert used[charge["claims_name"]] == str(held)  # claims of pods that run; the others have none yet
