"""Which pods could be evicted and made anew elsewhere, and why the others cannot.

Promises: pure. A pod that may be moved is bound, uses devices that nobody else is reserved for, belongs to a controller
that makes pods anew wherever they fit, to a scheduler that was asked for, and to no budget that is used up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from dra_extender.api.core import Pod
from dra_extender.api.policy import PodDisruptionBudget
from dra_extender.api.resource import ResourceClaim, ResourceClaimStatus
from dra_extender.scheduling.claims import known_claims
from dra_extender.scheduling.extended import existing_claim
from dra_extender.scheduling.preemption.budgets import counts, violating
from dra_extender.scheduling.preemption.preemptible import MIRROR
from dra_extender.scheduling.view import View

STAYS: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
"""Annotation of pods: "false" when evicting them does harm."""

_ANEW: Final = " (anew)"
"""No UID has a space in it."""


class Movable(msgspec.Struct, frozen=True):
    """A pod that may be moved away from `node`: the `claims` that are free then, and those that are to be allocated
    where it goes, made of the same specs.
    """

    pod: Pod
    node: str
    claims: tuple[ResourceClaim, ...]
    anew: tuple[ResourceClaim, ...]
    devices: int

    @property
    def key(self) -> str:
        """`namespace/name` of the pod."""
        return self.pod.metadata.key


class Rules(msgspec.Struct, frozen=True):
    """`schedulers`: whose pods may be moved; empty: everybody's."""

    schedulers: frozenset[str] = frozenset()
    budgets: tuple[PodDisruptionBudget, ...] = ()


class Pods(msgspec.Struct, frozen=True):
    """`movable` pods by UID, in the order of their names; `kept`: why others that use devices cannot be moved, with
    their `namespace/name`.
    """

    movable: Mapping[str, Movable]
    kept: Mapping[str, tuple[str, ...]]


def pods_of(view: View, rules: Rules) -> Pods:
    """All pods of the cluster that use devices."""
    movable: dict[str, Movable] = {}
    kept: dict[str, list[str]] = {}
    for pod in sorted(view.pods, key=lambda pod: pod.metadata.key):
        if not pod.spec.node_name or pod.finished or pod.metadata.deletion_timestamp:
            continue
        claims = _claims(view, pod)
        devices = sum(len(view.ledger.uses(claim.metadata.uid)) for claim in claims)
        if not devices:
            continue
        reason = _obstacle(view, rules, pod, claims)
        if reason:
            kept.setdefault(reason, []).append(pod.metadata.key)
        else:
            anew = tuple(map(_anew, claims))
            movable[pod.metadata.uid] = Movable(pod, pod.spec.node_name, claims, anew, devices)
    return Pods(movable, {reason: tuple(names) for reason, names in kept.items()})


def _claims(view: View, pod: Pod) -> tuple[ResourceClaim, ...]:
    """All that the pod uses, as far as they are known."""
    return tuple(known_claims(pod, view.ledger))


def _anew(claim: ResourceClaim) -> ResourceClaim:
    metadata = replace(claim.metadata, uid=claim.metadata.uid + _ANEW)
    return ResourceClaim(metadata, claim.spec, ResourceClaimStatus())


def _obstacle(view: View, rules: Rules, pod: Pod, claims: Sequence[ResourceClaim]) -> str:
    """Why the pod cannot be moved; empty when it can."""
    if rules.schedulers and pod.spec.scheduler_name not in rules.schedulers:
        return f"scheduled by {pod.spec.scheduler_name or 'an unknown scheduler'}"
    return _bond(pod) or _holds(view, pod, claims) or _guard(rules.budgets, pod)


def _bond(pod: Pod) -> str:
    """What binds the pod to where it is."""
    owner = pod.metadata.controller
    if MIRROR in pod.metadata.annotations:
        return "static pods of their node"
    if owner is None:
        return "no controller would make them anew"
    if owner.kind == "DaemonSet":
        return "pods of a DaemonSet, which belong to their node"
    if pod.group_name:
        return "members of a pod group"
    return f"annotation {STAYS} is false" if pod.metadata.annotations.get(STAYS) == "false" else ""


def _holds(view: View, pod: Pod, claims: Iterable[ResourceClaim]) -> str:
    """Why the pod's devices would not be free."""
    uid = pod.metadata.uid
    for claim in claims:
        if any(consumer.uid != uid for consumer in claim.status.reserved_for):
            return "share a claim with others"
        if existing_claim(pod, (claim,)) is not None:
            return "devices of extended resources, which are not moved"
        if claim.allocation is None or view.in_flight(claim) or view.is_unreadable(claim):
            return "their claims are changing or cannot be read"
    return ""


def _guard(budgets: Sequence[PodDisruptionBudget], pod: Pod) -> str:
    """The budget that forbids it."""
    if not violating((pod,), budgets):
        return ""
    names = (b.metadata.key for b in budgets if counts(pod, b) and b.status.disruptions_allowed <= 0)
    return f"disruption budget {', '.join(sorted(names))} allows no eviction"
