"""Kubernetes objects as the actors of the embedded cluster read them: more fields than device allocation needs.

Everything is typed and frozen; what is only passed on (pod templates, claim templates) stays JSON.
"""

from __future__ import annotations

import msgspec

from dra_extender.api.core import Container, LabelSelector, Node, Pod, PodSpec, PodStatus
from dra_extender.api.decoding import decode
from dra_extender.api.meta import Condition, Object, ObjectMeta
from dra_extender.api.resource import GROUP
from dra_extender.kube.resources import Resource


class EnvVar(Object, frozen=True, gc=False):
    name: str = ""
    value: str = ""


class FullContainer(Container, frozen=True, gc=False):
    image: str = ""
    env: tuple[EnvVar, ...] = ()


class FullPodSpec(PodSpec, frozen=True, gc=False):
    """What scheduler, kubelet and driver read of a pod's spec."""

    containers: tuple[FullContainer, ...] = ()


class ContainerRunning(Object, frozen=True, gc=False):
    started_at: str = ""


class ContainerState(Object, frozen=True, gc=False):
    """As far as it tells since when a container runs."""

    running: ContainerRunning | None = None


class ContainerStatus(Object, frozen=True, gc=False):
    name: str = ""
    state: ContainerState = ContainerState()


class FullPodStatus(PodStatus, frozen=True, gc=False):
    container_statuses: tuple[ContainerStatus, ...] = ()


class FullPod(Pod, frozen=True, gc=False):
    spec: FullPodSpec = FullPodSpec()
    status: FullPodStatus = FullPodStatus()

    @property
    def condition(self) -> Condition | None:
        """PodScheduled, if it is there."""
        return next((found for found in self.status.conditions if found.type == "PodScheduled"), None)


class FullNode(Node, frozen=True, gc=False):
    """As decisions read it."""


class TemplateMeta(Object, frozen=True, gc=False):
    """The metadata inside a template."""

    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class PodTemplate(Object, frozen=True):
    metadata: TemplateMeta = TemplateMeta()
    spec: msgspec.Raw = msgspec.Raw(b"{}")


class RollingUpdate(Object, frozen=True, gc=False):
    """Pods, or a percentage of the wanted pods."""

    max_surge: int | str = "25%"
    max_unavailable: int | str = "25%"


class RolloutStrategy(Object, frozen=True):
    type: str = "RollingUpdate"
    rolling_update: RollingUpdate = RollingUpdate()


class DeploymentSpec(Object, frozen=True):
    replicas: int = 1
    selector: LabelSelector = LabelSelector()
    template: PodTemplate = PodTemplate()
    strategy: RolloutStrategy = RolloutStrategy()
    revision_history_limit: int = 10
    paused: bool = False


class Deployment(Object, frozen=True):
    metadata: ObjectMeta
    spec: DeploymentSpec = DeploymentSpec()


class ReplicaSetSpec(Object, frozen=True):
    replicas: int = 1
    selector: LabelSelector = LabelSelector()
    template: PodTemplate = PodTemplate()


class ReplicaSetStatus(Object, frozen=True, gc=False):
    replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0


class ReplicaSet(Object, frozen=True):
    metadata: ObjectMeta
    spec: ReplicaSetSpec = ReplicaSetSpec()
    status: ReplicaSetStatus = ReplicaSetStatus()


class DaemonSetSpec(Object, frozen=True):
    selector: LabelSelector = LabelSelector()
    template: PodTemplate = PodTemplate()


class DaemonSet(Object, frozen=True):
    metadata: ObjectMeta
    spec: DaemonSetSpec = DaemonSetSpec()


def controlled_by(kind: str, owner: ObjectMeta) -> dict[str, object]:
    """The reference to a controller, for what it makes."""
    return {
        "apiVersion": "apps/v1", "kind": kind, "name": owner.name, "uid": owner.uid, "controller": True,
        "blockOwnerDeletion": True,
    }  # fmt: skip


class ClaimTemplateSpec(Object, frozen=True):
    metadata: TemplateMeta = TemplateMeta()
    spec: msgspec.Raw = msgspec.Raw(b"{}")


class ClaimTemplate(Object, frozen=True):
    """resource.k8s.io ResourceClaimTemplate; its spec is copied into claims as it is."""

    metadata: ObjectMeta
    spec: ClaimTemplateSpec = ClaimTemplateSpec()


def _pod(data: bytes | msgspec.Raw) -> FullPod:
    return decode(FullPod, data)


def _node(data: bytes | msgspec.Raw) -> FullNode:
    return decode(FullNode, data)


def _deployment(data: bytes | msgspec.Raw) -> Deployment:
    return decode(Deployment, bytes(data))


def _replica_set(data: bytes | msgspec.Raw) -> ReplicaSet:
    return decode(ReplicaSet, bytes(data))


def _daemon_set(data: bytes | msgspec.Raw) -> DaemonSet:
    return decode(DaemonSet, bytes(data))


def _claim_template(data: bytes | msgspec.Raw) -> ClaimTemplate:
    return decode(ClaimTemplate, bytes(data))


PODS: Resource[FullPod] = Resource("", "v1", "pods", "Pod", _pod)
NODES: Resource[FullNode] = Resource("", "v1", "nodes", "Node", _node)
DEPLOYMENTS: Resource[Deployment] = Resource("apps", "v1", "deployments", "Deployment", _deployment)

REPLICA_SETS: Resource[ReplicaSet] = Resource("apps", "v1", "replicasets", "ReplicaSet", _replica_set)
DAEMON_SETS: Resource[DaemonSet] = Resource("apps", "v1", "daemonsets", "DaemonSet", _daemon_set)
CLAIM_TEMPLATES: Resource[ClaimTemplate] = Resource(
    GROUP, "v1", "resourceclaimtemplates", "ResourceClaimTemplate", _claim_template
)
