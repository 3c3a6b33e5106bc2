"""The prioritize verb: on which of the nodes that fit does the pod get what it likes best?

Promises: integers from 0 to 10, one per node asked about; nothing is written. The same answer serves a scheduler that
allocates by itself and only wants advice, because it would choose the same devices.

Rules: Kubernetes 1.36, computeScore in pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go: the
earlier the chosen alternative of a prioritized list, the better. In addition a node scores 0 when the pod fits there
only as long as another pod, which is probably about to be bound there, does not take its devices.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.allocation.plan import Plan
from app.api.core import Pod
from app.api.extender import ExtenderArgs, HostPriority
from app.api.resource import ResourceClaim
from app.devices.ledger import HeldError
from app.scheduling.judgement import Decision, Subject, decide, subject_of
from app.scheduling.reservations import Tentative
from app.scheduling.state import State

MOST = 10


def prioritize(state: State, args: ExtenderArgs, *, advising: bool = False) -> list[HostPriority]:
    """The answer to one call. `advising`: the scheduler allocates by itself, so nothing is expected of us later."""
    names = tuple(dict.fromkeys(args.NodeNames or ()))
    pod = args.Pod
    scores = dict.fromkeys(names, 0)
    if state.uses_devices(pod):
        subject = subject_of(state, pod)
        if isinstance(subject, Subject):
            _prefer_better_alternatives(state, subject, scores)
            if not advising:
                _avoid_contested(state, subject, scores)
                _expect_best(state, pod, scores)
    return [HostPriority(Host=name, Score=score) for name, score in scores.items()]


def _prefer_better_alternatives(state: State, subject: Subject, scores: dict[str, int]) -> None:
    """Raw scores, brought to 0..10 over these nodes."""
    allocated = [(claim, claim.allocation) for claim in subject.claims.allocated if claim.allocation is not None]
    pending = subject.claims.pending
    if not any(request.first_available for claim in pending for request in claim.spec.devices.requests):
        return
    already = state.decisions.score(allocated)
    known = [name for name in scores if name in state.cluster.nodes]
    raw = {name: already + score for name, score in state.decisions.scores(pending, known).items()}
    best = max(raw.values(), default=0)
    if best > 0:
        scores.update({name: score * MOST // best for name, score in raw.items()})


def _avoid_contested(state: State, subject: Subject, scores: dict[str, int]) -> None:
    pending = subject.claims.pending
    others = state.reservations.others(subject.pod.metadata.uid) if pending else {}
    contested = [
        name for name, plans in others.items() if name in scores and not _fits_beside(state, pending, name, plans)
    ]
    if not contested:
        return
    if not any(scores.values()):
        scores.update(dict.fromkeys(scores, 1))
    scores.update(dict.fromkeys(contested, 0))


def _fits_beside(state: State, pending: Sequence[ResourceClaim], name: str, plans: Sequence[Tentative]) -> bool:
    """Whether the claims can still be allocated on the node when these plans come true."""
    holds = []
    for plan in plans:
        for claim, allocation in zip(plan.claims, plan.allocations, strict=True):
            try:
                holds.append(state.cluster.ledger.hold(claim, allocation, owner=plan.pod_uid))
            except HeldError:
                continue  # it has come true already, or never will
    try:
        return isinstance(state.decisions.plan(pending, name), Plan)
    finally:
        for hold in holds:
            state.cluster.ledger.release(hold)


def _expect_best(state: State, pod: Pod, scores: dict[str, int]) -> None:
    best = max(scores.values(), default=0)
    favourites = [name for name, score in scores.items() if score == best]
    if best > 0 and len(favourites) == 1:
        expect(state, pod, favourites[0])


def expect(state: State, pod: Pod, name: str) -> None:
    """The scheduler will probably choose this node: let other pods prefer nodes where both fit."""
    decision = decide(state, pod, name)
    if isinstance(decision, Decision) and decision.pending:
        plan = Tentative(pod_uid=pod.metadata.uid, node=name, claims=decision.pending, allocations=decision.allocations)
        state.reservations.put(plan)
