"""The nodes of the cluster in groups that devices do not tell apart, so that a trial asks about one node of each.

Promises: what `trial` says of a node was decided for it, or for one with the same devices of which the same is in use.
In a small cluster every node is a group of its own. What a change concerns (nodes whose devices are freed, changed and
added ones) is always asked about by itself.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Final, NamedTuple

from app.scheduling import extended
from app.scheduling.claims import Refusal, find
from app.scheduling.diagnosis.situation import Situation
from app.scheduling.judgement import Subject
from app.scheduling.noderules import Obstacle
from app.scheduling.pace import PORTION, Pace, Steps

SMALL: Final = 64
"""In a cluster of at most so many nodes no groups are made."""
GROUPS: Final = 256
"""So many groups are asked about, the largest first."""


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
        self._free = [[name for name in group if not obstacles[name]] for group in groups]

    @property
    def places(self) -> list[str]:
        """One node of each group that nothing but devices keeps the pod from."""
        return [free[0] for free in self._free[:GROUPS] if free]

    def trial(self, changed: Situation, pace: Pace, only: Sequence[str] = ()) -> Steps[Found | None]:
        """Where the pod would fit; None when it would nowhere, or nobody can say. `only`: groups do not count, these
        nodes are asked about.
        """
        pace.trials += 1
        if changed.is_gated():
            return None
        if only:
            picks = [(name, 1) for name in only if self._is_free(changed, name)]
        else:
            picks = yield from self._picks(changed, pace)
        if not picks:
            return None
        names = [name for name, _ in picks]
        fits = yield from pace.turn(lambda view: changed.fitting(view, names))
        if not fits:
            return None
        counts = dict(picks)
        return Found(sum(counts[name] for name in fits), fits[0])

    def _picks(self, changed: Situation, pace: Pace) -> Steps[list[tuple[str, int]]]:
        """One node of each group that nothing but devices may keep the pod from, and how many it stands for."""
        concerned = [name for name in self._concerned(changed) if self._is_free(changed, name)]
        apart = set(self._concerned(changed))
        found = [(name, 1) for name in concerned[:GROUPS]]
        same = changed.pod is self.base.pod and _reached(changed) == self._reached
        for group, free in zip(self.groups, self._free, strict=True):
            left: list[str] = []
            for name in free if same else group:
                if name in apart:
                    continue
                if not same:
                    yield from pace.looked()
                if same or self._is_free(changed, name):
                    left.append(name)
            if left and len(found) < GROUPS:
                found.append((left[0], len(left)))
            elif left:
                pace.complete = False
        return found

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
    subject = situation.subject
    return (
        frozenset(claim.metadata.uid for claim, _ in subject.reaches) if isinstance(subject, Subject) else frozenset()
    )


def survey(base: Situation, names: Sequence[str], pace: Pace, attributes: Sequence[str] = ()) -> Steps[Ground]:
    """Look at these nodes. `attributes`: what constraints that are tried may compare."""
    obstacles: dict[str, tuple[Obstacle, ...]] = {}
    groups: dict[Hashable, list[str]] = {}
    left: dict[str, set[int]] = {}
    for start in range(0, len(names), PORTION):
        portion = [name for name in names[start : start + PORTION] if name in base.view.cluster.nodes]
        keys: dict[str, Hashable] = {name: name for name in portion}
        if len(names) > SMALL:
            keys = (yield from _keys(base, portion, pace, attributes)) or keys
        for name in portion:
            node = base.node(name)
            if node is not None:
                obstacles[name] = tuple(base.obstacles(node))
                for resource, amount in base.wants.left(node, base.tenants.used(name)[0]):
                    left.setdefault(resource, set()).add(amount)
                groups.setdefault(keys.get(name, name), []).append(name)
        pace.nodes += len(portion)
        yield
    return Ground(base, sorted(groups.values(), key=len, reverse=True), obstacles, left)


def _keys(
    base: Situation, portion: Sequence[str], pace: Pace, attributes: Sequence[str]
) -> Steps[dict[str, Hashable] | None]:
    subject = base.subject
    claims = find(base.pod, base.claim, base.view.features)
    found = yield from pace.turn(
        lambda view: dict(view.decisions.alike(() if isinstance(claims, Refusal) else claims, portion, attributes))
    )
    if found is None or not isinstance(subject, Subject) or subject.wanted is None:
        return found
    return {name: (key, _kind_of_pending(base, name)) for name, key in found.items()}


def _kind_of_pending(base: Situation, name: str) -> Hashable:
    """What devices provide differs from node to node for extended resources."""
    subject, node = base.subject, base.node(name)
    if not isinstance(subject, Subject) or subject.wanted is None or node is None:
        return None
    return extended.through_devices(subject.wanted, node)
