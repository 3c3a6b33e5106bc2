"""The plans of gangs: which member goes where, and the devices that are held for the members until they are bound.

Promises
- In every verb, the devices of a plan count as in use, except for the members that get them and for pods of higher
  priority: those do not wait for pods that may never be bound, and have no pod to evict for the devices.
- A gang has one plan. A plan holds devices for all members that have to be placed.
- A plan ends when all members are bound, one of them is deleted or leaves the gang, the gang cannot be placed any more,
  or no member is bound within `GangPlans.SECONDS`, and then no further one within `GangPlans.BOUND_SECONDS`. A gang
  whose plan expired gets the next one after a pause, so a gang that is never bound cannot hold devices all the time.
- Plans are not stored. A new leader plans the gangs of which some pods are bound before it answers any verb.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import chain
from typing import Final

import msgspec

from dra_extender.allocation.constraints import Values
from dra_extender.api.core import Pod
from dra_extender.api.groups import GroupKey, group_of
from dra_extender.api.meta import parse_time
from dra_extender.devices.ledger import identity
from dra_extender.devices.overlay import Planned
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.gangs.joint import Place
from dra_extender.scheduling.outcomes import GANG_PLANS, GangPlanResult
from dra_extender.scheduling.ports import Clock, Observer
from dra_extender.scheduling.waiting import Backoffs


class GangPlan(msgspec.Struct):
    """`places`: by UID of the member; `held`: see `_held`. `offered`: the members that filter has offered their node.
    `until`: monotonic seconds. `values`: attributes of all its devices. `sampled`: kube-scheduler asks about a part of
    the nodes. `bound`: the members that are bound and no longer in `places`; `created`: when the first was created.
    """

    places: dict[str, Place]
    until: float
    held: Mapping[str, tuple[Planned, int]] = {}
    values: Values = ()
    sampled: bool = False
    offered: set[str] = msgspec.field(default_factory=set)
    bound: set[str] = msgspec.field(default_factory=set)
    created: str = ""


class GangPlans:
    """By group. Changed by the filter verb and by events."""

    SECONDS: Final = 30.0
    """Longer than a scheduler takes between two members of a gang that it places pod by pod."""
    BOUND_SECONDS: Final = 330.0
    """A little more than the 5 minutes for which kube-scheduler lets members wait for each other at Permit."""

    def __init__(self, clock: Clock, config: SchedulingConfig, observer: Observer, ended: Callable[[], None]) -> None:
        """`ended`: called when devices are no longer held, so that other pods may fit."""
        self._clock = clock
        self._backoffs: Backoffs[int] = Backoffs(clock, config)
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
        """Filter has answered a call about the member, with its node if `node`. `sampled`: see `GangPlan`."""
        plan = self._plans.get(key)
        if plan is not None:
            plan.sampled = plan.sampled or sampled
            plan.offered |= {pod_uid} if node else set()

    def to_nominate(self) -> Sequence[Place]:
        """The places whose nodes kube-scheduler may leave out of its calls."""
        return [place for plan in self._plans.values() if plan.sampled for place in plan.places.values()]

    def has(self, pod_uid: str, node: str) -> bool:
        key = self._of(pod_uid)
        return key is not None and self._plans[key].places[pod_uid].node == node

    def is_paused(self, key: GroupKey) -> bool:
        """True while the gang gets no plan, because its last one expired."""
        return key not in self._plans and not self._backoffs.over(hash(key))

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
            self._backoffs.forget(hash(key))
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
        """Drop the plans whose time is over, and pause their gangs."""
        now = self._clock.monotonic()
        for key in [key for key, plan in self._plans.items() if plan.until <= now]:
            self._backoffs.failed(hash(key))
            self.drop(key, "expired")

    def kept_from(self, pod: Pod) -> Sequence[Planned]:
        """What is held for other pods: the claims of the pod itself are left out."""
        key = group_of(pod)
        own = self._plans.get(key) if key is not None else None
        place = own.places.get(pod.metadata.uid) if own is not None else None
        mine = {identity(claim) for claim, _ in place.planned} if place is not None else ()
        return self.kept_for_others(None, pod, mine)

    def kept_for_others(self, key: GroupKey | None, pod: Pod, mine: Container[str] = ()) -> Sequence[Planned]:
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
