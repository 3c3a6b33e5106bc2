"""Moves of pods to other nodes, one after the other: which pods can be moved, and where they fit.

Promises: pure; the cluster does not change. A movable pod is bound, uses devices that no other pod uses, has a
controller that recreates it on any node and a scheduler that the rules allow, and its PodDisruptionBudgets allow an
eviction. Each move is decided on the state after the earlier moves. `Moving.move` prefers the nodes with most devices
in use. `Moving.replay` decides all moves again from the first one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from dra_extender.allocation.plan import Plan
from dra_extender.api.core import MIRROR, Pod, PodDisruptionBudget
from dra_extender.api.resource import ResourceClaim, ResourceClaimStatus
from dra_extender.devices.overlay import Overlay, Planned
from dra_extender.insight.snapshot import ClusterSnapshot, snapshot
from dra_extender.scheduling.claims import known_claims
from dra_extender.scheduling.extended import existing_claim
from dra_extender.scheduling.noderules import Wants
from dra_extender.scheduling.preemption.budgets import by_namespace, counts, violating
from dra_extender.scheduling.view import View

SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"

_RECREATED: Final = " (recreated)"
"""Suffix of UIDs, which contain no space."""


class Movable(msgspec.Struct, frozen=True):
    """A pod that can be moved away from `node`. Its eviction deallocates `claims`. `recreated`: claims with the same
    specs, for the new pod on the other node.
    """

    pod: Pod
    node: str
    claims: tuple[ResourceClaim, ...]
    recreated: tuple[ResourceClaim, ...]
    devices: int

    @property
    def key(self) -> str:
        """`namespace/name` of the pod."""
        return self.pod.metadata.key


class EvictionRules(msgspec.Struct, frozen=True):
    """`schedulers`: the schedulers whose pods may be moved; empty for all."""

    schedulers: frozenset[str] = frozenset()
    budgets: tuple[PodDisruptionBudget, ...] = ()


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
            recreated = tuple(map(_recreated, claims))
            movable[pod.metadata.uid] = Movable(pod, pod.spec.node_name, claims, recreated, devices)
    return MovablePods(movable, {reason: tuple(names) for reason, names in kept.items()})


def _recreated(claim: ResourceClaim) -> ResourceClaim:
    metadata = replace(claim.metadata, uid=claim.metadata.uid + _RECREATED)
    return ResourceClaim(metadata, claim.spec, ResourceClaimStatus())


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
    if pod.group_name:
        return "members of a pod group"
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


def _budget(budgets: Sequence[PodDisruptionBudget], pod: Pod) -> str:
    """The budgets that allow no eviction."""
    found = by_namespace(budgets)
    if not violating((pod,), found):
        return ""
    names = (b.metadata.key for b in found.covering(pod) if counts(pod, b) and b.status.disruptions_allowed <= 0)
    return f"disruption budget {', '.join(sorted(names))} allows no eviction"


class Move(msgspec.Struct, frozen=True):
    """The pod is evicted, and fits on `target` with these devices."""

    item: Movable
    target: str
    plans: tuple[Planned, ...]


class AfterMoves(msgspec.Struct, frozen=True):
    """The cluster after some moves."""

    snapshot: ClusterSnapshot
    moves: tuple[Move, ...] = ()

    def evicted(self, item: Movable) -> ClusterSnapshot:
        """The cluster after one more pod is evicted."""
        now = self.snapshot.with_pod_moved(item.pod, item.node)
        return replace(now, overlay=now.overlay.without(item.claims))

    def with_move(self, move: Move) -> AfterMoves | None:
        """None if the devices are not free."""
        now = self.evicted(move.item).with_pod_moved(move.item.pod, "", move.target)
        overlay = now.overlay.with_plans(move.plans)
        if not all(overlay.has(claim) for claim, _ in move.plans):
            return None
        return AfterMoves(replace(now, overlay=overlay), (*self.moves, move))


class TooManyDecisionsError(Exception):
    """The limit of decisions is reached."""


class Moving:
    """Moves in one cluster. `decisions` counts the allocator's decisions; the limit is `most`."""

    def __init__(self, view: View, budgets: Sequence[PodDisruptionBudget], most: int) -> None:
        self.view = view
        self.start = AfterMoves(snapshot(view))
        self.decisions = 0
        self.most = most
        self._budgets = by_namespace(budgets)
        self._wants: dict[str, Wants] = {}

    # --- nodes ------------------------------------------------------------------------------------------------------

    def suits(self, now: ClusterSnapshot, pod: Pod, name: str) -> bool:
        """True when nothing but devices can keep the pod from the node."""
        return next(now.obstacles(self._wanted(pod), self.view.cluster.nodes[name]), None) is None

    def admits(self, pod: Pod, name: str) -> bool:
        """True when the node accepts the pod if it has enough room."""
        return next(self._wanted(pod).unsuited(self.view.cluster.nodes[name]), None) is None

    def _wanted(self, pod: Pod) -> Wants:
        known = self._wants.get(pod.metadata.uid)
        if known is None or known.pod is not pod:
            known = self._wants[pod.metadata.uid] = self.start.snapshot.wants(pod)
        return known

    # --- devices ----------------------------------------------------------------------------------------------------

    def plan(self, state: Overlay, claims: Sequence[ResourceClaim], node: str) -> tuple[Planned, ...] | None:
        """The devices for the claims on the node in this state. Raises TooManyDecisionsError."""
        self._count()
        if not claims:
            return ()
        found = self.view.decisions.with_state(state).plan(claims, node)
        return tuple(zip(claims, found.allocations, strict=True)) if isinstance(found, Plan) else None

    def fitting(self, state: Overlay, claims: Sequence[ResourceClaim], names: Sequence[str]) -> Sequence[str]:
        """The nodes among these where the claims can be allocated in this state. Raises TooManyDecisionsError."""
        self._count()
        return self.view.decisions.with_state(state).node_results(claims, names).fits

    def move(self, after: AfterMoves, item: Movable, avoid: Collection[str]) -> AfterMoves | None:
        """Move the pod to the fullest node that is not in `avoid`. None if it fits no node, or a disruption budget
        forbids its eviction. Raises TooManyDecisionsError.
        """
        if not self.allows(after, item.pod):
            return None
        now = after.evicted(item)
        names = [name for name in self.view.cluster.nodes if name not in avoid and self.suits(now, item.pod, name)]
        fits = self.fitting(now.overlay, item.recreated, names)
        target = min(fits, key=lambda name: (-self._in_use(name), name), default=None)
        plans = self.plan(now.overlay, item.recreated, target) if target is not None else None
        return after.with_move(Move(item, target, plans)) if target is not None and plans is not None else None

    def allows(self, after: AfterMoves, pod: Pod) -> bool:
        """Whether the disruption budgets allow this eviction after the earlier ones."""
        gone = [move.item.pod for move in after.moves]
        return pod.metadata.uid not in violating((*gone, pod), self._budgets)

    def replay(self, moves: Sequence[Move]) -> AfterMoves | None:
        """Decide the moves again from the beginning; None if one does not fit."""
        after: AfterMoves | None = self.start
        for move in moves:
            if after is None:
                return None
            now = after.evicted(move.item)
            if not self.suits(now, move.item.pod, move.target):
                return None
            if self.plan(now.overlay, move.item.recreated, move.target) is None:
                return None
            after = after.with_move(move)
        return after

    def _count(self) -> None:
        if self.decisions >= self.most:
            raise TooManyDecisionsError
        self.decisions += 1

    def _in_use(self, name: str) -> int:
        """How many devices of the node's pools are in use now."""
        return sum(len(self.view.ledger.in_use(pool)) for pool in self.view.cluster.inventory.pools_seen(name))
