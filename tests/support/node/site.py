"""A cluster on this machine, with Services and names, and nothing of ours in it: what a release is installed into."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from tests.e2e.controlplane import ControlPlane
from tests.e2e.plane import KubectlError
from tests.e2e.space import Body
from tests.support.chart.helm import CHART, NAME, NAMESPACE, Helm, Values
from tests.support.node import image
from tests.support.node.ground import BareGround
from tests.support.node.machine import Bridge, Untouched
from tests.support.node.network import Services
from tests.support.node.node import Node
from tests.support.packaging.image import Builder

EXTENDER = "dra-extender"
"""The name of the image in values."""
WHERE = f"--namespace={NAMESPACE}"
WAIT = ("--wait", "--timeout=5m")
SELECTED = "app.kubernetes.io/name=dra-extender"


class NodeSite:
    """Enter it to have a control plane, two nodes, kube-proxy, CoreDNS, the cluster's own kube-scheduler and images."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(Untouched())
            outside = stack.enter_context(Bridge(5))
            directory = self._folder / "controlplane"
            self.plane = ControlPlane(directory, node_lifecycle=True, address=outside.address)
            stack.enter_context(self.plane)
            self.ground = stack.enter_context(BareGround(self.plane))
            self.nodes = [stack.enter_context(Node(self.plane, number)) for number in (3, 4)]
            for node in self.nodes:
                node.limit_logs()
            stack.enter_context(Services(self.plane, self.nodes[0].name, outside.address))
            self._add_images()
            self.plane.start_scheduler()
            self.plane.kubectl("create", "namespace", NAMESPACE)
            self.helm = Helm(self._folder / "helm", self.plane.admin_kubeconfig)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _add_images(self) -> None:
        """The extender's, built as `make image` does, and kube-scheduler's, by the names that the chart gives them."""
        storage = self._folder / "images"
        storage.mkdir()
        scheduler = self._folder / "scheduler.tar"
        name = f"registry.k8s.io/kube-scheduler:{self.plane.version}"
        image.write(scheduler, name, {"/usr/local/bin/kube-scheduler": self.plane.binaries / "kube-scheduler"})
        for archive in (Builder(storage).archive(), scheduler):
            self.add_image(archive)

    def add_image(self, archive: Path) -> None:
        for node in self.nodes:
            node.runtime.add_image(archive)

    def install(self) -> None:
        """The chart with its defaults; all pods are Ready then."""
        self.helm.run("install", NAME, str(CHART), WHERE, *WAIT, values={"image": {"repository": EXTENDER}})

    def upgrade(self, values: Values) -> None:
        image_of = {"image": {"repository": EXTENDER}}
        self.helm.run("upgrade", NAME, str(CHART), WHERE, *WAIT, values={**image_of, **values})

    def uninstall(self) -> None:
        """Its pods have ended then."""
        self.helm.run("uninstall", NAME, WHERE, "--ignore-not-found")
        release = f"app.kubernetes.io/instance={NAME}"
        self.ground.eventually(lambda: not self.nodes_of(release), "the end of its pods")

    def deployment(self, name: str, path: str) -> str:
        """A field of a Deployment of the release."""
        return self.plane.kubectl("get", f"deployment/{name}", WHERE, f"--output=jsonpath={{{path}}}")

    def ready(self) -> list[str]:
        """The pods of the extender that are Ready and do not end, the leader first."""
        pods = json.loads(self.plane.kubectl("get", "pods", WHERE, f"--selector={SELECTED}", "--output=json"))["items"]
        leader = self.plane.kubectl("get", f"lease/{NAME}", WHERE, "--output=jsonpath={.spec.holderIdentity}")
        found = [pod["metadata"] for pod in pods if is_ready(pod)]
        names = [meta["name"] for meta in found if "deletionTimestamp" not in meta]
        return sorted(names, key=lambda name: name != leader)

    def replicas(self) -> list[str]:
        """As soon as both are Ready: the leader and the other."""
        return self.ground.eventually(lambda: found if len(found := self.ready()) == 2 else [], "two replicas")

    def container(self, pod: str) -> Body:
        """The status of the container of a replica."""
        found = self.ground.get(f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}")
        return dict(found["status"]["containerStatuses"][0])

    def address(self, pod: str) -> str:
        """Where a replica is reached."""
        return str(self.ground.get(f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}")["status"]["podIP"])

    def node_of(self, pod: str) -> Node:
        """The node of a replica."""
        name = self.ground.get(f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}")["spec"]["nodeName"]
        (found,) = (node for node in self.nodes if node.name == name)
        return found

    def evict(self, pod: str) -> str:
        """Ask for the eviction of a replica, as a drain of its node does; why it is refused, or nothing."""
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": NAMESPACE}}
        path = f"--raw=/api/v1/namespaces/{NAMESPACE}/pods/{pod}/eviction"
        try:
            self.plane.kubectl("create", path, "--filename=-", stdin=json.dumps(body))
        except KubectlError as refusal:
            return str(refusal)
        return ""

    def nodes_of(self, label: str) -> list[str]:
        """The nodes of the running pods with this label."""
        columns = "--output=custom-columns=:.spec.nodeName"
        options = (f"--selector={label}", "--field-selector=status.phase=Running", "--no-headers")
        return self.plane.kubectl("get", "pods", WHERE, *options, columns).split()


def is_ready(pod: Body) -> bool:
    """Whether its containers are."""
    return any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions", ()))
