"""Karpenter as a process, with the NodePool of one test, and the drivers of the nodes that it makes.

Nodes are made by its kwok provider: an object, no machine. `make karpenter` builds it (tests/controlplane/karpenter).
"""

from __future__ import annotations

import json
import os
import shutil
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.case import Case
from tests.e2e.components import BUILT, free_port, metric
from tests.e2e.space import Body
from tests.support.patience import LONGEST

BINARY = BUILT.parent / "karpenter"
CRDS = BUILT.parent / "karpenter.yaml"
GPU_TYPE = "gpu-2x"
"""The only instance type with devices, and the dearer one."""
DEVICES = ("gpu-0", "gpu-1")


def skip_without_karpenter() -> None:
    if not os.access(BINARY, os.X_OK):
        pytest.skip(f"{BINARY} is missing: run `make karpenter` (needs Go; minutes the first time)")


def _instance_type(name: str, price: float) -> Body:
    requirements = [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["test-zone-a"]},
    ]
    return {
        "name": name,
        "offerings": [{"Price": price, "Available": True, "Requirements": requirements}],
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": {"cpu": "8", "memory": "32Gi", "ephemeral-storage": "20Gi", "pods": "20"},
    }


class Karpenter:
    """Enter it to start it. It removes the nodes that are left at the end.

    `promises`: its provider says what devices an instance type has; the kwok provider of the module does not.
    """

    def __init__(self, case: Case, *flags: str, promises: bool = True) -> None:
        self.case = case
        self._ground, self._plane = case.ground, case.ground.plane
        self._flags = flags
        self._promises = promises
        self._pool = case.name
        self._metrics = free_port()

    def __enter__(self) -> Karpenter:
        folder, health = self._plane.directory, free_port()
        types, devices = folder / f"{self._pool}-types.json", folder / f"{self._pool}-devices.json"
        types.write_text(json.dumps([_instance_type("cpu-only", 0.1), _instance_type(GPU_TYPE, 1.0)]))
        devices.write_text(json.dumps({GPU_TYPE: {self.case.driver: DEVICES}}))
        environment = [f"KUBECONFIG={self._plane.admin_kubeconfig}", f"INSTANCE_TYPES_FILE_PATH={types}"]
        if self._promises:
            environment.append(f"DEVICES_FILE_PATH={devices}")
        self._plane.start_component(
            self._pool,
            Path(shutil.which("env") or "/usr/bin/env"),
            f"http://127.0.0.1:{health}/readyz",
            *environment,
            str(BINARY),
            f"--metrics-port={self._metrics}",
            f"--health-probe-port={health}",
            "--disable-leader-election",
            *self._flags,
        )
        reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": self._pool}
        self._plane.apply(
            {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": self._pool}},
            {
                "apiVersion": "karpenter.sh/v1",
                "kind": "NodePool",
                "metadata": {"name": self._pool},
                "spec": {
                    "template": {"spec": {"nodeClassRef": reference, "requirements": [], "expireAfter": "Never"}},
                    "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "1s"},
                },
            },
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._ground.delete(f"{self.case.pod_path('')}", gracePeriodSeconds=0)
        self._plane.kubectl("delete", "nodepool", self._pool, "--wait=false")
        self._ground.eventually(lambda: not self.nodes(), "the end of all nodes")
        self._plane.stop_component(self._pool)

    def log(self) -> str:
        return self._plane.components[self._pool].log.read_text(errors="replace")

    def _listed(self, path: str) -> list[Body]:
        selector = f"?labelSelector=karpenter.sh/nodepool%3D{self._pool}"
        return list(self._ground.get(path + selector)["items"])

    def node_claims(self) -> list[str]:
        """What it has asked its provider for: a node, or one that is coming."""
        return [each["metadata"]["name"] for each in self._listed("/apis/karpenter.sh/v1/nodeclaims")]

    def nodes(self) -> list[str]:
        return sorted(each["metadata"]["name"] for each in self._listed("/api/v1/nodes"))

    def is_usable(self, node: str) -> bool:
        """It is ready and has no taint: kube-scheduler would take it."""
        found = self._ground.get(f"/api/v1/nodes/{node}")
        ready = any(
            each["type"] == "Ready" and each["status"] == "True" for each in found["status"].get("conditions", ())
        )
        return ready and not found["spec"].get("taints")

    def is_initialized(self, node: str) -> bool:
        """Karpenter has seen everything that the node was made for."""
        labels = self._ground.get(f"/api/v1/nodes/{node}")["metadata"]["labels"]
        return bool(labels.get("karpenter.sh/initialized") == "true")

    def until_nodes(self, count: int) -> list[str]:
        """This many nodes, once all of them can be used."""

        def usable() -> list[str]:
            found = self.nodes()
            return found if len(found) == count and all(map(self.is_usable, found)) else []

        return self._ground.eventually(usable, f"{count} nodes; now {self.nodes()}\n{self.log()[-3000:]}\n")

    def decisions(self) -> float:
        """How often it has decided which nodes the pending pods need: every 10 seconds while there are any."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics}/metrics", timeout=LONGEST) as answer:
            page = answer.read().decode()
        try:
            return metric(page, "karpenter_scheduler_scheduling_duration_seconds_count", controller="provisioner")
        except KeyError:
            return 0

    def until_it_decides_again(self) -> None:
        """Until it has begun and ended one more decision."""
        before = self.decisions()
        self._ground.eventually(lambda: self.decisions() >= before + 2, "two decisions")

    def publish(self, node: str) -> None:
        """As a driver does that has found the devices of its node: the slice goes with the node."""
        uid = self._ground.get(f"/api/v1/nodes/{node}")["metadata"]["uid"]
        owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid, "controller": True}
        spec = {
            "driver": self.case.driver,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": name} for name in DEVICES],
        }
        meta: dict[str, Any] = {"name": f"{self.case.name}-{node}", "ownerReferences": [owner]}
        self._ground.apply(
            {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": meta, "spec": spec}
        )
