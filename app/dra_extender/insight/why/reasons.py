"""Finds the statements that say why a pod fits no node.

Promises
- A statement about all nodes is made only if it was seen to hold on each node that was compared.
- A node where enough devices match, and are in use, tainted or short of capacity, is closer to fitting than one where
  they do not match. The statements are about the nodes where the pod comes closest.
- If each request has devices on some node, but no node has them for all requests, that is what is stated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import islice
from typing import Final

from dra_extender.allocation.tally import ConstraintTally, RequestTally
from dra_extender.api.resource import DeviceClass
from dra_extender.insight.snapshot import SimulatedPod
from dra_extender.insight.why.candidates import EditableClaim, editable_claims, request_text, requests_of
from dra_extender.insight.why.nodegroups import binding, kind, larger
from dra_extender.insight.why.report import DiagnosedRequest, NodeGroup
from dra_extender.insight.why.selectorchanges import in_order
from dra_extender.insight.why.statements import (
    MISMATCH,
    ClassEmpty,
    ConstraintUnmet,
    DevicesUnavailable,
    MatchingNodes,
    NodesExcluded,
    NoNodeHasAll,
    NothingMatches,
    PodRefused,
    Requested,
    Scope,
    SelectorFails,
    Statement,
    TogetherTooFew,
    TooFew,
    Unsatisfiable,
)

VALUES: Final = 4
"""Values of an attribute that are named."""
LISTED: Final = 8
"""Values that a tally lists at most."""
STATEMENTS: Final = 3
FAR: Final = 4
"""The leading parts of the distance that are compared. Statements are about the closest nodes."""


Claims = Mapping[str, EditableClaim]
"""By namespace/name of the claim."""

RequestKey = tuple[str, str]
"""(claim, request without its alternative)"""


def of_nodes(groups: Sequence[NodeGroup], pod: SimulatedPod) -> tuple[Statement, ...]:
    """Why the pod fits none of these groups of nodes; the first statement is about the closest."""
    claims = {editable.claim.metadata.key: editable for editable in editable_claims(pod)}
    seen = sorted((group for group in groups if group.examined), key=_distance)
    if not seen:
        return (PodRefused("no nodes", "no node has been examined yet" if groups else "the cluster has no nodes"),)
    failing = [group for group in seen if group.fails]
    for group in failing or seen:
        for item in group.requests:
            for error in item.tally.errors:
                if error.source == "capacity":
                    return (PodRefused("claim", group.reason),)
                problem = error.problem + (error.instead and f" ({error.instead})")
                selector = error.source, error.index
                parts = (each for each in item.tally.clauses if (each.source, each.index) == selector)
                clause = next((each.text for each in parts if each.failed), "")
                return (SelectorFails(_requested(item.tally, claims), error.source, problem, error.device, clause),)
    if failing:
        return (PodRefused("claim", failing[0].reason),)
    about = _Nodes(seen, claims, pod.view.cluster.classes)
    return tuple(dict.fromkeys(about.lacking() or about.blocked()))[:STATEMENTS]


class _Stage(IntEnum):
    """How far the devices of a node get for a request."""

    NO_DEVICE = 0
    """The node has no device of the class."""
    NO_MATCH = 1
    """No device of the class matches."""
    FEW_MATCH = 2
    """Fewer devices match than are requested."""
    BLOCKED = 3
    """Enough match, but too few of these can be allocated."""
    ENOUGH = 4


def matching(tally: RequestTally) -> int:
    """The devices of the class that match: in use or not, tainted or not."""
    return tally.offered - sum(loss.count for loss in tally.losses if loss.rule in MISMATCH)


def _stage(tally: RequestTally) -> _Stage:
    match = matching(tally)
    needed = max(match, 1) if tally.all else tally.wanted
    if not tally.offered:
        return _Stage.NO_DEVICE
    if match < needed:
        return _Stage.FEW_MATCH if match else _Stage.NO_MATCH
    return _Stage.ENOUGH if tally.left >= needed else _Stage.BLOCKED


def _key(item: DiagnosedRequest) -> RequestKey:
    return item.tally.claim, item.tally.request.partition("/")[0]


def _stages(group: NodeGroup) -> dict[RequestKey, _Stage]:
    """By request: how far its best alternative gets."""
    found: dict[RequestKey, _Stage] = {}
    for item in group.requests:
        found[_key(item)] = max(found.get(_key(item), _Stage.NO_DEVICE), _stage(item.tally))
    return found


def _distance(group: NodeGroup) -> tuple[int, ...]:
    stages = list(_stages(group).values())
    blocked = stages.count(_Stage.BLOCKED)
    refused = group.verdict != "fits" and not any(stage < _Stage.ENOUGH for stage in stages)
    tallies = [item.tally for item in group.requests]
    missing = sum(max((matching(tally) if tally.all else tally.wanted) - tally.left, 0) for tally in tallies)
    short = max(missing, group.wanted - group.available)
    return (
        *(stages.count(stage) for stage in (_Stage.NO_DEVICE, _Stage.NO_MATCH, _Stage.FEW_MATCH)),
        sum(obstacle.rule == "claim elsewhere" for obstacle in group.obstacles),
        blocked + refused + len({obstacle.rule for obstacle in group.obstacles}),
        sum(obstacle.rule in ("node name", "node selector", "node affinity") for obstacle in group.obstacles),
        short,
        -group.count,
    )


def _claim_label(tally: RequestTally, claims: Claims) -> str:
    """The name that users know the claim by."""
    return f"claim {claims[tally.claim].entry}" if tally.claim in claims else "extended resources"


def _requested(tally: RequestTally, claims: Claims) -> Requested:
    """The label has the request if the claim has several."""
    several = tally.claim in claims and len(list(requests_of(claims[tally.claim]))) > 1
    label = _claim_label(tally, claims) + (f", {request_text(tally.request)}" if several else "")
    return Requested(tally.claim, tally.request, label, tally.class_name, tally.wanted, tally.all, tally.selectors)


class _Nodes:
    """The groups of nodes that were compared, the closest first, with the stages of the requests there."""

    def __init__(self, groups: Sequence[NodeGroup], claims: Claims, classes: Mapping[str, DeviceClass]) -> None:
        self._groups = groups
        self._stages = [(group, _stages(group)) for group in groups]
        self._claims = claims
        self._classes = classes
        self._compared = sum(group.count for group in groups)

    def lacking(self) -> list[Statement]:
        """Which requests have too few matching devices everywhere, or that no node has matching devices for all."""
        if any(all(stage > _Stage.FEW_MATCH for stage in stages.values()) for _, stages in self._stages):
            return []
        places = {
            key: [group for group, stages in self._stages if stages.get(key, _Stage.NO_DEVICE) > _Stage.FEW_MATCH]
            for key in self._stages[0][1]
        }
        missing = [key for key, groups in places.items() if not groups]
        if missing:
            tallies = [item.tally for item in self._groups[0].requests if _key(item) in missing]
            return [found for tally in tallies for found in self._lacking(tally.claim, tally.request)]
        return [NoNodeHasAll(tuple(self._place(key, groups) for key, groups in places.items()), self._compared)]

    def _match_somewhere(self, alternative: RequestTally) -> bool:
        """Whether enough devices match this alternative on some node."""
        name = alternative.claim, alternative.request
        tallies = (item.tally for group in self._groups for item in group.requests)
        return any((each.claim, each.request) == name and _stage(each) > _Stage.FEW_MATCH for each in tallies)

    def _place(self, key: RequestKey, groups: Sequence[NodeGroup]) -> MatchingNodes:
        best = max((item for item in groups[0].requests if _key(item) == key), key=lambda item: _stage(item.tally))
        return MatchingNodes(
            _requested(best.tally, self._claims), sum(group.count for group in groups), groups[0].nodes[0]
        )

    def _lacking(self, claim: str, request: str) -> Iterator[Statement]:
        """If fewer devices would not help either, also why."""
        found = [
            (group, item)
            for group in self._groups
            for item in group.requests
            if (item.tally.claim, item.tally.request) == (claim, request)
        ]
        closest, first = max(found, key=lambda each: (matching(each[1].tally), each[1].tally.offered))
        requested, most = _requested(first.tally, self._claims), matching(first.tally)
        if not first.tally.offered:
            yield ClassEmpty(requested, self._compared, self._pools(requested.class_name))
            return
        tallies = [item.tally for _, item in found if item.tally.offered]
        rules = {loss.rule for tally in tallies for loss in tally.losses if loss.rule in MISMATCH}
        if rules - {"selector"}:
            yield self._unavailable(closest, first)
            return
        clauses = _common(tallies)
        if most:
            node = closest.nodes[0] if closest.obstacles else ""
            yield TooFew(requested, self._compared, most, clauses if rules else (), node)
            if not first.tally.left:
                yield self._unavailable(closest, first)
            if closest.obstacles:
                yield NodesExcluded(self._scope(closest), closest.obstacles, devices=False)
            return
        values, more = _values(tallies, clauses[0]) if len(clauses) == 1 else ((), False)
        yield NothingMatches(requested, self._compared, clauses, values, more)

    def _pools(self, class_name: str) -> tuple[str, ...]:
        """The pools that cannot be used, of drivers that the selectors of the class name."""
        found = self._classes.get(class_name)
        selectors = found.spec.selectors if found is not None else ()
        text = " ".join(selector.cel.expression for selector in selectors if selector.cel is not None)
        pools = (pool for group in self._groups for pool in group.pools)
        return tuple(dict.fromkeys(pool.text() for pool in pools if pool.driver in text))

    def blocked(self) -> list[Statement]:
        """What excludes the nodes where enough devices match, the closest first."""
        nearest = _distance(self._groups[0])[:FAR]
        groups = [(group, stages) for group, stages in self._stages if _distance(group)[:FAR] == nearest]
        common = self._common([group for group, _ in groups])
        if common is not None:
            return [common]
        return list(islice((found for each in groups for found in self._of_group(*each)), STATEMENTS))

    def _common(self, groups: Sequence[NodeGroup]) -> Statement | None:
        """The rules that exclude all of these nodes, if devices fit on each of them."""
        devices = any(group.requests for group in groups)
        if len(groups) < 2 or any(group.verdict != "fits" for group in groups):
            return None
        first, *others = groups
        found = list(first.obstacles)
        for group in others:
            known = {kind(obstacle): obstacle for obstacle in group.obstacles}
            found = [larger(each, known[kind(each)]) for each in found if kind(each) in known]
        nodes = tuple(name for group in groups for name in group.nodes)
        scope = Scope(sum(group.count for group in groups), self._compared, nodes)
        return NodesExcluded(scope, tuple(found), devices) if found else None

    def _of_group(self, group: NodeGroup, stages: Mapping[RequestKey, _Stage]) -> Iterator[Statement]:
        if group.verdict != "fits" and (group.requests or not group.obstacles):
            yield from self._devices(group, stages)
        if group.obstacles:
            fit = group.verdict == "fits" and bool(group.requests)
            elsewhere = any(each.rule == "claim elsewhere" for each in group.obstacles)
            labels = dict.fromkeys(_claim_label(item.tally, self._claims) for item in group.requests)
            yield NodesExcluded(self._scope(group), group.obstacles, fit, tuple(labels) if fit and elsewhere else ())

    def _devices(self, group: NodeGroup, stages: Mapping[RequestKey, _Stage]) -> Iterator[Statement]:
        short = [item for item in group.requests if stages[_key(item)] == _Stage.BLOCKED]
        for item in sorted(short, key=lambda item: -_stage(item.tally)):
            constraint = _constraint_of(group, item)
            if constraint is not None:
                yield self._constraint(group, constraint)
            elif _stage(item.tally) == _Stage.BLOCKED:
                yield self._unavailable(group, item)
            elif not self._match_somewhere(item.tally):
                yield from self._lacking(item.tally.claim, item.tally.request)
        if short:
            return
        scope = self._scope(group)
        if not group.requests or group.verdict != "refused":
            yield Unsatisfiable("", "", scope, group.reason)
            return
        for constraint in group.constraints:
            if constraint.best < constraint.wanted:
                yield self._constraint(group, constraint)
                return
        claim = group.requests[0].tally.claim
        claims = dict.fromkeys(item.tally.claim for item in group.requests)
        entries = [self._claims[each].entry for each in claims if each in self._claims]
        parts = [f"claim{'s' if len(entries) > 1 else ''} {', '.join(entries)}"] if entries else []
        parts += ["the extended resources"] if len(entries) < len(claims) else []
        alone = len(claims) == len(group.requests) == 1
        text = " and ".join(parts) if alone or len(claims) > 1 else f"the requests of {parts[0]}"
        users = tuple({holder.claim: holder for item in group.requests for holder in item.holders}.values())
        if group.wanted > group.available:
            yield TogetherTooFew(claim, text, scope, group.wanted, group.available, users)
        else:
            others, cause = () if group.holders else users, group.cause or group.reason
            constraints = _named(group.constraints)
            yield Unsatisfiable(claim, text, scope, cause, "search", group.holders, constraints, others)

    def _unavailable(self, group: NodeGroup, item: DiagnosedRequest) -> Statement:
        tally, usable = item.tally, matching(item.tally)
        losses = tuple(loss for loss in tally.losses if loss.rule not in MISMATCH)
        if usable < max(tally.wanted, 1) and not losses:  # what does not match is what is missing
            usable, losses = tally.offered, tally.losses
        return DevicesUnavailable(
            _requested(tally, self._claims),
            self._scope(group),
            binding(usable, losses, usable if tally.all else tally.wanted) or item.rule,
            usable,
            losses,
            tally.left,
            tally.taints,
            tally.capacities,
            tally.counters,
            item.holders,
            _named(each for each in group.constraints if each.claim == tally.claim and tally.request in each.requests),
        )

    def _constraint(self, group: NodeGroup, constraint: ConstraintTally) -> ConstraintUnmet:
        covered = [item for item in group.requests if item.tally.claim == constraint.claim]
        holders = [holder for item in covered if item.tally.request in constraint.requests for holder in item.holders]
        return ConstraintUnmet(
            constraint.claim,
            f"claim {self._claims[constraint.claim].entry if constraint.claim in self._claims else constraint.claim}",
            self._scope(group),
            constraint.kind,
            constraint.attribute,
            constraint.wanted,
            constraint.best,
            tuple({holder.claim: holder for holder in holders}.values()),
            constraint.missing,
        )

    def _scope(self, group: NodeGroup) -> Scope:
        elsewhere = (each for other in self._groups for each in other.obstacles if each.rule == "claim elsewhere")
        claims = dict.fromkeys(each.what for each in elsewhere if each.asked in group.nodes)
        return Scope(group.count, self._compared, group.nodes, tuple(claims))


def _constraint_of(group: NodeGroup, item: DiagnosedRequest) -> ConstraintTally | None:
    """The constraint that the devices of the request do not satisfy, if that is why too few are left."""
    if item.rule != "constraint":
        return None
    tally = item.tally
    covering = (each for each in group.constraints if each.claim == tally.claim and tally.request in each.requests)
    return next((constraint for constraint in covering if constraint.best < constraint.wanted), None)


def _named(constraints: Iterable[ConstraintTally]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f"{each.kind} {each.attribute}" for each in constraints))


def _common(tallies: Sequence[RequestTally]) -> tuple[str, ...]:
    """The first clause that no device satisfies; if there is none, all clauses that exclude devices."""
    texts = dict.fromkeys(clause.text for tally in tallies for clause in tally.clauses if clause.excluded)
    for text in texts:
        lost = [max((each.excluded for each in tally.clauses if each.text == text), default=0) for tally in tallies]
        if lost == [tally.offered for tally in tallies]:
            return (text,)
    return tuple(texts)


def _values(tallies: Sequence[RequestTally], text: str) -> tuple[tuple[str, ...], bool]:
    """(the values that devices have where the clause reads, whether there are more)"""
    clauses = [clause for tally in tallies for clause in tally.clauses if clause.text == text]
    if any(not clause.reads for clause in clauses):
        return (), False
    found = dict.fromkeys(value.text for clause in clauses for value in clause.values)
    cut = len(found) > VALUES or any(len(clause.values) >= LISTED for clause in clauses)
    return tuple(in_order(tuple(found)[:VALUES])), cut
