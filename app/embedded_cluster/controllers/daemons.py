"""DaemonSets: a pod on every node that fits; a new template replaces pods as the strategy says.

The rules are in `daemonrules`. There are no ControllerRevisions: `kubectl rollout history` and `undo` find nothing.
"""

from __future__ import annotations

from dra_extender.kube.client import KubeClient
from dra_extender.kube.events import EventRecorder
from embedded_cluster.controllers import daemonrules
from embedded_cluster.controllers.podowners import PodController
from embedded_cluster.informer import Informer
from embedded_cluster.objects import DaemonSet, FullNode, FullPod


class DaemonController(PodController[DaemonSet]):
    """Keeps a pod of every DaemonSet on every node that fits."""

    kind = "DaemonSet"

    def __init__(
        self,
        client: KubeClient,
        sets: Informer[DaemonSet],
        pods: Informer[FullPod],
        nodes: Informer[FullNode],
        events: EventRecorder,
    ) -> None:
        super().__init__(client, sets, pods, events)
        self._nodes = nodes
        nodes.subscribe(self._node_changed)

    async def run(self) -> None:
        """Run until cancelled."""
        await self._nodes.synced.wait()
        await super().run()

    def _node_changed(self, old: FullNode | None, new: FullNode | None) -> None:
        for key in self._owners.objects:
            self.queue.add(key)

    async def sync(self, owner: DaemonSet) -> None:
        todo = daemonrules.plan(owner, self._nodes.objects, self.pods_of(owner))
        for node in todo.create:
            await self.create(owner, daemonrules.daemon(owner, node))
        for pod in todo.delete:
            await self.delete(pod)
        await self.report(owner, daemonrules.status(owner, self._nodes.objects, self.pods_of(owner)))
