"""Gangs between filter calls: their plans, the nodes that kube-scheduler refused, and the events that requeue them.

Promises: `decide` changes nothing; `keep` keeps what it decided. A member without a plan is not bound before its gang
has one. A member that kube-scheduler does not let onto its planned node gets another plan, without this node for
`AVOIDED_SECONDS`. A gang that had to wait for members is tried again when one of them appears.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import ClassVar, Final

from cachetools import LRUCache, TTLCache
from msgspec.structs import replace

from dra_extender.allocation.budget import Deferred
from dra_extender.api.core import Pod
from dra_extender.api.groups import GroupKey, group_of
from dra_extender.devices.overlay import Overlay, Planned
from dra_extender.limits import PODS_OF_GANG
from dra_extender.scheduling.claims import known_claims
from dra_extender.scheduling.feasibility import PreFilterState, node_statuses, pre_filter
from dra_extender.scheduling.gangs.decision import GangDecision, GangState, decide
from dra_extender.scheduling.gangs.gang import Gang, gang_with_devices, has_enough
from dra_extender.scheduling.gangs.joint import NODES_PER_UNIT
from dra_extender.scheduling.gangs.plans import GangPlans
from dra_extender.scheduling.gangs.topology import ANYWHERE
from dra_extender.scheduling.noderules import ResourcesInUse
from dra_extender.scheduling.ports import Clock
from dra_extender.scheduling.requeue import RequeueTrigger
from dra_extender.scheduling.view import View

SAMPLE: Final = 100
"""kube-scheduler leaves out nodes only after it has found this number (minFeasibleNodesToFind)."""
NOT_ASKED: Final = "kube-scheduler has not asked about the planned node; the pod is nominated for it"
EXPIRED: Final = "devices were held for its pods, which were not bound in time; it is tried again after a pause"
REMEMBERED: Final = 10_000
PODS_AT_ONCE: Final = 1_000


DecidedGang = tuple[GroupKey, GangDecision] | None
PlanGang = Callable[[View], DecidedGang]


@dataclass(eq=False)
class Gangs:
    """One per service. `_kept_by_nominations`: the plans that nominations keep from a pod."""

    AVOIDED_SECONDS: ClassVar[float] = 30.0

    plans: GangPlans
    usage: ResourcesInUse
    _requeue: RequeueTrigger
    _kept_by_nominations: Callable[[Pod], Sequence[Planned]]
    _clock: Clock
    _paused: set[GroupKey] = field(default_factory=set)
    """Gangs that were refused because of their pause."""

    def __post_init__(self) -> None:
        self._read: LRUCache[str, tuple[GroupKey, object]] = LRUCache(REMEMBERED)
        """By UID of a waiting pod: its group, and what decisions read of it."""
        clock, seconds = self._clock.monotonic, self.AVOIDED_SECONDS
        self._avoided: TTLCache[str, frozenset[str]] = TTLCache(REMEMBERED, seconds, timer=clock)

    def kept_from(self, pod: Pod) -> Sequence[Planned]:
        """The plans for other pods whose devices this pod must not use. Of two plans for a claim the first one counts:
        the gang's own comes before that of its nomination.
        """
        found = self._kept_by_nominations(pod)
        return [*self.plans.kept_from(pod), *found] if len(self.plans) else found

    def decide(self, view: View, gang: Gang, prefiltered: PreFilterState, names: Sequence[str]) -> GangDecision:
        """See `decision.decide`. Raises TurnSpent."""
        if self.plans.is_paused(gang.key):
            return GangDecision(reason=f"{gang.key}: {EXPIRED}")
        state = self.state(view, gang, prefiltered.pod)
        try:
            return self._decide(view, gang, prefiltered, names, state)
        except Deferred as waiting:
            return GangDecision(reason=f"{gang.key}: {waiting}", waiting=True)

    def _decide(
        self, view: View, gang: Gang, prefiltered: PreFilterState, names: Sequence[str], state: GangState
    ) -> GangDecision:
        """Decide on the nodes of the call first, unless the plan or the topology needs a node outside the call."""
        others = self._not_asked(view, gang.key, prefiltered.pod, names, state)
        known = state.places.get(prefiltered.pod.metadata.uid)
        has_topology = gang.levels != (ANYWHERE,) or gang.attributes
        if not others or not (has_topology or (known is not None and known.node in others)):
            found = decide(view, gang, prefiltered, names, state)
            if not others or found.node or found.error or found.waiting:
                return replace(found, sampled=bool(others))
        state = replace(state, unfiltered=frozenset(others), hypothesis=NOT_ASKED)
        found = replace(decide(view, gang, prefiltered, [*names, *others], state), sampled=True)
        if not found.node or found.anywhere or found.node in names:
            return found
        return replace(found, node="", reason=f"{gang.key}: {NOT_ASKED}")

    def _not_asked(
        self, view: View, key: GroupKey, pod: Pod, names: Sequence[str], state: GangState
    ) -> Collection[str]:
        """The nodes outside the call that suit the pod: kube-scheduler has found enough others, or tries the nominated
        node first. Empty if the call has the planned node, or if kube-scheduler has refused a planned node lately: it
        may have other rules for the pod. Raises TurnSpent and Deferred.
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
        wants, others = view.wants(pod), [node for name, node in nodes.items() if name not in left_out]
        view.decisions.budget.spend(len(nodes) // NODES_PER_UNIT + len(others) * wants.cost)
        return [node.metadata.name for node in others if not self.usage.keeps_away(wants, node)]

    def has_full_plan(self, view: View, pod: Pod) -> bool:
        """Whether the pod has a place in a plan, and the plan has places for as many members as the gang needs now."""
        key = group_of(pod)
        plan = self.plans.get(key) if key is not None else None
        if key is None or plan is None or pod.metadata.uid not in plan.places:
            return False
        return has_enough(view, key, plan.places)

    def plan_for_bind(self, view: View, pod: Pod, node: str) -> DecidedGang:
        """The decision about a member that is to be bound to the node, unless `has_full_plan`; None for all other pods.
        Raises TurnSpent.
        """
        gang = None if self.has_full_plan(view, pod) else gang_with_devices(view, pod)
        prefiltered = pre_filter(view, pod) if gang is not None else None
        if gang is None or not isinstance(prefiltered, PreFilterState):
            return None
        return gang.key, self.decide(view, gang, prefiltered, (node,))

    async def begun(self, view: View) -> list[Pod]:
        """A waiting pod of each group of which some pods are bound: by priority, then groups of which a bound pod has
        devices, then the first group of each namespace before the second one of any.
        """
        bound, waiting = dict[GroupKey, list[Pod]](), dict[GroupKey, Pod]()
        for number, pod in enumerate(list(view.pods)):
            if number % PODS_AT_ONCE == 0:
                await asyncio.sleep(0)
            key = group_of(pod) if not (pod.finished or pod.metadata.deletion_timestamp) else None
            if key is not None and pod.spec.node_name:
                bound.setdefault(key, []).append(pod)
            elif key is not None and view.config.may_clear_for(pod.spec.scheduler_name):
                waiting[key] = pod
        turns = Counter[tuple[str, bool]]()
        found: list[tuple[tuple[int, bool, int], Pod]] = []
        for key, pod in waiting.items():
            if key in bound and view.pods.in_group(key) <= PODS_OF_GANG:
                claims = chain.from_iterable(known_claims(each, view.ledger) for each in bound[key])
                has_none = not any(claim.allocation for claim in claims)
                turns[key.namespace, has_none] += 1
                found.append(((-pod.spec.priority, has_none, turns[key.namespace, has_none]), pod))
                await asyncio.sleep(0)
        return [pod for _, pod in sorted(found, key=itemgetter(0))]

    async def restore(self, pod: Pod, decided: Callable[[Pod, PlanGang], Awaitable[tuple[DecidedGang, bool]]]) -> bool:
        """Plan the gang of the pod if not enough of its pods are bound: others would get the devices for the rest.
        `decided` makes a decision, in turns. True when workers have to answer before it has a plan.
        """
        found, unfinished = await decided(pod, partial(self._plan_begun, uid=pod.metadata.uid))
        await asyncio.sleep(0)
        if found is None or found[1].places is None:
            return unfinished
        self.plans.put(found[0], found[1].places, found[1].values)
        return False

    def _plan_begun(self, view: View, uid: str) -> DecidedGang:
        pod = view.pods.get(uid)
        gang = gang_with_devices(view, pod) if pod is not None else None
        for each in gang.waiting if gang is not None and gang.placed and gang.needed else ():
            prefiltered = pre_filter(view, each)
            if gang is not None and isinstance(prefiltered, PreFilterState):
                return gang.key, self.decide(view, gang, prefiltered, self._suitable(view, prefiltered))
        return None

    def _suitable(self, view: View, prefiltered: PreFilterState) -> Sequence[str]:
        """The nodes that fit, by devices and by the rules of kube-scheduler that are known here. Raises TurnSpent."""
        budget, wants, nodes = view.decisions.budget, view.wants(prefiltered.pod), view.cluster.nodes
        found: Sequence[str] | None = budget.found.get(key := (Gangs, prefiltered.pod.metadata.uid))
        if found is None:
            fits = node_statuses(view, prefiltered, list(nodes)).fits
            budget.spend(len(fits) * wants.cost)
            budget.found[key] = found = [name for name in fits if not self.usage.keeps_away(wants, nodes[name])]
        return found

    def state(self, view: View, gang: Gang, pod: Pod) -> GangState:
        """What a decision about a member of the gang needs besides the view."""
        plan = self.plans.get(gang.key)
        kept = [*self.plans.kept_for_others(gang.key, pod), *self._kept_by_nominations(pod)]
        return GangState(
            free=view.with_state(Overlay(view.cluster)).holding(kept),
            used=self.usage.used,
            places=plan.places if plan is not None else {},
            offered=plan.offered if plan is not None else (),
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
        """Drop expired plans. Requeue the gangs whose pause is over, or that may use a node again."""
        self.plans.expire()
        over = {key for key in self._paused if not self.plans.is_paused(key)}
        self._paused -= over
        if over or self._avoided.expire():
            self._requeue.improved()
