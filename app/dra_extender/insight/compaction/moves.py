"""Moves, one after the other, each decided by the one allocator on what the moves before it leave.

Promises: pure; the cluster does not change. `Moving.move` finds for a pod a node that suits it where it begins as few
whole devices as possible, the fullest nodes first. `Moving.replay` decides everything again from the beginning.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from dra_extender.allocation.plan import Plan
from dra_extender.api.core import Pod
from dra_extender.api.policy import PodDisruptionBudget
from dra_extender.api.resource import ResourceClaim
from dra_extender.devices.overlay import Overlay, Planned
from dra_extender.insight.compaction.movable import Movable
from dra_extender.insight.compaction.surroundings import Surroundings
from dra_extender.insight.compaction.wholes import BegunFirst, UnitID, Wholes
from dra_extender.scheduling.preemption.budgets import violating
from dra_extender.scheduling.view import View

LOOKED_AT: Final = 8
"""Nodes that fit and are looked at for one move."""


class Move(msgspec.Struct, frozen=True):
    """The pod is evicted and fits on `target` then, with these devices."""

    item: Movable
    target: str
    plans: tuple[Planned, ...]

    def lines(self) -> tuple[str, str]:
        """For people."""
        devices = [result.id for _, allocation in self.plans for result in allocation.devices.results]
        shown = ", ".join("/".join(device) for device in devices[:2]) + (", ..." if len(devices) > 2 else "")
        return f"{self.item.key}: {self.item.node} -> {self.target}", f"gets {shown}"


class Trial(msgspec.Struct, frozen=True):
    """What the cluster would be after some moves."""

    state: Overlay
    surroundings: Surroundings
    moves: tuple[Move, ...] = ()

    @property
    def moved(self) -> frozenset[str]:
        """The UIDs of the pods."""
        return frozenset(move.item.pod.metadata.uid for move in self.moves)


class TooMuchWork(Exception):
    """All questions that may be asked were asked."""


class Moving:
    """Of one cluster. `questions`: how often the allocator was asked, `most` at most."""

    def __init__(
        self, view: View, surroundings: Surroundings, budgets: Sequence[PodDisruptionBudget], most: int
    ) -> None:
        self.view = view
        self.wholes = Wholes()
        self.start = Trial(view.overlay(), surroundings)
        self.questions = 0
        self.most = most
        self._budgets = budgets
        self._fullness: dict[str, int] = {}

    def plan(
        self, state: Overlay, claims: Sequence[ResourceClaim], node: str, avoid: Collection[UnitID] = ()
    ) -> tuple[Planned, ...] | None:
        """The devices for the claims on the node in this state. Raises TooMuchWork."""
        self._ask()
        if not claims:
            return ()
        chooser = BegunFirst(self.wholes, state, node, avoid)
        found = self.view.decisions.with_state(state).plan(claims, node, chooser)
        return tuple(zip(claims, found.allocations, strict=True)) if isinstance(found, Plan) else None

    def fitting(self, state: Overlay, claims: Sequence[ResourceClaim], names: Sequence[str]) -> Sequence[str]:
        """Those of the nodes where the claims can be allocated in this state. Raises TooMuchWork."""
        self._ask()
        return self.view.decisions.with_state(state).node_results(claims, names).fits

    def move(
        self, trial: Trial, item: Movable, avoid: Collection[str] = (), units: Collection[UnitID] = ()
    ) -> Trial | None:
        """The pod goes to the best node but for those to avoid, perhaps to other devices of its own, and if possible to
        none of these units; None when there is no node, or a budget forbids it. Raises TooMuchWork.
        """
        if not self.may_go(trial, item.pod):
            return None
        state = trial.state.without(item.claims)
        surroundings = trial.surroundings.moved(item.pod, item.node)
        names = [name for name in self.view.cluster.nodes if name not in avoid and surroundings.suits(item.pod, name)]
        best: tuple[int, str, tuple[Planned, ...]] | None = None
        fits = sorted(self.fitting(state, item.anew, names), key=lambda name: (self._left_on(name), name))
        for name in fits[:LOOKED_AT]:
            plans = self.plan(state, item.anew, name, units)
            if plans is not None:
                begun = self._begun(state, plans, name, units)
                if best is None or begun < best[0]:
                    best = begun, name, plans
                if not begun:
                    break
        if best is None:
            return None
        _, target, plans = best
        after = surroundings.moved(item.pod, "", target)
        return Trial(state.with_plans(plans), after, (*trial.moves, Move(item, target, plans)))

    def may_go(self, trial: Trial, pod: Pod) -> bool:
        """Whether budgets allow the eviction after those before it."""
        gone = [move.item.pod for move in trial.moves]
        return pod.metadata.uid not in violating((*gone, pod), self._budgets)

    def grant(self, questions: int) -> None:
        """So many questions more may be asked."""
        self.most += questions

    def replay(self, moves: Sequence[Move]) -> Trial | None:
        """The moves from the beginning, each decided once more; None when one of them does not fit."""
        trial = self.start
        for move in moves:
            item = move.item
            state = trial.state.without(item.claims)
            surroundings = trial.surroundings.moved(item.pod, item.node)
            if not surroundings.suits(item.pod, move.target) or self.plan(state, item.anew, move.target) is None:
                return None
            after = state.with_plans(move.plans)
            if not all(after.has(claim) for claim, _ in move.plans):
                return None
            trial = Trial(after, surroundings.moved(item.pod, "", move.target), (*trial.moves, move))
        return trial

    def _ask(self) -> None:
        if self.questions >= self.most:
            raise TooMuchWork
        self.questions += 1

    def _left_on(self, name: str) -> int:
        """How many whole units the node has as it is: the fewer, the fuller."""
        if name not in self._fullness:
            self._fullness[name] = self.wholes.left_on(self.start.state, name)
        return self._fullness[name]

    def _begun(self, state: Overlay, plans: Sequence[Planned], name: str, units: Collection[UnitID]) -> int:
        allocations = tuple(allocation for _, allocation in plans)
        return BegunFirst(self.wholes, state, name, units).cost(Plan(allocations, 0))
