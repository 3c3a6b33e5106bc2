"""Which pods to evict so that a request fits. It never evicts a pod.

Promises: pure; the caller limits the number of decisions. Each move is decided on the state after the earlier moves,
and the request on the state after the last one. The list with the fewest moves wins, then the one with the fewest
devices, then the first by name of the node. The list has no unnecessary move.

A movable pod is bound, uses devices that no other pod uses, has a controller that recreates it on any node and a
scheduler that the rules allow, and its PodDisruptionBudgets allow an eviction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from dra_extender.allocation.plan import Failure, Plan
from dra_extender.allocation.requests import prepare
from dra_extender.api.core import MIRROR, Pod
from dra_extender.api.groups import group_of
from dra_extender.api.resource import ResourceClaim, ResourceClaimStatus
from dra_extender.devices.overlay import Overlay, Planned
from dra_extender.insight.snapshot import ClusterSnapshot, SimulatedPod, snapshot
from dra_extender.insight.why.gangs import placed_beside, trials_of
from dra_extender.plaintext import counted
from dra_extender.scheduling.claims import Unschedulable, known_claims
from dra_extender.scheduling.extended import existing_claim
from dra_extender.scheduling.feasibility import PreFilterState, pre_filter
from dra_extender.scheduling.noderules import Wants
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


class Movable(msgspec.Struct, frozen=True):
    """A pod that can be moved. `claims`: its claims as they are after its eviction, not allocated."""

    pod: Pod
    claims: tuple[ResourceClaim, ...]
    devices: int

    @property
    def key(self) -> str:
        """`namespace/name` of the pod."""
        return self.pod.metadata.key

    @property
    def node(self) -> str:
        return self.pod.spec.node_name


class EvictionRules(msgspec.Struct, frozen=True):
    """`schedulers`: the schedulers whose pods may be moved; empty for all."""

    schedulers: frozenset[str] = frozenset()
    budgets: BudgetsByNamespace = msgspec.field(default_factory=BudgetsByNamespace)


class Move(msgspec.Struct, frozen=True):
    """The pod is evicted, and fits on `target` with these devices."""

    item: Movable
    target: str
    plans: tuple[Planned, ...]


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """`request`: what has to fit. `fits`: nodes where it fits without moves.

    `node`: where it fits after the `moves`, with the devices of `plans`. Not `complete`: the limit of `decisions` was
    reached.
    """

    request: str
    fits: tuple[str, ...] = ()
    node: str = ""
    moves: tuple[Move, ...] = ()
    plans: tuple[Planned, ...] = ()
    kept: Mapping[str, tuple[str, ...]] = {}
    decisions: int = 0
    complete: bool = True

    @property
    def helps(self) -> bool:
        """True when there is a way, even without moves."""
        return bool(self.moves or self.fits)

    def report(self) -> Mapping[str, object]:
        """For programs: names instead of objects. `kept`: the pods that cannot be moved, by reason."""
        moves = [
            {"pod": move.item.key, "node": move.item.node, "target": move.target, "devices": _devices(move.plans)}
            for move in self.moves
        ]
        devices = _devices(self.plans)
        found = {"request": self.request, "fits": self.fits, "node": self.node, "devices": devices, "moves": moves}
        return {**found, "kept": self.kept, "complete": self.complete}

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
            yield f"  {number}. {move.item.key}: {move.item.node} -> {move.target}"
            yield f"     gets {_some(_devices(move.plans), 2)}"
        if self.moves:
            yield f"then {self.request} fits on {self.node}: {_some(_devices(self.plans)) or 'no devices'}"
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


class CompactionRequest(msgspec.Struct, frozen=True):
    """The claims that have to fit. `name` is for people. `pod`: the pod of the claims, if one was named."""

    name: str
    claims: tuple[ResourceClaim, ...]
    pod: Pod | None = None


def request_of_pod(view: View, pod: Pod) -> CompactionRequest:
    """Raises ValueError if the pod is bound, or if no decision on it is possible."""
    key = pod.metadata.key
    if pod.spec.node_name:
        raise ValueError(f"pod {key} is bound to node {pod.spec.node_name}: it needs no room")
    found = pre_filter(view, pod)
    if not isinstance(found, PreFilterState):
        raise ValueError(f"pod {key}: {found.reason if isinstance(found, Unschedulable) else found.error}")
    if found.claims.allocated or found.wanted is not None or not found.claims.pending:
        raise ValueError(
            f"pod {key} has allocated claims, extended resources, or no claims: compaction supports only pods whose "
            "claims are all unallocated"
        )
    return CompactionRequest(f"pod {key}", found.claims.pending, pod)


def request_of_gang(view: View, pod: Pod) -> tuple[ClusterSnapshot, CompactionRequest]:
    """Room for the pod; for the last pod of a gang in the state in which the others have places. Raises ValueError like
    `request_of_pod`, and if more than one pod of the gang has no place.
    """
    now = snapshot(view)
    trials = trials_of(view, SimulatedPod(pod, now), list(view.cluster.nodes))
    places = run_at_once(trials.largest(QueryBudget(view))) if trials is not None else None
    if trials is None or places is None or (pod.metadata.uid in places and len(places) >= trials.gang.needed):
        return now, request_of_pod(view, pod)
    others = [each for each in trials.gang.waiting if each.metadata.uid not in places]
    last = placed_beside(trials.pod, places, others[0]) if len(places) == trials.gang.needed - 1 else None
    if last is None:
        raise ValueError(f"{trials.gang.key}: {len(others)} of its pods have no place: compaction makes room for one")
    request = request_of_pod(last.view, last.pod)
    return last.snapshot, replace(request, name=f"{request.name}, the last of {trials.gang.key},")


def request_of_claims(view: View, file: str, claims: tuple[ResourceClaim, ...]) -> CompactionRequest:
    """Raises ValueError if no decision on the claims is possible. The error names `file`."""
    prepared = prepare(claims, view.cluster.classes, view.features)
    if isinstance(prepared, Failure):
        raise ValueError(f"{file}: {prepared.error}")
    return CompactionRequest(", ".join(f"claim {claim.metadata.name}" for claim in claims), claims)


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
            freed = tuple(replace(claim, status=ResourceClaimStatus()) for claim in claims)
            movable.append(Movable(pod, freed, devices))
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


_AfterMoves = tuple[ClusterSnapshot, tuple[Move, ...]]
"""The cluster after these moves."""


class _TooManyDecisionsError(Exception):
    """The limit of decisions is reached."""


class Compaction:
    """Compaction of one state of the cluster, for one request. `decisions` counts the decisions of the allocator."""

    def __init__(
        self, start: ClusterSnapshot, request: CompactionRequest, rules: EvictionRules, most: int = MOST_DECISIONS
    ) -> None:
        """`start`: the state before the moves."""
        self.decisions = 0
        self._view = start.view
        self._request = request
        self._wants = start.view.wants(request.pod) if request.pod is not None else None
        self._most = most
        self._start = start
        self._budgets = rules.budgets
        self._movable, self._kept = _movable(start.view, rules)

    def advice(self) -> Advice:
        """The moves after which the request fits a node."""
        best, complete, nodes = Advice(request=self._request.name, kept=self._kept), True, self._view.cluster.nodes
        wants = self._wants
        names = [name for name in nodes if wants is None or next(wants.unsuited(nodes[name]), None) is None]
        try:
            roomy = [name for name in names if self._has_room(name, ())]
            fits = tuple(self._fitting(self._start.overlay, self._request.claims, roomy))
            if fits:
                return replace(best, fits=fits, decisions=self.decisions)
            by_node: dict[str, list[Movable]] = {}
            for item in self._movable:
                by_node.setdefault(item.node, []).append(item)
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
            chosen = self._fewest(name, candidates, most)
            if not chosen:
                return None
            chosen.sort(key=lambda item: (item.key not in first, -item.devices, item.key))
            found = self._moved(name, chosen)
            if not isinstance(found, Movable):
                now, moves = found
                plans = self._plan(now.overlay.without(self._request.claims), self._request.claims, name)
                if plans is None or not self._suits(now, self._wants, name):
                    return None
                return Advice(request=self._request.name, kept=self._kept, node=name, moves=moves, plans=plans)
            if found.key in first:
                candidates.remove(found)
            first.add(found.key)
        return None

    def _fewest(self, name: str, items: Sequence[Movable], most: int) -> list[Movable]:
        """The pods that have to go so that the request fits, as few as possible: the smallest stay first. Empty if it
        does not fit anyway, or if there are more than `most`.
        """
        chosen = sorted(items, key=lambda item: (item.devices, item.key))
        if self._plan_without(name, chosen) is None:
            return []
        needed = 0
        for item in list(chosen):
            others = [other for other in chosen if other is not item]
            if self._plan_without(name, others) is not None:
                chosen = others
            else:
                needed += 1
                if needed > most:
                    return []
        return chosen

    def _plan_without(self, name: str, gone: Collection[Movable]) -> tuple[Planned, ...] | None:
        """The devices for the request on the node after these pods are gone."""
        if not self._has_room(name, gone):
            return None
        overlay = self._start.overlay.without([claim for item in gone for claim in item.claims])
        return self._plan(overlay, self._request.claims, name)

    def _has_room(self, name: str, gone: Collection[Movable]) -> bool:
        now = self._start
        for item in gone:
            now = now.with_pod_moved(item.pod, item.node)
        return self._suits(now, self._wants, name)

    def _moved(self, name: str, chosen: Sequence[Movable]) -> _AfterMoves | Movable:
        """The state after these pods are moved one after the other; or the first pod that fits no other node."""
        plans = self._plan_without(name, chosen)
        assert plans is not None, name
        # The moved pods must not take the devices of the request.
        after: _AfterMoves = replace(self._start, overlay=self._start.overlay.holding(plans)), ()
        for item in chosen:
            moved = self._move(after, item, name)
            if moved is None:
                return item
            after = moved
        return after

    def _move(self, after: _AfterMoves, item: Movable, source: str) -> _AfterMoves | None:
        """Move the pod to the fullest of the other nodes. None if it fits no node, or a disruption budget forbids its
        eviction after the earlier ones.
        """
        now, moves = after
        if item.pod.metadata.uid in violating((*(move.item.pod for move in moves), item.pod), self._budgets):
            return None
        now = now.with_pod_moved(item.pod, item.node)
        now = replace(now, overlay=now.overlay.without(item.claims))
        wants = self._view.wants(item.pod)
        names = [name for name in self._view.cluster.nodes if name != source and self._suits(now, wants, name)]
        fits = self._fitting(now.overlay, item.claims, names)
        ledger, inventory = self._view.ledger, self._view.cluster.inventory
        in_use = {name: sum(len(ledger.in_use(pool)) for pool in inventory.pools_seen(name)) for name in fits}
        target = min(fits, key=lambda name: (-in_use[name], name), default=None)
        plans = self._plan(now.overlay, item.claims, target) if target is not None else None
        if target is None or plans is None:
            return None
        now = now.with_pod_moved(item.pod, "", target)
        now = replace(now, overlay=now.overlay.with_plans(plans))
        return now, (*moves, Move(item, target, plans))

    def _suits(self, now: ClusterSnapshot, wants: Wants | None, name: str) -> bool:
        """True when nothing but devices can keep the pod, if there is one, from the node."""
        return wants is None or next(now.obstacles(wants, self._view.cluster.nodes[name]), None) is None

    def _plan(self, state: Overlay, claims: Sequence[ResourceClaim], node: str) -> tuple[Planned, ...] | None:
        """The devices for the claims on the node in this state. Raises _TooManyDecisionsError."""
        self._count()
        if not claims:
            return ()
        found = self._view.decisions.with_state(state).plan(claims, node)
        return tuple(zip(claims, found.allocations, strict=True)) if isinstance(found, Plan) else None

    def _fitting(self, state: Overlay, claims: Sequence[ResourceClaim], names: Sequence[str]) -> Sequence[str]:
        """The nodes among these where the claims can be allocated in this state. Raises _TooManyDecisionsError."""
        self._count()
        return self._view.decisions.with_state(state).node_results(claims, names).fits

    def _count(self) -> None:
        if self.decisions >= self._most:
            raise _TooManyDecisionsError
        self.decisions += 1


def _cost(advice: Advice) -> tuple[int, int, str]:
    return len(advice.moves), sum(move.item.devices for move in advice.moves), advice.node
