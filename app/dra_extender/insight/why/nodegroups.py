"""The nodes of the cluster in groups. A hypothetical decision is made for one node per group.

Promises
- The nodes of a group have the same devices, and the same ones are in use. In a small cluster every node is a group.
- `group_nodes` leaves out the nodes that its budget does not reach; `budget.complete` is then False.
- `NodeGroups.fit` counts a node only if the decision was made for this node or for another node of its group. It always
  tries a change on the nodes that the change affects: nodes whose devices it frees, changed nodes and added nodes.
- `node_groups` reports the `EXAMINED` largest groups in detail. For each other group it reports the number of nodes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from dra_extender.allocation.plan import Failure, Plan, Unfit
from dra_extender.allocation.tally import Held, NodeTally, RequestTally, RuleCount
from dra_extender.api.core import Pod
from dra_extender.api.quantity import Quantity
from dra_extender.insight.devicereport.report import holders
from dra_extender.insight.snapshot import SimulatedPod
from dra_extender.insight.why.candidates import Fit, JointFit
from dra_extender.insight.why.report import DiagnosedRequest, NodeGroup
from dra_extender.insight.why.statements import BindingRule, HoldingClaim
from dra_extender.scheduling import extended
from dra_extender.scheduling.claims import Unschedulable
from dra_extender.scheduling.feasibility import PreFilterState, pending_claims
from dra_extender.scheduling.nodeallocatable import demand_of
from dra_extender.scheduling.noderules import LABELS_OF_ONE, Obstacle
from dra_extender.scheduling.turns import PORTION, QueryBudget, Turns
from dra_extender.scheduling.view import View

SMALL: Final = 64
"""Up to this number of nodes, every node is its own group."""
GROUPS: Final = 256
"""Groups that are tried at most, the largest first."""
OBSTACLES: Final = 64
"""Obstacles that are reported per node at most."""
TRIAL: Final = 30
"""Units of work per trial, at least."""
NODE: Final = 10
"""Units of work to compare a node with others."""
NAMES: Final = 20
"""Names that are looked up in a unit of work."""
EXAMINED: Final = 48
NAMED: Final = 5
HOLDERS: Final = 256
"""Claims that are reported per request at most."""
HOLDER: Final = 4
"""Units of work per claim."""
UNDECIDED: Final = "not decided yet"


@dataclass(eq=False)
class NodeGroups:
    """The groups of nodes for one pod. `group_nodes` makes them."""

    pod: SimulatedPod
    groups: Sequence[Sequence[str]]
    obstacles: dict[str, tuple[Obstacle, ...]]
    left: dict[str, set[int]]
    """The amounts that nodes have free of each resource that the pod requests, in nano units."""
    joint: JointFit | None = None
    """Decides on all pods of a gang: the pod and its `mates`. None for other pods."""
    mates: Sequence[Pod] = ()
    _numbers: dict[Hashable, int] = field(default_factory=dict)
    """By `_kind`."""
    _kinds: dict[str, int] = field(default_factory=dict)
    """A number of each node that a changed pod was tried on. Nodes that differ only in their names have the same."""

    def __post_init__(self) -> None:
        self._bound_claims = _bound_claims(self.pod)
        self._free = [[name for name in group if not self.obstacles[name]] for group in self.groups]

    def fit(self, changed: SimulatedPod, budget: QueryBudget, only: Sequence[str] = ()) -> Turns[Fit | None]:
        """How many nodes the changed pod fits. None if it fits no node, or if no decision is possible yet. `only`: try
        these nodes instead of the groups.
        """
        budget.trials += 1
        yield from budget.charge(TRIAL + changed.cost)
        if changed.excluding_rule():
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
        return Fit(sum(counts[name] for name in fits), fits[0])

    def _picks(self, changed: SimulatedPod, budget: QueryBudget) -> Turns[list[tuple[str, int]]]:
        """The nodes to try, each with the number of nodes that it represents."""
        apart = dict.fromkeys(self._affected(changed)).keys()
        affected: list[str] = []
        for name in apart:
            yield from budget.charge(changed.cost_of(name))
            if self._is_free(changed, name):
                affected.append(name)
        found = [(name, 1) for name in affected[:GROUPS]]
        same = changed.pod is self.pod.pod and _bound_claims(changed) == self._bound_claims
        for group, free in zip(self.groups, self._free, strict=True):
            if same:
                left = [name for name in free if name not in apart] if apart else free
                yield from budget.charge(1 + len(apart) + (len(free) // NAMES if apart else 0))
            else:
                left = yield from self._free_of(changed, group, apart, budget)
            if left and len(found) < GROUPS:
                found.append((left[0], len(left)))
            elif left:
                budget.complete = False
        return found

    def _free_of(
        self, changed: SimulatedPod, group: Sequence[str], apart: Set[str], budget: QueryBudget
    ) -> Turns[list[str]]:
        """The nodes of the group that have no obstacles for the changed pod, without those in `apart`. Of nodes that
        differ only in their names, one is compared.
        """
        left: list[str] = []
        is_free: dict[Hashable, bool] = {}
        yield from budget.charge(len(group) // NAMES)
        for name in group:
            if name not in self._kinds:
                yield from budget.charge(NODE + self.pod.snapshot.usage.size(name))
                self._kinds[name] = self._numbers.setdefault(self._kind(name), len(self._numbers))
            kind = name if changed.wants.by_name else self._kinds[name]
            if name not in apart and kind not in is_free:
                yield from budget.charge(changed.cost_of(name))
                if budget.spent():
                    break
                is_free[kind] = self._is_free(changed, name)
            if name not in apart and is_free[kind]:
                left.append(name)
        return left

    def _kind(self, name: str) -> Hashable:
        """Everything that obstacles depend on, except the node's name and host name."""
        snapshot = self.pod.snapshot
        node = snapshot.node(name)
        if node is None:
            return name
        labels = node.metadata.labels
        used, count, taken = snapshot.usage.used(name)
        return (
            node.spec,
            tuple(sorted((key, value) for key, value in labels.items() if key not in LABELS_OF_ONE)),
            tuple((key, offered.nano - used.get(key, 0)) for key, offered in node.status.allocatable.items()),
            count,
            taken,
        )

    def _affected(self, changed: SimulatedPod) -> Iterator[str]:
        now = changed.snapshot
        if now.overlay is not self.pod.snapshot.overlay or now.removed:
            yield from sorted(now.overlay.differing - now.nodes.keys())
            homes = (now.view.pods.get(uid) for uid in now.removed)
            names = {pod.spec.node_name for pod in homes if pod is not None}
            yield from sorted((names & self.obstacles.keys()) - now.overlay.differing - now.nodes.keys())
        yield from now.nodes

    def _is_free(self, changed: SimulatedPod, name: str) -> bool:
        node = changed.snapshot.node(name)
        return node is not None and next(changed.obstacles(node), None) is None


def _bound_claims(pod: SimulatedPod) -> frozenset[str]:
    """UIDs of the pod's claims that are allocated already."""
    found = pod.prefiltered
    usable = found.usable_on if isinstance(found, PreFilterState) else ()
    return frozenset(claim.metadata.uid for claim, _ in usable)


def group_nodes(
    pod: SimulatedPod, names: Sequence[str], budget: QueryBudget, attributes: Sequence[str] = ()
) -> Turns[NodeGroups]:
    """Group these nodes. `attributes`: full names of attributes that changed constraints may compare."""
    obstacles: dict[str, tuple[Obstacle, ...]] = {}
    groups: dict[Hashable, list[str]] = {}
    left: dict[str, set[int]] = {}
    for start in range(0, len(names), PORTION):
        if budget.spent():
            break
        portion = [name for name in names[start : start + PORTION] if name in pod.view.cluster.nodes]
        keys: dict[str, Hashable] = {name: name for name in portion}
        if len(names) > SMALL:
            keys = (yield from _keys(pod, portion, budget, attributes)) or keys
            keys = keys | {name: name for name in keys.keys() & pod.snapshot.overlay.differing}
        for name in portion:
            node = pod.snapshot.node(name)
            if node is not None:
                yield from budget.charge(pod.cost_of(name))
                obstacles[name] = tuple(islice(pod.obstacles(node), OBSTACLES))
                for resource, amount in pod.wants.left(node, pod.snapshot.usage.used(name)[0]):
                    left.setdefault(resource, set()).add(amount)
                groups.setdefault(keys.get(name, name), []).append(name)
        yield
    return NodeGroups(pod, sorted(groups.values(), key=len, reverse=True), obstacles, left)


def _keys(
    pod: SimulatedPod, portion: Sequence[str], budget: QueryBudget, attributes: Sequence[str]
) -> Turns[dict[str, Hashable] | None]:
    prefiltered = pod.prefiltered
    claims = pod.view.claims_of(pod.pod, pod.snapshot.claim)
    found = yield from budget.turn(
        lambda view: dict(
            view.decisions.alike(() if isinstance(claims, Unschedulable) else claims, portion, attributes)
        )
    )
    if found is None or not isinstance(prefiltered, PreFilterState) or prefiltered.wanted is None:
        return found
    wanted, nodes = prefiltered.wanted, {name: pod.snapshot.node(name) for name in found}
    return {  # the node decides which extended resources its devices provide
        name: (key, node and extended.through_devices(wanted, node))
        for (name, key), node in zip(found.items(), nodes.values(), strict=True)
    }


def node_groups(nodes: NodeGroups, budget: QueryBudget) -> Turns[list[NodeGroup]]:
    """All nodes, the largest groups first. Nodes with the same outcome and the same obstacles are one group."""
    kinds: dict[Hashable, int] = {}
    members: dict[Hashable, list[str]] = {}
    outcomes: dict[Hashable, NodeTally] = {}
    for position, group in enumerate(nodes.groups):
        outcome: NodeTally | None = None
        if position < EXAMINED and not budget.spent():
            outcome = yield from _outcome(nodes, group, budget)
            yield
        else:
            budget.complete = False
        number = kinds.setdefault(outcome and outcome.anonymous(), len(kinds))
        for name in group:
            key = number, tuple(map(kind, nodes.obstacles[name]))
            members.setdefault(key, []).append(name)
            if outcome is not None:
                outcomes.setdefault(key, outcome)
            yield from budget.charge(1 + len(nodes.obstacles[name]) // 4)
    found: list[NodeGroup] = []
    for members_key, names in members.items():
        found.append((yield from _group(nodes, names, outcomes.get(members_key), budget)))
    return sorted(found, key=lambda group: -group.count)


def _outcome(nodes: NodeGroups, group: Sequence[str], budget: QueryBudget) -> Turns[NodeTally]:
    """The decision about the devices of a group, with its tally if the search was reached. Adds an
    obstacle if the devices need more CPU or memory than the node has.
    """
    pod, name = nodes.pod, group[0]
    prefiltered, node = pod.prefiltered, pod.snapshot.node(name)
    if isinstance(prefiltered, Unschedulable):
        return NodeTally(name, "refused", prefiltered.reason)
    if isinstance(prefiltered, Failure):
        return NodeTally(name, "error", prefiltered.error)
    if node is None:  # deleted since the last step
        return NodeTally(name, "undecided", UNDECIDED)
    pending = pending_claims(prefiltered, node)
    if isinstance(pending, Unfit):
        return NodeTally(name, "refused", pending.reason)
    found: NodeTally | None = NodeTally(name, "fits", "")
    if pending.claims:
        found = yield from budget.turn(lambda view: view.decisions.tally(pending.claims, name))
    if found is None or found.verdict != "fits" or not pod.view.features.DRANodeAllocatableResources:
        return NodeTally(name, "undecided", UNDECIDED) if found is None else found
    plan: Plan | Unfit | Failure | None = Plan((), 0)
    if pending.claims:
        plan = yield from budget.turn(lambda view: view.decisions.plan(pending.claims, name))
    if not isinstance(plan, Plan):
        return NodeTally(name, "error", plan.error) if isinstance(plan, Failure) else found
    demand = demand_of(pod.pod, pending.claims, plan.amounts, prefiltered.amounts)
    for each in group:
        if (node := pod.snapshot.node(each)) is not None:
            nodes.obstacles[each] += tuple(pod.obstacles_of_devices(node, demand))
    return found


def _group(nodes: NodeGroups, names: Sequence[str], tally: NodeTally | None, budget: QueryBudget) -> Turns[NodeGroup]:
    yield from budget.charge(1)
    shown = tuple(names[:NAMED])
    obstacles = yield from _common_obstacles(nodes, names, budget)
    if tally is None:
        return NodeGroup(len(names), shown, "undecided", UNDECIDED, obstacles, examined=False)
    requests: list[DiagnosedRequest] = []
    for request in tally.requests:
        held_by = yield from _holders(nodes.pod.view, request.held, budget)
        requests.append(DiagnosedRequest(request, _binding_rule(request), held_by))
    return NodeGroup(
        count=len(names),
        nodes=shown,
        verdict=tally.verdict,
        reason=tally.reason,
        obstacles=obstacles,
        example=tally.node,
        requests=tuple(requests),
        constraints=tally.constraints,
        pools=tally.pools,
        cause=tally.cause,
        holders=(yield from _holders(nodes.pod.view, tally.held, budget)),
        wanted=tally.wanted,
        available=tally.available,
    )


def kind(obstacle: Obstacle) -> Hashable:
    """Equal for obstacles that differ only in what the node has."""
    return obstacle.rule, obstacle.what, obstacle.asked, bool(obstacle.has)


def _common_obstacles(nodes: NodeGroups, names: Sequence[str], budget: QueryBudget) -> Turns[tuple[Obstacle, ...]]:
    """The obstacles of these nodes. Where nodes have different amounts, the largest."""
    found = list(nodes.obstacles[names[0]])
    for name in names[1:]:
        for index, other in enumerate(nodes.obstacles[name]):
            found[index] = larger(found[index], other)
        yield from budget.charge(1 + len(found) // 4)
    return tuple(found)


def larger(first: Obstacle, other: Obstacle) -> Obstacle:
    return other if other.has != first.has and _amount(other.has) > _amount(first.has) else first


def _amount(text: str) -> int:
    """In nano units; -1 if the text is not an amount."""
    try:
        return Quantity.parse(text).nano
    except ValueError:
        return -1


def _binding_rule(request: RequestTally) -> BindingRule:
    """The first rule that leaves fewer devices than requested; empty if enough devices are left."""
    if request.left >= request.wanted:
        return ""
    if request.offered < request.wanted:
        return "offered" if request.offered else "class"
    return binding(request.offered, request.losses, request.wanted) or "offered"


def binding(left: int, losses: Iterable[RuleCount], needed: int) -> BindingRule:
    """The first rule that leaves fewer devices than needed."""
    for loss in losses:
        left -= loss.count
        if left < needed:
            return loss.rule
    return ""


def _holders(view: View, held: Sequence[Held], budget: QueryBudget) -> Turns[tuple[HoldingClaim, ...]]:
    """The claims that hold these devices, at most `HOLDERS`. Claims with the most devices come first."""
    found: dict[str, HoldingClaim] = {}
    for device in held:
        use = view.ledger.in_use((device.driver, device.pool)).get(device.device)
        if use is None:
            continue
        yield from budget.charge(1 + len(use.owners) + len(use.shares))
        if len(found) >= HOLDERS or budget.spent():
            budget.complete = False
            break
        for holder in islice(holders(view.ledger, use), HOLDERS):
            namespace, slash, _ = holder.claim.partition("/")
            known = found.get(holder.claim)
            count = known.devices + 1 if known is not None else 1
            pods = tuple(f"{namespace}/{name}" for name in holder.pods) if slash else ()
            yield from budget.charge(HOLDER + len(pods))
            found[holder.claim] = HoldingClaim(holder.claim, pods, count, holder.in_flight)
    return tuple(sorted(found.values(), key=lambda holder: (-holder.devices, holder.claim)))
