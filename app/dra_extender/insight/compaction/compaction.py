"""The two questions: what to evict so that a wish fits, and so that most devices are whole.

Promises: pure, and bounded by the questions to the allocator that may be asked. Every list of moves was decided twice:
when it was found, and from the beginning in its order. For a wish the fewest moves win, then the fewest devices, then
the name of the node; a move that is not needed is not in the list.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from dra_extender.api.core import Pod
from dra_extender.api.resource import ResourceClaim
from dra_extender.devices.overlay import Overlay, Planned
from dra_extender.devices.pools import Pool
from dra_extender.insight.compaction.advice import Advice
from dra_extender.insight.compaction.movable import Movable, Rules, pods_of
from dra_extender.insight.compaction.moves import Move, Moving, TooMuchWork, Trial
from dra_extender.insight.compaction.surroundings import Surroundings
from dra_extender.insight.compaction.wholes import UnitID
from dra_extender.scheduling.view import View

MOST_QUESTIONS: Final = 50_000
MOST_MOVES: Final = 20
"""Pods that are moved at most so that devices are whole."""


class Wish(msgspec.Struct, frozen=True):
    """What wants to be allocated. `name` is for people; `pod`: whose claims they are, if there is one."""

    name: str
    claims: tuple[ResourceClaim, ...]
    pod: Pod | None = None


class Found(NamedTuple):
    """Room for a wish on a node."""

    trial: Trial
    node: str
    plans: tuple[Planned, ...]

    @property
    def loss(self) -> tuple[int, int, str]:
        moves = self.trial.moves
        return len(moves), sum(move.item.devices for move in moves), self.node


class Compaction:
    """Of one state of a cluster. Ask one question."""

    def __init__(self, view: View, rules: Rules, most: int = MOST_QUESTIONS) -> None:
        self._view = view
        pods = pods_of(view, rules)
        self._movable, self._kept = pods.movable, pods.kept
        self._moving = Moving(view, Surroundings(view), rules.budgets, most)

    # --- room for a wish --------------------------------------------------------------------------------------------

    def room_for(self, wish: Wish) -> Advice:
        """The moves after which the wish fits somewhere."""
        moving, start = self._moving, self._moving.start
        names = [name for name in self._view.cluster.nodes if self._admits(wish, name)]
        best: Found | None = None
        complete = True
        try:
            roomy = [name for name in names if self._has_room(wish, name, ())]
            fits = tuple(moving.fitting(start.state, wish.claims, roomy))
            if fits:
                return self._advice(wish, fits=fits)
            for name, items in self._promising(names):
                if best is not None and best.loss[0] == 1:
                    break
                found = self._on(wish, name, items, best.loss[0] if best is not None else len(items))
                if found is not None and (best is None or found.loss < best.loss):
                    best = found
        except TooMuchWork:
            complete = False
        if best is None:
            return self._advice(wish, complete=complete)
        return self._advice(wish, complete=complete, node=best.node, moves=best.trial.moves, plans=best.plans)

    def _advice(self, wish: Wish, *, complete: bool = True, fits: tuple[str, ...] = (), node: str = "",
                moves: tuple[Move, ...] = (), plans: tuple[Planned, ...] = ()) -> Advice:  # fmt: skip
        return Advice(
            wish=wish.name, fits=fits, node=node, moves=moves, plans=plans, kept=self._kept,
            questions=self._moving.questions, complete=complete,
        )  # fmt: skip

    def _admits(self, wish: Wish, name: str) -> bool:
        return wish.pod is None or self._moving.start.surroundings.admits(wish.pod, name)

    def _has_room(self, wish: Wish, name: str, gone: Collection[Movable]) -> bool:
        surroundings = self._moving.start.surroundings
        for item in gone:
            surroundings = surroundings.moved(item.pod, item.node)
        return wish.pod is None or surroundings.suits(wish.pod, name)

    def _promising(self, names: Sequence[str]) -> Iterator[tuple[str, list[Movable]]]:
        """The nodes with pods that may be moved, those with the fewest first."""
        by_node: dict[str, list[Movable]] = {}
        for item in self._movable.values():
            by_node.setdefault(item.node, []).append(item)
        nodes = [(name, by_node[name]) for name in names if name in by_node]
        yield from sorted(nodes, key=lambda node: (len(node[1]), node[0]))

    def _on(self, wish: Wish, name: str, items: Sequence[Movable], most: int) -> Found | None:
        """Room on this node with at most so many moves. Who finds no place is tried first, and then stays."""
        candidates, first = list(items), set[str]()
        while candidates:
            chosen = self._fewest(wish, name, candidates, most)
            if not chosen:
                return None
            chosen.sort(key=lambda item: (item.key not in first, -item.devices, item.key))
            found = self._moved(wish, name, chosen)
            if isinstance(found, Trial):
                return self._verified(wish, name, found.moves)
            if found.key in first:
                candidates.remove(found)
            first.add(found.key)
        return None

    def _moved(self, wish: Wish, name: str, chosen: Sequence[Movable]) -> Trial | Movable:
        """The state after these went elsewhere, one after the other; or the first who finds no place."""
        plans = self._plan(wish, name, chosen)
        start = self._moving.start
        assert plans is not None, name
        # What the wish will have is kept from those who move.
        trial = Trial(start.state.holding(plans), start.surroundings)
        for item in chosen:
            after = self._moving.move(trial, item, (name,))
            if after is None:
                return item
            trial = after
        return trial

    def _fewest(self, wish: Wish, name: str, items: Sequence[Movable], most: int) -> list[Movable]:
        """Those without whose going the wish does not fit: the smallest may stay first, so that few have to go. Nobody
        when it does not help, or when they are more than `most`.
        """
        chosen = sorted(items, key=lambda item: (item.devices, item.key))
        if self._plan(wish, name, chosen) is None:
            return []
        needed = 0
        for item in list(chosen):
            others = [other for other in chosen if other is not item]
            if self._plan(wish, name, others) is not None:
                chosen = others
            else:
                needed += 1
                if needed > most:
                    return []
        return chosen

    def _plan(self, wish: Wish, name: str, gone: Collection[Movable]) -> tuple[Planned, ...] | None:
        if not self._has_room(wish, name, gone):
            return None
        return self._moving.plan(self._without(gone), wish.claims, name)

    def _without(self, gone: Collection[Movable]) -> Overlay:
        return self._moving.start.state.without([claim for item in gone for claim in item.claims])

    def _verified(self, wish: Wish, name: str, moves: Sequence[Move]) -> Found | None:
        trial = self._moving.replay(moves)
        if trial is None or (wish.pod is not None and not trial.surroundings.suits(wish.pod, name)):
            return None
        plans = self._moving.plan(trial.state, wish.claims, name)
        return Found(trial, name, plans) if plans is not None else None

    # --- whole devices ----------------------------------------------------------------------------------------------

    def whole_devices(self, most: int = MOST_MOVES) -> Advice:
        """The moves after which more devices are whole, those that free one with the fewest pods first."""
        trial, freed, complete = self._moving.start, 0, True
        try:
            for unit, users in self._begun():
                has_moved = any(item.pod.metadata.uid in trial.moved for item in users)
                if has_moved or len(trial.moves) + len(users) > most:
                    continue
                found = self._freed(trial, unit, users)
                if found is not None:
                    trial, gain = found
                    freed += gain
        except TooMuchWork:
            complete = False
        self._moving.grant(len(trial.moves))
        replayed = self._moving.replay(trial.moves)
        moves = replayed.moves if replayed is not None else ()
        return Advice(
            moves=moves, freed=freed if moves else 0, kept=self._kept, questions=self._moving.questions,
            complete=complete,
        )  # fmt: skip

    def _begun(self) -> list[tuple[UnitID, tuple[Movable, ...]]]:
        """Who would have to go from each unit that is in use in part, if they may; the fewest first."""
        wholes, ledger = self._moving.wholes, self._view.ledger
        by_claim = {claim.metadata.uid: item for item in self._movable.values() for claim in item.claims}
        found: list[tuple[tuple[int, int, UnitID], tuple[Movable, ...]]] = []
        for pool in self._pools():
            units, in_use = wholes.units(pool), ledger.in_use(pool.id)
            for number in sorted(wholes.in_use(self._moving.start.state, pool)):
                if number not in units.divisible:
                    continue
                uses = [in_use[name] for name in units.names[number] if name in in_use]
                claims = {uid for use in uses for uid in (*use.owners, *(user for user, _ in use.shares))}
                if claims and all(uid in by_claim for uid in claims):
                    items = {by_claim[uid].key: by_claim[uid] for uid in claims}
                    devices = sum(item.devices for item in items.values())
                    key = len(items), devices, (pool.id, number)
                    found.append((key, tuple(items[name] for name in sorted(items))))
        return [(key[-1], users) for key, users in sorted(found, key=lambda entry: entry[0])]

    def _pools(self) -> Mapping[Pool, None]:
        """All pools with devices of nodes."""
        views = (self._view.cluster.inventory.view(name) for name in self._view.cluster.nodes)
        return {pool: None for view in views if view is not None for pool in view.pools if pool.names}

    def _freed(self, trial: Trial, unit: UnitID, users: Sequence[Movable]) -> tuple[Trial, int] | None:
        """The state after these went elsewhere, and how many devices more are whole then; None when none are."""
        found: Trial | None = trial
        for item in users:
            found = found and self._moving.move(found, item, units=(unit,))
            if found is None:
                return None
        assert found is not None
        pools = self._touched(found.moves[len(trial.moves) :])
        left = self._moving.wholes.left
        gain = left(found.state, pools) - left(trial.state, pools)
        return (found, gain) if gain > 0 else None

    def _touched(self, moves: Sequence[Move]) -> Mapping[Pool, None]:
        """The pools that these moves take from and give to."""
        ids = {result.id[:2] for move in moves for _, found in move.plans for result in found.devices.results}
        ledger = self._view.ledger
        for move in moves:
            for claim in move.item.claims:
                ids.update(device[:2] for device, _ in ledger.uses(claim.metadata.uid))
        nodes = {name for move in moves for name in (move.item.node, move.target)}
        views = (self._view.cluster.inventory.view(name) for name in sorted(nodes))
        return {pool: None for view in views if view is not None for pool in view.pools if pool.id in ids}
