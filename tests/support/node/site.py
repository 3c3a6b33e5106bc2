"""A cluster on this machine, with Services and names, and nothing of ours in it: what a release is installed into."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Self

from dra_extender.version import VERSION
from tests.e2e.controlplane import ControlPlane
from tests.support.chart.helm import CHART, NAME, NAMESPACE, Helm, Values
from tests.support.node import image
from tests.support.node.ground import BareGround
from tests.support.node.machine import Bridge, Untouched
from tests.support.node.network import Services
from tests.support.node.node import Node
from tests.support.packaging.image import Builder

EXTENDER = "localhost/dra-extender"
WHERE = f"--namespace={NAMESPACE}"
WAIT = ("--wait", "--timeout=5m")


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
        extender, scheduler = (self._folder / f"{name}.tar" for name in ("extender", "scheduler"))
        storage = self._folder / "images"
        storage.mkdir()
        Builder(storage).archive(extender, f"{EXTENDER}:{VERSION}")
        name = f"registry.k8s.io/kube-scheduler:{self.plane.version}"
        image.write(scheduler, name, self.plane.binaries / "kube-scheduler", "/usr/local/bin/kube-scheduler")
        for node in self.nodes:
            for archive in (extender, scheduler):
                node.runtime.add_image(archive)

    def install(self) -> None:
        """The chart with its defaults; all pods are Ready then."""
        self.helm.run("install", NAME, str(CHART), WHERE, *WAIT, values={"image": {"repository": EXTENDER}})

    def upgrade(self, values: Values) -> None:
        image_of = {"image": {"repository": EXTENDER}}
        self.helm.run("upgrade", NAME, str(CHART), WHERE, *WAIT, values={**image_of, **values})

    def deployment(self, name: str, path: str) -> str:
        """A field of a Deployment of the release."""
        return self.plane.kubectl("get", f"deployment/{name}", WHERE, f"--output=jsonpath={{{path}}}")

    def nodes_of(self, label: str) -> list[str]:
        """The nodes of the running pods with this label."""
        columns = "--output=custom-columns=:.spec.nodeName"
        options = (f"--selector={label}", "--field-selector=status.phase=Running", "--no-headers")
        return self.plane.kubectl("get", "pods", WHERE, *options, columns).split()
