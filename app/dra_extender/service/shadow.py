"""The record of shadow mode: each binding of any scheduler, compared with what this service would have done.

Promises: a pod is compared on the state before its first allocation was written, or before its binding if its claims
were allocated earlier. A gang is decided once, before the first allocation of its pods; its places are interchangeable.
Two copies follow the events of the watches in order: `before` is that state; in `packed`, the pods that came since the
record began are where this service would have placed them, each as soon as it fits, with a policy also pods without
devices. Decisions run in turns, in the budget of a question; none while `BEHIND` events wait. Nothing is written.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from cachetools import LRUCache
from msgspec.structs import replace

from dra_extender.allocation.plan import score_of
from dra_extender.api.core import Node, Pod, PodStatus
from dra_extender.api.decoding import encode
from dra_extender.api.events import Applied, ClusterEvent, Removed
from dra_extender.api.meta import format_time
from dra_extender.api.resource import EXTENDED_RESOURCE_CLAIM_ANNOTATION as EXTENDED
from dra_extender.api.resource import ResourceClaim, ResourceClaimStatus
from dra_extender.devices.audit import node_of
from dra_extender.insight.shadow import DEVICES, Outcome, ShadowExample, ShadowReport, devices_of, usage, waits
from dra_extender.insight.whatif.clustercopy import ClusterCopy, copied, decided_on
from dra_extender.insight.why.diagnosis import of_pod
from dra_extender.insight.why.gangs import trials_of
from dra_extender.placement.learner import PlacementLearner
from dra_extender.placement.placement import FIRST_FIT
from dra_extender.placement.policies import PlacementStrategy
from dra_extender.scheduling.claims import Unschedulable, all_claim_names, known_claims
from dra_extender.scheduling.feasibility import NodeAllocation, PreFilterState, allocate
from dra_extender.scheduling.gangs.gang import gang_of
from dra_extender.scheduling.gangs.joint import Place
from dra_extender.scheduling.nodeallocatable import with_statuses
from dra_extender.scheduling.noderules import is_large
from dra_extender.scheduling.turns import PORTION, QueryBudget, Turns, run
from dra_extender.scheduling.verbs.prioritize import chosen_of, raw_scores
from dra_extender.scheduling.view import View
from dra_extender.unexpected import continuing

BEHIND: Final = 5_000
EVENT: Final = 8 * 2**10  # bytes: the event of a larger object counts as several
Times = Mapping[str, tuple[float, ...]]
NOTICED: Final = 5.0  # seconds: a pod that is bound earlier has not waited, its scheduler had other pods to schedule
RECENT: Final = 1.0  # seconds in which a scheduler learns that a device is free, or writes what it has decided


class Choice(msgspec.Struct):
    """`places`: by UID, where the pod, or the pods of its gang, would run, until a pod has the place. `why`: the rule
    that refuses the pod, or the node that it has got. `equal`: when no policy chooses, all nodes with the best score.
    `at`: the time of the first allocation. `rule`: of any other difference.
    """

    places: dict[str, Place] = {}
    why: str = ""
    equal: frozenset[str] = frozenset()
    at: float = 0.0
    rule: str = ""

    def compared(self, pod: Pod, made: Sequence[ResourceClaim], waited: bool, changed: Times) -> tuple[str, Outcome]:
        """The rule, and what the pod would have got instead of `made`. `changed`: when devices were given or freed."""
        node, devices = pod.spec.node_name, devices_of(claim.allocation for claim in made)

        def differs(place: Place) -> tuple[bool, bool, bool]:
            elsewhere = place.node != node and node not in self.equal
            return elsewhere, _planned(place) != devices, place.pod.metadata.uid != pod.metadata.uid

        place = min(self.places.values(), key=differs, default=None)
        if self.rule or self.why or place is None:
            return self.rule or "refused", Outcome(why=self.why)
        (elsewhere, others, _), ours = differs(self.places.pop(place.pod.metadata.uid)), _planned(place)
        rule = "other node" if elsewhere else "other devices" if others else "same"
        if waited:
            rule = "waited"
        elif score_of(place.planned) > score_of((each, each.allocation) for each in made if each.allocation):
            rule = "lost alternative"
        elif any(abs(at - self.at) < RECENT for each in {*ours} - {*devices} for at in changed.get(each, ())):
            rule = "race"
        return rule, Outcome(place.node, ours[:DEVICES])


class FollowedCopy(ClusterCopy):
    """A copy that follows the events of the cluster, with a placement policy that learns from its pods."""

    def __init__(self, view: View, strategy: PlacementStrategy) -> None:
        super().__init__(view)
        self._learner = PlacementLearner(self.cluster, strategy, self.view.decisions.filters)
        self.view = replace(self.view, placement=self._learner.placement)

    def filling(self, view: View) -> Turns[None]:
        """Copy the state of the first turn."""
        yield from copied(view, copy=self)
        for pod in self.pods:
            self._learner.put(pod)
            if pod.spec.node_name:
                self._learn(pod)
            yield

    def apply(self, event: ClusterEvent) -> bool:
        """Apply an event of a kind that no other method is for. True when a refused pod may fit now."""
        if isinstance(event, Applied) and isinstance(event.object, Node):
            self._learner.put(event.object)
        self._names.classes_changed()
        return self.cluster.apply(event).requeue

    def put_pod(self, pod: Pod) -> None:
        super().put_pod(pod)
        self._learner.put(pod)

    def drop_pod(self, uid: str) -> None:
        self.usage.drop(uid)
        self.pods.remove(uid)
        self._learner.drop(uid)

    def choosing(self, pod: Pod, preferred: str) -> Turns[Choice]:
        """Choose as the verbs do, for a pod without a node and for its gang. Of the nodes with the best score, the
        policy chooses one; without a policy it is `preferred`, which may be empty.
        """
        if is_large(pod):
            return Choice(rule="not decided")
        self._learn(pod)
        simulated, budget, names = self.pod(pod), QueryBudget(self.view), sorted(self.cluster.nodes)
        whole, state, fits = of_pod(simulated), simulated.prefiltered, list[str]()
        if whole is not None or not isinstance(state, PreFilterState):
            return Choice(why=whole.rule if whole is not None else "claim")
        if (gang := trials_of(self.view, simulated, names)) is not None:
            found = yield from gang.decide(simulated, budget)
            if found is None or found.waiting:
                return Choice(rule="not decided")
            return Choice({**found.places}) if found.places else Choice(why="gang")
        for start in range(0, len(names), PORTION):
            _, statuses = yield from decided_on(simulated, names[start : start + PORTION], budget)
            if statuses is None or statuses.waiting or budget.spent():
                return Choice(rule="not decided")
            fits += statuses.fits
        choice, node = Choice(), self.cluster.nodes.get(preferred or names[0])
        if node is not None and node.name not in fits and (preferred or not fits):
            choice.why = next((each.rule for each in simulated.obstacles(node)), "devices")
        if fits:
            scores = (yield from budget.turn(lambda view: raw_scores(view, state, fits))) or {}
            best = max(scores.values(), default=0)
            likely = [name for name in fits if scores.get(name, 0) == best]
            chosen = chosen_of(self.view, state, likely)
            name = chosen or (preferred if preferred in likely else likely[0])
            plan = yield from budget.turn(lambda view: allocate(view, state, name))
            if not isinstance(plan, NodeAllocation):
                return Choice(rule="not decided")
            planned = tuple(zip(plan.pending, plan.allocations, strict=True))
            choice.places = {pod.metadata.uid: Place(with_statuses(pod, plan.statuses), name, planned)}
            choice.equal = frozenset(() if chosen else likely)
        return choice

    def _learn(self, pod: Pod) -> None:
        claims = self.view.claims_of(pod)
        if pod.spec.resource_claims and not isinstance(claims, Unschedulable):
            self._learner.learn(pod, claims)


class ShadowRecord:
    """One per term of the leader. `view`: of the cluster, to which events are applied before they are observed."""

    def __init__(self, view: View, strategy: PlacementStrategy) -> None:
        self._view = replace(view, config=replace(view.config, scheduler_names=frozenset()))
        self.found = ShadowReport.empty(strategy.policy)  # gets its time with the copies
        self._before, self._packed = (FollowedCopy(self._view, strategy) for _ in range(2))
        self._events = asyncio.Queue[tuple[ClusterEvent, float, int]]()
        self._behind = 0  # events that wait, larger ones as several
        self._expected: dict[str, Choice] = {}  # by UID of pods that are not bound
        self._made: dict[str, dict[str, ResourceClaim]] = {}  # by UID: what was allocated for the pod
        self._bound: dict[str, tuple[Pod, float]] = {}  # by UID: pods whose allocations are missing, bound at this time
        self._settling = deque[tuple[float, str, Pod, list[ResourceClaim], Choice, float]]()
        self._placed: dict[str, float] = {}  # by UID: since when the pod is placed in `packed`
        self._waiting: dict[str, tuple[Pod, frozenset[str]]] = {}  # by UID: pods that wait in `packed`, their claims
        self._changed: LRUCache[str, tuple[float, ...]] = LRUCache(100_000)
        self._improved = True  # a pod that waits in `packed` may fit

    def observe(self, event: ClusterEvent) -> None:
        size = 1 + (len(encode(event.object)) // EVENT if isinstance(event, Applied) else 0)
        self._behind += size
        self._events.put_nowait((event, self._view.clock.monotonic(), size))

    async def run(self) -> None:
        """Record until cancelled."""
        self._events, self._behind = asyncio.Queue(), 0  # the copies have what came before
        await run(self._before.filling(self._view))
        await run(self._packed.filling(self._before.view))
        pods, uses = self._packed.pods, self._packed.view.uses_devices
        self._waiting = {pod.metadata.uid: (pod, _claim_keys(pod)) for pod in pods if waits(pod) and uses(pod)}
        self.found.since = format_time(self._view.clock.wall())
        untried = deque[str]()  # since the last improvement; those that were tried are the last of `_waiting`
        while True:
            if self._improved:
                self._improved, untried = False, deque(self._waiting)
            while untried and self._events.empty():
                if (uid := untried.popleft()) in self._waiting:
                    await self._run(self._place(self._waiting[uid][0], self._view.clock.monotonic()))
            self.found.behind = self._events.qsize()
            event, at, size = await self._events.get()
            self._behind -= size
            self.found.behind += 1
            await self._run(self._follow(event, at))
            self.settled()

    async def _run(self, turns: Turns[None]) -> None:
        await continuing("shadow", run(turns))
        await asyncio.sleep(0)

    def _follow(self, event: ClusterEvent, at: float) -> Turns[None]:
        match event:
            case Applied(object=Pod() as pod):
                yield from self._follow_pod(pod, at)
            case Applied(object=ResourceClaim() as claim):
                yield from self._follow_claim(claim, at)
            case Removed(uid=str() as uid) if event.key.kind == Pod.__name__:
                self._end(uid)
            case _:
                if event.key.kind == ResourceClaim.__name__:
                    self._free(self._before.cluster.ledger.by_key(event.key.name), at)
                self._before.apply(event)
                self._improved |= self._packed.apply(event)

    def _follow_pod(self, pod: Pod, at: float) -> Turns[None]:
        uid, uses = pod.metadata.uid, self._before.view.uses_devices(pod)
        known = self._before.pods.get(uid)
        if pod.finished:
            self._end(uid)
        elif uses and pod.spec.node_name and (known is None or not known.spec.node_name):
            self._bound[uid] = pod, self._bound.get(uid, (pod, at))[1]
            yield from self._compare(uid)
        else:
            self._put(pod, uses or uid in self._placed or uid in self._waiting)
            if waits(pod) and (uses or (self.found.policy != FIRST_FIT.policy and self.found.behind < PORTION)):
                yield from self._place(pod, at)

    def _follow_claim(self, claim: ResourceClaim, at: float) -> Turns[None]:
        """In `packed`, a claim keeps what it has there until the pods that use it end."""
        key, users = claim.metadata.key, [user.uid for user in claim.status.reserved_for if user.resource == "pods"]
        known = self._before.cluster.ledger.by_key(key)
        was = known is not None and known.allocation is not None
        if claim.allocation is None:
            self._free(known, at)
        elif users and not was:
            user = self._before.pods.get(users[0])
            if user is not None and users[0] not in self._expected:
                yield from self._expect(user, node_of(claim.allocation), at)
            if user is not None or not self._before.pods.is_terminating(users[0]):
                self._made.setdefault(users[0], {})[key] = claim
            self._note(claim, at)
        # A scheduler makes a claim for extended resources when it binds the pod.
        extended = claim.metadata.annotations.get(EXTENDED) == "true"
        if not extended or was or claim.allocation is not None:
            self._before.put(claim)
        if not extended and self._packed.cluster.ledger.by_key(key) is None:
            self._packed.put(replace(claim, status=ResourceClaimStatus()) if users else claim)
        for uid in filter(self._bound.__contains__, users):
            yield from self._compare(uid)
            yield
        for pod in [pod for pod, keys in self._waiting.values() if known is None and key in keys]:
            yield from self._place(pod, at)
            yield

    def _free(self, known: ResourceClaim | None, at: float) -> None:
        """The claim is no longer allocated, and what was expected of its pods no longer counts."""
        if known is not None and known.allocation is not None:
            self._note(known, at)
            for user in known.status.reserved_for:
                self._expected.pop(user.uid, None)
                self._made.pop(user.uid, None)

    def _note(self, claim: ResourceClaim, at: float) -> None:
        for device in devices_of((claim.allocation,)):
            self._changed[device] = (*self._changed.get(device, ())[-7:], at)

    def _expect(self, pod: Pod, node: str, at: float) -> Turns[None]:
        """Choose on the state of `before`, for all pods of a gang that have got nothing yet."""
        choice = yield from self._choose(self._before, _on(pod), node)
        gang = gang_of(self._before.view, pod)
        choice.at = at if gang is None else float("inf")  # pods of a gang get devices of each other: not a race
        mates = [each.metadata.uid for each in gang.waiting] if gang is not None else ()
        self._expected |= dict.fromkeys((uid for uid in mates if uid not in self._made), choice)
        self._expected[pod.metadata.uid] = choice

    def _choose(self, copy: FollowedCopy, pod: Pod, node: str) -> Turns[Choice]:
        """Not decided if too many events wait, or come during the decision."""
        turns = copy.choosing(pod, node)
        while self._behind <= BEHIND:
            try:
                next(turns)
            except StopIteration as end:
                choice: Choice = end.value
                return choice
            yield
        return Choice(rule="not decided")

    def _compare(self, uid: str) -> Turns[None]:
        """Record a bound pod once all its claims are allocated, and let it run in both copies."""
        (pod, at), ledger = self._bound[uid], self._before.cluster.ledger
        keys = _claim_keys(pod)
        if any(claim is None or claim.allocation is None for claim in map(ledger.by_key, keys)):
            return
        del self._bound[uid]
        if keys:  # otherwise its extended resources are not those of devices
            if uid not in self._expected:
                claims = known_claims(pod, ledger)
                if uid in self._made:  # a watch has shown the allocation before the pod
                    self._before.evict(_on(pod))
                yield from self._expect(pod, pod.spec.node_name, at)
                for claim in claims:
                    self._before.put(claim)
            choice, made = self._expected.pop(uid), [*self._made.pop(uid, {}).values()]
            self._settle(pod, made, choice, at - self._placed.get(uid, at))
        if self.found.policy == FIRST_FIT.policy and uid in self._placed:  # the scheduler of the pod chooses its node
            del self._placed[uid]
            self._packed.evict(_on(pod))
        self._put(pod, keeps_place=True)
        yield from self._place(_on(pod), at, pod.spec.node_name)

    def _settle(self, pod: Pod, made: list[ResourceClaim], choice: Choice, seconds: float) -> None:
        clock = self._view.clock
        self._settling.append((clock.monotonic(), format_time(clock.wall()), pod, made, choice, seconds))

    def settled(self) -> ShadowReport:
        """What was found, with the pods whose scheduler has written by now what it had decided before them."""
        while self._settling and self._view.clock.monotonic() - self._settling[0][0] >= RECENT:
            _, bound, pod, made, choice, seconds = self._settling.popleft()
            rule, ours = choice.compared(pod, made, seconds >= NOTICED, self._changed)
            theirs = Outcome(pod.spec.node_name, devices_of(claim.allocation for claim in made)[:DEVICES])
            scheduler, waited = pod.spec.scheduler_name or "default-scheduler", round(seconds, 1) * (rule == "waited")
            self.found.add(rule, ShadowExample(pod.metadata.key, scheduler, bound, theirs, ours, waited))
        return self.found

    def _place(self, pod: Pod, at: float, preferred: str = "") -> Turns[None]:
        """Place the pod in `packed`, with its gang, or let it wait there, behind the others."""
        uid = pod.metadata.uid
        self._waiting.pop(uid, None)
        choice = Choice() if uid in self._placed else (yield from self._choose(self._packed, pod, preferred))
        for mate, place in choice.places.items():
            if self._packed.bind_planned(place):
                self._placed[mate] = at
                self._waiting.pop(mate, None)
        self._packed.commit()
        if uid not in self._placed:
            self._waiting[uid] = pod, _claim_keys(pod)

    def _put(self, pod: Pod, keeps_place: bool) -> None:
        self._before.put_pod(pod)
        self._packed.put_pod(_on(pod, self._packed.pods.get(pod.metadata.uid)) if keeps_place else pod)

    def _end(self, uid: str) -> None:
        if uid in self._bound:
            self._settle(self._bound[uid][0], [], Choice(rule="not allocated"), 0.0)
        if (pod := self._packed.pods.get(uid)) is not None:
            self._packed.evict(pod)
        self._before.drop_pod(uid)
        self._packed.drop_pod(uid)
        for known in (self._bound, self._placed, self._waiting, self._expected, self._made):
            known.pop(uid, None)
        self._improved = True

    def report(self, seen: int) -> Turns[ShadowReport]:
        now, packed = (yield from usage(self._before.view)), (yield from usage(self._packed.view))
        return replace(self.settled(), now=now, packed=packed, double_allocations=seen)


def _on(pod: Pod, like: Pod | None = None) -> Pod:
    """The pod on the node of another version of it; without one, on no node."""
    node, status = (like.spec.node_name, like.status) if like is not None else ("", PodStatus())
    pod = replace(pod, spec=replace(pod.spec, node_name=node))
    return with_statuses(pod, status.node_allocatable_resource_claim_statuses)


def _claim_keys(pod: Pod) -> frozenset[str]:
    """namespace/name"""
    return frozenset(f"{pod.metadata.namespace}/{name}" for name in all_claim_names(pod))


def _planned(place: Place) -> tuple[str, ...]:
    return devices_of(allocation for _, allocation in place.planned)
