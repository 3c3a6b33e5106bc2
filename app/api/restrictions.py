"""core/v1: what says which nodes a pod may be on. The service leaves that to kube-scheduler and does not read it.

Source of fields: Kubernetes 1.36, staging/src/k8s.io/api/core/v1/types.go.
"""

from __future__ import annotations

from app.api.core import Node, NodeSelector, NodeSelectorTerm, NodeSpec, Pod, PodSpec
from app.api.meta import Object


class Taint(Object, frozen=True, gc=False):
    """core/v1 Taint of a node."""

    key: str
    value: str = ""
    effect: str = ""


class Toleration(Object, frozen=True, gc=False):
    """core/v1 Toleration of a pod."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class PreferredSchedulingTerm(Object, frozen=True, gc=False):
    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Object, frozen=True, gc=False):
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredSchedulingTerm, ...] = ()


class Affinity(Object, frozen=True, gc=False):
    node_affinity: NodeAffinity | None = None


class RestrictedPodSpec(PodSpec, frozen=True, gc=False):
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()


class RestrictedPod(Pod, frozen=True, gc=False):
    """A pod with all that."""

    spec: RestrictedPodSpec = RestrictedPodSpec()


class RestrictedNodeSpec(NodeSpec, frozen=True, gc=False):
    taints: tuple[Taint, ...] = ()


class RestrictedNode(Node, frozen=True, gc=False):
    """A node with its taints."""

    spec: RestrictedNodeSpec = RestrictedNodeSpec()


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """core/v1 Toleration.ToleratesTaint."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value
