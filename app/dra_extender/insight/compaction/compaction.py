"""Which pods to evict so that a request fits.

Promises: pure; the caller limits the number of decisions. Each move is decided on the state after the earlier moves,
and the request on the state after the last one. The list with the fewest moves wins, then the one with the fewest
devices, then the first by name of the node. The list has no unnecessary move.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from dra_extender.allocation.plan import Failure, Plan
from dra_extender.allocation.requests import prepare
from dra_extender.api.core import Pod
from dra_extender.api.resource import ResourceClaim
from dra_extender.devices.overlay import Overlay, Planned
from dra_extender.insight.compaction.moves import EvictionRules, Movable, Move, pods_of
from dra_extender.insight.snapshot import ClusterSnapshot, SimulatedPod, snapshot
from dra_extender.insight.why.gangs import placed_beside, trials_of
from dra_extender.plaintext import counted, wrapped
from dra_extender.scheduling.claims import Unschedulable
from dra_extender.scheduling.feasibility import PreFilterState, pre_filter
from dra_extender.scheduling.noderules import Wants
from dra_extender.scheduling.preemption.budgets import violating
from dra_extender.scheduling.turns import QueryBudget, run_at_once
from dra_extender.scheduling.view import View

WIDTH: Final = 80
SHOWN: Final = 5
CHECKED: Final = (
    "devices, cordons, taints, node selector and node affinity, host ports, resources of the node, disruption budgets"
)
UNCHECKED: Final = "volumes, affinity to pods, topology spread, quotas"


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

    def text(self) -> str:
        """For people."""
        return wrapped(self.lines(), WIDTH)

    def lines(self) -> Iterator[str]:
        """One finding each, of any length."""
        yield from self._finding()
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

    def _finding(self) -> Iterator[str]:
        pods = counted(len(self.moves), "pod")
        if self.fits:
            yield f"{self.request} fits without a move on {counted(len(self.fits), 'node')}: {_some(self.fits)}"
        elif self.moves:
            yield f"to make room for {self.request} on {self.node}, evict {pods} in this order:"
        else:
            yield f"no evictions make room for {self.request}"


def _devices(plans: Sequence[Planned]) -> tuple[str, ...]:
    return tuple("/".join(result.id) for _, allocation in plans for result in allocation.devices.results)


def _some(names: Sequence[str], most: int = SHOWN) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


MOST_DECISIONS: Final = 50_000


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


class _AfterMoves(NamedTuple):
    """The cluster after some moves."""

    snapshot: ClusterSnapshot
    moves: tuple[Move, ...] = ()


class _TooManyDecisionsError(Exception):
    """The limit of decisions is reached."""


class Compaction:
    """Compaction of one state of the cluster, for one request. `decisions` counts the decisions of the allocator."""

    def __init__(
        self, view: View, rules: EvictionRules, most: int = MOST_DECISIONS, start: ClusterSnapshot | None = None
    ) -> None:
        """`start`: the state, if it is not as `view` shows it."""
        self.decisions = 0
        self._view = view
        self._most = most
        self._start = start or snapshot(view)
        self._budgets = rules.budgets
        self._wants: dict[str, Wants] = {}
        pods = pods_of(view, rules)
        self._movable, self._kept = pods.movable, pods.kept

    def room_for(self, request: CompactionRequest) -> Advice:
        """The moves after which the request fits a node."""
        pod, best, complete = request.pod, Advice(request=request.name, kept=self._kept), True
        nodes = self._view.cluster.nodes
        names = [name for name in nodes if pod is None or next(self._wanted(pod).unsuited(nodes[name]), None) is None]
        try:
            roomy = [name for name in names if self._has_room(request, name, ())]
            fits = tuple(self._fitting(self._start.overlay, request.claims, roomy))
            if fits:
                return replace(best, fits=fits, decisions=self.decisions)
            for name, items in self._promising(names):
                if len(best.moves) == 1:
                    break
                found = self._on(request, name, items, len(best.moves) or len(items))
                if found is not None and (not best.moves or _cost(found) < _cost(best)):
                    best = found
        except _TooManyDecisionsError:
            complete = False
        return replace(best, decisions=self.decisions, complete=complete)

    def _promising(self, names: Sequence[str]) -> Iterator[tuple[str, list[Movable]]]:
        """The nodes with movable pods. Nodes with the fewest movable pods come first."""
        by_node: dict[str, list[Movable]] = {}
        for item in self._movable.values():
            by_node.setdefault(item.node, []).append(item)
        nodes = [(name, by_node[name]) for name in names if name in by_node]
        yield from sorted(nodes, key=lambda node: (len(node[1]), node[0]))

    def _on(self, request: CompactionRequest, name: str, items: Sequence[Movable], most: int) -> Advice | None:
        """At most `most` moves from this node. A pod that fits no other node comes first in the next attempt, so that
        it stays on the node.
        """
        candidates, first = list(items), set[str]()
        while candidates:
            chosen = self._fewest(request, name, candidates, most)
            if not chosen:
                return None
            chosen.sort(key=lambda item: (item.key not in first, -item.devices, item.key))
            found = self._moved(request, name, chosen)
            if isinstance(found, _AfterMoves):
                overlay = found.snapshot.overlay.without(request.claims)
                plans = self._plan(overlay, request.claims, name)
                if plans is None or not self._suits(found.snapshot, request.pod, name):
                    return None
                return Advice(request=request.name, kept=self._kept, node=name, moves=found.moves, plans=plans)
            if found.key in first:
                candidates.remove(found)
            first.add(found.key)
        return None

    def _fewest(self, request: CompactionRequest, name: str, items: Sequence[Movable], most: int) -> list[Movable]:
        """The pods that have to go so that the request fits, as few as possible: the smallest stay first. Empty if it
        does not fit anyway, or if there are more than `most`.
        """
        chosen = sorted(items, key=lambda item: (item.devices, item.key))
        if self._plan_without(request, name, chosen) is None:
            return []
        needed = 0
        for item in list(chosen):
            others = [other for other in chosen if other is not item]
            if self._plan_without(request, name, others) is not None:
                chosen = others
            else:
                needed += 1
                if needed > most:
                    return []
        return chosen

    def _plan_without(
        self, request: CompactionRequest, name: str, gone: Collection[Movable]
    ) -> tuple[Planned, ...] | None:
        """The devices for the request on the node after these pods are gone."""
        if not self._has_room(request, name, gone):
            return None
        overlay = self._start.overlay.without([claim for item in gone for claim in item.claims])
        return self._plan(overlay, request.claims, name)

    def _has_room(self, request: CompactionRequest, name: str, gone: Collection[Movable]) -> bool:
        now = self._start
        for item in gone:
            now = now.with_pod_moved(item.pod, item.node)
        return self._suits(now, request.pod, name)

    def _moved(self, request: CompactionRequest, name: str, chosen: Sequence[Movable]) -> _AfterMoves | Movable:
        """The state after these pods are moved one after the other; or the first pod that fits no other node."""
        plans = self._plan_without(request, name, chosen)
        assert plans is not None, name
        # The moved pods must not take the devices of the request.
        after = _AfterMoves(replace(self._start, overlay=self._start.overlay.holding(plans)))
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
        gone = [move.item.pod for move in after.moves]
        if item.pod.metadata.uid in violating((*gone, item.pod), self._budgets):
            return None
        now = after.snapshot.with_pod_moved(item.pod, item.node)
        now = replace(now, overlay=now.overlay.without(item.claims))
        names = [name for name in self._view.cluster.nodes if name != source and self._suits(now, item.pod, name)]
        fits = self._fitting(now.overlay, item.claims, names)
        target = min(fits, key=lambda name: (-self._in_use(name), name), default=None)
        plans = self._plan(now.overlay, item.claims, target) if target is not None else None
        if target is None or plans is None:
            return None
        now = now.with_pod_moved(item.pod, "", target)
        now = replace(now, overlay=now.overlay.with_plans(plans))
        return _AfterMoves(now, (*after.moves, Move(item, target, plans)))

    def _suits(self, now: ClusterSnapshot, pod: Pod | None, name: str) -> bool:
        """True when nothing but devices can keep the pod, if there is one, from the node."""
        return pod is None or next(now.obstacles(self._wanted(pod), self._view.cluster.nodes[name]), None) is None

    def _wanted(self, pod: Pod) -> Wants:
        uid = pod.metadata.uid
        return self._wants.get(uid) or self._wants.setdefault(uid, self._start.view.wants(pod))

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

    def _in_use(self, name: str) -> int:
        """How many devices of the node's pools are in use now."""
        return sum(len(self._view.ledger.in_use(pool)) for pool in self._view.cluster.inventory.pools_seen(name))


def _cost(advice: Advice) -> tuple[int, int, str]:
    return len(advice.moves), sum(move.item.devices for move in advice.moves), advice.node
