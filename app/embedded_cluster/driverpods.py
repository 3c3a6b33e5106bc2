"""Installing the example driver: its pods stand for a driver on their nodes, although none of their containers run.

Promises: while a pod of the example driver runs on a node that has no GPUs, the node has as many as the pod says
(NUM_DEVICES, or 8); they go some time after the last such pod, so that a restarted driver finds them. Nodes that come
with GPUs keep those. Other drivers' pods run, and do nothing: their devices are not known here.

Rules: kubernetes-sigs/dra-example-driver (images and NUM_DEVICES); Kubernetes 1.36, pkg/kubelet/cm/dra, which deletes
the slices of a driver that is gone from its node for 30 seconds.
"""

from __future__ import annotations

import asyncio
from typing import Final

from embedded_cluster import hardware
from embedded_cluster.apiserver.containers import is_driver
from embedded_cluster.driver import Driver
from embedded_cluster.informer import Informer
from embedded_cluster.objects import FullContainer, FullNode, FullPod
from embedded_cluster.workqueue import RateLimitedQueue

COUNT: Final = "NUM_DEVICES"
_USUAL: Final = 8
_MOST: Final = hardware.SLICE_DEVICES


def devices_of(pod: FullPod) -> int | None:
    """How many GPUs the pod publishes; None when it is not one of the example driver."""
    found = next((container for container in pod.spec.containers if is_driver(container.image)), None)
    return None if found is None else _count(found)


def _count(container: FullContainer) -> int:
    told = next((variable.value for variable in container.env if variable.name == COUNT), "")
    return min(int(told), _MOST) if told.isdecimal() else _USUAL


class DriverPods:
    """`run` never returns. `linger`: seconds that devices outlive the last pod of the driver."""

    def __init__(
        self, driver: Driver, pods: Informer[FullPod], nodes: Informer[FullNode], *, linger: float = 30.0
    ) -> None:
        """`pods` must have the index "node"."""
        self._driver = driver
        self._pods = pods
        self._nodes = nodes
        self.linger = linger
        self._installed: dict[str, int] = {}
        self._left: dict[str, float] = {}
        self.queue: RateLimitedQueue[str] = RateLimitedQueue("driverpods", self._sync)
        pods.subscribe(self._pod_changed)

    async def run(self) -> None:
        """Run until cancelled."""
        await asyncio.gather(self._pods.synced.wait(), self._nodes.synced.wait())
        await self.queue.run()

    def _pod_changed(self, old: FullPod | None, new: FullPod | None) -> None:
        pod = new or old
        if pod is not None and pod.spec.node_name and devices_of(pod) is not None:
            self.queue.add(pod.spec.node_name)

    async def _sync(self, node: str) -> None:
        running = [pod for pod in self._pods.find("node", node) if pod.status.phase == "Running"]
        counts = [count for pod in running if (count := devices_of(pod)) is not None]
        if not counts:
            await self._leave(node)
            return
        self._left.pop(node, None)
        have = self._installed.get(node)
        if have == counts[0] or (have is None and self._driver.publishes(hardware.GPU_DRIVER, node)):
            return
        self._installed[node] = counts[0]
        found = self._nodes.get("", node)
        owner = None if found is None else {
            "apiVersion": "v1", "kind": "Node", "name": node, "uid": found.metadata.uid,
        }  # fmt: skip
        await self._driver.publish(hardware.example_gpus(node, counts[0]), owner)

    async def _leave(self, node: str) -> None:
        """Withdraw the devices when the driver has been away for long enough."""
        if node not in self._installed:
            return
        now = asyncio.get_running_loop().time()
        due = self._left.setdefault(node, now + self.linger)
        if now < due:
            self.queue.add_after(node, due - now)
            return
        del self._installed[node], self._left[node]
        await self._driver.withdraw(hardware.GPU_DRIVER, node)
