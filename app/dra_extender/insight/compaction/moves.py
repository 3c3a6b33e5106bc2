"""The pods that can be moved to other nodes.

Promises: pure. A movable pod is bound, uses devices that no other pod uses, has a controller that recreates it on any
node and a scheduler that the rules allow, and its PodDisruptionBudgets allow an eviction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from dra_extender.api.core import MIRROR, Pod
from dra_extender.api.groups import group_of
from dra_extender.api.resource import ResourceClaim, ResourceClaimStatus
from dra_extender.devices.overlay import Planned
from dra_extender.scheduling.claims import known_claims
from dra_extender.scheduling.extended import existing_claim
from dra_extender.scheduling.preemption.budgets import BudgetsByNamespace, counts, violating
from dra_extender.scheduling.view import View

SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"


class Movable(msgspec.Struct, frozen=True):
    """A pod that can be moved away from `node`. `claims`: its claims as they are after its eviction, not allocated."""

    pod: Pod
    node: str
    claims: tuple[ResourceClaim, ...]
    devices: int

    @property
    def key(self) -> str:
        """`namespace/name` of the pod."""
        return self.pod.metadata.key


class EvictionRules(msgspec.Struct, frozen=True):
    """`schedulers`: the schedulers whose pods may be moved; empty for all."""

    schedulers: frozenset[str] = frozenset()
    budgets: BudgetsByNamespace = msgspec.field(default_factory=BudgetsByNamespace)


class MovablePods(msgspec.Struct, frozen=True):
    """`movable`: pods by UID, in the order of their names. `kept`: for each reason, the pods (namespace/name) that use
    devices and cannot be moved.
    """

    movable: Mapping[str, Movable]
    kept: Mapping[str, tuple[str, ...]]


def pods_of(view: View, rules: EvictionRules) -> MovablePods:
    """All pods of the cluster that use devices."""
    movable: dict[str, Movable] = {}
    kept: dict[str, list[str]] = {}
    for pod in sorted(view.pods, key=lambda pod: pod.metadata.key):
        if not pod.spec.node_name or pod.finished or pod.metadata.deletion_timestamp:
            continue
        claims = tuple(known_claims(pod, view.ledger))
        devices = sum(len(view.ledger.uses(claim.metadata.uid)) for claim in claims)
        if not devices:
            continue
        reason = _obstacle(view, rules, pod, claims)
        if reason:
            kept.setdefault(reason, []).append(pod.metadata.key)
        else:
            freed = tuple(replace(claim, status=ResourceClaimStatus()) for claim in claims)
            movable[pod.metadata.uid] = Movable(pod, pod.spec.node_name, freed, devices)
    return MovablePods(movable, {reason: tuple(names) for reason, names in kept.items()})


def _obstacle(view: View, rules: EvictionRules, pod: Pod, claims: Sequence[ResourceClaim]) -> str:
    """Why the pod cannot be moved; empty if it can."""
    if rules.schedulers and pod.spec.scheduler_name not in rules.schedulers:
        return f"scheduled by {pod.spec.scheduler_name or 'an unknown scheduler'}"
    return _tied_to_node(pod) or _busy_claim(view, pod, claims) or _budget(rules.budgets, pod)


def _tied_to_node(pod: Pod) -> str:
    """Why the pod would not be recreated on another node."""
    owner = pod.metadata.controller
    if MIRROR in pod.metadata.annotations:
        return "static pods of their node"
    if owner is None:
        return "no controller would recreate them"
    if owner.kind == "DaemonSet":
        return "pods of a DaemonSet, which belong to their node"
    if group_of(pod) is not None:
        return "members of a group"
    return f"annotation {SAFE_TO_EVICT} is false" if pod.metadata.annotations.get(SAFE_TO_EVICT) == "false" else ""


def _busy_claim(view: View, pod: Pod, claims: Iterable[ResourceClaim]) -> str:
    """Why an eviction would not free the pod's devices."""
    uid = pod.metadata.uid
    for claim in claims:
        if any(consumer.uid != uid for consumer in claim.status.reserved_for):
            return "they share a claim with other pods"
        if existing_claim(pod, (claim,)) is not None:
            return "they use extended resources, which are not moved"
        if claim.allocation is None or view.in_flight(claim) or view.is_unreadable(claim):
            return "their claims are changing or cannot be read"
    return ""


def _budget(budgets: BudgetsByNamespace, pod: Pod) -> str:
    """The budgets that allow no eviction."""
    if not violating((pod,), budgets):
        return ""
    names = (b.metadata.key for b in budgets.covering(pod) if counts(pod, b) and b.status.disruptions_allowed <= 0)
    return f"disruption budget {', '.join(sorted(names))} allows no eviction"


class Move(msgspec.Struct, frozen=True):
    """The pod is evicted, and fits on `target` with these devices."""

    item: Movable
    target: str
    plans: tuple[Planned, ...]
