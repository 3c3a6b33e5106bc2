"""The in-tree filters that the embedded scheduler imitates: what a node must be and have for a pod, devices apart.

Unschedulable nodes, taints, nodeName, node selector and affinity, and room for cpu, memory, other resources and pods.
Texts are those of Kubernetes 1.36; pure functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from dra_extender.api.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Taint
from dra_extender.api.tolerations import tolerates
from embedded_cluster.objects import FullNode, FullPod
from embedded_cluster.scheduler.queue import Refuser

UNSCHEDULABLE_TAINT = "node.kubernetes.io/unschedulable"

Amounts = Mapping[str, int]
"""Resource -> amount in nano units."""


class NodeUsage(msgspec.Struct):
    """What the pods of a node ask for, bound and assumed ones. Changed by `take` and `give`."""

    amounts: dict[str, int] = {}
    pods: int = 0
    version: int = 0
    """Grows with every change."""

    def take(self, asked: Amounts) -> None:
        self.version += 1
        self.pods += 1
        for name, amount in asked.items():
            self.amounts[name] = self.amounts.get(name, 0) + amount

    def give(self, asked: Amounts) -> None:
        self.version += 1
        self.pods -= 1
        for name, amount in asked.items():
            self.amounts[name] = self.amounts.get(name, 0) - amount


class NodeRefusal(msgspec.Struct, frozen=True):
    """Why a node is not for the pod. `resolvable`: evicting other pods could change it."""

    reasons: tuple[str, ...]
    refuser: Refuser
    resolvable: bool = False


def obstacle(
    pod: FullPod, asked: Amounts, node: FullNode, room: NodeUsage, by_claim: Callable[[str], bool]
) -> NodeRefusal | None:
    """The first in-tree filter that refuses the node, or None. `by_claim`: a resource that a DeviceClass provides."""
    if node.spec.unschedulable and not _tolerated(pod, Taint(UNSCHEDULABLE_TAINT, effect="NoSchedule")):
        return NodeRefusal(("node(s) were unschedulable",), "node")
    if pod.spec.node_name and pod.spec.node_name != node.name:
        return NodeRefusal(("node(s) didn't match the requested node name",), "node")
    if untolerated(pod, node.spec.taints):
        return NodeRefusal(("node(s) had untolerated taint(s)",), "node")
    if not selected(pod, node):
        return NodeRefusal(("node(s) didn't match Pod's node affinity/selector",), "node")
    return _lack(asked, node, room, by_claim)


def untolerated(pod: FullPod, taints: Iterable[Taint]) -> list[Taint]:
    """The taints that keep the pod away."""
    return [taint for taint in taints if taint.effect in ("NoSchedule", "NoExecute") and not _tolerated(pod, taint)]


def _tolerated(pod: FullPod, taint: Taint) -> bool:
    return any(tolerates(toleration, taint) for toleration in pod.spec.tolerations)


def _lack(asked: Amounts, node: FullNode, room: NodeUsage, by_claim: Callable[[str], bool]) -> NodeRefusal | None:
    reasons, resolvable = [], True
    allocatable = node.status.allocatable
    pods = allocatable.get("pods")
    if pods is not None and room.pods + 1 > pods.value():
        reasons.append("Too many pods")
    for name, amount in asked.items():
        offered = allocatable.get(name)
        if amount == 0 or (offered is None and by_claim(name)):
            continue
        most = offered.nano if offered is not None else 0
        if amount > most - room.amounts.get(name, 0):
            reasons.append(f"Insufficient {name}")
            resolvable = resolvable and amount <= most
    return NodeRefusal(tuple(reasons), "resources", resolvable) if reasons else None


# --- labels


def selected(pod: FullPod, node: FullNode) -> bool:
    """spec.nodeSelector and the required node affinity."""
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in pod.spec.node_selector.items()):
        return False
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
    return required is None or matches(required, labels, node.name)


def matches(selector: NodeSelector, labels: Mapping[str, str], name: str) -> bool:
    """Terms are ORed; a term without requirements matches nothing."""
    return any(_term_matches(term, labels, name) for term in selector.node_selector_terms)


def _term_matches(term: NodeSelectorTerm, labels: Mapping[str, str], name: str) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": name}
    return all(_met(requirement, labels) for requirement in term.match_expressions) and all(
        _met(requirement, fields) for requirement in term.match_fields
    )


def _met(requirement: NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    operator = requirement.operator
    if operator == "In":
        return value is not None and value in requirement.values
    if operator == "NotIn":
        return value is None or value not in requirement.values
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    if operator in ("Gt", "Lt") and value is not None and len(requirement.values) == 1:
        try:
            have, limit = int(value), int(requirement.values[0])
        except ValueError:
            return False
        return have > limit if operator == "Gt" else have < limit
    return False


# --- scores


def least_allocated(asked: Amounts, node: FullNode, room: NodeUsage) -> int:
    """0 to 100: how much of cpu and memory is left, as NodeResourcesFit scores; spreads pods over equal nodes."""
    shares = []
    for name in ("cpu", "memory"):
        offered = node.status.allocatable.get(name)
        if offered is not None and offered.nano > 0:
            used = room.amounts.get(name, 0) + asked.get(name, 0)
            # Pods that ask for nothing still count, as in kube-scheduler: 100m and 200Mi.
            used += (room.pods + 1) * (100_000_000 if name == "cpu" else 200 * 2**20 * 10**9)
            shares.append(max(0, offered.nano - used) * 100 // offered.nano)
    return sum(shares) // len(shares) if shares else 0


def sample_size(nodes: int, percentage: int) -> int:
    """How many feasible nodes kube-scheduler looks for before it stops."""
    if nodes < 100:
        return nodes
    if percentage <= 0:
        percentage = max(50 - nodes // 125, 5)
    return min(nodes, max(nodes * percentage // 100, 100))


def text(nodes: int, refusals: Iterable[tuple[str, ...]], preemption: str) -> str:
    """The message of a pod that fits nowhere: reasons counted and sorted, then what preemption said, if anything."""
    if nodes == 0:
        return "no nodes available to schedule pods"
    counts: dict[str, int] = {}
    for reasons in refusals:
        for reason in reasons:
            counts[reason] = counts.get(reason, 0) + 1
    histogram = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
    said = f"0/{nodes} nodes are available:" + (f" {histogram}." if histogram else "")
    return f"{said} preemption: {preemption}" if preemption else said


def no_preemption(nodes: int, resolvable: int) -> str:
    """What preemption says when it found no victims: `resolvable` nodes have none, the others would not be helped."""
    counts = (
        (nodes - resolvable, "Preemption is not helpful for scheduling"),
        (resolvable, "No preemption victims found for incoming pod"),
    )
    reasons = ", ".join(sorted(f"{count} {said}" for count, said in counts if count))
    return f"0/{nodes} nodes are available: {reasons}."
