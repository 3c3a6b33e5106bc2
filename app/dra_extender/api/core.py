"""core/v1: nodes, node selectors, pods and bindings, as far as device allocation reads or writes them; and what a pod
requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

import msgspec
from msgspec.structs import force_setattr

from dra_extender.api.meta import Condition, Object, ObjectMeta
from dra_extender.api.quantity import Quantity
from dra_extender.limits import PARTS_OF_POD

FIELD_NODE_NAME = "metadata.name"

MIRROR: Final = "kubernetes.io/config.mirror"
"""Annotation of mirror pods. Evicting a mirror pod does not stop its static pod."""


class NodeSelectorRequirement(Object, frozen=True, gc=False):
    """`operator` is one of In, NotIn, Exists, DoesNotExist, Gt, Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Object, frozen=True, gc=False):
    """Requirements are ANDed; a term without any matches nothing."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(Object, frozen=True, gc=False):
    """Terms are ORed."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()

    @property
    def size(self) -> int:
        """The cost of matching, in requirements, or terms if these are more; eight values cost as much as one. Where no
        pod may have as many terms, nothing but them is counted.
        """
        terms = self.node_selector_terms
        if len(terms) > PARTS_OF_POD:
            return len(terms)
        requirements = (found for term in terms for found in (*term.match_expressions, *term.match_fields))
        return max(len(terms), sum(1 + len(found.values) // 8 for found in requirements))


LARGE_SELECTOR: Final = NodeSelector((NodeSelectorTerm(),) * (PARTS_OF_POD + 1))
"""In place of the node affinity of a pod with more requirements than are compared with nodes."""


class Taint(Object, frozen=True, gc=False):
    """Of a node; keeps pods away that do not tolerate it when its effect is NoSchedule or NoExecute."""

    key: str
    value: str = ""
    effect: str = ""

    def __str__(self) -> str:
        return taint_text(self.key, self.value, self.effect)


def taint_text(key: str, value: str, effect: str) -> str:
    """A taint as kubectl writes it: key=value:effect."""
    return f"{key}={value}:{effect}" if value else f"{key}:{effect}"


class NodeSpec(Object, frozen=True, gc=False):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeStatus(Object, frozen=True, gc=False):
    allocatable: dict[str, Quantity] = {}
    declared_features: tuple[str, ...] = ()


class Node(Object, frozen=True, gc=False):
    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def may_skip_operations(self) -> bool:
        """Whether its kubelet does without the operations that a slice skips."""
        return "DRAOptionalNodeOperations" in self.status.declared_features


class PodResourceClaim(Object, frozen=True, gc=False):
    """One entry of pod.spec.resourceClaims: exactly one of the two names is set."""

    name: str
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class ContainerClaim(Object, frozen=True, gc=False):
    """A claim that the container uses: `name` is the name of its entry in pod.spec.resourceClaims."""

    name: str = ""


class ResourceRequirements(Object, frozen=True, gc=False):
    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}
    claims: tuple[ContainerClaim, ...] = ()


class ContainerPort(Object, frozen=True, gc=False):
    host_port: int = 0
    protocol: str = ""
    host_ip: str = msgspec.field(default="", name="hostIP")


class Container(Object, frozen=True, gc=False):
    name: str = ""
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str = ""
    resources: ResourceRequirements = ResourceRequirements()

    def __post_init__(self) -> None:
        if len(self.ports) > PARTS_OF_POD:
            host_ports_first = sorted(self.ports, key=lambda port: not port.host_port)
            force_setattr(self, "ports", tuple(host_ports_first[: PARTS_OF_POD + 1]))


class PodSchedulingGroup(Object, frozen=True, gc=False):
    pod_group_name: str | None = None


class Toleration(Object, frozen=True, gc=False):
    """Of the taints of nodes."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class Present(Object, frozen=True, gc=False):
    """Something of which only matters that it is there."""


class NodeAffinity(Object, frozen=True, gc=False):
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[Present, ...] = ()

    def __post_init__(self) -> None:
        required = self.required_during_scheduling_ignored_during_execution
        if required is not None and required.size > PARTS_OF_POD:
            force_setattr(self, "required_during_scheduling_ignored_during_execution", LARGE_SELECTOR)


class PodAffinity(Object, frozen=True, gc=False):
    """Or anti-affinity."""

    required_during_scheduling_ignored_during_execution: tuple[Present, ...] = ()
    preferred_during_scheduling_ignored_during_execution: tuple[Present, ...] = ()


class Affinity(Object, frozen=True, gc=False):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(Object, frozen=True, gc=False):
    """`when_unsatisfiable` is DoNotSchedule or ScheduleAnyway."""

    when_unsatisfiable: str = ""


class Volume(Object, frozen=True, gc=False):
    """Of a pod, as far as it may keep the pod from nodes."""

    persistent_volume_claim: Present | None = None
    ephemeral: Present | None = None


class PodSchedulingGate(Object, frozen=True, gc=False):
    name: str


class PodSpec(Object, frozen=True, gc=False):
    node_name: str = ""
    scheduler_name: str = ""
    priority: int = 0
    preemption_policy: str = ""
    host_network: bool = False
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: dict[str, Quantity] = {}
    resources: ResourceRequirements = ResourceRequirements()
    resource_claims: tuple[PodResourceClaim, ...] = ()
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    volumes: tuple[Volume, ...] = ()
    scheduling_gates: tuple[PodSchedulingGate, ...] = ()
    scheduling_group: PodSchedulingGroup | None = None
    termination_grace_period_seconds: int | None = None

    def __post_init__(self) -> None:
        for name in ("tolerations", "scheduling_gates"):
            if len(parts := getattr(self, name)) > PARTS_OF_POD:  # one more, so that it counts as too large
                force_setattr(self, name, parts[: PARTS_OF_POD + 1])
        if len(self.node_selector) > PARTS_OF_POD:
            force_setattr(self, "node_selector", dict(islice(self.node_selector.items(), PARTS_OF_POD + 1)))


class PodResourceClaimStatus(Object, frozen=True, gc=False):
    """`resource_claim_name` is None when the entry needs no claim."""

    name: str
    resource_claim_name: str | None = None


class ContainerExtendedResourceRequest(Object, frozen=True, gc=False):
    container_name: str
    resource_name: str
    request_name: str


class PodExtendedResourceClaimStatus(Object, frozen=True, gc=False):
    request_mappings: tuple[ContainerExtendedResourceRequest, ...] = ()
    resource_claim_name: str = ""


class NodeAllocatableMappedResources(Object, frozen=True, gc=False, omit_defaults=True):
    name: str = ""
    quantity: Quantity | None = None


class NodeAllocatableOverheadResources(Object, frozen=True, gc=False, omit_defaults=True):
    name: str = ""
    per_pod: Quantity | None = None
    per_container: Quantity | None = None


class NodeAllocatableResourceClaimStatus(Object, frozen=True, gc=False, omit_defaults=True):
    """What the devices of a claim take of the node, for the pod and for each of the `containers` that use the claim."""

    resource_claim_name: str = ""
    containers: tuple[str, ...] = ()
    mapping: tuple[NodeAllocatableMappedResources, ...] = ()
    overhead: tuple[NodeAllocatableOverheadResources, ...] = ()

    def amounts(self, containers: int) -> Iterator[tuple[str, int]]:
        """(resource, nano units) for this number of containers."""
        for mapped in self.mapping:
            yield mapped.name, mapped.quantity.nano if mapped.quantity is not None else 0
        for each in self.overhead:
            yield each.name, each.per_pod.nano if each.per_pod is not None else 0
            yield each.name, each.per_container.nano * containers if each.per_container is not None else 0


class PodStatus(Object, frozen=True, gc=False):
    phase: str = ""
    nominated_node_name: str = ""
    start_time: str | None = None
    conditions: tuple[Condition, ...] = ()
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None
    node_allocatable_resource_claim_statuses: tuple[NodeAllocatableResourceClaimStatus, ...] = ()


class Pod(Object, frozen=True, gc=False):
    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def finished(self) -> bool:
        """True when the pod no longer needs its claims: it has ended, or is deleted before it got a node."""
        return self.status.phase in ("Succeeded", "Failed") or bool(
            self.metadata.deletion_timestamp and not self.spec.node_name
        )

    @property
    def group_name(self) -> str:
        """The name of the PodGroup that the pod belongs to; empty without one."""
        group = self.spec.scheduling_group
        return (group.pod_group_name if group is not None else None) or ""


class ObjectReference(Object, frozen=True, gc=False):
    kind: str = ""
    name: str = ""
    namespace: str = ""
    uid: str = ""
    api_version: str = ""
    resource_version: str = ""


def requested(pod: Pod) -> dict[str, int]:
    """By resource, in nano units: what the pod itself requests, else what its containers and devices do; and the
    overhead. Rules: Kubernetes 1.37, PodRequests of component-helpers/resource/helpers.go.
    """
    total = of_containers(pod, "requests")
    own = pod.spec.resources.requests
    total |= {name: quantity.nano for name, quantity in own.items() if is_pod_level(name)}
    _add(total, pod.spec.overhead)
    return total


def is_pod_level(resource: str) -> bool:
    """Whether a pod, besides its containers, can request the resource."""
    return resource in ("cpu", "memory") or resource.startswith("hugepages-")


def of_containers(pod: Pod, kind: str) -> dict[str, int]:
    """The requests or limits by resource, in nano units: containers together or the largest init container, sidecars
    with both, and what the pod's status says that its devices take of the node. Linear in the containers.
    """
    total: dict[str, int] = {}
    for container in pod.spec.containers:
        _add(total, getattr(container.resources, kind))
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in pod.spec.init_containers:
        for name, quantity in getattr(container.resources, kind).items():
            amount = sidecars.get(name, 0) + quantity.nano
            peak[name] = max(peak.get(name, 0), amount)
            if container.restart_policy == "Always":
                sidecars[name] = amount
    for name, amount in peak.items():
        total[name] = max(total.get(name, 0) + sidecars.get(name, 0), amount)
    for status in pod.status.node_allocatable_resource_claim_statuses:
        for name, amount in status.amounts(len(status.containers)):
            total[name] = total.get(name, 0) + amount
    return total


def _add(total: dict[str, int], more: Mapping[str, Quantity]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount.nano


class LabelSelectorRequirement(Object, frozen=True, gc=False):
    """`operator` is one of In, NotIn, Exists, DoesNotExist."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(Object, frozen=True, gc=False):
    """Labels and requirements are ANDed; without any it selects everything."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


class PodDisruptionBudgetSpec(Object, frozen=True, gc=False):
    """Without a selector the budget is about no pod."""

    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(Object, frozen=True, gc=False):
    """`disrupted_pods`: by name, pods whose eviction has been granted and which are not gone yet."""

    disruptions_allowed: int = 0
    disrupted_pods: dict[str, str] = {}


class PodDisruptionBudget(Object, frozen=True, gc=False):
    metadata: ObjectMeta
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()
