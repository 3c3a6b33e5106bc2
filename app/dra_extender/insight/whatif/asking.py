"""The question itself: who fits as things are, what is changed, and who fits then.

Promises: asking has no effect: everything happens on a copy. Pods are placed one after the other: those that lose their
node first, then those that wait, by priority. Whether a pod fits now is decided in the same way without the changes. It
is done in small steps, and the work is bounded by `MOST_PODS`, `placing.LOOKS` and `MOST_REMEDIES`; pods that were not
looked at are counted.

A drained node takes no pods and loses its own; those of DaemonSets and static pods go with it.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from dra_extender.api.core import Node, Pod
from dra_extender.api.resource import ResourceSlice
from dra_extender.devices.validity import problems_of
from dra_extender.insight.whatif.changes import Changes, refuse
from dra_extender.insight.whatif.paper import Paper, copied
from dra_extender.insight.whatif.placing import LOOKS, Budget, Placed, Placing
from dra_extender.insight.whatif.report import Outcome, WhatIf, totals_of, verdict_of
from dra_extender.insight.whatif.tolerating import tolerant_claim, tolerant_pod
from dra_extender.insight.why.diagnose import diagnosing
from dra_extender.insight.why.draft import Draft
from dra_extender.insight.why.likeness import another
from dra_extender.scheduling.claims import Unschedulable, resolve_claims
from dra_extender.scheduling.noderules import UNSCHEDULABLE
from dra_extender.scheduling.preemption.preemptible import MIRROR
from dra_extender.scheduling.slices import Slices, run_at_once
from dra_extender.scheduling.view import View

MOST_PODS: Final = 500
"""Pods that are placed at most."""
MOST_REMEDIES: Final = 5
"""Pods for which remedies are looked for: one of those that ask for the same."""
_PODS: Final = 1_000
"""Looked at in one step."""


def what_if(
    view: View,
    changes: Changes,
    asked: Sequence[Draft] | None = None,
    *,
    most: int = MOST_PODS,
    looks: int = LOOKS,
) -> WhatIf:
    """As `asking`, all at once."""
    return run_at_once(asking(view, changes, asked, most=most, looks=looks))


def asking(
    view: View,
    changes: Changes,
    asked: Sequence[Draft] | None = None,
    *,
    most: int = MOST_PODS,
    looks: int = LOOKS,
) -> Slices[WhatIf]:
    """`asked`: pods that are asked about; None stands for all that wait for devices. Raises Unusable, in the first
    step, for a question that cannot be answered.
    """
    refuse(view, changes)
    paper = yield from copied(view)
    fresh = list(_fresh(paper.view, changes))
    concerned = yield from _concerned(paper.view, changes)
    leaving, displaced = concerned.displaced, {pod.metadata.uid: pod for pod in concerned.displaced}
    waiting = (
        concerned.waiting if asked is None else [paper.pods.get(item.pod.metadata.uid) or item.pod for item in asked]
    )
    moved = displaced.keys() | {pod.metadata.uid for pod in concerned.gone}
    waiting = [pod for pod in waiting if pod.metadata.uid not in moved]
    pods = [*(replace(pod, spec=replace(pod.spec, node_name="")) for pod in leaving), *waiting]
    left, pods = pods[most:], pods[:most]
    _draft(paper, asked or ())
    placing = Placing(paper, before := Budget(looks // 2))
    now = yield from _placed(placing, [pod for pod in pods if pod.metadata.uid not in displaced])
    yield from placing.undo()
    yield from _changed(paper, changes, concerned, fresh)
    pods = yield from _tolerating(paper, changes, pods)
    then = yield from _placed(Placing(paper, after := Budget(looks // 2)), pods)
    remedies = yield from _remedies(paper, pods, then)
    outcomes = tuple(_outcomes(pods, displaced, now, then, remedies))
    left_out = len(left) + len(pods) - len(outcomes)
    decided = all(placed.decided for placed in (*now.values(), *then.values()))
    return WhatIf(
        nodes_added=tuple(node.name for node, _ in fresh),
        outcomes=outcomes,
        totals=totals_of(outcomes),
        problems=tuple(_problems(paper, changes)),
        left_out=left_out,
        complete=decided and not left_out,
        work=before.looks + after.looks,
    )


# --- who is asked about -----------------------------------------------------------------------------------------------


class _Concerned(msgspec.Struct, frozen=True):
    """Pods that want devices and have no node, by priority; pods that would have to find another node, by priority;
    pods that would be gone, with or without their nodes.
    """

    waiting: list[Pod]
    displaced: list[Pod]
    gone: list[Pod]


def _concerned(view: View, changes: Changes) -> Slices[_Concerned]:
    """All pods, a portion at a step."""
    found = _Concerned([], [], [])
    without, drained = frozenset(changes.without), frozenset(changes.drained)
    for number, pod in enumerate(view.pods, start=1):
        if pod.metadata.key in without:
            found.gone.append(pod)
        elif pod.spec.node_name in drained and not pod.finished:
            leaves = _goes_with_its_node(pod) or pod.metadata.deletion_timestamp
            (found.gone if leaves else found.displaced).append(pod)
        elif not pod.spec.node_name and not pod.finished and view.uses_devices(pod):
            found.waiting.append(pod)
        if number % _PODS == 0:
            yield
    found.waiting.sort(key=_order)
    found.displaced.sort(key=_order)
    return found


def _order(pod: Pod) -> tuple[int, str]:
    return -pod.spec.priority, pod.metadata.key


def _goes_with_its_node(pod: Pod) -> bool:
    owner = pod.metadata.controller
    return MIRROR in pod.metadata.annotations or (owner is not None and owner.kind == "DaemonSet")


# --- what is changed --------------------------------------------------------------------------------------------------


def _draft(paper: Paper, asked: Sequence[Draft]) -> None:
    """The claims of pods that nobody has made. One that is there, and has devices, stays: the pods would share it."""
    for item in asked:
        for claim in item.claims:
            known = paper.cluster.ledger.get(claim.metadata.namespace, claim.metadata.name)
            if known is None or known.allocation is None:
                paper.put(claim)


def _changed(
    paper: Paper,
    changes: Changes,
    concerned: _Concerned,
    fresh: Sequence[tuple[Node, list[ResourceSlice]]],
) -> Slices[None]:
    """Make the changes: what is there, who is gone, who has to move, and which nodes go and come."""
    for item in changes.objects:
        paper.put(item)
        yield
    for pod in concerned.gone:
        paper.remove(pod)
        yield
    for pod in concerned.displaced:
        paper.evict(pod)
        yield
    for name in changes.drained:
        paper.drop_node(name)
    for node, slices in fresh:
        paper.add_node(node, slices)
        yield


def _fresh(view: View, changes: Changes) -> Iterator[tuple[Node, list[ResourceSlice]]]:
    """The nodes that would be added: like others, with nothing on them, and not cordoned."""
    used: set[str] = set()
    for like, count in changes.added:
        node, slices = view.cluster.nodes[like], list(view.cluster.inventory.own_slices(like))
        taints = tuple(taint for taint in node.spec.taints if taint.key != UNSCHEDULABLE.key)
        open_node = replace(node, spec=replace(node.spec, unschedulable=False, taints=taints))
        names = (f"-like-{number}" for number in itertools.count(1))
        free = (name for name in names if like + name not in view.cluster.nodes and like + name not in used)
        for suffix in itertools.islice(free, count):
            used.add(like + suffix)
            yield another(open_node, slices, suffix)


def _problems(paper: Paper, changes: Changes) -> Iterator[str]:
    """What is wrong with the pools of the slices that were supposed."""
    slices = [item for item in changes.objects if isinstance(item, ResourceSlice)]
    for pool in dict.fromkeys((item.spec.driver, item.spec.pool.name) for item in slices):
        published = paper.cluster.inventory.pool(pool)
        for problem in problems_of(pool, tuple(published.newest()), paper.cluster.features) if published else ():
            yield f"{problem.object}: {problem.what}"


# --- who fits ---------------------------------------------------------------------------------------------------------


def _placed(placing: Placing, pods: Sequence[Pod]) -> Slices[dict[str, Placed]]:
    """By UID; those for which the budget is enough, in their order."""
    found: dict[str, Placed] = {}
    for pod in pods:
        placed = Placed(pod.spec.node_name) if pod.spec.node_name else (yield from placing.place(pod))
        if placed is None:
            break
        found[pod.metadata.uid] = placed
        yield
    return found


def _tolerating(paper: Paper, changes: Changes, pods: Sequence[Pod]) -> Slices[list[Pod]]:
    """The pods as they would be, and their claims on paper."""
    if not changes.tolerations:
        return list(pods)
    known: set[str] = set()
    for pod in pods:
        claims = resolve_claims(pod, paper.cluster.ledger.get, paper.cluster.features)
        for claim in () if isinstance(claims, Unschedulable) else claims:
            if claim.allocation is None and claim.metadata.key not in known:
                known.add(claim.metadata.key)
                paper.put(tolerant_claim(claim, changes.tolerations))
        yield
    return [tolerant_pod(pod, changes.tolerations) for pod in pods]


def _remedies(paper: Paper, pods: Sequence[Pod], placed: Mapping[str, Placed]) -> Slices[dict[str, str]]:
    """What would help pods that fit nowhere, by UID; of those that ask for the same, the first is looked at."""
    found: dict[str, str] = {}
    first: dict[Hashable, Pod] = {}
    for pod in pods:
        uid = pod.metadata.uid
        known = placed.get(uid)
        if known is None or known.node:
            continue
        like = first.get(known.shape) if known.shape is not None else None
        if like is not None:
            if like.metadata.uid in found:
                found[uid] = f"as for {like.metadata.key}"
        elif len(first) < MOST_REMEDIES:
            first[known.shape if known.shape is not None else uid] = pod
            told = yield from diagnosing(paper.view, pod, tenants=paper.tenants)
            if told.remedies:
                found[uid] = told.remedies[0].text
    return found


def _outcomes(
    pods: Sequence[Pod],
    displaced: Mapping[str, Pod],
    now: Mapping[str, Placed],
    then: Mapping[str, Placed],
    remedies: Mapping[str, str],
) -> Iterator[Outcome]:
    for pod in pods:
        uid = pod.metadata.uid
        home = displaced.get(uid)
        before = home.spec.node_name if home is not None else now[uid].node if uid in now else None
        after = then.get(uid)
        if before is None or after is None:
            return
        yield Outcome(
            pod=pod.metadata.key,
            verdict=verdict_of(before, after.node),
            displaced=home is not None,
            now=before,
            node=after.node,
            reason=after.reason,
            remedy=remedies.get(uid, ""),
        )
