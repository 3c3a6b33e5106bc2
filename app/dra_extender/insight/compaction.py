"""Which pods to evict so that a request fits. It never evicts a pod.

Promises: pure; the caller limits the number of decisions. Each move is decided on the state after the earlier moves,
and the request on the state after the last one. The list with the fewest moves wins, then the one with the fewest
devices, then the first by name of the node. The list has no unnecessary move.

A movable pod is bound, uses devices that no other pod uses, has a controller that recreates it on any node and a
scheduler that the rules allow, and its PodDisruptionBudgets allow an eviction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from dra_extender.api.core import MIRROR, Pod, PodResourceClaim, PodSpec, Toleration
from dra_extender.api.groups import group_of
from dra_extender.api.meta import ObjectMeta
from dra_extender.api.resource import ResourceClaim
from dra_extender.devices.overlay import Planned
from dra_extender.insight.snapshot import ClusterSnapshot, SimulatedPod, snapshot
from dra_extender.insight.why.gangs import placed_beside, trials_of
from dra_extender.plaintext import counted
from dra_extender.scheduling.claims import Unschedulable, known_claims
from dra_extender.scheduling.extended import existing_claim
from dra_extender.scheduling.feasibility import NodeAllocation, PreFilterState, allocate
from dra_extender.scheduling.preemption.budgets import BudgetsByNamespace, counts, violating
from dra_extender.scheduling.turns import QueryBudget, run_at_once
from dra_extender.scheduling.view import View

SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
SHOWN: Final = 5
CHECKED: Final = (
    "devices, cordons, taints, node selector and node affinity, host ports, resources of the node, disruption budgets"
)
UNCHECKED: Final = "volumes, affinity to pods, topology spread, quotas"
MOST_DECISIONS: Final = 50_000


class Movable(NamedTuple):
    """A pod that can be moved, and the number of its devices."""

    pod: Pod
    devices: int

    @property
    def key(self) -> str:
        """`namespace/name` of the pod."""
        return self.pod.metadata.key


class EvictionRules(msgspec.Struct, frozen=True):
    """`schedulers`: the schedulers whose pods may be moved; empty for all."""

    schedulers: frozenset[str] = frozenset()
    budgets: BudgetsByNamespace = msgspec.field(default_factory=BudgetsByNamespace)


class Move(msgspec.Struct, frozen=True):
    """The pod (namespace/name) is evicted from `node`, and fits on `target` with these devices (driver/pool/device)."""

    pod: str
    node: str
    target: str
    devices: tuple[str, ...]


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """`request`: what has to fit. `fits`: nodes where it fits without moves.

    `node`: where it fits after the `moves`, with these `devices`. `kept`: the pods that cannot be moved, by reason. Not
    `complete`: the limit of `decisions` was reached.
    """

    request: str
    fits: tuple[str, ...] = ()
    node: str = ""
    devices: tuple[str, ...] = ()
    moves: tuple[Move, ...] = ()
    kept: Mapping[str, tuple[str, ...]] = {}
    complete: bool = True
    decisions: int = 0

    def lines(self) -> Iterator[str]:
        """For people: one finding each, of any length."""
        if self.fits:
            yield f"{self.request} fits without a move on {counted(len(self.fits), 'node')}: {_some(self.fits)}"
        elif self.moves:
            pods = counted(len(self.moves), "pod")
            yield f"to make room for {self.request} on {self.node}, evict {pods} in this order:"
        else:
            yield f"no evictions make room for {self.request}"
        for number, move in enumerate(self.moves, start=1):
            yield f"  {number}. {move.pod}: {move.node} -> {move.target}"
            yield f"     gets {_some(move.devices, 2)}"
        if self.moves:
            yield f"then {self.request} fits on {self.node}: {_some(self.devices) or 'no devices'}"
            yield f"checked: {CHECKED}"
            yield f"not checked: {UNCHECKED}; the scheduler decides again where each pod goes"
        if self.kept and not self.fits:
            yield "pods that cannot be moved:"
            for reason, names in self.kept.items():
                yield f"  {counted(len(names), 'pod')}: {reason} ({_some(names)})"
        if not self.complete:
            yield f"stopped after {self.decisions} allocations: there may be better moves"


def _devices(plans: Sequence[Planned]) -> tuple[str, ...]:
    return tuple("/".join(result.id) for _, allocation in plans for result in allocation.devices.results)


def _some(names: Sequence[str], most: int = SHOWN) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


class CompactionRequest(NamedTuple):
    """The pod that has to fit, in the state before the moves. `name` is for people."""

    name: str
    pod: SimulatedPod


def request_of_pod(pod: SimulatedPod) -> CompactionRequest:
    """Raises ValueError if the pod is bound, or if no decision on it is possible."""
    key, found = pod.pod.metadata.key, pod.prefiltered
    if pod.pod.spec.node_name:
        raise ValueError(f"pod {key} is bound to node {pod.pod.spec.node_name}: it needs no room")
    if not isinstance(found, PreFilterState):
        raise ValueError(f"pod {key}: {found.reason if isinstance(found, Unschedulable) else found.error}")
    return CompactionRequest(f"pod {key}", pod)


def request_of_gang(view: View, pod: Pod) -> CompactionRequest:
    """Room for the pod; for the last pod of a gang in the state in which the others have places. Raises ValueError like
    `request_of_pod`, and if more than one pod of the gang has no place.
    """
    simulated = SimulatedPod(pod, snapshot(view))
    trials = trials_of(view, simulated, list(view.cluster.nodes))
    places = run_at_once(trials.largest(QueryBudget(view))) if trials is not None else None
    if trials is None or places is None or (pod.metadata.uid in places and len(places) >= trials.gang.needed):
        return request_of_pod(simulated)
    others = [each for each in trials.gang.waiting if each.metadata.uid not in places]
    last = placed_beside(trials.pod, places, others[0]) if len(places) == trials.gang.needed - 1 else None
    if last is None:
        raise ValueError(f"{trials.gang.key}: {len(others)} of its pods have no place: compaction makes room for one")
    name, last = request_of_pod(last)
    return CompactionRequest(f"{name}, the last of {trials.gang.key},", last)


def request_of_claims(view: View, file: str, claims: Sequence[ResourceClaim]) -> CompactionRequest:
    """Room for a pod with these claims that tolerates all taints. Raises ValueError, which names the `file`, if no
    decision on the claims is possible.
    """
    names = [claim.metadata.name for claim in claims]
    entries = tuple(PodResourceClaim(name, resource_claim_name=name) for name in names)
    spec = PodSpec(resource_claims=entries, tolerations=(Toleration(operator="Exists"),))
    meta = ObjectMeta(name=file, namespace=claims[0].metadata.namespace, uid=file)
    pod = SimulatedPod(Pod(meta, spec), snapshot(view, claims))
    if not isinstance(found := pod.prefiltered, PreFilterState):
        raise ValueError(f"{file}: {found.reason if isinstance(found, Unschedulable) else found.error}")
    return CompactionRequest(", ".join(f"claim {name}" for name in names), pod)


def _movable(view: View, rules: EvictionRules) -> tuple[list[Movable], Mapping[str, tuple[str, ...]]]:
    """(the pods that can be moved in the order of their names; for each reason, the pods (namespace/name) that use
    devices and cannot be moved)
    """
    movable: list[Movable] = []
    kept: dict[str, tuple[str, ...]] = {}
    for pod in sorted(view.pods, key=lambda pod: pod.metadata.key):
        if not pod.spec.node_name or pod.finished or pod.metadata.deletion_timestamp:
            continue
        claims = tuple(known_claims(pod, view.ledger))
        devices = sum(len(view.ledger.uses(claim.metadata.uid)) for claim in claims)
        if devices and (reason := next(_obstacles(view, rules, pod, claims), "")):
            kept[reason] = (*kept.get(reason, ()), pod.metadata.key)
        elif devices:
            movable.append(Movable(pod, devices))
    return movable, kept


def _obstacles(view: View, rules: EvictionRules, pod: Pod, claims: Iterable[ResourceClaim]) -> Iterator[str]:
    """Why the pod cannot be moved: it would not be recreated on another node, or an eviction would not free its
    devices or is not allowed.
    """
    meta, owner = pod.metadata, pod.metadata.controller
    if rules.schedulers and pod.spec.scheduler_name not in rules.schedulers:
        yield f"scheduled by {pod.spec.scheduler_name or 'an unknown scheduler'}"
    if MIRROR in meta.annotations:
        yield "static pods of their node"
    if owner is None:
        yield "no controller would recreate them"
    elif owner.kind == "DaemonSet":
        yield "pods of a DaemonSet, which belong to their node"
    if group_of(pod) is not None:
        yield "members of a group"
    if meta.annotations.get(SAFE_TO_EVICT) == "false":
        yield f"annotation {SAFE_TO_EVICT} is false"
    for claim in claims:
        if any(consumer.uid != meta.uid for consumer in claim.status.reserved_for):
            yield "they share a claim with other pods"
        if existing_claim(pod, (claim,)) is not None:
            yield "they use extended resources, which are not moved"
        if claim.allocation is None or view.in_flight(claim) or view.is_unreadable(claim):
            yield "their claims are changing or cannot be read"
    if violating((pod,), rules.budgets):
        covering = (budget for budget in rules.budgets.covering(pod) if counts(pod, budget))
        names = sorted(budget.metadata.key for budget in covering if budget.status.disruptions_allowed <= 0)
        yield f"disruption budget {', '.join(names)} allows no eviction"


class _TooManyDecisionsError(Exception):
    """The limit of decisions is reached."""


class Compaction:
    """Compaction of one state of the cluster, for one request. `decisions` counts the decisions of the allocator."""

    def __init__(self, request: CompactionRequest, rules: EvictionRules, most: int = MOST_DECISIONS) -> None:
        self.decisions = 0
        self._name, self._request = request
        self._view = self._request.view
        self._most = most
        self._budgets = rules.budgets
        self._movable, self._kept = _movable(self._view, rules)

    def advice(self) -> Advice:
        """The moves after which the request fits a node."""
        best, complete, nodes = Advice(request=self._name, kept=self._kept), True, self._view.cluster.nodes
        names = [name for name in nodes if next(self._request.wants.unsuited(nodes[name]), None) is None]
        try:
            if fits := tuple(self._fitting(self._request, names)):
                return replace(best, fits=fits, decisions=self.decisions)
            by_node: dict[str, list[Movable]] = {}
            for item in self._movable:
                by_node.setdefault(item.pod.spec.node_name, []).append(item)
            for name in sorted(by_node.keys() & names, key=lambda name: (len(by_node[name]), name)):
                if len(best.moves) == 1:
                    break
                found = self._on(name, by_node[name], len(best.moves) or len(by_node[name]))
                if found is not None and (not best.moves or _cost(found) < _cost(best)):
                    best = found
        except _TooManyDecisionsError:
            complete = False
        return replace(best, decisions=self.decisions, complete=complete)

    def _on(self, name: str, items: Sequence[Movable], most: int) -> Advice | None:
        """At most `most` moves from this node. A pod that fits no other node comes first in the next attempt, so that
        it stays on the node.
        """
        candidates, first = list(items), set[str]()
        while candidates:
            chosen = self._fewest(name, candidates)
            if not 0 < len(chosen) <= most:
                return None
            chosen.sort(key=lambda item: (item.key not in first, -item.devices, item.key))
            found = self._moved(name, chosen)
            if not isinstance(found, Movable):
                return found
            if found.key in first:
                candidates.remove(found)
            first.add(found.key)
        return None

    def _fewest(self, name: str, items: Sequence[Movable]) -> list[Movable]:
        """The pods that have to go so that the request fits, as few as possible: the smallest stay first. Empty if it
        does not fit anyway.
        """
        chosen = sorted(items, key=lambda item: (item.devices, item.key))
        if self._planned(self._without(chosen), name) is None:
            return []
        for item in list(chosen):
            others = [other for other in chosen if other is not item]
            if self._planned(self._without(others), name) is not None:
                chosen = others
        return chosen

    def _without(self, gone: Collection[Movable]) -> SimulatedPod:
        """The request, in the state after these pods are gone."""
        return self._request.on(self._request.snapshot.without_pods([item.pod for item in gone]))

    def _moved(self, name: str, chosen: Sequence[Movable]) -> Advice | Movable | None:
        """These pods are moved one after the other; or the first pod that fits no other node. None if the request does
        not fit then.
        """
        plans = self._planned(self._without(chosen), name)
        assert plans is not None, name
        start, moves = self._request.snapshot, list[Move]()
        now = replace(start, overlay=start.overlay.holding(plans))  # moved pods must not take these devices
        for index, item in enumerate(chosen):
            evicted = [each.pod for each in chosen[: index + 1]]
            forbidden = item.pod.metadata.uid in violating(evicted, self._budgets)
            moved = None if forbidden else self._move(now, item)
            if moved is None:
                return item
            now, move = moved
            moves.append(move)
        now = replace(now, overlay=now.overlay.without(claim for claim, _ in plans))
        plans = self._planned(self._request.on(now), name)
        if plans is None:
            return None
        return Advice(request=self._name, node=name, devices=_devices(plans), moves=tuple(moves), kept=self._kept)

    def _move(self, now: ClusterSnapshot, item: Movable) -> tuple[ClusterSnapshot, Move] | None:
        """Move the pod to the fullest of the other nodes. None if it fits no node."""
        pod, source = SimulatedPod(item.pod, now.without_pods([item.pod])), item.pod.spec.node_name
        fits = self._fitting(pod, [name for name in self._view.cluster.nodes if name != source])
        ledger, inventory = self._view.ledger, self._view.cluster.inventory
        in_use = {name: sum(len(ledger.in_use(pool)) for pool in inventory.pools_seen(name)) for name in fits}
        target = min(fits, key=lambda name: (-in_use[name], name), default=None)
        plans = self._planned(pod, target) if target is not None else None
        if target is None or plans is None:
            return None
        now = pod.snapshot.with_pod_on(item.pod, target)
        now = replace(now, overlay=now.overlay.with_plans(plans))
        return now, Move(item.key, source, target, _devices(plans))

    def _planned(self, pod: SimulatedPod, name: str) -> tuple[Planned, ...] | None:
        """The devices for the pod on the node; None if it does not fit. Raises _TooManyDecisionsError."""
        self._count()
        if next(pod.obstacles(self._view.cluster.nodes[name]), None) is not None:
            return None
        found = allocate(pod.snapshot.seen_by(pod.view), pod.prefiltered, name)
        return tuple(zip(found.pending, found.allocations, strict=True)) if isinstance(found, NodeAllocation) else None

    def _fitting(self, pod: SimulatedPod, names: Sequence[str]) -> Sequence[str]:
        """The nodes among these that the pod fits. Raises _TooManyDecisionsError."""
        self._count()
        nodes = self._view.cluster.nodes
        return pod.fitting(pod.view, [name for name in names if next(pod.obstacles(nodes[name]), None) is None])

    def _count(self) -> None:
        if self.decisions >= self._most:
            raise _TooManyDecisionsError
        self.decisions += 1


def _cost(advice: Advice) -> tuple[int, int, str]:
    return len(advice.moves), sum(len(move.devices) for move in advice.moves), advice.node
