"""DaemonSets: one pod on every node that fits.

Promises: the controller creates pods with the name of their node, so that drivers need no scheduler. It replaces pods
that failed, and deletes pods on nodes that no longer fit. A changed template replaces all pods at once:
`updateStrategy` is ignored, and there are no ControllerRevisions.

Rules: Kubernetes 1.36, pkg/controller/daemon (daemon_controller.go, util/daemonset_util.go).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from dra_extender.api.decoding import decode
from dra_extender.kube.client import KubeClient
from dra_extender.kube.events import EventRecorder
from embedded_cluster.controllers.podsets import PodController, active, pod_of, template_hash
from embedded_cluster.informer import Informer
from embedded_cluster.objects import DaemonSet, FullNode, FullPod, FullPodSpec, PodTemplate
from embedded_cluster.scheduler.fit import selected, untolerated

REVISION_LABEL: Final = "controller-revision-hash"
_TOLERATED: Final = {
    "not-ready": "NoExecute",
    "unreachable": "NoExecute",
    "disk-pressure": "NoSchedule",
    "memory-pressure": "NoSchedule",
    "pid-pressure": "NoSchedule",
    "unschedulable": "NoSchedule",
}


def pod_spec(template: PodTemplate, node: str = "") -> bytes:
    """The template's spec with the tolerations of daemons, bound to the node when one is named."""
    spec: dict[str, Any] = msgspec.json.decode(template.spec)
    tolerations = spec.setdefault("tolerations", [])
    for trouble, effect in _TOLERATED.items():
        tolerations.append({"key": f"node.kubernetes.io/{trouble}", "operator": "Exists", "effect": effect})
    return msgspec.json.encode(spec | ({"nodeName": node} if node else {}))


def fits(owner: DaemonSet, node: FullNode, *, runs: bool = False) -> bool:
    """True when the node gets a pod of the set, or, if one `runs` there, when the pod may stay."""
    pod = FullPod(owner.metadata, decode(FullPodSpec, pod_spec(owner.spec.template)))
    taints = untolerated(pod, node.spec.taints)
    named = pod.spec.node_name in ("", node.name)
    return named and selected(pod, node) and not any(not runs or taint.effect == "NoExecute" for taint in taints)


def plan(owner: DaemonSet, nodes: Mapping[str, FullNode], pods: Sequence[FullPod]) -> tuple[list[str], list[FullPod]]:
    """The nodes that get a pod, and the pods to delete."""
    digest = template_hash(owner.spec.template)
    taken = {pod.spec.node_name for pod in pods if pod.metadata.deletion_timestamp is not None}
    delete: list[FullPod] = []
    for pod in sorted(pods, key=lambda pod: pod.metadata.version):
        if pod.metadata.deletion_timestamp is not None:
            continue
        name = pod.spec.node_name
        current = pod.metadata.labels.get(REVISION_LABEL) == digest and not pod.finished and name not in taken
        if current and name in nodes and fits(owner, nodes[name], runs=True):
            taken.add(name)
        else:
            delete.append(pod)
    leaving = {pod.spec.node_name for pod in delete if not pod.finished}
    create = [name for name, node in nodes.items() if name not in taken | leaving and fits(owner, node)]
    return create, delete


def daemon(owner: DaemonSet, node: str) -> dict[str, Any]:
    """The pod for one node, ready to be encoded."""
    template = owner.spec.template
    made = pod_of("DaemonSet", owner.metadata, template)
    made["metadata"]["labels"] = template.metadata.labels | {REVISION_LABEL: template_hash(template)}
    return made | {"spec": msgspec.Raw(pod_spec(template, node))}


def status(owner: DaemonSet, nodes: Mapping[str, FullNode], pods: Sequence[FullPod]) -> dict[str, Any]:
    """The status of the set for these nodes and pods."""
    wanted = {name for name, node in nodes.items() if fits(owner, node)}
    alive = active(pods)
    placed = [pod for pod in alive if pod.spec.node_name in wanted]
    ready = sum(1 for pod in placed if pod.status.phase == "Running")
    digest = template_hash(owner.spec.template)
    return {
        "observedGeneration": owner.metadata.generation,
        "desiredNumberScheduled": len(wanted),
        "currentNumberScheduled": len({pod.spec.node_name for pod in placed}),
        "updatedNumberScheduled": sum(1 for pod in placed if pod.metadata.labels.get(REVISION_LABEL) == digest),
        "numberReady": ready,
        "numberAvailable": ready,
        "numberUnavailable": len(wanted) - ready,
        "numberMisscheduled": sum(1 for pod in alive if pod.spec.node_name not in wanted),
    }


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
        missing, surplus = plan(owner, self._nodes.objects, self.pods_of(owner))
        for node in missing:
            await self.create(owner, daemon(owner, node))
        for pod in surplus:
            await self.delete(pod)
        await self.report(owner, status(owner, self._nodes.objects, self.pods_of(owner)))
