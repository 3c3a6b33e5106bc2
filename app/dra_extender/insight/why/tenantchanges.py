"""What others may do: pods that end, claims that nobody uses, nodes that are added.

Promises: only pods that hold something the pod lacks are named, those of lower priority first; whether it helps is
decided by who asks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from dra_extender.api.core import Pod
from dra_extender.api.resource import ResourceClaim
from dra_extender.insight.why.edits import Candidate, Families, Family, claims_with_targets
from dra_extender.insight.why.likeness import another
from dra_extender.insight.why.report import Change, NodeGroup
from dra_extender.insight.why.situation import Situation
from dra_extender.scheduling.preemption.evaluator import find_preemption
from dra_extender.scheduling.preemption.result import Preemption
from dra_extender.scheduling.slices import QueryBudget, Slices
from dra_extender.scheduling.view import View

PODS: Final = 64
"""Pods whose end is tried."""
NODES: Final = 8
"""Nodes like which one more is tried."""
CHANGE: Final = 10
"""Units of work that a change takes."""


def of_others(situation: Situation, groups: Sequence[NodeGroup], budget: QueryBudget) -> Families:
    """All families."""
    pods = yield from _in_the_way(situation, groups, budget)
    ours = situation.pod.spec.priority
    lower = sorted((pod for pod in pods if pod.spec.priority < ours), key=lambda pod: pod.spec.priority)
    others = [pod for pod in pods if pod.spec.priority >= ours]
    if max(len(others), len(lower)) > PODS or len(groups) > NODES:
        budget.complete = False
    if budget.must_yield((len(others[:PODS]) + len(lower[:PODS])) * CHANGE):
        yield None
    if others:
        yield Family(50, [_ended(pod) for pod in others[:PODS]])
    if lower:
        yield Family(51, [_deleted(pod) for pod in lower[:PODS]])
    idle = yield from _idle(situation, groups, budget)
    if idle:
        yield Family(52, [_freed(claim) for claim in idle[:PODS]])
    like = [_another(situation, name) for name in _examples(situation, groups[:NODES])]
    if like:
        yield Family(60, like)


def _in_the_way(situation: Situation, groups: Sequence[NodeGroup], budget: QueryBudget) -> Slices[list[Pod]]:
    """Pods that hold devices or room on the examples of the groups, and users of the pod's own claims."""
    view = situation.view
    found: dict[str, Pod] = {}
    for group in groups:
        for request in group.requests:
            for holder in request.holders:
                if budget.must_yield(1 + len(holder.pods)):
                    yield
                for key in holder.pods:
                    namespace, _, name = key.partition("/")
                    pod = view.pods.named(namespace, name)
                    if pod is not None:
                        found[pod.metadata.uid] = pod
        tenants = situation.tenants.on(group.example or group.nodes[0])
        if budget.must_yield(1 + len(tenants)):
            yield
        for pod in tenants:
            found.setdefault(pod.metadata.uid, pod)
    for claim, _ in claims_with_targets(situation):
        if budget.must_yield(1 + len(claim.status.reserved_for)):
            yield
        for user in claim.status.reserved_for:
            pod = view.pods.get(user.uid)
            if pod is not None:
                found.setdefault(user.uid, pod)
    found.pop(situation.pod.metadata.uid, None)
    return list(found.values())


def _ended(pod: Pod) -> Candidate:
    change = Change(kind="pod ends", object="Pod", name=pod.metadata.name, namespace=pod.metadata.namespace, op="wait")
    return _gone(pod, f"wait until pod {pod.metadata.key} has ended", f"wait for pod {pod.metadata.key}", change)


def _deleted(pod: Pod) -> Candidate:
    change = Change(
        kind="pod deleted", object="Pod", name=pod.metadata.name, namespace=pod.metadata.namespace, op="delete"
    )
    text = f"delete pod {pod.metadata.key}, whose priority is {pod.spec.priority}"
    return _gone(pod, text, f"delete pod {pod.metadata.key}", change)


def victims(view: View, situation: Situation, names: Sequence[str]) -> list[Family]:
    """Several pods of lower priority that preemption would evict together. Raises TurnSpent and Deferred."""
    found = find_preemption(view, situation.pod, names) if names and not situation.claims else None
    if not isinstance(found, Preemption) or len(found.victims) < 2:
        return []
    pods = [victim.pod for victim in found.victims]
    changes = [_deleted(pod).change for pod in pods]
    keys = " and ".join(pod.metadata.key for pod in pods)
    uids = [pod.metadata.uid for pod in pods]
    candidate = Candidate(
        f"delete pods {keys}, of lower priority",
        f"delete pods {keys}",
        changes[0],
        lambda now: now.without_pods(uids),
        more=tuple(changes[1:]),
    )
    return [Family(53, [candidate])]


def _gone(pod: Pod, text: str, short: str, change: Change) -> Candidate:
    uid = pod.metadata.uid
    return Candidate(text, short, change, lambda situation: situation.without_pods([uid]))


def _idle(situation: Situation, groups: Sequence[NodeGroup], budget: QueryBudget) -> Slices[list[ResourceClaim]]:
    """Claims that have devices and no consumer."""
    found: dict[str, ResourceClaim] = {}
    for group in groups:
        for request in group.requests:
            if budget.must_yield(1 + len(request.holders)):
                yield
            for holder in request.holders:
                namespace, _, name = holder.claim.partition("/")
                claim = situation.view.ledger.get(namespace, name)
                if claim is not None and claim.allocation is not None and not claim.status.reserved_for:
                    found[holder.claim] = claim
    return list(found.values())


def _freed(claim: ResourceClaim) -> Candidate:
    name, namespace = claim.metadata.name, claim.metadata.namespace
    change = Change(kind="claim deleted", object="ResourceClaim", name=name, namespace=namespace, op="delete")
    text = f"delete claim {claim.metadata.key}, which has devices and no consumer"
    return Candidate(text, f"delete claim {claim.metadata.key}", change, lambda found: found.without_claim(claim))


# --- nodes ------------------------------------------------------------------------------------------------------------


def _examples(situation: Situation, groups: Sequence[NodeGroup]) -> Iterator[str]:
    """One node of each group, unless there is one like it already."""
    nodes = situation.view.cluster.nodes
    for group in groups:
        like = group.example or group.nodes[0]
        if like in nodes and f"{like}-like" not in nodes:
            yield like


def _another(situation: Situation, like: str) -> Candidate:
    """One more node like this one, with nothing on it."""
    name = f"{like}-like"

    def added(found: Situation) -> Situation:
        cluster = situation.view.cluster
        node = cluster.nodes.get(like)
        return found.with_new_node(*another(node, cluster.inventory.own_slices(like), "-like")) if node else found

    change = Change(kind="node added", object="Node", name=name, op="create", like=like)
    return Candidate(f"add a node like {like}", f"add a node like {like}", change, added, only=(name,))
