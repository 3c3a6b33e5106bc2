"""The nodes of the cluster in groups that devices do not tell apart, so that a trial asks about one node of each.

Promises: what `trial` says of a node was decided for it, or for one with the same devices of which the same is in use.
Nodes that there was no time for are in no group, and `budget.complete` says so.
In a small cluster every node is a group of its own. What a change concerns (nodes whose devices are freed, changed and
added ones) is always asked about by itself.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence, Set
from itertools import islice
from typing import Final, NamedTuple

from dra_extender.insight.why.situation import Situation
from dra_extender.scheduling import extended
from dra_extender.scheduling.claims import Unschedulable, resolve_claims
from dra_extender.scheduling.feasibility import PreFilterState
from dra_extender.scheduling.noderules import LABELS_OF_ONE, Obstacle
from dra_extender.scheduling.slices import PORTION, QueryBudget, Slices

SMALL: Final = 64
"""In a cluster of at most so many nodes no groups are made."""
GROUPS: Final = 256
"""So many groups are asked about, the largest first."""
OBSTACLES: Final = 64
"""So many are told of a node."""
COST: Final = 30
"""Units of work that a trial takes at least."""
LOT: Final = 10
"""Units of work that telling a node from others takes."""
FREE: Final = 20
"""Names that are looked up in a unit of work."""


class Found(NamedTuple):
    """`nodes` nodes fit, `example` is one of them."""

    nodes: int
    example: str


class Ground:
    """See the module. Made by `survey`."""

    def __init__(
        self,
        base: Situation,
        groups: Sequence[Sequence[str]],
        obstacles: dict[str, tuple[Obstacle, ...]],
        left: dict[str, set[int]],
    ) -> None:
        """`left`: per resource that the pod asks for what nodes have left, in nano units."""
        self.base = base
        self.groups = groups
        self.obstacles = obstacles
        self.left = left
        self.names: tuple[str, ...] = tuple(obstacles)
        self._reached = _reached(base)
        self._lots: list[list[list[str]]] | None = None
        """The nodes of each group, those together that no pod can tell apart but by its name."""
        self._free = [[name for name in group if not obstacles[name]] for group in groups]

    @property
    def places(self) -> list[str]:
        """One node of each group that nothing but devices keeps the pod from."""
        return [free[0] for free in self._free[:GROUPS] if free]

    def trial(self, changed: Situation, budget: QueryBudget, only: Sequence[str] = ()) -> Slices[Found | None]:
        """Where the pod would fit; None when it would nowhere, or nobody can say. `only`: groups do not count, these
        nodes are asked about.
        """
        budget.trials += 1
        if budget.must_yield(COST + changed.cost):
            yield
        if changed.is_gated():
            return None
        if only:
            picks = [(name, 1) for name in only[:GROUPS] if self._is_free(changed, name)]
        else:
            picks = yield from self._picks(changed, budget)
        if not picks:
            return None
        names = [name for name, _ in picks]
        fits = yield from budget.turn(lambda view: changed.fitting(view, names))
        if not fits:
            return None
        counts = dict(picks)
        return Found(sum(counts[name] for name in fits), fits[0])

    def _picks(self, changed: Situation, budget: QueryBudget) -> Slices[list[tuple[str, int]]]:
        """One node of each group that nothing but devices may keep the pod from, and how many it stands for."""
        apart = dict.fromkeys(self._concerned(changed)).keys()
        concerned: list[str] = []
        for name in apart:
            if budget.must_yield(changed.cost_of(name)):
                yield
            if self._is_free(changed, name):
                concerned.append(name)
        found = [(name, 1) for name in concerned[:GROUPS]]
        same = changed.pod is self.base.pod and _reached(changed) == self._reached
        lots = self._lots or [[]] * len(self.groups) if same else (yield from self._in_lots(budget))
        for group, free in zip(lots, self._free, strict=True):
            if same:
                left = [name for name in free if name not in apart] if apart else free
                if budget.must_yield(1 + len(apart) + (len(free) // FREE if apart else 0)):
                    yield
            else:
                left = yield from self._free_of(changed, group, apart, budget)
            if left and len(found) < GROUPS:
                found.append((left[0], len(left)))
            elif left:
                budget.complete = False
        return found

    def _free_of(
        self, changed: Situation, group: Sequence[Sequence[str]], apart: Set[str], budget: QueryBudget
    ) -> Slices[list[str]]:
        """The nodes of the group that nothing but devices keeps the changed pod from."""
        left: list[str] = []
        alike = not changed.wants.by_name
        for lot in group:
            for part in [lot] if alike else [[name] for name in lot]:
                names = [name for name in part if name not in apart] if apart else part
                if not names:
                    continue
                if budget.must_yield(changed.cost_of(names[0]) + len(part) // FREE):
                    yield
                if budget.spent():
                    return left
                if self._is_free(changed, names[0]):
                    left.extend(names)
        return left

    def _in_lots(self, budget: QueryBudget) -> Slices[list[list[list[str]]]]:
        """As `_lots`, found out when it is needed first."""
        if self._lots is None:
            found: list[list[list[str]]] = []
            for group in self.groups:
                lots: dict[Hashable, list[str]] = {}
                for name in group:
                    kind = self._kind(name)
                    lots.setdefault(kind, []).append(name)
                    if budget.must_yield(LOT):
                        yield
                found.append(list(lots.values()))
            self._lots = found
        return self._lots

    def _kind(self, name: str) -> Hashable:
        """All that a pod can tell a node by, its name and its host name aside."""
        node = self.base.node(name)
        if node is None:
            return name
        labels = node.metadata.labels
        used, count, taken = self.base.tenants.used(name)
        return (
            node.spec,
            tuple(sorted((key, value) for key, value in labels.items() if key not in LABELS_OF_ONE)),
            tuple((key, offered.nano - used.get(key, 0)) for key, offered in node.status.allocatable.items()),
            count,
            taken,
        )

    def _concerned(self, changed: Situation) -> Iterator[str]:
        """Nodes that the change makes different, and those that it adds."""
        if changed.overlay is not self.base.overlay or changed.removed:
            yield from sorted(changed.overlay.differing - changed.nodes.keys())
            homes = (changed.view.pods.get(uid) for uid in changed.removed)
            names = {pod.spec.node_name for pod in homes if pod is not None}
            yield from sorted((names & self.obstacles.keys()) - changed.overlay.differing - changed.nodes.keys())
        yield from changed.nodes

    def _is_free(self, changed: Situation, name: str) -> bool:
        node = changed.node(name)
        return node is not None and next(changed.obstacles(node), None) is None


def _reached(situation: Situation) -> frozenset[str]:
    prefiltered = situation.prefiltered
    return (
        frozenset(claim.metadata.uid for claim, _ in prefiltered.reaches)
        if isinstance(prefiltered, PreFilterState)
        else frozenset()
    )


def survey(
    base: Situation, names: Sequence[str], budget: QueryBudget, attributes: Sequence[str] = ()
) -> Slices[Ground]:
    """Look at these nodes. `attributes`: what constraints that are tried may compare."""
    obstacles: dict[str, tuple[Obstacle, ...]] = {}
    groups: dict[Hashable, list[str]] = {}
    left: dict[str, set[int]] = {}
    for start in range(0, len(names), PORTION):
        if budget.spent():
            break
        portion = [name for name in names[start : start + PORTION] if name in base.view.cluster.nodes]
        keys: dict[str, Hashable] = {name: name for name in portion}
        if len(names) > SMALL:
            keys = (yield from _keys(base, portion, budget, attributes)) or keys
        for name in portion:
            node = base.node(name)
            if node is not None:
                if budget.must_yield(base.cost_of(name)):
                    yield
                obstacles[name] = tuple(islice(base.obstacles(node), OBSTACLES))
                for resource, amount in base.wants.left(node, base.tenants.used(name)[0]):
                    left.setdefault(resource, set()).add(amount)
                groups.setdefault(keys.get(name, name), []).append(name)
        budget.nodes += len(portion)
        yield
    return Ground(base, sorted(groups.values(), key=len, reverse=True), obstacles, left)


def _keys(
    base: Situation, portion: Sequence[str], budget: QueryBudget, attributes: Sequence[str]
) -> Slices[dict[str, Hashable] | None]:
    prefiltered = base.prefiltered
    claims = resolve_claims(base.pod, base.claim, base.view.features)
    found = yield from budget.turn(
        lambda view: dict(
            view.decisions.alike(() if isinstance(claims, Unschedulable) else claims, portion, attributes)
        )
    )
    if found is None or not isinstance(prefiltered, PreFilterState) or prefiltered.wanted is None:
        return found
    return {name: (key, _kind_of_pending(base, name)) for name, key in found.items()}


def _kind_of_pending(base: Situation, name: str) -> Hashable:
    """What devices provide differs from node to node for extended resources."""
    prefiltered, node = base.prefiltered, base.node(name)
    if not isinstance(prefiltered, PreFilterState) or prefiltered.wanted is None or node is None:
        return None
    return extended.through_devices(prefiltered.wanted, node)
