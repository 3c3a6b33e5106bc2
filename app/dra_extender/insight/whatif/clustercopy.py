"""A full copy of the cluster, on which changes and bindings are applied without any effect on the cluster. Pods are
placed on it one after the other, each on the first node that fits by name.

Promises: copying runs in turns, and the copy shows the state of one moment. A finished copy shares nothing with the
live cluster. Devices that a bind in progress holds are in use in the copy too. Decisions on the copy run the same code
as decisions on the cluster.

The pods of a gang are placed together, or none of them is.

A placed pod uses devices and resources that later pods cannot have. Besides devices, the rules of kube-scheduler in
`noderules` count. A pod that requests the same as an earlier pod starts at the node where the earlier pod stopped:
nodes that refused the earlier pod refuse this one too, because placing only takes resources. Nodes that are added come
last. At most `most` nodes are tried for all pods together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Hashable, Sequence, Set
from contextlib import suppress
from itertools import chain
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from dra_extender.api.core import Node, Pod
from dra_extender.api.events import Applied, Removed
from dra_extender.api.groups import group_of
from dra_extender.api.meta import OwnerReference
from dra_extender.api.resource import EXTENDED_RESOURCE_CLAIM_ANNOTATION as EXTENDED
from dra_extender.api.resource import DeviceClass, ResourceClaim, ResourceClaimStatus, ResourceSlice
from dra_extender.devices.cluster import Cluster
from dra_extender.devices.content import digest
from dra_extender.devices.ledger import HeldError, identity
from dra_extender.devices.overlay import Planned
from dra_extender.devices.publishedpool import PublishedPool
from dra_extender.devices.usage import PoolID
from dra_extender.insight.snapshot import ClusterSnapshot, SimulatedPod
from dra_extender.insight.why.diagnosis import of_pod
from dra_extender.insight.why.gangs import JointTrials, trials_of
from dra_extender.insight.why.wording import obstacle_text
from dra_extender.plaintext import counted
from dra_extender.scheduling.claims import all_claim_names, consumer, known_claims
from dra_extender.scheduling.extended import ResourceNames, existing_claim
from dra_extender.scheduling.feasibility import (
    NodeAllocation,
    NodeStatuses,
    PendingClaims,
    PreFilterState,
    allocate,
    node_statuses,
    pending_claims,
    pre_filter,
)
from dra_extender.scheduling.gangs.joint import Place
from dra_extender.scheduling.nodeallocatable import with_statuses
from dra_extender.scheduling.noderules import ResourcesInUse
from dra_extender.scheduling.turns import PORTION, UNDECIDED, QueryBudget, Turns
from dra_extender.scheduling.view import View

COPY: Final = 25
"""Units of work to copy an object or a device."""


class ClusterCopy:
    """Made by `copied`. Without reference cycles, so it is freed with its last user."""

    def __init__(self, view: View) -> None:
        self.cluster = Cluster(view.features)
        self.pods = self.cluster.pods
        self.usage = ResourcesInUse()
        self._names = ResourceNames(self.cluster.classes, view.clock, view.config)
        self.view = View(
            cluster=self.cluster,
            decisions=view.decisions.on(self.cluster),
            pods=self.pods,
            clock=view.clock,
            config=view.config,
            resources=self._names,
            binding=dict(view.binding),
            clearing=frozenset(view.clearing),
            budgets=view.budgets,
            used=self.usage.used,
            set_aside=view.set_aside,
        )
        self.kept: Sequence[Planned] = ()
        """Devices that count as allocated, because other pods get them."""
        self._made = 0
        self._undo: list[ResourceClaim | Pod | Removed] = []

    def pod(self, pod: Pod) -> SimulatedPod:
        """The pod in the current state of the copy."""
        view = self.view.holding(self.kept)
        return SimulatedPod(pod, ClusterSnapshot(view=view, usage=self.usage, overlay=view.overlay()))

    def put(self, item: Node | ResourceSlice | DeviceClass | ResourceClaim) -> None:
        """Add the object, or replace the one of the same name."""
        if isinstance(item, ResourceClaim):
            known = self.cluster.ledger.get(item.metadata.namespace, item.metadata.name)
            if known is not None and known.metadata.uid != item.metadata.uid:
                item = replace(item, metadata=replace(item.metadata, uid=known.metadata.uid))
            item = replace(item, metadata=replace(item.metadata, resource_version=""))
        self.cluster.apply(Applied(item))
        self._names.classes_changed()

    def put_pod(self, pod: Pod) -> None:
        """Add the pod, or replace the one with the same UID."""
        self.usage.drop(pod.metadata.uid)
        self.pods.apply(replace(pod, metadata=replace(pod.metadata, resource_version="")))
        self.usage.put(pod)

    def evict(self, pod: Pod) -> None:
        """Take the pod off its node, and deallocate the claims that no other pod uses. The claim for its extended
        resources goes: the pod that replaces it gets another one.
        """
        own = existing_claim(pod, self.cluster.ledger.owned_by(pod.metadata.namespace, pod.metadata.uid))
        for claim in known_claims(pod, self.cluster.ledger):
            users = tuple(user for user in claim.status.reserved_for if user.uid != pod.metadata.uid)
            if claim is own:
                self.cluster.apply(Removed.of(claim))
            elif len(users) < len(claim.status.reserved_for):
                status = replace(claim.status, reserved_for=users) if users else ResourceClaimStatus()
                self.put(replace(claim, status=status))
        self.put_pod(with_statuses(replace(pod, spec=replace(pod.spec, node_name="")), ()))

    def remove(self, pod: Pod) -> None:
        """Delete the pod, and the claims that it owns."""
        self.evict(pod)
        for claim in self.cluster.ledger.owned_by(pod.metadata.namespace, pod.metadata.uid):
            self.cluster.apply(Removed.of(claim))
        self.usage.drop(pod.metadata.uid)
        self.pods.remove(pod.metadata.uid)

    def commit(self) -> None:
        """What was bound until now stays bound after `revert`."""
        self._undo.clear()

    def revert(self) -> Turns[None]:
        while self._undo:
            match self._undo.pop():
                case Removed() as event:
                    self.cluster.apply(event)
                case Pod() as pod:
                    self.put_pod(pod)
                case claim:
                    self.put(claim)
            yield

    def bind(self, allocation: NodeAllocation, node: str) -> None:
        prefiltered, pod = allocation.prefiltered, allocation.prefiltered.pod
        claims = [
            replace(claim, status=replace(claim.status, allocation=devices))
            for claim, devices in zip(allocation.pending, allocation.allocations, strict=True)
        ]
        if allocation.requests is not None and prefiltered.existing is None:
            claims[-1] = self._extended_claim(claims[-1], pod)
        for claim in (*claims, *prefiltered.claims.allocated):
            before = self.cluster.ledger.get(claim.metadata.namespace, claim.metadata.name)
            self._undo.append(before or Removed.of(claim))
            user, users = consumer(claim, pod, self.cluster), claim.status.reserved_for
            reserved = users if claim.reserved_for(user.uid) else (*users, user)
            self.put(replace(claim, status=replace(claim.status, reserved_for=reserved)))
        self._undo.append(pod)
        self.put_pod(with_statuses(replace(pod, spec=replace(pod.spec, node_name=node)), allocation.statuses))

    def bind_planned(self, place: Place) -> bool:
        """Bind the pod as planned in this state. False if it cannot be bound any more."""
        own, node = pre_filter(self.view, place.pod), self.cluster.nodes[place.node]
        pending = pending_claims(own, node) if isinstance(own, PreFilterState) else None
        if not isinstance(own, PreFilterState) or not isinstance(pending, PendingClaims):
            return False
        planned = {identity(claim): allocation for claim, allocation in place.planned}
        allocations = tuple(planned[identity(claim)] for claim in pending.claims)
        statuses = place.pod.status.node_allocatable_resource_claim_statuses
        self.bind(NodeAllocation(own, pending.claims, allocations, pending.requests, statuses=statuses), place.node)
        return True

    def _extended_claim(self, claim: ResourceClaim, pod: Pod) -> ResourceClaim:
        """The claim that the scheduler would create for extended resources."""
        self._made += 1
        name = f"{pod.metadata.name} (extended resources, {self._made})"
        owner = OwnerReference(kind="Pod", name=pod.metadata.name, uid=pod.metadata.uid, controller=True)
        own = {"name": name, "uid": f"{pod.metadata.uid} {name}", "annotations": {EXTENDED: "true"}}
        return replace(claim, metadata=replace(claim.metadata, **own, owner_references=(owner,)))


def copied(view: View, only: Set[str] | None = None, copy: ClusterCopy | None = None) -> Turns[ClusterCopy]:
    """A copy of the cluster as it is at one moment. `only`: without other nodes, without pools that are on other
    nodes alone, without the pods there that have no group, and without claims of neither these pods nor pools. `copy`:
    an empty one, to fill.
    """
    copy, cluster, ledger, budget = copy or ClusterCopy(view), view.cluster, view.cluster.ledger, QueryBudget(view)
    places = {"", None, *only} if only is not None else None
    pools, added = _pools(view, places), 0
    for pool in pools:
        work = pool.add_taints()
        yield from budget.charge(work)
        added += work
    pools = _pools(view, places) if added else pools
    nodes, pods = [*cluster.nodes.values()], iter(view.pods)
    if only is not None and places is not None:
        nodes = [cluster.nodes[name] for name in only if name in cluster.nodes]
        pods = (pod for pod in pods if pod.spec.node_name in places or group_of(pod) is not None)
    ids, named = {pool.id for pool in pools}, set[str]()
    slices = chain.from_iterable(pool.slices() for pool in pools)
    objects: list[Any] = [*cluster.classes.values(), *cluster.pod_groups, *nodes, *slices, *pods, *ledger.claims()]
    undecodable = list(cluster.undecodable.values())
    holds = [(claim, hold) for hold in ledger.holds() if (claim := ledger.by_uid(hold.claim_uid)) is not None]
    holds = [(claim, hold) for claim, hold in holds if claim.allocation is None]
    for item in objects:
        if isinstance(item, Pod):
            yield from budget.charge(copy.usage.put(item))
            named |= {item.metadata.uid, *(f"{item.metadata.namespace}/{name}" for name in all_claim_names(item))}
        if only is None or not isinstance(item, ResourceClaim) or _is_of(item, named, ids):
            copy.cluster.apply(Applied(item))
        yield from budget.charge(COPY * _size(item))
    for claim, hold in holds:
        with suppress(HeldError):  # another holder was faster: its hold counts
            copy.cluster.ledger.hold(claim, hold.allocation, owner=hold.owner)
    for event in undecodable:
        copy.cluster.apply(event)
    for work in copy.cluster.inventory.nodes.refresh_all():
        yield from budget.charge(work)
    return copy


def _pools(view: View, places: Set[str | None] | None) -> list[PublishedPool]:
    """The pools with a slice of one of these nodes, or of no single node; all pools if `places` is None."""
    pools = view.cluster.inventory.pools.values()
    return [
        pool for pool in pools if places is None or any(item.spec.node_name in places for item in pool.as_published())
    ]


def _is_of(claim: ResourceClaim, pods: Set[str], pools: Set[PoolID]) -> bool:
    """`pods`: their UIDs, and the keys of the claims that they name."""
    results = claim.allocation.devices.results if claim.allocation is not None else ()
    owned = any(owner.uid in pods for owner in claim.metadata.owner_references)
    return owned or claim.metadata.key in pods or any(each.id[:2] in pools for each in results)


def _size(item: object) -> int:
    if isinstance(item, ResourceSlice):
        return 3 + len(item.spec.devices)
    results = item.allocation.devices.results if isinstance(item, ResourceClaim) and item.allocation else ()
    return 1 + len(results)


MOST_NODES: Final = 400_000
"""Nodes that are tried per request at most, all pods together: some seconds of work."""
_REASONS: Final = 2


class Placed(msgspec.Struct, frozen=True):
    """`node`: where the pod fits, empty if nowhere. `reason`: why not. Not `decided`: some nodes were not decided in
    time.
    """

    node: str = ""
    reason: str = ""
    decided: bool = True


class _Progress:
    """The next node to try for pods of one shape, and the reasons of the nodes that refused them."""

    def __init__(self) -> None:
        self.index = 0
        self.lacking = 0
        self.undecided = 0
        self.obstacles: Counter[str] = Counter()

    def reason(self) -> str:
        """For people."""
        parts = [f"{counted(self.lacking, 'node')} {'lacks' if self.lacking == 1 else 'lack'} the devices"]
        parts = parts if self.lacking else []
        parts += [f"{counted(self.undecided, 'node')}: {UNDECIDED}"] if self.undecided else []
        parts += [f"{counted(count, 'node')}: {what}" for what, count in self.obstacles.most_common(_REASONS)]
        return "; ".join(parts) or "the cluster has no nodes"


class Placing:
    """Places pods on the nodes of a copy that does not change otherwise. `tried` counts nodes; `last` come last."""

    def __init__(self, copy: ClusterCopy, most: int = MOST_NODES, last: Container[str] = ()) -> None:
        self.tried = 0
        self._copy = copy
        self._most = most
        self._names = sorted(copy.cluster.nodes, key=lambda name: (name in last, name))
        self._known: dict[Hashable, _Progress] = {}
        self._of_gangs: dict[str, Placed] = {}
        """By UID: pods of gangs that were placed with an earlier pod, or not."""

    def node_added(self, name: str) -> None:
        """The copy has one more node. Gangs that did not fit may fit now."""
        self._names.append(name)
        self._of_gangs = {uid: placed for uid, placed in self._of_gangs.items() if placed.node}

    def place(self, pod: Pod, on: str = "") -> Turns[Placed | None]:
        """Place the pod on the first node that it fits, or on this one. None if it would try more than `most` nodes."""
        simulated = self._copy.pod(pod)
        prefiltered, whole = simulated.prefiltered, of_pod(simulated)
        if whole is not None or not isinstance(prefiltered, PreFilterState):
            return Placed(reason=whole.text if whole is not None else "")
        budget = QueryBudget(simulated.view)
        if not on and (trials := trials_of(simulated.view, simulated, self._names)) is not None:
            if pod.metadata.uid not in self._of_gangs:
                yield from self._place_gang(trials, budget)
            return self._of_gangs.get(pod.metadata.uid, Placed(reason=trials.gang.problem))
        shape = None if on else (yield from budget.turn(lambda view: _shape(view, prefiltered)))
        progress = self._known.setdefault(shape, _Progress()) if shape is not None else _Progress()
        candidates = [on] if on else self._names
        while progress.index < len(candidates):
            names = candidates[progress.index : progress.index + PORTION]
            if self.tried + len(names) > self._most:
                return None
            self.tried += len(names)
            node = yield from self._place_on(simulated, prefiltered, names, progress, budget)
            yield
            if node:
                return Placed(node)
        return Placed(reason=progress.reason(), decided=not progress.undecided)

    def _place_gang(self, trials: JointTrials, budget: QueryBudget) -> Turns[None]:
        """Place all pods of the gang that fit, or none if they are fewer than it needs."""
        gang = trials.gang
        self.tried += len(self._names)
        found = yield from trials.decide(trials.pod, budget)
        places = (found.places if found is not None else None) or {}
        reason = UNDECIDED if found is None else found.reason or found.error or f"{gang.key}: enough other pods fit"
        for pod in gang.waiting:
            self._of_gangs[pod.metadata.uid] = Placed(reason=reason, decided=found is not None and not found.waiting)
        for uid, place in places.items():
            if self._copy.bind_planned(place):
                self._of_gangs[uid] = Placed(place.node)
            yield

    def _place_on(
        self,
        simulated: SimulatedPod,
        prefiltered: PreFilterState,
        names: Sequence[str],
        progress: _Progress,
        budget: QueryBudget,
    ) -> Turns[str]:
        """The first of these nodes that fits; empty if none does."""
        obstacles, statuses = yield from decided_on(simulated, names, budget)
        fits = set(statuses.fits) if statuses is not None else set()
        chosen = next((name for name in names if name in fits), "")
        allocation = (yield from budget.turn(lambda view: allocate(view, prefiltered, chosen))) if chosen else None
        passed = names.index(chosen) if isinstance(allocation, NodeAllocation) else len(names)
        for name in names[:passed]:
            if found := obstacles[name]:
                progress.obstacles[found[0]] += 1
            elif statuses is None or statuses.waiting or (chosen and not isinstance(allocation, NodeAllocation)):
                progress.undecided += 1
            else:
                progress.lacking += 1
        progress.index += passed
        if not isinstance(allocation, NodeAllocation):
            return ""
        self._copy.bind(allocation, chosen)
        return chosen


def decided_on(
    pod: SimulatedPod, names: Sequence[str], budget: QueryBudget
) -> Turns[tuple[dict[str, list[str]], NodeStatuses | None]]:
    """What keeps the pod from each node besides devices, and whether the others have devices; None: undecided."""
    obstacles: dict[str, list[str]] = {}
    for name in names:
        yield from budget.charge(pod.cost_of(name))
        node = pod.snapshot.node(name)
        obstacles[name] = [obstacle_text(each) for each in pod.obstacles(node)] if node is not None else []
    prefiltered, free = pod.prefiltered, [name for name in names if not obstacles[name]]
    if not free or not isinstance(prefiltered, PreFilterState):
        return obstacles, NodeStatuses([], {})
    return obstacles, (yield from budget.turn(lambda view: node_statuses(view, prefiltered, free)))


def _shape(view: View, prefiltered: PreFilterState) -> Hashable:
    """A key of everything that the pod requests. None for a pod with allocated claims: no other pod equals it."""
    if prefiltered.claims.allocated or prefiltered.existing is not None:
        return None
    spec = replace(prefiltered.pod.spec, resource_claims=(), node_name="", priority=0)
    return view.decisions.signatures(prefiltered.claims.pending), digest(spec), prefiltered.pod.metadata.namespace
