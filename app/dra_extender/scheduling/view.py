"""The state of the cluster as decisions and insight read it.

Promises: read-only. Reading changes nothing: it forgets no refusal, requeues no pod and records no time. The state is
live: it changes between two awaits when the watches deliver events.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence, Set
from typing import Protocol

import msgspec

from dra_extender.allocation.budget import WorkBudget
from dra_extender.allocation.constraints import Values
from dra_extender.allocation.decisions import Decisions
from dra_extender.api.core import Pod
from dra_extender.api.features import FeatureGates
from dra_extender.api.groups import GroupKey
from dra_extender.api.meta import ObjectKey
from dra_extender.api.resource import Device, DeviceRequestAllocationResult, ResourceClaim
from dra_extender.devices.audit import PER_DEVICE, node_of
from dra_extender.devices.overlay import Overlay, Planned
from dra_extender.devices.readonly import ReadOnlyCluster, ReadOnlyLedger
from dra_extender.limits import CLAIMS_OF_GROUP
from dra_extender.placement.placement import Placement
from dra_extender.scheduling import extended
from dra_extender.scheduling.claims import Lookup, Unschedulable, claim_names, consumer, resolve_claims
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.noderules import Used, Wants
from dra_extender.scheduling.ports import Clock


class KnownPods(Protocol):
    """The pods as far as they are known. See `Pods`."""

    def get(self, uid: str) -> Pod | None: ...
    def named(self, namespace: str, name: str) -> Pod | None: ...
    def is_terminating(self, uid: str) -> bool: ...
    @property
    def lowest_priority(self) -> int | None: ...
    @property
    def watched(self) -> int: ...
    def members(self, group: GroupKey) -> Sequence[Pod]: ...
    def in_group(self, group: GroupKey) -> int: ...
    def __iter__(self) -> Iterator[Pod]: ...
    def __len__(self) -> int: ...


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What can be known at this moment. `binding` and `clearing` are live, too."""

    cluster: ReadOnlyCluster
    decisions: Decisions
    pods: KnownPods
    clock: Clock
    config: SchedulingConfig
    resources: extended.ResourceNames
    binding: Mapping[str, str] = {}
    """By pod UID: the node of a bind that is under way."""
    used: Callable[[str, frozenset[str]], Used] | None = None
    """What the pods on a node use, those of these UIDs left out; pods that are being bound count. None: add up
    `pods`.
    """
    leaving: frozenset[str] = frozenset()
    """UIDs of pods that count as gone; `state` says what that frees of devices."""
    clearing: Set[str] = frozenset()
    """UIDs of claims whose allocation is being released."""
    placement: Placement | None = None
    """What chooses among nodes and devices that fit; None: the first devices, and no preference for a node."""
    budgets: Callable[[], Iterator[WorkBudget]] = lambda: iter(WorkBudget, None)
    """The budgets of one question, turn by turn."""
    is_abandoned: Callable[[ResourceClaim], bool] = lambda claim: False
    """True when no bind of any replica relies on the claim's allocation any more."""
    kept: Callable[[Pod], Sequence[Planned]] = lambda pod: ()
    """The devices that the pod must not use, because preemptors or members of gangs get them."""
    values: Callable[[Pod], Values] = lambda pod: ()
    """The values that the devices of the pod must have, because the other pods of its gang have them."""
    is_planned: Callable[[str], bool] = lambda uid: False
    """True when the plan of a gang has a node for the pod of this UID."""
    preempted: Callable[[ResourceClaim, Pod], bool] = lambda claim, pod: False
    """True when a preemptor that this pod must not displace gets the claim's devices, or the claim itself."""
    set_aside: Callable[[Pod, Sequence[ResourceClaim]], str] = lambda pod, claims: ""
    """Why nothing may be decided on a pod with these claims; empty when it may."""
    lookup: Lookup | None = None
    """Where claims are known, instead of the ledger."""
    state: Overlay | None = None
    """The hypothetical state that questions are about; None: the state as it is."""

    @property
    def features(self) -> FeatureGates:
        return self.cluster.features

    @property
    def ledger(self) -> ReadOnlyLedger:
        return self.cluster.ledger

    def with_budget(self, budget: WorkBudget) -> View:
        """The same view with a work budget: its decisions may raise TurnSpent and Deferred."""
        return msgspec.structs.replace(self, decisions=self.decisions.with_budget(budget))

    def with_pod(self, pod: Pod) -> View:
        """The same for this pod: devices that are kept for other pods count as allocated."""
        found, values = self.holding(self.kept(pod)), self.values(pod)
        return found.with_values(values) if values else found

    def with_values(self, values: Values) -> View:
        """The same, if all devices must have these values."""
        return msgspec.structs.replace(self, decisions=self.decisions.with_values(values))

    def holding(self, plans: Sequence[Planned]) -> View:
        """The same, if the devices of these plans are allocated. Plans of deleted claims are left out."""
        state = self.overlay()
        kept = [each for each in plans if not (state.is_decided(each[0]) or self._is_deleted(each[0]))]
        return self.with_state(state.holding(kept)) if kept else self

    def _is_deleted(self, claim: ResourceClaim) -> bool:
        """A claim without a UID, or one for extended resources, does not exist yet."""
        uid = claim.metadata.uid
        return bool(uid) and self.ledger.by_uid(uid) is None and claim.metadata.name != extended.SYNTHETIC_NAME

    def with_state(self, state: Overlay) -> View:
        """The same, with decisions on this hypothetical state."""
        return msgspec.structs.replace(self, state=state, decisions=self.decisions.with_state(state))

    def overlay(self) -> Overlay:
        """The state that decisions are made on. Change it, and pass the result to `with_state`."""
        return self.state or Overlay(self.cluster)

    def claims_of(self, pod: Pod, lookup: Lookup | None = None) -> tuple[ResourceClaim, ...] | Unschedulable:
        """The claims that the pod names, each once. `lookup`: as the field of this name."""
        found = resolve_claims(pod, lookup or self.lookup or self.ledger.get, self.cluster)
        reason = "" if isinstance(found, Unschedulable) else self.set_aside(pod, found)
        return Unschedulable(reason) if reason else found

    def in_flight(self, claim: ResourceClaim) -> bool:
        """True while the claim is about to be allocated or deallocated."""
        uid = claim.metadata.uid
        return uid in self.clearing or (claim.allocation is None and self.ledger.held(uid) is not None)

    def is_preempted(self, claim: ResourceClaim, pod: Pod) -> bool:
        """True when the pod must not use the claim, because a preemptor gets its devices, or the claim itself."""
        return self.preempted(claim, pod) and not claim.reserved_for(consumer(claim, pod, self.cluster).uid)

    def may_conflict(self, claim: ResourceClaim) -> bool:
        """True when the claim has rivals or is doubtful. Charges what it looks at, once per call. Raises TurnSpent."""
        budget, key = self.decisions.budget, self.ledger.doubts_key(claim)
        found: dict[Hashable, bool] = budget.found

        def compare(work: int) -> bool:
            is_due = self.bound_user(claim) is None  # what runs was verified; the driver may have lowered a limit since
            budget.spend(0, work if is_due else 0)
            return is_due

        if key not in found:
            budget.spend(PER_DEVICE * (len(claim.allocation.devices.results) if claim.allocation is not None else 0))
            found[key] = self.ledger.has_rivals(claim, compare) or self.is_unverified(claim)
            budget.settle()
        return found[key]

    def is_unverified(self, claim: ResourceClaim) -> bool:
        """True when it is unknown whether the allocation exceeds counters or capacity, or what it takes of the node;
        not if a pod runs with it. Linear in the claim's devices, its consumers, and the devices of its pools in use.
        """
        takes = self.features.DRANodeAllocatableResources
        unknown = takes and any(device is None for _, device in self.published(claim))
        return (unknown or self.ledger.is_unverifiable(claim)) and self.bound_user(claim) is None

    def published(self, claim: ResourceClaim) -> list[tuple[DeviceRequestAllocationResult, Device | None]]:
        """The allocated devices as the node of the claim sees them; None for one that is not published now."""
        pools, node = self.cluster.inventory.pools, node_of(claim.allocation)
        results = claim.allocation.devices.results if claim.allocation is not None else ()
        found = ((result, pools.get(result.id[:2])) for result in results)
        return [(result, pool.device(result.device, node) if pool is not None else None) for result, pool in found]

    def bound_user(self, claim: ResourceClaim) -> Pod | None:
        """A bound pod that the claim is reserved for by name, on the node of its devices: kube-controller-manager
        reserves claims also for pods that users create with a node, which may be another one.
        """
        pods = (self.pods.get(entry.uid) for entry in claim.status.reserved_for if entry.resource == "pods")
        bound, node = (pod for pod in pods if pod is not None and pod.spec.node_name), node_of(claim.allocation)
        return next((pod for pod in bound if node in ("", pod.spec.node_name)), None)

    def users(self, claim: ResourceClaim, names: dict[str, Set[str]] | None = None) -> list[Pod | None]:
        """The pods that the claim is reserved for; None for one that is not known. If it is reserved for a PodGroup:
        the pods of the group that name the claim and are not finished, or None if there are none or the group has too
        many, and None if a pod of the namespace cannot be decoded. Linear in the pods of the group, and in the names of
        their claims, which are added to `names`, by UID of the pod, unless known there.
        """
        names = {} if names is None else names
        namespace = claim.metadata.namespace
        found: list[Pod | None] = []
        for entry in claim.status.reserved_for:
            if entry.resource == "pods":
                found.append(self.pods.get(entry.uid))
            else:
                group = self.pods.members(GroupKey("PodGroup", namespace, entry.name))
                few = sum(1 + len(pod.spec.resource_claims) for pod in group) <= CLAIMS_OF_GROUP
                found.extend([pod for pod in group if few and self._is_member(pod, claim, entry.uid, names)] or [None])
                if self.cluster.undecodable_pods.get(namespace):
                    found.append(None)
        return found

    def _is_member(self, pod: Pod, claim: ResourceClaim, group_uid: str, names: dict[str, Set[str]]) -> bool:
        if pod.metadata.uid not in names:
            names[pod.metadata.uid] = frozenset(claim_names(pod))
        uses = not pod.finished and claim.metadata.name in names[pod.metadata.uid]
        return uses and consumer(claim, pod, self.cluster).uid == group_uid

    def is_being_bound(self, claim: ResourceClaim, names: dict[str, Set[str]] | None = None) -> bool:
        """True while a bind of this service relies on the claim, or rolls it back, as far as its `users` are known.
        `names`: as for `users`.
        """
        if not self.binding:
            return False
        unknown = [entry.uid for entry in claim.status.reserved_for if self.pods.get(entry.uid) is None]
        users = [pod.metadata.uid for pod in self.users(claim, names) if pod is not None and not pod.spec.node_name]
        return not self.binding.keys().isdisjoint((*unknown, *users))

    def wanted(self, pod: Pod) -> extended.ExtendedResources | None:
        """The extended resources of the pod that devices may provide; None for almost all pods."""
        return self.resources.wanted(pod) if self.features.DRAExtendedResource else None

    def wants(self, pod: Pod) -> Wants:
        """What the pod needs of a node, apart from its devices."""
        found = self.wanted(pod)
        return Wants(pod, frozenset(found.classes) if found is not None else frozenset())

    def unprovided(self, pod: Pod, node: str) -> frozenset[str]:
        """The extended resources that the pod asks for and that neither the node nor a known class provides."""
        if not self.features.DRAExtendedResource or not pod.spec.containers or self.wanted(pod) is not None:
            return frozenset()
        return extended.unprovided(pod, self.cluster.nodes.get(node))

    def is_unreadable(self, claim: ResourceClaim) -> bool:
        """True when the claim as stored now cannot be decoded: what is known of it is older."""
        return ObjectKey(ResourceClaim.__name__, claim.metadata.key) in self.cluster.undecodable

    def uses_devices(self, pod: Pod) -> bool:
        """True when there is anything to decide for the pod."""
        return bool(pod.spec.resource_claims) or self.wanted(pod) is not None
