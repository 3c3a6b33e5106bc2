"""The way back of one attempt to bind: everything it wrote is taken back, unless its pod is bound after all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from dra_extender.scheduling.bind.actions import Actions
from dra_extender.scheduling.bind.claimwrite import ClaimWrite
from dra_extender.scheduling.bind.failure import BindFailure, Undecided
from dra_extender.scheduling.bind.livepod import LivePod
from dra_extender.scheduling.bind.retry import RetryPolicy
from dra_extender.scheduling.bind.undo import Undo


class Rollback:
    """`go` until it returns: what is done is not done again. `writes` in the order in which they were made; not before
    `in_doubt_until` (monotonic seconds) is it certain that no binding arrives any more.
    """

    def __init__(
        self,
        actions: Actions,
        pod: LivePod,
        node: str,
        writes: Sequence[ClaimWrite],
        problem: BindFailure,
        *,
        extended: ClaimWrite | None,
        in_doubt_until: float,
    ) -> None:
        self.pod = pod
        self.node = node
        self.problem = problem
        self._act = actions
        self._view = actions.view
        self._undos = [Undo(actions, write, clear=problem.clear) for write in reversed(writes)]
        self._wrote = bool(writes)
        self._extended = extended
        self._in_doubt_until = in_doubt_until

    @property
    def claims(self) -> tuple[str, ...]:
        """namespace/name of the claims that it is about as yet, in the order in which they were written."""
        return tuple(undo.write.claim.metadata.key for undo in reversed(self._undos))

    @property
    def state(self) -> object:
        """What is known of pod and claims: it makes sense to go on when that has changed."""
        uid, pods = self.pod.uid, self._view.pods
        known = pods.get(uid)
        return known is not None and known.spec.node_name, pods.leaving(uid), [undo.state for undo in self._undos]

    @property
    def open(self) -> bool:
        """True when nobody else is at work for the pod, and what is seen now is what remains."""
        known = self._view.pods.get(self.pod.uid)
        if known is not None and known.spec.node_name:
            return True
        return self.pod.uid not in self._view.binding and self._view.clock.monotonic() >= self._in_doubt_until

    async def go(self, policy: RetryPolicy) -> bool:
        """True when the pod is bound after all: what is stored stays. Raises Undecided, with the devices held."""
        if self._wrote and await self.pod.is_bound_to(self.node, policy):
            await self._each(lambda undo: undo.leave(policy))
            return True
        await self._each(lambda undo: undo.run(policy))
        await self._discard()
        pod = self._view.pods.get(self.pod.uid)
        if self._wrote and pod is not None:
            self._act.ports.record_event(pod, "Warning", "DevicesReleased", f"not bound: {self.problem.text}")
        return False

    async def _each(self, do: Callable[[Undo], Awaitable[None]]) -> None:
        """One claim that cannot be given back keeps no other. Raises the first Undecided."""
        kept: list[Undo] = []
        problems: list[Undecided] = []
        for undo in self._undos:
            try:
                await do(undo)
            except Undecided as problem:
                kept.append(undo)
                problems.append(problem)
        self._undos = kept
        if problems:
            raise problems[0]

    async def _discard(self) -> None:
        """The claim that was made for extended resources is of no use to another attempt."""
        if self._extended is not None and self._extended.allocation is not None:
            claim = self._view.ledger.by_uid(self._extended.uid)
            if claim is not None:
                await self._act.clearer.discard(claim)
