"""Whether a node has room for what a pod's devices take of its CPU, memory and huge pages.

Promises: pure. kube-scheduler compares what the pod's spec requests (NodeResourcesFit) before it calls an extender, and
does not know the devices. So the whole demand of the pod, devices included, is compared here with what the node has
allocatable minus what its pods request. Pods that are being bound count too, also until the watch shows them on
their node. Pods without devices that kube-scheduler has only assumed are unknown.

Rules: Kubernetes 1.37, plugins/dynamicresources/nodeallocatabledynamicresources.go. Unlike there, a container that uses
a claim through several entries counts once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import msgspec

from dra_extender.allocation.plan import Failure, NodeAmounts, Unfit
from dra_extender.api.core import Node, NodeAllocatableResourceClaimStatus, Pod, is_pod_level, of_containers, requested
from dra_extender.api.resource import ResourceClaim
from dra_extender.devices.ledger import identity
from dra_extender.devices.nodeallocatable import NotConsumedError, amounts_of
from dra_extender.scheduling.claims import Unschedulable, consumer, created_names
from dra_extender.scheduling.noderules import ResourcesInUse
from dra_extender.scheduling.view import View

UNREPORTED = "devices of extended resources cannot take CPU, memory or huge pages of a node"
_ORDER = ("cpu", "memory", "ephemeral-storage")

ClaimAmounts = tuple[tuple[ResourceClaim, NodeAllocatableResourceClaimStatus], ...]
"""Claims whose devices take something, and what."""

Taken = Mapping[str, NodeAllocatableResourceClaimStatus | None]
"""What the devices of claims take of their node, by identity of the claim."""


class Demand(msgspec.Struct, frozen=True):
    """What a pod and its devices need of a node, in nano units; nothing if its devices take nothing. `statuses` are for
    the pod's status. `problem`: why no node can take the pod with these devices.
    """

    amounts: Mapping[str, int] = {}
    statuses: tuple[NodeAllocatableResourceClaimStatus, ...] = ()
    problem: str = ""

    def short(self, node: Node, used: Mapping[str, int]) -> Iterator[tuple[str, int, int]]:
        """(resource, what is needed, what is left) of which the node has too little."""
        for name in (*_ORDER, *sorted(self.amounts.keys() - _ORDER)):
            asked, offered = self.amounts.get(name, 0), node.status.allocatable.get(name)
            left = max((offered.nano if offered is not None else 0) - used.get(name, 0), 0)
            if asked > left and (name in _ORDER or is_pod_level(name)):
                yield name, asked, left


class Room:
    """What nodes have left for the demands of one pod."""

    def __init__(self, view: View, pod: Pod) -> None:
        self._used = view.used or ResourcesInUse(view.pods).used
        self._without = view.leaving | {pod.metadata.uid}

    def refusal(self, demand: Demand, node: Node) -> str:
        """Why the node cannot take the pod; empty if it can."""
        short = demand.short(node, self._used(node.name, self._without)[0]) if demand.amounts else ()
        return demand.problem or ", ".join(f"Insufficient {name}" for name, _, _ in short)


def demand_on(
    view: View, pod: Pod, node: Node, pending: Sequence[ResourceClaim], amounts: NodeAmounts, allocated: ClaimAmounts
) -> Demand | Unfit:
    """What the pod needs of the node, if the node has it. `amounts` are those of `pending`."""
    if not amounts and not allocated:
        return Demand()
    demand = demand_of(pod, pending, amounts, allocated)
    reason = Room(view, pod).refusal(demand, node)
    return Unfit(reason, 0) if reason else demand


def demand_of(pod: Pod, pending: Sequence[ResourceClaim], amounts: NodeAmounts, allocated: ClaimAmounts) -> Demand:
    """`amounts` are those of `pending`."""
    taking = (*allocated, *zip(pending, amounts, strict=False))
    found = {claim.metadata.name: each for claim, each in taking if each is not None}
    containers = _containers(pod)
    if not found or not found.keys() <= containers.keys():
        return Demand(problem=UNREPORTED if found else "")
    statuses = tuple(
        msgspec.structs.replace(found[name], resource_claim_name=name, containers=containers[name])
        for name in sorted(found)
    )
    taker = with_statuses(pod, statuses)
    return Demand(requested(taker), statuses, next(_uncovered(taker), ""))


def reporting(pods: Iterable[tuple[Pod, Sequence[ResourceClaim], ClaimAmounts]], taken: Taken) -> Sequence[Pod] | None:
    """These pods of one node, with a status that reports what their devices take of it. `pods`: each with its pending
    claims and what its allocated claims take. None when a pod cannot have its devices, because another pod of the node
    has the same part of the CPU for example.
    """
    found: list[Pod] = []
    parts: set[str] = set()
    for pod, claims, allocated in pods:
        amounts = tuple(taken.get(identity(claim)) for claim in claims)
        own = {identity(claim) for claim, each in zip(claims, amounts, strict=True) if each and each.mapping}
        demand = demand_of(pod, claims, amounts, allocated)
        if demand.problem or parts & own:
            return None
        parts |= own
        found.append(with_statuses(pod, demand.statuses))
    return found


def with_statuses(pod: Pod, statuses: tuple[NodeAllocatableResourceClaimStatus, ...]) -> Pod:
    status = msgspec.structs.replace(pod.status, node_allocatable_resource_claim_statuses=statuses)
    return msgspec.structs.replace(pod, status=status)


def patch_of(pod: Pod, statuses: Sequence[NodeAllocatableResourceClaimStatus]) -> dict[str, Any]:
    """The patch of the pod's status, also of what an earlier bind has left there; empty without a change."""
    changes = statuses or pod.status.node_allocatable_resource_claim_statuses
    return {"nodeAllocatableResourceClaimStatuses": [{"$patch": "replace"}, *statuses]} if changes else {}


def _containers(pod: Pod) -> dict[str, tuple[str, ...]]:
    """By name of a claim that the pod names: the containers that use it, each once."""
    created, entries = created_names(pod), pod.spec.resource_claims
    names = {entry.name: entry.resource_claim_name or created.get(entry.name) for entry in entries}
    found: dict[str, dict[str, None]] = {name: {} for name in names.values() if name}
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        for used in container.resources.claims:
            if name := names.get(used.name):
                found[name][container.name] = None
    return {name: tuple(users) for name, users in found.items()}


def _uncovered(pod: Pod) -> Iterator[str]:
    """Why what the pod itself requests, or its limits, do not cover its containers and devices."""
    own, parts = pod.spec.resources, pod.status.node_allocatable_resource_claim_statuses
    pages = {name: limit for name, limit in own.limits.items() if name.startswith("hugepages-")}
    for kind, covering in (("request", own.requests), ("limit", pages)):
        needs = of_containers(pod, f"{kind}s")
        for name, amount in sorted(covering.items()):
            if is_pod_level(name) and needs.get(name, 0) > amount.nano:
                what = f"the aggregated container and node-allocatable DRA {kind}s"
                yield f"pod level {kind} for {name} is insufficient to cover {what}"
    extra = Counter[tuple[str, str]]()
    for each in parts:
        for user, (resource, taken) in product(each.containers, tuple(each.amounts(1))):
            extra[user, resource] += taken
    for container, name in product(pod.spec.containers, sorted(own.limits.keys() - pages)):
        declared = container.resources.limits.get(name)
        if declared is not None and declared.nano + extra[container.name, name] > own.limits[name].nano:
            what = f"the limit and DRA overhead for container {container.name}"
            yield f"pod level limit for {name} is insufficient to cover {what}"


def of_allocated(view: View, pod: Pod, claims: Sequence[ResourceClaim]) -> ClaimAmounts | Unschedulable | Failure:
    """What the devices of allocated claims take, as the status of a bound pod says while one is not published; why the
    pod cannot use one of the claims.
    """
    found = []
    for claim in claims:
        devices = view.published(claim)
        taken = [(result, device.node_allocatable_resources) for result, device in devices if device is not None]
        bound = view.bound_user(claim) if len(taken) < len(devices) else None
        statuses = bound.status.node_allocatable_resource_claim_statuses if bound is not None else ()
        known = {each.resource_claim_name: each for each in statuses}
        try:
            amounts = amounts_of(claim, taken) if bound is None else known.get(claim.metadata.name)
        except NotConsumedError as problem:
            return Failure(str(problem))
        used = claim.status.reserved_for and not claim.reserved_for(consumer(claim, pod, view.cluster).uid)
        mapped = any(each.mapping is not None for _, resources in taken for each in resources.values())
        if used and (mapped or (amounts is not None and amounts.mapping)):
            name = claim.metadata.name
            return Unschedulable(
                f"node allocatable resource claim {name} has a mapped device and cannot be shared across pods"
            )
        if amounts is not None:
            found.append((claim, amounts))
    return tuple(found)
