"""One attempt to find a node for one pod: in-tree filters, then extenders, then scores.

Source: Kubernetes 1.36, pkg/scheduler/schedule_one.go. `Attempts.run` promises one of three outcomes and changes
nothing but where the next search starts.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import msgspec

from dra_extender.api.core import requested
from embedded_cluster.objects import FullNode, FullPod
from embedded_cluster.scheduler import fit
from embedded_cluster.scheduler.cache import Cache, Rotation
from embedded_cluster.scheduler.calls import CallError, Extenders, Filtered
from embedded_cluster.scheduler.fit import Amounts, NodeRefusal
from embedded_cluster.scheduler.preemption import preempt
from embedded_cluster.scheduler.queue import Refuser

_SCORE_FACTOR = 10
"""MaxNodeScore / MaxExtenderPriority."""


class FeasibleNode(msgspec.Struct, frozen=True):
    """The node, and what the pod takes of it."""

    node: str
    asked: Amounts


class UnschedulablePod(msgspec.Struct, frozen=True):
    """No node is good: reason Unschedulable, with kube-scheduler's text."""

    message: str
    refusers: frozenset[Refuser]
    nominated: str | None = ""
    """The node where `victims` must go to make room; None leaves an earlier nomination as it is."""
    victims: tuple[FullPod, ...] = ()


class AttemptError(msgspec.Struct, frozen=True):
    """The attempt itself went wrong: reason SchedulerError."""

    message: str


Outcome = FeasibleNode | UnschedulablePod | AttemptError


class Attempts:
    """Makes attempts on the state of one cache."""

    def __init__(
        self,
        cache: Cache,
        extenders: Extenders,
        *,
        percentage: int,
        by_claim: Callable[[str], bool],
        chance: random.Random,
    ) -> None:
        self._cache = cache
        self._extenders = extenders
        self._percentage = percentage
        self._by_claim = by_claim
        self._chance = chance
        self._rotation = Rotation()
        self._scores: dict[str, tuple[FullNode, int, Amounts, int]] = {}

    async def run(self, pod: FullPod, wire: bytes) -> Outcome:
        """Find a node. Never raises."""
        asked = requested(pod)
        names = self._cache.names()
        if not names:
            return UnschedulablePod(fit.text(0, (), ""), frozenset(("node",)))
        try:
            nominated = await self._nominated(pod, wire, asked)
            if nominated is not None:
                return FeasibleNode(nominated, asked)
            refusals: dict[str, NodeRefusal] = {}
            feasible = self._in_tree(pod, asked, refusals)
            feasible = await self._filtered(pod, wire, feasible, refusals)
            if not feasible:
                return await self._refused(pod, wire, asked, refusals)
            if len(feasible) == 1:
                return FeasibleNode(feasible[0], asked)
            return FeasibleNode(await self._best(pod, wire, asked, feasible), asked)
        except CallError as problem:
            return AttemptError(str(problem))

    async def _nominated(self, pod: FullPod, wire: bytes, asked: Amounts) -> str | None:
        """The nominated node if it is (still) good; errors on the way only mean that all nodes are looked at."""
        name = pod.status.nominated_node_name
        node = self._cache.nodes.get(name)
        if node is None or fit.obstacle(pod, asked, node, self._cache.room_for(pod, name), self._by_claim):
            return None
        try:
            return name if await self._filtered(pod, wire, [name], {}) else None
        except CallError:
            return None

    def _in_tree(self, pod: FullPod, asked: Amounts, refusals: dict[str, NodeRefusal]) -> list[str]:
        nodes = self._cache.nodes

        def fits(name: str) -> bool:
            unfit = fit.obstacle(pod, asked, nodes[name], self._cache.room_for(pod, name), self._by_claim)
            if unfit is not None:
                refusals[name] = unfit
            return unfit is None

        wanted = fit.sample_size(len(nodes), self._percentage)
        return self._rotation.feasible(self._cache.names(), wanted, fits)

    async def _filtered(
        self, pod: FullPod, wire: bytes, feasible: list[str], refusals: dict[str, NodeRefusal]
    ) -> list[str]:
        """What the extenders leave, one after another; none is called with an empty list. Raises CallError."""
        for extender in self._extenders.with_verb("filter"):
            if not feasible:
                break
            result = await self._extenders.filter(extender, pod, wire, feasible)
            kept = set(result.nodes)
            for name in feasible:
                if name not in kept:
                    refusals[name] = _refusal(name, result)
            feasible = result.nodes
        return feasible

    async def _refused(
        self, pod: FullPod, wire: bytes, asked: Amounts, refusals: dict[str, NodeRefusal]
    ) -> UnschedulablePod:
        """What to report to the pod, and whether evicting others would help it."""
        outcome = await preempt(pod, wire, asked, refusals, self._cache, self._extenders, self._by_claim)
        message = fit.text(len(self._cache.nodes), (unfit.reasons for unfit in refusals.values()), outcome.message)
        refusers = frozenset(unfit.refuser for unfit in refusals.values())
        return UnschedulablePod(message, refusers, outcome.node, outcome.victims)

    def _room_score(self, asked: Amounts, node: FullNode) -> int:
        """`least_allocated`, recomputed only for nodes on which something changed."""
        room = self._cache.room(node.name)
        known = self._scores.get(node.name)
        if known is not None and known[0] is node and known[1] == room.version and known[2] == asked:
            return known[3]
        score = fit.least_allocated(asked, node, room)
        self._scores[node.name] = (node, room.version, asked, score)
        return score

    async def _best(self, pod: FullPod, wire: bytes, asked: Amounts, feasible: list[str]) -> str:
        cache = self._cache
        totals = {name: self._room_score(asked, cache.nodes[name]) for name in feasible}
        extenders = self._extenders.with_verb("prioritize")
        answers = await asyncio.gather(
            *(self._extenders.prioritize(extender, pod, wire, feasible) for extender in extenders),
            return_exceptions=True,
        )
        for extender, answer in zip(extenders, answers, strict=True):
            if isinstance(answer, CallError):
                continue  # kube-scheduler goes on without the scores
            if isinstance(answer, BaseException):
                raise answer
            for name, score in answer.items():
                if name in totals:
                    totals[name] += score * extender.weight * _SCORE_FACTOR
        most = max(totals.values())
        return self._chance.choice([name for name, total in totals.items() if total == most])


def _refusal(name: str, result: Filtered) -> NodeRefusal:
    """Why an extender dropped a node; unresolvable wins, and a node in neither map has no reason at all."""
    if name in result.unresolvable:
        return NodeRefusal((result.unresolvable[name],), "extender")
    if name in result.failed:
        return NodeRefusal((result.failed[name],), "extender", resolvable=True)
    return NodeRefusal((), "extender")
