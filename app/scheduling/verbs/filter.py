"""The filter verb: on which of these nodes can the pod's claims be allocated or used?

Promises: a pod without devices passes untouched and leaves nothing behind. Every node of the request is in the
answer exactly once, refused ones in FailedAndUnresolvableNodes (evicting pods does not free devices in time, so
preemption must not be tried), with few constant texts. Where fewer than all nodes that fit are to be offered,
the others count as refused. A claim that the pod names and we do not know is read before the pod is refused.
"""

from __future__ import annotations

import asyncio

from cachetools import TTLCache

from app.api.core import Pod
from app.api.errors import ApiError
from app.api.extender import ExtenderArgs, ExtenderFilterResult
from app.api.resource import ResourceClaim
from app.scheduling import extended
from app.scheduling.claims import Refusal, find, named_claims
from app.scheduling.judgement import judge
from app.scheduling.outcomes import FILTERED
from app.scheduling.refusals import Refusals, signature
from app.scheduling.release.sweep import Sweeper
from app.scheduling.release.unblock import Deallocations
from app.scheduling.state import State
from app.scheduling.verbs.offers import Offers
from app.scheduling.verbs.prioritize import expect

NEEDS_NAMES = "NodeNames is missing: set nodeCacheCapable to true for this extender in the scheduler's configuration"
ELSEWHERE = "a bind of the pod to another node is under way"


class Filter:
    """One call at a time per scheduler; several schedulers may call."""

    def __init__(self, state: State, deallocations: Deallocations, sweeper: Sweeper) -> None:
        self._state = state
        self._deallocations = deallocations
        self._sweeper = sweeper
        self._refusals = Refusals()
        self._offers = Offers(state)
        self._absent: TTLCache[tuple[str, str], bool] = TTLCache(
            10_000, state.limits.missing_seconds, timer=state.clock.monotonic
        )

    async def filter(self, args: ExtenderArgs) -> ExtenderFilterResult:
        """The answer to one call. Never raises for what is in `args` or in the cluster."""
        if args.NodeNames is None:
            return ExtenderFilterResult(Error=NEEDS_NAMES)
        pod, state = args.Pod, self._state
        if not state.uses_devices(pod):
            state.observer.count(FILTERED, "untouched")
            return ExtenderFilterResult(NodeNames=list(args.NodeNames))
        await self._learn_missing(pod)
        answer = self._answer(pod, tuple(dict.fromkeys(args.NodeNames)))
        self._offer_leftover(pod)
        return answer

    def _offer_leftover(self, pod: Pod) -> None:
        """A claim for extended resources that an earlier attempt did not get allocated is of no use to anybody."""
        state = self._state
        owned = state.cluster.ledger.owned_by(pod.metadata.uid)
        existing = extended.existing_claim(pod, owned) if owned else None
        if existing is not None and existing.allocation is None and state.running(pod.metadata.uid) is None:
            self._deallocations.offer_leftover(existing)

    async def _learn_missing(self, pod: Pod) -> None:
        """Read the claims that the pod names and we have not seen: the scheduler's watch may be ahead of ours.

        What cannot be read in time counts as missing until the watch brings it.
        """
        state, namespace = self._state, pod.metadata.namespace
        names = named_claims(pod)
        unseen = [
            name
            for name, _ in ([] if isinstance(names, Refusal) else names)
            if state.cluster.ledger.get(namespace, name) is None and (namespace, name) not in self._absent
        ]
        name = ""
        try:
            async with asyncio.timeout(state.limits.reading_seconds):
                for name in unseen:
                    claim = await state.ports.read_claim(namespace, name)
                    if claim is None:
                        self._absent[namespace, name] = True
                    else:
                        state.learn(claim)
        except TimeoutError:
            self._absent[namespace, name] = True
        except ApiError:
            return

    def _answer(self, pod: Pod, names: tuple[str, ...]) -> ExtenderFilterResult:
        """Decide, and remember what later calls need."""
        state, uid = self._state, pod.metadata.uid
        state.reservations.drop(uid)
        running = state.running(uid)
        if running is not None:
            return self._only(uid, running, names)
        generation = state.wakeups.generation
        found = find(pod, state.cluster.ledger.get, state.features)
        if isinstance(found, Refusal):
            self._miss_claims(pod)
            claims: tuple[ResourceClaim, ...] = ()
        else:
            claims = found
        key = signature(claims)
        if key:
            known = self._refusals.recall(uid, key, generation, names)
            if known is not None:
                state.observer.count(FILTERED, "repeated")
                return ExtenderFilterResult(FailedAndUnresolvableNodes=known)
        judgement = judge(state, pod, names)
        offered = self._offers.choose(pod, judgement.fits, len(names))
        if offered:
            self._passed(pod, claims, offered)
        else:
            state.wakeups.refused(uid, generation)
            self._deallocations.offer(pod, names, judgement.stuck)
            if key and not judgement.error:
                self._refusals.remember(uid, key, generation, judgement.refused)
        state.observer.count(FILTERED, judgement.outcome)
        if judgement.error:
            return ExtenderFilterResult(Error=judgement.error)
        return ExtenderFilterResult(NodeNames=offered, FailedAndUnresolvableNodes=judgement.refused)

    def _miss_claims(self, pod: Pod) -> None:
        """The pod waits for claims that are not there, or not as they should be: a new one of that name wakes it."""
        names = named_claims(pod)
        for name, _ in [] if isinstance(names, Refusal) else names:
            self._state.missed[f"{pod.metadata.namespace}/{name}"] = True

    def _only(self, uid: str, running: str, names: tuple[str, ...]) -> ExtenderFilterResult:
        """The scheduler has given up on a bind that is still under way: only that bind's node is of use."""
        fits = [name for name in names if name == running]
        refused = {name: ELSEWHERE for name in names if name != running}
        if not fits:
            self._state.awaited.add(uid)
            self._state.wakeups.refused(uid, self._state.wakeups.generation)
        self._state.observer.count(FILTERED, "fits" if fits else "refused")
        return ExtenderFilterResult(NodeNames=fits, FailedAndUnresolvableNodes=refused)

    def _passed(self, pod: Pod, claims: tuple[ResourceClaim, ...], fits: list[str]) -> None:
        uid = pod.metadata.uid
        for claim in claims:
            self._sweeper.offered(claim.metadata.uid)
        self._state.wakeups.settled(uid)
        self._deallocations.withdraw(uid)
        self._refusals.forget(uid)
        if len(fits) == 1:
            expect(self._state, pod, fits[0])

    def forget(self, pod_uid: str) -> None:
        """The pod is gone or bound."""
        self._refusals.forget(pod_uid)
