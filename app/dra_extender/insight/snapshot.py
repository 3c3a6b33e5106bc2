"""Hypothetical states of the cluster, and a pod that is scheduled in one.

`ClusterSnapshot` serves the purpose of cluster-autoscaler's ClusterSnapshot: questions try changes and drop them. It is
immutable. A change returns a new snapshot; the old snapshot is still the state before the change. A snapshot stores
only the differences from the cluster. What-if questions also replace DeviceClasses and ResourceSlices, and diagnose
pods in the changed cluster, so they use a full copy (`insight.whatif.clustercopy`).

Promises: a snapshot never changes the cluster. Changed claims and nodes replace those of the cluster. Removed pods hold
no devices, no resources and no ports. A claim that only removed pods use is not allocated. A claim is read from the
cluster once: if it changes between the turns of an answer, the answer is still about the claim that was read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import count, islice
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from dra_extender.allocation.plan import Failure
from dra_extender.api.core import Node, Pod
from dra_extender.api.resource import ResourceClaim, ResourceClaimStatus, ResourceSlice
from dra_extender.devices.overlay import Overlay
from dra_extender.devices.readonly import with_nodes
from dra_extender.limits import CLAIMS_OF_POD
from dra_extender.scheduling.claims import Unschedulable, created_names, known_claims, requests_in
from dra_extender.scheduling.feasibility import PreFilterState, node_statuses, pre_filter
from dra_extender.scheduling.nodeallocatable import Demand
from dra_extender.scheduling.noderules import (
    LABELS_OF_ONE,
    UNSCHEDULABLE,
    Obstacle,
    Port,
    ResourcesInUse,
    Used,
    Wants,
    amount_text,
    conflicting,
    counted,
    together,
)
from dra_extender.scheduling.view import View

NewNode = tuple[Node, list[ResourceSlice]]
"""A node that does not exist, and its slices."""
NODE_POOL: Final = "karpenter.sh/nodepool"  # a label of the nodes that Karpenter has created
INITIALIZED: Final = "karpenter.sh/initialized"  # a label that they get when they are ready
CLAIM: Final = 10
"""Units of work per claim or container of the pod."""


class ClusterSnapshot(Struct, frozen=True, kw_only=True):
    """`claims`: changed or new claims by namespace/name. `nodes`: changed or new nodes by name. `removed`: UIDs of pods
    that are gone. `freed`: UIDs of claims that are gone or no longer allocated. `moved`: by node name, the pods that
    come to the node.
    """

    view: View
    usage: ResourcesInUse
    overlay: Overlay
    claims: Mapping[str, ResourceClaim] = {}
    nodes: Mapping[str, Node] = {}
    removed: frozenset[str] = frozenset()
    freed: frozenset[str] = frozenset()
    moved: Mapping[str, tuple[Pod, ...]] = {}
    read: dict[str, ResourceClaim | None] = field(default_factory=dict)
    """The claims of the cluster that were read, by namespace/name; None for one that does not exist."""

    def with_claim(self, claim: ResourceClaim) -> ClusterSnapshot:
        return replace(self, claims={**self.claims, claim.metadata.key: claim})

    def without_claim(self, claim: ResourceClaim) -> ClusterSnapshot:
        """The claim is deallocated, so its devices are free."""
        return replace(self, overlay=self.overlay.without([claim]), freed=self.freed | {claim.metadata.uid})

    def with_node(self, node: Node) -> ClusterSnapshot:
        """An existing node, changed in fields that devices do not depend on."""
        return replace(self, nodes={**self.nodes, node.name: node})

    def without_pods(self, pods: Collection[Pod]) -> ClusterSnapshot:
        """These pods have ended, and claims that no other pod uses are deallocated."""
        removed = self.removed | {pod.metadata.uid for pod in pods}
        freed = [
            claim
            for claim in self._used_by(pods)
            if claim.allocation is not None
            and claim.status.reserved_for
            and all(user.uid in removed for user in claim.status.reserved_for)
        ]
        uids_freed = self.freed | {claim.metadata.uid for claim in freed}
        return replace(self, removed=removed, freed=uids_freed, overlay=self.overlay.without(freed))

    def with_pod_on(self, pod: Pod, node: str) -> ClusterSnapshot:
        """The pod runs on this node as well. Its claims stay."""
        return replace(self, moved={**self.moved, node: (*self.moved.get(node, ()), pod)})

    def _used_by(self, pods: Iterable[Pod]) -> Iterable[ResourceClaim]:
        """The claims that these pods name or own."""
        claims = (claim for pod in pods for claim in known_claims(pod, self.view.ledger))
        return {claim.metadata.uid: claim for claim in claims}.values()

    def claim(self, namespace: str, name: str) -> ResourceClaim | None:
        key = f"{namespace}/{name}"
        if key not in self.read:
            self.read[key] = self.view.ledger.get(namespace, name)
        found = self.claims.get(key) or self.read[key]
        if found is not None and found.metadata.uid in self.freed:
            return replace(found, status=ResourceClaimStatus())
        if found is not None and self.removed and any(user.uid in self.removed for user in found.status.reserved_for):
            users = tuple(user for user in found.status.reserved_for if user.uid not in self.removed)
            return replace(found, status=replace(found.status, reserved_for=users))
        return found

    def node(self, name: str) -> Node | None:
        return self.nodes.get(name) or self.view.cluster.nodes.get(name)

    def seen_by(self, view: View) -> View:
        """The view, on this state."""
        cluster = with_nodes(view.cluster, self.nodes) if self.nodes else view.cluster
        return replace(view.with_state(self.overlay), cluster=cluster, used=self.used, lookup=self.claim)

    def used(self, node: str, without: frozenset[str] = frozenset()) -> Used:
        """What the pods on the node use besides devices, those of these UIDs left out."""
        used, moved = self.usage.used(node, self.removed | without), self.moved.get(node)
        return together(used, map(counted, moved)) if moved else used

    def obstacles(self, wants: Wants, node: Node) -> Iterator[Obstacle]:
        """What keeps the pod from the node. Devices and claims are not checked."""
        used = self.used(node.name)
        for found in wants.obstacles(node, *used):
            port = conflicting(wants.ports, used[2]) if found.rule == "host port" else None
            yield found if port is None else replace(found, has=self._listener(port, node))

    def _listener(self, port: Port, node: Node) -> str:
        """The first pod on the node that has the port (namespace/name)."""
        for pod in self.usage.on(node.name):
            if pod.metadata.uid not in self.removed and conflicting((port,), self.usage.count(pod)[1]) is not None:
                return pod.metadata.key
        return ""


class SimulatedPod(Struct, frozen=True, dict=True):
    """A pod, and the snapshot in which decisions on the pod are made."""

    pod: Pod
    snapshot: ClusterSnapshot

    def on(self, snapshot: ClusterSnapshot) -> SimulatedPod:
        return SimulatedPod(self.pod, snapshot)

    @property
    def view(self) -> View:
        return self.snapshot.view

    def claim(self, name: str) -> ResourceClaim | None:
        return self.snapshot.claim(self.pod.metadata.namespace, name)

    @cached_property
    def claim_names(self) -> Mapping[str, str]:
        """The names of the pod's claims by entry of its spec. An entry is missing if its claim is not created yet."""
        created, entries = created_names(self.pod), self.pod.spec.resource_claims
        names = {entry.name: entry.resource_claim_name or created.get(entry.name) for entry in entries}
        return {entry: name for entry, name in names.items() if name}

    @cached_property
    def prefiltered(self) -> PreFilterState | Unschedulable | Failure:
        """The pod's state for node decisions, or why it has none."""
        found = self.view.claims_of(self.pod, self.snapshot.claim)
        return pre_filter(self.view, self.pod, found)

    @cached_property
    def wants(self) -> Wants:
        return self.snapshot.view.wants(self.pod)

    @cached_property
    def cost(self) -> int:
        """Units of work for `prefiltered`."""
        parts = len(self.pod.spec.resource_claims) + len(self.pod.spec.containers)
        claims = map(self.claim, islice(dict.fromkeys(self.claim_names.values()), CLAIMS_OF_POD))
        requests = sum(requests_in(claim) for claim in claims if claim is not None)
        return parts * CLAIM + requests + self.wants.cost

    def cost_of(self, name: str) -> int:
        """Units of work for the obstacles of one node."""
        node = self.snapshot.node(name)
        taints = len(node.spec.taints) if node is not None else 0
        return self.wants.cost + self.snapshot.usage.size(name) + taints

    def obstacles(self, node: Node) -> Iterator[Obstacle]:
        """What keeps the pod from the node. Devices that have to be allocated are not checked."""
        yield from self.snapshot.obstacles(self.wants, node)
        if isinstance(self.prefiltered, PreFilterState):
            for claim, usable in self.prefiltered.usable_on:
                if not usable(node):
                    yield Obstacle("claim elsewhere", claim.metadata.key, usable.only or "")

    def obstacles_of_devices(self, node: Node, demand: Demand) -> Iterator[Obstacle]:
        """What keeps the pod from the node with devices that take something of it."""
        if demand.problem:
            yield Obstacle("node allocatable", demand.problem)
        for name, asked, left in demand.short(node, self.snapshot.used(node.name)[0]):
            yield Obstacle("node allocatable", name, amount_text(name, asked), amount_text(name, left))

    def excluding_rule(self) -> str:
        """The rule that keeps the pod from all nodes (a scheduling gate, or its scheduler); empty if none does."""
        if self.pod.spec.scheduling_gates:
            return "scheduling gate"
        served = self.view.config.scheduler_names
        return "scheduler" if served and self.scheduler not in served else ""

    @property
    def scheduler(self) -> str:
        """The name of the pod's scheduler."""
        return self.pod.spec.scheduler_name or "default-scheduler"

    def fitting(self, view: View, names: Sequence[str]) -> list[str]:
        """The nodes that have devices for the pod; none if the decision on one of them is an error. Undecided nodes may
        be missing. `view` has the budget of this turn. Raises TurnSpent and Deferred.
        """
        if not isinstance(self.prefiltered, PreFilterState):
            return []
        statuses = node_statuses(self.snapshot.seen_by(view), self.prefiltered, names)
        return [] if statuses.error else statuses.fits


def snapshot(view: View, claims: Iterable[ResourceClaim] = (), usage: ResourcesInUse | None = None) -> ClusterSnapshot:
    """The cluster now, and `claims` that do not exist yet. `usage`: the pods by node, if the caller has them."""
    return ClusterSnapshot(
        view=replace(view, decisions=view.decisions.with_own_results()),
        usage=ResourcesInUse(view.pods) if usage is None else usage,
        overlay=view.overlay(),
        claims={claim.metadata.key: claim for claim in claims},
    )


def opened(view: View, name: str) -> NewNode:
    """The existing node, not cordoned, and its slices."""
    return uncordoned(view.cluster.nodes[name]), list(view.cluster.inventory.own_slices(name))


def examples_of_nodes(view: View) -> dict[str, str]:
    """What new nodes may be like: each existing node, and by NodePool of Karpenter its first node."""
    nodes, found = view.cluster.nodes, dict[str, str]()
    for name, node in nodes.items():
        if pool := node.metadata.labels.get(NODE_POOL):
            found[pool] = min(name, found.get(pool, name))
    return found | {name: name for name in nodes}


def nodes_like(node: Node, slices: Sequence[ResourceSlice], used: set[str]) -> Iterator[NewNode]:
    """Nodes like this one, which have names of their own. Adds the names to `used`."""
    suffixes = (f"-like-{number}" for number in count(1))
    for suffix in (suffix for suffix in suffixes if node.name + suffix not in used):
        used.add(node.name + suffix)
        yield node_like(node, slices, suffix)


def node_like(node: Node, slices: Iterable[ResourceSlice], suffix: str) -> NewNode:
    """An empty node with the same devices. All names get the suffix, those of its pools included."""
    name = node.name + suffix
    labels = {key: name if key in LABELS_OF_ONE else value for key, value in node.metadata.labels.items()}
    metadata = replace(node.metadata, name=name, uid=node.metadata.uid + suffix, labels=labels)
    return replace(node, metadata=metadata), [_renamed(item, name, suffix) for item in slices]


def uncordoned(node: Node) -> Node:
    """Without the taint that the node controller then removes."""
    taints = tuple(taint for taint in node.spec.taints if taint.key != UNSCHEDULABLE.key)
    return replace(node, spec=replace(node.spec, unschedulable=False, taints=taints))


def _renamed(item: ResourceSlice, node: str, suffix: str) -> ResourceSlice:
    pool = replace(item.spec.pool, name=item.spec.pool.name + suffix)
    metadata = replace(item.metadata, name=item.metadata.name + suffix)
    return replace(item, metadata=metadata, spec=replace(item.spec, node_name=node, pool=pool))
