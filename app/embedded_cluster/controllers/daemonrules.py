"""What the DaemonSet controller decides, apart from how it finds out and writes.

Promises: a pod on every node that fits, tied to its node; never two pods of one template on a node for longer than a
look; pods that failed are made again; pods on nodes that do not fit any more go. `maxSurge` is not imitated.

Rules: Kubernetes 1.36, pkg/controller/daemon (daemon_controller.go, update.go, util/daemonset_util.go). Pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from dra_extender.api.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from dra_extender.api.decoding import decode
from embedded_cluster.controllers.podrules import active, pod_of, scaled, template_hash
from embedded_cluster.objects import DaemonSet, FullNode, FullPod, FullPodSpec, PodTemplate
from embedded_cluster.scheduler.fit import selected as is_selected
from embedded_cluster.scheduler.fit import untolerated

REVISION_LABEL: Final = "controller-revision-hash"
_TOLERATED: Final = {
    "not-ready": "NoExecute",
    "unreachable": "NoExecute",
    "disk-pressure": "NoSchedule",
    "memory-pressure": "NoSchedule",
    "pid-pressure": "NoSchedule",
    "unschedulable": "NoSchedule",
}


class Plan(msgspec.Struct, frozen=True):
    """The nodes that get a pod, and the pods that go."""

    create: tuple[str, ...]
    delete: tuple[FullPod, ...]


def node_of(pod: FullPod) -> str:
    """The node that the pod is bound to, or else tied to; empty for pods that are not a daemon's."""
    if pod.spec.node_name:
        return pod.spec.node_name
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
    terms = required.node_selector_terms if required is not None else ()
    fields = terms[0].match_fields if terms else ()
    return fields[0].values[0] if fields and fields[0].values else ""


class Suitability(msgspec.Struct, frozen=True):
    """Of a node: a pod is `wanted` there; one that runs there `may_stay`."""

    wanted: bool = False
    may_stay: bool = False


_NONE: Final = Suitability()


def suitability(owner: DaemonSet, node: FullNode) -> Suitability:
    """Labels and the node's name count for both answers, NoSchedule taints for the first only."""
    pod = FullPod(owner.metadata, decode(FullPodSpec, pod_spec(owner.spec.template)))
    name = pod.spec.node_name
    if not is_selected(pod, node) or (name and name != node.name):
        return _NONE
    taints = untolerated(pod, node.spec.taints)
    return Suitability(wanted=not taints, may_stay=all(taint.effect != "NoExecute" for taint in taints))


def plan(owner: DaemonSet, nodes: Mapping[str, FullNode], pods: Sequence[FullPod]) -> Plan:
    """What brings the pods nearer to one on every node that fits."""
    suitable = {name: suitability(owner, node) for name, node in nodes.items()}
    here: dict[str, list[FullPod]] = {}
    gone: list[FullPod] = []
    for pod in pods:
        may_stay = not pod.finished and suitable.get(node_of(pod), _NONE).may_stay
        if may_stay or pod.metadata.deletion_timestamp is not None:
            here.setdefault(node_of(pod), []).append(pod)
        else:
            gone.append(pod)
    wanted = [name for name, found in suitable.items() if found.wanted]
    kept: list[FullPod] = []
    for found in here.values():
        alive = sorted((pod for pod in found if pod.metadata.deletion_timestamp is None), key=_seniority)
        kept += alive[:1]
        gone += alive[1:]
    create = [name for name in wanted if not here.get(name)]
    return Plan(tuple(create), (*gone, *_outdated(owner, kept, len(wanted))))


def _seniority(pod: FullPod) -> tuple[bool, int]:
    return not pod.spec.node_name, pod.metadata.version


def _outdated(owner: DaemonSet, kept: Iterable[FullPod], wanted: int) -> list[FullPod]:
    """Pods of older templates that may go now: those that do not run, and as many of the others as may be missing."""
    strategy = owner.spec.update_strategy
    if strategy.type != "RollingUpdate":
        return []
    digest = template_hash(owner.spec.template)
    running = [pod for pod in kept if pod.status.phase == "Running"]
    old = [pod for pod in kept if pod.metadata.labels.get(REVISION_LABEL) != digest]
    spare = max(scaled(strategy.rolling_update.max_unavailable, wanted, up=True), 1) - (wanted - len(running))
    idle = [pod for pod in old if pod.status.phase != "Running"]
    return idle + [pod for pod in old if pod.status.phase == "Running"][: max(spare, 0)]


def pod_spec(template: PodTemplate, node: str = "") -> bytes:
    """The template's spec with the tolerations of daemons, tied to the node when one is named."""
    spec: dict[str, Any] = msgspec.json.decode(template.spec)
    tolerations = spec.setdefault("tolerations", [])
    for trouble, effect in _TOLERATED.items():
        added = {"key": f"node.kubernetes.io/{trouble}", "operator": "Exists", "effect": effect}
        if added not in tolerations:
            tolerations.append(added)
    if node:
        tied = NodeSelector(
            (NodeSelectorTerm(match_fields=(NodeSelectorRequirement("metadata.name", "In", (node,)),)),)
        )
        affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = msgspec.to_builtins(tied)
    return msgspec.json.encode(spec)


def daemon(owner: DaemonSet, node: str) -> dict[str, Any]:
    """The pod for one node, ready to be encoded."""
    template = owner.spec.template
    labels = template.metadata.labels | {REVISION_LABEL: template_hash(template)}
    metadata = {"labels": labels, "annotations": dict(template.metadata.annotations)}
    spec = msgspec.Raw(pod_spec(template, node))
    return pod_of("DaemonSet", owner.metadata, {"metadata": metadata, "spec": spec})


def status(owner: DaemonSet, nodes: Mapping[str, FullNode], pods: Sequence[FullPod]) -> dict[str, Any]:
    """The status of the set for these nodes and pods."""
    wanted = {name for name, node in nodes.items() if suitability(owner, node).wanted}
    alive = active(pods)
    placed = [pod for pod in alive if node_of(pod) in wanted]
    ready = sum(1 for pod in placed if pod.status.phase == "Running")
    digest = template_hash(owner.spec.template)
    return {
        "observedGeneration": owner.metadata.generation,
        "desiredNumberScheduled": len(wanted),
        "currentNumberScheduled": len({node_of(pod) for pod in placed}),
        "updatedNumberScheduled": sum(1 for pod in placed if pod.metadata.labels.get(REVISION_LABEL) == digest),
        "numberReady": ready,
        "numberAvailable": ready,
        "numberUnavailable": len(wanted) - ready,
        "numberMisscheduled": sum(1 for pod in alive if pod.spec.node_name and node_of(pod) not in wanted),
    }
