"""What if nodes or devices were added, nodes drained, or pods deleted: which pods would fit?

Promises: the cluster does not change, because all changes and bindings happen on a copy. Pods are placed one after the
other: first the pods that lose their node, then pending pods, each by priority. Whether a pod fits without the changes
is decided in the same way. It runs in turns. `MOST_PODS` and `MOST_NODES` bound the work. The answer counts pods that
were not tried. Names of objects that do not exist, and too many nodes, are refused.

A drained node accepts no pods, and its pods are evicted. Its DaemonSet pods and static pods are deleted with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Annotated, Final, Literal

import msgspec
from msgspec.structs import replace

from dra_extender.api.core import MIRROR, Node, Pod
from dra_extender.api.events import Removed
from dra_extender.api.resource import ResourceClaim, ResourceSlice
from dra_extender.devices.validity import problems_of
from dra_extender.insight.manifests import Draft, HypotheticalObject
from dra_extender.insight.requests import InvalidRequestError, nodes_named, parsed, pod_named
from dra_extender.insight.snapshot import examples_of_nodes, nodes_like, opened
from dra_extender.insight.whatif.clustercopy import MOST_NODES, ClusterCopy, Placed, Placing, copied
from dra_extender.insight.why.waiting import pending_pods
from dra_extender.plaintext import counted
from dra_extender.scheduling.turns import QueryBudget, Turns
from dra_extender.scheduling.view import View

MOST_ADDED: Final = 100
"""Nodes to add, all together."""
MOST_NAMES: Final = 1_000
"""Objects that a request names or has, of one kind."""
MOST_NAMED_PODS: Final = 100
"""Pods that are placed at once."""

NODE_OR_POOL: Final = "name a node, or a NodePool that has nodes"

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
Key = Annotated[str, msgspec.Meta(pattern="^[^/]+/[^/]+$", max_length=507, description="NAMESPACE/NAME")]


class NodesLike(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """So many more nodes like this one, or like the first one of a NodePool of Karpenter, with nothing on them."""

    like: Name
    count: Annotated[float, msgspec.Meta(ge=1, le=MOST_ADDED, multiple_of=1, extra_json_schema={"type": "integer"})] = 1
    """A whole number: to JSON 2.0 is one, too."""


class Changes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """The hypothetical changes. Without `pods`, all pods that wait for devices are placed."""

    add_nodes: Annotated[tuple[NodesLike, ...], msgspec.Meta(max_length=MOST_ADDED)] = ()
    without_pods: Annotated[tuple[Key, ...], msgspec.Meta(max_length=MOST_NAMES)] = ()
    drain: Annotated[tuple[Name, ...], msgspec.Meta(max_length=MOST_NAMES)] = ()
    pods: Annotated[tuple[Key, ...], msgspec.Meta(max_length=MOST_NAMED_PODS)] = ()


_REMEDIES: Final = {
    "addNodes": f"give a list such as [{{like: NODE, count: 1}}], 1 to {MOST_ADDED} nodes",
    "withoutPods": f"give a list of NAMESPACE/NAME, at most {MOST_NAMES}",
    "drain": f"give a list of names of nodes, at most {MOST_NAMES}",
    "pods": f"give a list of NAMESPACE/NAME, at most {MOST_NAMED_PODS}",
}
changes_of: Final = partial(parsed, msgspec.json.Decoder(Changes).decode, remedies=_REMEDIES)
"""The changes in the body of a request. Raises InvalidRequestError."""


def validate(view: View, changes: Changes, objects: Sequence[HypotheticalObject]) -> list[str]:
    """The nodes that the new ones are like. Raises InvalidRequestError."""
    examples = examples_of_nodes(view) if changes.add_nodes else {}
    for number, more in enumerate(changes.add_nodes):
        nodes_named(examples, [more.like], f"addNodes[{number}].like", NODE_OR_POOL)
    total = int(sum(more.count for more in changes.add_nodes))
    if total > MOST_ADDED or any(more.count < 1 for more in changes.add_nodes):
        raise InvalidRequestError("addNodes", f"{total} nodes", f"1 to {MOST_ADDED} can be added, all together")
    for number, name in enumerate(changes.drain):
        nodes_named(view.cluster.nodes, [name], f"drain[{number}]")
    for number, key in enumerate(changes.without_pods):
        pod_named(view.pods, key, f"withoutPods[{number}]", "name a pod as NAMESPACE/NAME")
    for item in objects:
        meta = item.metadata
        if not meta.name:
            raise InvalidRequestError("", f"a {type(item).__name__} has no metadata.name", "give it one")
        claim = view.ledger.get(meta.namespace, meta.name) if isinstance(item, ResourceClaim) else None
        if claim is not None and claim.allocation is not None:
            remedy = "give the claim another name, or delete its pods in the same request"
            raise InvalidRequestError("", f"ResourceClaim {meta.key} exists and is allocated", remedy)
    return [examples[more.like] for more in changes.add_nodes]


Verdict = Literal["fits", "would fit", "no more", "does not fit"]

_TITLES: Final[tuple[tuple[Verdict, str], ...]] = (
    ("no more", "would no longer fit"),
    ("would fit", "would fit"),
    ("does not fit", "would still not fit"),
    ("fits", "would still fit"),
)


class PodOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """One pod (namespace/name). `displaced`: it would lose its node. `now`: the node that it fits, or runs on, without
    the changes. `node`: the node that it would fit after the changes; empty if it would fit no node. `reason`: why it
    would not fit.
    """

    pod: str
    verdict: Verdict
    displaced: bool
    now: str
    node: str
    reason: str = ""


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """`problems`: of the slices that the request adds. `left_out`: pods that were not tried, because there are too many
    pods or nodes. The answer is not `complete` then, nor if some node was not decided in time: such a pod counts as not
    fitting, and its reason says it. `work`: nodes that were tried.
    """

    nodes_added: tuple[str, ...]
    outcomes: tuple[PodOutcome, ...]
    problems: tuple[str, ...] = ()
    left_out: int = 0
    complete: bool = True
    work: int = 0

    def lines(self) -> Iterator[str]:
        """For people."""
        if self.nodes_added:
            yield f"With {counted(len(self.nodes_added), 'more node')}: {', '.join(self.nodes_added)}."
        for problem in self.problems:
            yield f"Problem: {problem}."
        if not self.outcomes and not self.left_out:
            yield "No pod is pending, and no pod would lose its node."
        for verdict, title in _TITLES:
            found = [outcome for outcome in self.outcomes if outcome.verdict == verdict]
            if found:
                yield f"{counted(len(found), 'pod')} {title}:"
            for outcome in found:
                source = f"{outcome.now} -> " if outcome.displaced and outcome.node else ""
                yield f"  {outcome.pod}: {source}{outcome.node or outcome.reason}"
        if self.left_out:
            yield f"Not tried: {counted(self.left_out, 'more pod')}."


MOST_PODS: Final = 500
"""Pods that are placed at most."""
SORTED: Final = 5
"""Units of work per pod of the cluster."""


def simulating(
    view: View, changes: Changes, drafts: Sequence[Draft] | None = None, objects: Sequence[HypotheticalObject] = ()
) -> Turns[WhatIf]:
    """`drafts`: the pods to place; None means all pods that wait for devices. `objects`: objects to add. Raises
    InvalidRequestError in the first turn.
    """
    examples = validate(view, changes, objects)
    copy = yield from copied(view)
    used, added = {*copy.cluster.nodes}, list[Node | HypotheticalObject](objects)
    for more, example in zip(changes.add_nodes, examples, strict=True):
        for node, slices in islice(nodes_like(*opened(copy.view, example), used), int(more.count)):
            added += (node, *slices)
    waiting, evicted, deleted = yield from _concerned(copy.view, changes)
    displaced = {pod.metadata.uid: pod for pod in evicted}
    if drafts is not None:
        waiting = [copy.pods.get(item.pod.metadata.uid) or item.pod for item in drafts]
    moved = displaced.keys() | {pod.metadata.uid for pod in deleted}
    waiting = [pod for pod in waiting if pod.metadata.uid not in moved]
    pods = [*(replace(pod, spec=replace(pod.spec, node_name="")) for pod in evicted), *waiting]
    left, pods = pods[MOST_PODS:], pods[:MOST_PODS]
    for item in drafts or ():
        for claim in item.claims:
            known = copy.cluster.ledger.get(claim.metadata.namespace, claim.metadata.name)
            if known is None or known.allocation is None:  # the pods would share an existing claim with an allocation
                copy.put(claim)
    before = Placing(copy, MOST_NODES // 2)
    now = yield from _placed(before, [pod for pod in pods if pod.metadata.uid not in displaced])
    yield from copy.revert()
    for each in added:
        copy.put(each)
        yield
    for pod in deleted:
        copy.remove(pod)
        yield
    for pod in evicted:
        copy.evict(pod)
        yield
    for name in dict.fromkeys(changes.drain):
        copy.cluster.apply(Removed.of(copy.cluster.nodes[name]))
    after = Placing(copy, MOST_NODES // 2)
    then = yield from _placed(after, pods)
    outcomes = tuple(_outcomes(pods, displaced, now, then))
    left_out = len(left) + len(pods) - len(outcomes)
    decided = all(placed.decided for placed in (*now.values(), *then.values()))
    return WhatIf(
        nodes_added=tuple(each.name for each in added if isinstance(each, Node)),
        outcomes=outcomes,
        problems=tuple(problems_of_slices(copy, objects)),
        left_out=left_out,
        complete=decided and not left_out,
        work=before.tried + after.tried,
    )


def _concerned(view: View, changes: Changes) -> Turns[tuple[list[Pod], list[Pod], list[Pod]]]:
    """Pending pods that use devices, by priority; pods that need another node, by priority; pods that are deleted."""
    waiting, displaced, deleted = (yield from pending_pods(view)), list[Pod](), list[Pod]()
    without, drained, budget = frozenset(changes.without_pods), frozenset(changes.drain), QueryBudget(view)
    for pod in view.pods:
        if pod.metadata.key in without:
            deleted.append(pod)
        elif pod.spec.node_name in drained and not pod.finished:
            (deleted if is_tied(pod) or pod.metadata.deletion_timestamp else displaced).append(pod)
        yield from budget.charge(SORTED)
    return sorted(waiting, key=by_priority), sorted(displaced, key=by_priority), deleted


def is_tied(pod: Pod) -> bool:
    """The pod comes back on its node: a drain skips it, or its DaemonSet creates it again."""
    owner = pod.metadata.controller
    return MIRROR in pod.metadata.annotations or (owner is not None and owner.kind == "DaemonSet")


def by_priority(pod: Pod) -> tuple[int, str]:
    return -pod.spec.priority, pod.metadata.key


def problems_of_slices(copy: ClusterCopy, slices: Iterable[object]) -> Iterator[str]:
    """Problems of the pools of slices that were added."""
    specs = [item.spec for item in slices if isinstance(item, ResourceSlice)]
    for pool in dict.fromkeys((spec.driver, spec.pool.name) for spec in specs):
        published = copy.cluster.inventory.pools.get(pool)
        for problem in problems_of(pool, tuple(published.newest()), copy.cluster.features) if published else ():
            yield f"{problem.object}: {problem.what}"


def _placed(placing: Placing, pods: Sequence[Pod]) -> Turns[dict[str, Placed]]:
    """The placed pods by UID, in their order. Pods beyond the limit are missing."""
    found: dict[str, Placed] = {}
    for pod in pods:
        placed = Placed(pod.spec.node_name) if pod.spec.node_name else (yield from placing.place(pod))
        if placed is None:
            break
        found[pod.metadata.uid] = placed
        yield
    return found


def _outcomes(
    pods: Sequence[Pod], displaced: Mapping[str, Pod], now: Mapping[str, Placed], then: Mapping[str, Placed]
) -> Iterator[PodOutcome]:
    for pod in pods:
        uid = pod.metadata.uid
        home = displaced.get(uid)
        before = home.spec.node_name if home is not None else now[uid].node if uid in now else None
        after = then.get(uid)
        if before is None or after is None:
            return
        verdict: Verdict = "no more" if before else "does not fit"
        if after.node:
            verdict = "fits" if before else "would fit"
        yield PodOutcome(
            pod=pod.metadata.key,
            verdict=verdict,
            displaced=home is not None,
            now=before,
            node=after.node,
            reason=after.reason,
        )
