"""The joint decision about the gang of a pod in hypothetical states: how many pods fit together, and what would help.

Promises: the filter verb makes the same decisions. A change of a pod or template changes the pods of the gang alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from dra_extender.api.core import Pod
from dra_extender.api.groups import SIZES, Source
from dra_extender.api.meta import ObjectMeta
from dra_extender.devices.ledger import identity
from dra_extender.insight.snapshot import SimulatedPod
from dra_extender.insight.why.candidates import CandidateChange, Fit, applied, changes_with, object_change
from dra_extender.insight.why.report import Change, Remedy
from dra_extender.insight.why.statements import GangPlace
from dra_extender.scheduling.claims import known_claims
from dra_extender.scheduling.feasibility import PreFilterState
from dra_extender.scheduling.gangs.decision import GangDecision, GangState, decide
from dra_extender.scheduling.gangs.gang import Gang, gang_of
from dra_extender.scheduling.gangs.joint import Place
from dra_extender.scheduling.gangs.topology import ANYWHERE, REQUIRED
from dra_extender.scheduling.turns import QueryBudget, Turns
from dra_extender.scheduling.view import View

TRIALS: Final = 8
"""Trials that a joint decision counts for."""
MATE: Final = 20
"""Units of work to change another pod of the gang, or a claim of it."""

_SIZES: Final[Mapping[Source, tuple[str, str]]] = {
    "PodGroup": ("PodGroup", "/spec/schedulingPolicy/gang/minCount"),
    "LeaderWorkerSet": ("LeaderWorkerSet", "/spec/leaderWorkerTemplate/size"),
    "coscheduling": ("PodGroup", "/spec/minMember"),
}
"""The object and the field with the size, where it is not an annotation of the pods."""


@dataclass(eq=False)
class JointTrials:
    """`pod`: in a state in which no device is held for waiting pods of the gang. `names`: the nodes that it may use."""

    gang: Gang
    pod: SimulatedPod
    _names: Sequence[str]

    def __post_init__(self) -> None:
        self._waiting = {each.metadata.uid: each for each in self.gang.waiting}

    def mates(self, member: Pod) -> list[Pod]:
        """The pods that change with this one."""
        return [each for uid, each in self._waiting.items() if uid != member.metadata.uid]

    def decide(
        self, changed: SimulatedPod, budget: QueryBudget, mates: Mapping[str, Pod] | None = None, **instead: Any
    ) -> Turns[GangDecision | None]:
        """Decide on the changed pod. `instead` replaces fields of the gang. None while the answer is unknown."""
        budget.trials += TRIALS
        prefiltered, snapshot = changed.prefiltered, changed.snapshot
        if changed.excluding_rule() or not isinstance(prefiltered, PreFilterState):
            return None
        known = {**self._waiting, **(mates or {}), changed.pod.metadata.uid: changed.pod}
        waiting = [pod for uid, pod in known.items() if uid not in snapshot.removed]
        placed = [each for each in self.gang.placed if each.metadata.uid not in snapshot.removed]
        gang = replace(self.gang, **{"waiting": waiting, "placed": placed, **instead})
        names = list(dict.fromkeys((*self._names, *snapshot.nodes)))
        hypothesis = object()

        def decided(view: View) -> GangDecision:
            free = snapshot.seen_by(view)
            state = GangState(free=free, used=snapshot.used, unfiltered=names, hypothesis=hypothesis)
            return decide(free, gang, prefiltered, names, state)

        return (yield from budget.turn(decided))

    def largest(self, budget: QueryBudget) -> Turns[Mapping[str, Place] | None]:
        """The places of as many pods as fit together, whichever pod of the gang asks; None if that is unknown."""
        first = SimulatedPod(next(iter(self.gang.waiting), self.pod.pod), self.pod.snapshot)
        best: Mapping[str, Place] = {}
        low, high, placed = 1, self.gang.needed - 1, len(self.gang.placed)
        while low <= high and not budget.spent():
            size = (low + high) // 2 if best else low
            found = yield from self.decide(first, budget, size=placed + size)
            if found is None or found.waiting or found.error:
                return None
            best = found.places or best
            if found.places is None:
                high = size - 1 if best else 0
            elif self.gang.levels[-1] == ANYWHERE:  # a decision places as many as fit
                break
            else:
                low = len(best) + 1
        return best

    def fit(self, candidates: Sequence[CandidateChange], member: Pod, budget: QueryBudget) -> Turns[Fit | None]:
        """See `JointFit`."""
        changed = SimulatedPod(member, self.pod.snapshot)
        mates = {each.metadata.uid: each for each in self.mates(member)}
        for each in candidates:
            change, changed = each.changes[0], each.apply(changed)
            for uid, mate in mates.items():
                yield from budget.charge(MATE * (1 + len(mate.spec.resource_claims)))
                if changes_with(mate, member, change):  # the change of its template, or of its own claim
                    after = applied(SimulatedPod(mate, changed.snapshot), change)
                    mates[uid], changed = after.pod, changed.on(after.snapshot)
        found = yield from self.decide(changed, budget, mates)
        places = (found.places if found is not None else None) or {}
        if not {member.metadata.uid, self.pod.pod.metadata.uid} <= places.keys():
            return None
        nodes = {each.node for each in places.values()}
        return Fit(len(nodes), places[member.metadata.uid].node, len(places))

    def weaker(self, most: Mapping[str, Place], budget: QueryBudget) -> Turns[list[Remedy]]:
        """A wider level of topology, and a smaller gang: `most` of its pods fit together."""
        found: list[Remedy] = []
        level = self.gang.levels[-1]
        if level != ANYWHERE:
            decided = yield from self.decide(self.pod, budget, levels=(ANYWHERE,))
            if decided is not None and decided.node and decided.places is not None:
                label = " and ".join(level)
                short = f"prefer label {label} instead of requiring it"
                changes = tuple(_preferring(self.gang, label))
                found.append(_remedy(short, short, changes, decided.places))
        if (size := len(self.gang.placed) + len(most)) > 1 and most:
            short = f"reduce the gang to {size} pods"
            changes = tuple(_sizes(self.gang, size))
            found.append(_remedy(f"{short}: change {_field(changes[0])}", short, changes, most))
        return found


def trials_of(view: View, found: SimulatedPod, names: Sequence[str]) -> JointTrials | None:
    """None if the pod has no gang, or has a node in its plan. `view` counts devices kept for other pods as free."""
    gang = gang_of(view, found.pod)
    if gang is None or view.is_planned(found.pod.metadata.uid):
        return None
    if kept := view.kept(found.pod):
        own = {identity(claim) for pod in gang.waiting for claim in known_claims(pod, view.ledger)}
        free = view.holding([each for each in kept if identity(each[0]) not in own]).overlay()
        found = found.on(replace(found.snapshot, view=found.view.with_state(free), overlay=free))
    return JointTrials(gang, found, names)


def placed_beside(found: SimulatedPod, places: Mapping[str, Place], mate: Pod) -> SimulatedPod | None:
    """Another pod of the gang in the state in which these have their places; None if it shares a claim with them."""
    planned = [each for place in places.values() for each in place.planned]
    if {identity(claim) for claim, _ in planned} & {identity(each) for each in known_claims(mate, found.view.ledger)}:
        return None
    snapshot = found.snapshot
    for place in places.values():
        snapshot = snapshot.with_pod_on(place.pod, place.node)
    overlay = snapshot.overlay.holding(planned)
    return SimulatedPod(mate, replace(snapshot, view=found.view.with_state(overlay), overlay=overlay))


def gang_places(places: Mapping[str, Place]) -> Iterator[GangPlace]:
    for place in places.values():
        results = (result for _, allocation in place.planned for result in allocation.devices.results)
        yield GangPlace(place.pod.metadata.key, place.node, tuple("/".join(each.id) for each in results))


def _remedy(text: str, short: str, changes: tuple[Change, ...], places: Mapping[str, Place]) -> Remedy:
    nodes = {each.node for each in places.values()}
    return Remedy(text, short, changes, len(nodes), min(nodes), weakens=True, pods=len(places))


def _preferring(gang: Gang, label: str) -> Iterator[Change]:
    """The annotations to change; none where another object requires the label."""
    for pod in (*gang.placed, *gang.waiting):
        if pod.metadata.annotations.get(REQUIRED) == label:
            path = "/metadata/annotations/dra-extender.dev~1topology-"
            yield object_change("topology", "Pod", pod.metadata, f"{path}preferred", label, "add")
            yield object_change("topology", "Pod", pod.metadata, f"{path}required", op="remove")


def _sizes(gang: Gang, size: int) -> Iterator[Change]:
    key = gang.key
    if key.source in _SIZES:
        object_, path = _SIZES[key.source]
        name = key.name.rpartition("-")[0] if object_ == "LeaderWorkerSet" else key.name
        yield object_change("gang size", object_, ObjectMeta(name=name, namespace=key.namespace), path, size)
        return
    path = f"/metadata/annotations/{SIZES[key.source].replace('/', '~1')}"
    for pod in (*gang.placed, *gang.waiting):
        yield object_change("gang size", "Pod", pod.metadata, path, str(size))


def _field(change: Change) -> str:
    if change.object == "Pod":
        return f"annotation {change.path.rpartition('/')[2].replace('~1', '/')} of its pods"
    return f"{change.path[1:].replace('/', '.')} of {change.object} {change.namespace}/{change.name}"
