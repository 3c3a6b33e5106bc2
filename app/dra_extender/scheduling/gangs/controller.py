"""Gangs between the calls of filter: their plans, the nodes that turned out wrong, and the events that matter to them.

Promises of plans
- Devices that a plan holds count as in use in every verb, for all pods but the members that get them and pods of
  higher priority: these do not wait for pods that may never be bound, and nothing could be evicted for them.
- A gang has one plan. A plan holds devices for all members that have to be placed. Which member goes where is decided
  with the plan.
- A plan ends when all members are bound, one of them is deleted or leaves the gang, the gang cannot be placed any more,
  or no member is bound within `GangPlans.SECONDS`, and then no further one within `GangPlans.BOUND_SECONDS`. A gang
  whose plan ended for want of time gets the next one after a pause, so a gang that is never bound cannot hold devices
  all the time.
- Plans are not stored. After a restart the allocations of claims are what is known of a gang.

Promises of `Gangs`: `decide` changes nothing; `keep` keeps what it decided. A member without a plan is not bound before
its gang has one. A member that kube-scheduler does not let onto its planned node gets another plan, without this node
for `AVOIDED_SECONDS`. A gang that had to wait for members is tried again when one of them appears.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from itertools import chain
from typing import Final

import msgspec
from cachetools import LRUCache, TTLCache
from msgspec.structs import replace

from dra_extender.allocation.budget import Deferred
from dra_extender.allocation.constraints import Values
from dra_extender.api.core import Pod
from dra_extender.api.groups import GroupKey, group_of
from dra_extender.api.meta import parse_time
from dra_extender.devices.ledger import identity
from dra_extender.devices.overlay import Overlay, Planned
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.feasibility import PreFilterState, pre_filter
from dra_extender.scheduling.gangs.decision import GangDecision, GangState, decide
from dra_extender.scheduling.gangs.gang import Gang, gang_with_devices
from dra_extender.scheduling.gangs.joint import NODES_PER_UNIT, Place
from dra_extender.scheduling.gangs.topology import ANYWHERE
from dra_extender.scheduling.noderules import ResourcesInUse, Wants
from dra_extender.scheduling.outcomes import GANG_PLANS, GangPlanResult
from dra_extender.scheduling.ports import Clock, Observer
from dra_extender.scheduling.requeue import RequeueTrigger
from dra_extender.scheduling.view import View
from dra_extender.scheduling.waiting import Pauses

SAMPLE: Final = 100
"""kube-scheduler stops its search only after it has found this number of nodes."""
NOT_ASKED: Final = "kube-scheduler has not asked about the planned node; the pod is nominated for it"
IN_VAIN: Final = "devices were held for its pods, which were not bound in time; it is tried again after a pause"
REMEMBERED: Final = 10_000


class GangPlan(msgspec.Struct):
    """`places`: by UID of the member; `held`: see `_held`. `answered`: the members that a scheduler has a node for.
    `until`: monotonic seconds. `values`: of all its devices. `sampled`: kube-scheduler asks about a part of the nodes
    only. `bound`: the members that have left the plan because they are bound; `created`: when the first of them was.
    """

    places: dict[str, Place]
    until: float
    held: Mapping[str, tuple[Planned, int]] = {}
    values: Values = ()
    sampled: bool = False
    answered: set[str] = msgspec.field(default_factory=set)
    bound: set[str] = msgspec.field(default_factory=set)
    created: str = ""


class GangPlans:
    """By group. Changed by the filter verb and by events."""

    SECONDS: Final = 30.0
    """Longer than a scheduler takes between two members of a gang that it places pod by pod."""
    BOUND_SECONDS: Final = 330.0
    """A little more than the 5 minutes for which kube-scheduler lets members wait for each other."""

    def __init__(self, clock: Clock, config: SchedulingConfig, observer: Observer, ended: Callable[[], None]) -> None:
        """`ended`: called when devices are no longer held, so that other pods may fit."""
        self._clock = clock
        self._pauses: Pauses[int] = Pauses(clock, config)
        """By hash of the group, because users write the names of gangs, which may be long."""
        self._observer = observer
        self._ended = ended
        self._plans: dict[GroupKey, GangPlan] = {}

    def __len__(self) -> int:
        return len(self._plans)

    def __contains__(self, pod_uid: str) -> bool:
        """True when a plan has a node for the pod."""
        return self._of(pod_uid) is not None

    def get(self, key: GroupKey) -> GangPlan | None:
        return self._plans.get(key)

    def put(self, key: GroupKey, places: Mapping[str, Place], values: Values) -> None:
        """The gang has a new plan. Members that it leaves out have no place any more."""
        plan = self._plans.get(key)
        if plan is None:
            self._observer.count(GANG_PLANS, "made")
            plan = self._plans[key] = GangPlan({}, self._clock.monotonic() + self.SECONDS)
        plan.places, plan.values, plan.held = dict(places), values, _held(places.values())

    def values(self, pod: Pod) -> Values:
        """The values that the devices of the pod must have."""
        key = group_of(pod) if self._plans else None
        plan = self._plans.get(key) if key is not None else None
        return plan.values if plan is not None else ()

    def answered(self, key: GroupKey, pod_uid: str, *, node: bool, sampled: bool) -> None:
        """A scheduler has a node for the member now if `node`; `sampled`: it asks about a part of the nodes only."""
        plan = self._plans.get(key)
        if plan is not None:
            plan.sampled = plan.sampled or sampled
            plan.answered |= {pod_uid} if node else set()

    def to_nominate(self) -> Sequence[Place]:
        """The places about which kube-scheduler may not ask by itself."""
        return [place for plan in self._plans.values() if plan.sampled for place in plan.places.values()]

    def has(self, pod_uid: str, node: str) -> bool:
        key = self._of(pod_uid)
        return key is not None and self._plans[key].places[pod_uid].node == node

    def is_paused(self, key: GroupKey) -> bool:
        """True while the gang gets no plan, because its last one was in vain."""
        return key not in self._plans and not self._pauses.over(hash(key))

    def drop(self, key: GroupKey, result: GangPlanResult) -> None:
        """The gang has no plan any more."""
        if self._plans.pop(key, None) is not None:
            self._observer.count(GANG_PLANS, result)
            self._ended()

    def bound(self, pod: Pod) -> None:
        """The pod has its node: the ledger knows its devices."""
        pod_uid = pod.metadata.uid
        key = self._of(pod_uid)
        if key is not None:
            plan = self._plans[key]
            del plan.places[pod_uid]
            plan.held = _held(plan.places.values())
            plan.created = min(filter(None, (plan.created, pod.metadata.creation_timestamp)), default="")
            plan.bound.add(pod_uid)
            plan.until = self._clock.monotonic() + self.BOUND_SECONDS
            self._pauses.forget(hash(key))
            if not plan.places:
                del self._plans[key]
                self._observer.count(GANG_PLANS, "bound")
                if (since := parse_time(plan.created)) is not None:
                    self._observer.waited(max(0.0, (self._clock.wall() - since).total_seconds()), gang=True)

    def gone(self, pod_uid: str) -> None:
        """The pod was deleted, has ended, or has left its gang."""
        for key in [key for key, plan in self._plans.items() if pod_uid in plan.places or pod_uid in plan.bound]:
            self.drop(key, "gone")

    def _of(self, pod_uid: str) -> GroupKey | None:
        return next((key for key, plan in self._plans.items() if pod_uid in plan.places), None)

    def expire(self) -> None:
        """Drop the plans whose time is over."""
        now = self._clock.monotonic()
        for key in [key for key, plan in self._plans.items() if plan.until <= now]:
            self._pauses.failed(hash(key))
            self.drop(key, "expired")

    def kept_from(self, pod: Pod) -> Sequence[Planned]:
        """What is held for other pods: the claims of the pod itself are left out."""
        key = group_of(pod)
        own = self._plans.get(key) if key is not None else None
        place = own.places.get(pod.metadata.uid) if own is not None else None
        mine = {identity(claim) for claim, _ in place.planned} if place is not None else ()
        return self.kept_beside(None, pod, mine)

    def kept_beside(self, key: GroupKey | None, pod: Pod, mine: Container[str] = ()) -> Sequence[Planned]:
        """What is held for pods of other groups than `key` whose priority is not lower, without the claims `mine`."""
        held = chain.from_iterable(plan.held.items() for other, plan in self._plans.items() if other != key)
        return [planned for claim, (planned, least) in held if least >= pod.spec.priority and claim not in mine]


def _held(places: Iterable[Place]) -> Mapping[str, tuple[Planned, int]]:
    """The claims that get devices, by identity, with the highest priority of their pods: pods may share a claim."""
    found: dict[str, tuple[Planned, int]] = {}
    for place in sorted(places, key=lambda each: each.pod.spec.priority):
        planned = (each for each in place.planned if each[1].devices.results)
        found.update((identity(each[0]), (each, place.pod.spec.priority)) for each in planned)
    return found


class Gangs:
    """One per service. `kept_by_others`: what is kept from a pod besides plans of gangs."""

    AVOIDED_SECONDS: Final = 30.0

    def __init__(
        self,
        clock: Clock,
        config: SchedulingConfig,
        usage: ResourcesInUse,
        requeue: RequeueTrigger,
        kept_by_others: Callable[[Pod], Sequence[Planned]],
        observer: Observer,
    ) -> None:
        self.plans = GangPlans(clock, config, observer, requeue.improved)
        self.usage = usage
        self._requeue = requeue
        self._kept_by_others = kept_by_others
        self._paused: set[GroupKey] = set()
        """Gangs that were refused because of their pause."""
        self._read: LRUCache[str, tuple[GroupKey, object]] = LRUCache(REMEMBERED)
        """By UID of a waiting pod: its group, and what decisions read of it."""
        self._avoided: TTLCache[str, frozenset[str]] = TTLCache(REMEMBERED, self.AVOIDED_SECONDS, timer=clock.monotonic)

    def kept_from(self, pod: Pod) -> Sequence[Planned]:
        """The devices that the pod must not use because other pods get them. Of a claim that the plan of a gang and its
        nomination have, the plan comes first, and alone counts.
        """
        found = self._kept_by_others(pod)
        return [*self.plans.kept_from(pod), *found] if len(self.plans) else found

    def decide(self, view: View, gang: Gang, prefiltered: PreFilterState, names: Sequence[str]) -> GangDecision:
        """See `decision.decide`. Raises TurnSpent."""
        if self.plans.is_paused(gang.key):
            return GangDecision(reason=f"{gang.key}: {IN_VAIN}")
        state = self.state(view, gang, prefiltered.pod)
        try:
            return self._decide(view, gang, prefiltered, names, state)
        except Deferred as waiting:
            return GangDecision(reason=f"{gang.key}: {waiting}", waiting=True)

    def _decide(
        self, view: View, gang: Gang, prefiltered: PreFilterState, names: Sequence[str], state: GangState
    ) -> GangDecision:
        """With the nodes of the call first, unless the plan or the topology needs one of the others."""
        others = self._not_asked(view, gang.key, prefiltered.pod, names, state)
        known = state.places.get(prefiltered.pod.metadata.uid)
        has_topology = gang.levels != (ANYWHERE,) or gang.attributes
        if not others or not (has_topology or (known is not None and known.node in others)):
            found = decide(view, gang, prefiltered, names, state)
            if not others or found.node or found.error or found.waiting:
                return replace(found, sampled=bool(others))
        state = replace(state, unjudged=frozenset(others), supposed=NOT_ASKED)
        found = replace(decide(view, gang, prefiltered, [*names, *others], state), sampled=True)
        if not found.node or found.anywhere or found.node in names:
            return found
        return replace(found, node="", reason=f"{gang.key}: {NOT_ASKED}")

    def _not_asked(
        self, view: View, key: GroupKey, pod: Pod, names: Sequence[str], state: GangState
    ) -> Collection[str]:
        """The nodes that suit the pod and are not in the call, because kube-scheduler has found enough others, or tries
        the nominated node first. None if the call has the planned node, or kube-scheduler has refused a planned node
        lately: then it may have other rules for the pod. Raises TurnSpent and Deferred.
        """
        nodes, named, known = view.cluster.nodes, pod.status.nominated_node_name, state.places.get(pod.metadata.uid)
        if known is not None and known.node in (*names, named):
            return ()
        plan = self.plans.get(key)
        if known is not None and plan is not None and plan.sampled and list(names) == [named]:
            return (known.node,)
        is_part = SAMPLE <= len(names) < len(nodes) and view.config.nominate != "never"
        if not is_part or state.avoided.get(pod.metadata.uid):
            return ()
        left_out = {*names, named}
        wants, others = Wants(pod), [node for name, node in nodes.items() if name not in left_out]
        view.decisions.budget.spend(len(nodes) // NODES_PER_UNIT + len(others) * wants.cost)
        return [node.metadata.name for node in others if not self.usage.keeps_away(wants, node)]

    def plan_for_bind(self, view: View, pod: Pod, node: str) -> tuple[GroupKey, GangDecision] | None:
        """The decision about a member that is to be bound to the node and has no plan; None for all other pods. Raises
        TurnSpent.
        """
        gang = None if pod.metadata.uid in self.plans else gang_with_devices(view, pod)
        prefiltered = pre_filter(view, pod) if gang is not None else None
        if gang is None or not isinstance(prefiltered, PreFilterState):
            return None
        return gang.key, self.decide(view, gang, prefiltered, (node,))

    def state(self, view: View, gang: Gang, pod: Pod) -> GangState:
        """What a decision about a member of the gang has to know besides the view."""
        plan = self.plans.get(gang.key)
        beside = [*self.plans.kept_beside(gang.key, pod), *self._kept_by_others(pod)]
        return GangState(
            free=view.with_state(Overlay(view.cluster)).holding(beside),
            used=self.usage.used,
            places=plan.places if plan is not None else {},
            answered=plan.answered if plan is not None else (),
            avoided={each.metadata.uid: self._avoided.get(each.metadata.uid, frozenset()) for each in gang.waiting},
        )

    def keep(self, key: GroupKey, pod: Pod, names: Sequence[str], found: GangDecision) -> None:
        """Remember what was decided about the member."""
        uid = pod.metadata.uid
        plan = self.plans.get(key)
        before = plan.places.get(uid) if plan is not None else None
        if before is not None and before.node not in names and not (found.sampled and found.places is None):
            self._avoided[uid] = self._avoided.get(uid, frozenset()) | {before.node}
        if self.plans.is_paused(key):
            self._paused.add(key)
        if found.lost:
            self.plans.drop(key, "lost")
        if found.places is not None:
            self.plans.put(key, found.places, found.values)
        self.plans.answered(key, uid, node=bool(found.node), sampled=found.sampled)

    def pod_applied(self, pod: Pod) -> None:
        """The watch shows a pod. A gang is tried again if a waiting pod leaves it, or changes what decisions read."""
        key, meta = group_of(pod), pod.metadata
        before = self._read.get(meta.uid)
        if before is not None and before[0] != key:
            del self._read[meta.uid]
            self.plans.gone(meta.uid)
            self._requeue.ended(str(before[0]))
        if key is None:
            return
        ends = pod.finished or bool(meta.deletion_timestamp)
        if ends:
            self.plans.gone(meta.uid)
        elif pod.spec.node_name:
            self.plans.bound(pod)
        read = key, (ends, pod.spec, meta.labels, meta.annotations, pod.status.resource_claim_statuses)
        if not pod.spec.node_name and before != read:
            self._read[meta.uid] = read
            self._requeue.ended(str(key))

    def pod_removed(self, pod_uid: str) -> None:
        self.plans.gone(pod_uid)
        read = self._read.pop(pod_uid, None)
        if read is not None:
            self._requeue.ended(str(read[0]))

    async def work(self) -> None:
        """End the plans whose time is over. Have the gangs tried again whose pause is over, or that may use a node
        again.
        """
        self.plans.expire()
        over = {key for key in self._paused if not self.plans.is_paused(key)}
        self._paused -= over
        if over or self._avoided.expire():
            self._requeue.improved()
