"""Changes outside of the pod: pods that end, unused claims that are deleted, nodes that are added.

Promises: proposes only pods that hold requested devices, run on a node that a group names, or use the pod's own claims.
It proposes to delete pods of lower priority, the lowest first, and to wait for the others: first for pods that end by
themselves. `remedies` verifies whether a change helps, and joins several only if one alone does not help.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from dra_extender.api.core import Pod
from dra_extender.api.groups import group_of
from dra_extender.api.meta import ObjectMeta
from dra_extender.api.resource import ResourceClaim
from dra_extender.insight.snapshot import NODE_POOL, SimulatedPod
from dra_extender.insight.why.candidates import (
    CandidateChange,
    ChangeList,
    ChangeLists,
    Order,
    editable_claims,
    object_change,
)
from dra_extender.insight.why.report import NodeGroup
from dra_extender.scheduling.reader import listed
from dra_extender.scheduling.turns import QueryBudget, Turns

PODS: Final = 64
"""Pods whose end is tried at most."""
NODES: Final = 8
"""The most nodes that are copied, each once; for a gang, the most copies of each of two nodes."""


def of_others(found: SimulatedPod, groups: Sequence[NodeGroup], budget: QueryBudget, several: bool) -> ChangeLists:
    """All changes of other objects. `several`: a gang may need more than one of a kind."""
    pods, unused = yield from _in_the_way(found, groups, budget)
    ours = found.pod.spec.priority
    lower = sorted((pod for pod in pods if pod.spec.priority < ours), key=lambda pod: pod.spec.priority)
    others = [pod for pod in pods if pod.spec.priority >= ours]
    if max(len(others), len(lower)) > PODS:
        budget.complete = False
    ending = [pod for pod in others if _ends(pod)]
    staying = [pod for pod in others if not _ends(pod)]
    for order, each in ((Order.ENDING, ending), (Order.OTHER_POD, [*staying, *ending])):
        yield ChangeList(order, [_ended(pod, found.pod) for pod in each[:PODS]], several=True)
    yield ChangeList(Order.LOWER_PRIORITY, list(map(_deleted, lower[:PODS])), several=True)
    yield ChangeList(Order.UNUSED_CLAIM, list(map(_freed, unused[:PODS])))
    if not any(group.fails for group in groups):
        examples = list(_examples(found, groups[:NODES]))
        if not several:
            yield ChangeList(Order.NODE, [_node_like(found, name) for name in examples])
        for name in examples[:2] if several else ():
            copies = [_node_like(found, name, f"-like-{number}") for number in range(1, NODES + 1)]
            yield ChangeList(Order.NODE, copies, several=True)


def _in_the_way(
    found: SimulatedPod, groups: Sequence[NodeGroup], budget: QueryBudget
) -> Turns[tuple[list[Pod], list[ResourceClaim]]]:
    """(pods that hold requested devices or run on the groups' examples, and pods that use the pod's own claims; claims
    that hold requested devices and have no consumer)
    """
    view = found.view
    pods: dict[str, Pod] = {}
    unused: dict[str, ResourceClaim] = {}
    for group in groups:
        for holder in (holder for request in group.requests for holder in request.holders):
            yield from budget.charge(2 + len(holder.pods))
            for pod in filter(None, (view.pods.named(*key.split("/", 1)) for key in holder.pods)):
                pods[pod.metadata.uid] = pod
            namespace, _, name = holder.claim.partition("/")
            claim = view.ledger.get(namespace, name)
            if claim is not None and claim.allocation is not None and not claim.status.reserved_for:
                unused[holder.claim] = claim
        for name in dict.fromkeys((group.example, *group.nodes)):
            running = found.snapshot.usage.on(name)
            yield from budget.charge(1 + len(running))
            for pod in running:
                pods.setdefault(pod.metadata.uid, pod)
    for editable in editable_claims(found):
        users = editable.claim.status.reserved_for
        yield from budget.charge(1 + len(users))
        for user in users:
            known = pods.pop(user.uid, None) or view.pods.get(user.uid)
            if known is not None:
                pods[user.uid] = known  # last: the pod shares a claim with these
    members = view.pods.members(gang) if (gang := group_of(found.pod)) is not None else ()
    yield from budget.charge(1 + len(members))
    for pod in (found.pod, *members):
        pods.pop(pod.metadata.uid, None)
    return list(pods.values()), list(unused.values())


def _ends(pod: Pod) -> bool:
    """True for a pod that is being deleted, and for a pod of a Job."""
    controller = pod.metadata.controller
    return bool(pod.metadata.deletion_timestamp) or (controller is not None and controller.kind == "Job")


def _ended(pod: Pod, asking: Pod) -> CandidateChange:
    change = object_change("pod ends", "Pod", pod.metadata, op="wait")
    ours, theirs = ({each.resource_claim_name or "" for each in one.spec.resource_claims} for one in (asking, pod))
    shared = (ours & theirs) - {""} if pod.metadata.namespace == asking.metadata.namespace else ()
    uses = f", which uses {listed('claim', sorted(shared))}" if shared else ""
    text, short = f"wait until pod {pod.metadata.key} ends{uses}", f"wait for pod {pod.metadata.key}"
    return CandidateChange(text, short, (change,))


def _deleted(pod: Pod) -> CandidateChange:
    short, change = f"delete pod {pod.metadata.key}", object_change("pod deleted", "Pod", pod.metadata, op="delete")
    return CandidateChange(f"{short}, which has priority {pod.spec.priority}", short, (change,))


def joined(several: Sequence[CandidateChange]) -> CandidateChange:
    """Changes of one kind as one."""
    if len(several) == 1:
        return several[0]
    changes = [each.changes[0] for each in several]
    *most, last = (f"{each.namespace}/{each.name}" for each in changes)
    names = f"{', '.join(most)} and {last}"
    match changes[0].kind:
        case "node added":
            text = short = several[0].text.replace("a node", f"{len(several)} nodes", 1)
        case "pod deleted":
            short = f"delete pods {names}"
            text = f"{short}, whose priority is below the priority of the pod"
        case _:
            text, short = f"wait until pods {names} end", f"wait for pods {names}"
    return CandidateChange(text, short, tuple(changes))


def _freed(claim: ResourceClaim) -> CandidateChange:
    change = object_change("claim deleted", "ResourceClaim", claim.metadata, op="delete")
    short = f"delete claim {claim.metadata.key}"
    return CandidateChange(f"{short}, which is allocated but has no consumer", short, (change,))


def _examples(found: SimulatedPod, groups: Sequence[NodeGroup]) -> Iterator[str]:
    nodes = found.view.cluster.nodes
    for group in groups:
        like = group.example or group.nodes[0]
        if like in nodes and not any(name.startswith(f"{like}-like") for name in nodes):
            yield like


def _node_like(found: SimulatedPod, like: str, suffix: str = "-like") -> CandidateChange:
    """One more node like this one, without pods."""
    pool = found.view.cluster.nodes[like].metadata.labels.get(NODE_POOL)
    name, text = f"{like}{suffix}", f"add a node {f'of NodePool {pool} ' if pool else ''}like {like}"
    change = object_change("node added", "Node", ObjectMeta(name=name), op="create", like=like)
    return CandidateChange(text, text, (change,), only=(name,))
