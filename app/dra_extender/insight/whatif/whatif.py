"""What if nodes, devices or tolerations were added, nodes drained, or pods deleted: which pods would fit?

Promises: the cluster does not change, because all changes and bindings happen on a copy. Pods are placed one after the
other: first the pods that lose their node, then pending pods, each by priority. Whether a pod fits without the changes
is decided in the same way. It runs in turns. `MOST_PODS`, `placing.MOST_NODES` and `MOST_REMEDIES` bound the work. The
answer counts pods that were not tried.

A drained node accepts no pods, and its pods are evicted. Its DaemonSet pods and static pods are deleted with it.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from dra_extender.api.core import MIRROR, Node, Pod
from dra_extender.api.resource import ResourceSlice
from dra_extender.devices.validity import problems_of
from dra_extender.insight.manifests import Draft
from dra_extender.insight.snapshot import node_like
from dra_extender.insight.whatif.changes import Changes, tolerant_claim, tolerant_pod, validate
from dra_extender.insight.whatif.clustercopy import ClusterCopy, copied
from dra_extender.insight.whatif.placing import MOST_NODES, Placed, Placing
from dra_extender.insight.whatif.report import PodOutcome, WhatIf, totals_of, verdict_of
from dra_extender.insight.why.diagnosis import diagnosing
from dra_extender.scheduling.claims import Unschedulable, resolve_claims
from dra_extender.scheduling.noderules import UNSCHEDULABLE
from dra_extender.scheduling.turns import Turns, run_at_once
from dra_extender.scheduling.view import View

MOST_PODS: Final = 500
"""Pods that are placed at most."""
MOST_REMEDIES: Final = 5
"""Pods for which remedies are tried at most. Pods that request the same count as one."""
_PODS: Final = 1_000
"""Pods that are sorted in one turn."""


class Limits(msgspec.Struct, frozen=True):
    """How many `pods` are placed at most, and how many `nodes` are tried for all of them."""

    pods: int = MOST_PODS
    nodes: int = MOST_NODES


NO_LIMITS_GIVEN: Final = Limits()


def what_if(
    view: View, changes: Changes, drafts: Sequence[Draft] | None = None, limits: Limits = NO_LIMITS_GIVEN
) -> WhatIf:
    """Run `simulating` without an event loop."""
    return run_at_once(simulating(view, changes, drafts, limits))


def simulating(
    view: View, changes: Changes, drafts: Sequence[Draft] | None = None, limits: Limits = NO_LIMITS_GIVEN
) -> Turns[WhatIf]:
    """`drafts`: the pods to place; None means all pods that wait for devices. Raises InvalidRequestError in the first
    turn.
    """
    validate(view, changes)
    copy = yield from copied(view)
    fresh = list(_fresh(copy.view, changes))
    concerned = yield from _concerned(copy.view, changes)
    displaced = {pod.metadata.uid: pod for pod in concerned.displaced}
    waiting = concerned.waiting
    if drafts is not None:
        waiting = [copy.pods.get(item.pod.metadata.uid) or item.pod for item in drafts]
    moved = displaced.keys() | {pod.metadata.uid for pod in concerned.deleted}
    waiting = [pod for pod in waiting if pod.metadata.uid not in moved]
    pods = [*(replace(pod, spec=replace(pod.spec, node_name="")) for pod in concerned.displaced), *waiting]
    left, pods = pods[limits.pods :], pods[: limits.pods]
    _add_drafts(copy, drafts or ())
    copy.fork()
    before = Placing(copy, limits.nodes // 2)
    now = yield from _placed(before, [pod for pod in pods if pod.metadata.uid not in displaced])
    yield from copy.revert()
    yield from _apply(copy, changes, concerned, fresh)
    pods = yield from _tolerating(copy, changes, pods)
    after = Placing(copy, limits.nodes // 2)
    then = yield from _placed(after, pods)
    remedies = yield from _remedies(copy, pods, then)
    outcomes = tuple(_outcomes(pods, displaced, now, then, remedies))
    left_out = len(left) + len(pods) - len(outcomes)
    decided = all(placed.decided for placed in (*now.values(), *then.values()))
    return WhatIf(
        nodes_added=tuple(node.name for node, _ in fresh),
        outcomes=outcomes,
        totals=totals_of(outcomes),
        problems=tuple(_problems(copy, changes)),
        left_out=left_out,
        complete=decided and not left_out,
        work=before.tried + after.tried,
    )


# --- pods -------------------------------------------------------------------------------------------------------------


class _Concerned(msgspec.Struct, frozen=True):
    """Pending pods that use devices, by priority; pods that need another node, by priority; pods that are deleted."""

    waiting: list[Pod]
    displaced: list[Pod]
    deleted: list[Pod]


def _concerned(view: View, changes: Changes) -> Turns[_Concerned]:
    found = _Concerned([], [], [])
    without, drained = frozenset(changes.without), frozenset(changes.drained)
    for number, pod in enumerate(view.pods, start=1):
        if pod.metadata.key in without:
            found.deleted.append(pod)
        elif pod.spec.node_name in drained and not pod.finished:
            leaves = _is_tied_to_node(pod) or pod.metadata.deletion_timestamp
            (found.deleted if leaves else found.displaced).append(pod)
        elif not pod.spec.node_name and not pod.finished and view.uses_devices(pod):
            found.waiting.append(pod)
        if number % _PODS == 0:
            yield
    found.waiting.sort(key=_order)
    found.displaced.sort(key=_order)
    return found


def _order(pod: Pod) -> tuple[int, str]:
    return -pod.spec.priority, pod.metadata.key


def _is_tied_to_node(pod: Pod) -> bool:
    owner = pod.metadata.controller
    return MIRROR in pod.metadata.annotations or (owner is not None and owner.kind == "DaemonSet")


# --- changes ----------------------------------------------------------------------------------------------------------


def _add_drafts(copy: ClusterCopy, drafts: Sequence[Draft]) -> None:
    """Add the claims of drafts. An existing claim with an allocation stays: the pods would share it."""
    for item in drafts:
        for claim in item.claims:
            known = copy.cluster.ledger.get(claim.metadata.namespace, claim.metadata.name)
            if known is None or known.allocation is None:
                copy.put(claim)


def _apply(
    copy: ClusterCopy,
    changes: Changes,
    concerned: _Concerned,
    fresh: Sequence[tuple[Node, list[ResourceSlice]]],
) -> Turns[None]:
    for item in changes.objects:
        copy.put(item)
        yield
    for pod in concerned.deleted:
        copy.remove(pod)
        yield
    for pod in concerned.displaced:
        copy.evict(pod)
        yield
    for name in changes.drained:
        copy.drop_node(name)
    for node, slices in fresh:
        copy.add_node(node, slices)
        yield


def _fresh(view: View, changes: Changes) -> Iterator[tuple[Node, list[ResourceSlice]]]:
    """The nodes to add. Each equals an existing node, but has no pods and is not cordoned."""
    used: set[str] = set()
    for like, count in changes.added:
        node, slices = view.cluster.nodes[like], list(view.cluster.inventory.own_slices(like))
        taints = tuple(taint for taint in node.spec.taints if taint.key != UNSCHEDULABLE.key)
        open_node = replace(node, spec=replace(node.spec, unschedulable=False, taints=taints))
        names = (f"-like-{number}" for number in itertools.count(1))
        free = (name for name in names if like + name not in view.cluster.nodes and like + name not in used)
        for suffix in itertools.islice(free, count):
            used.add(like + suffix)
            yield node_like(open_node, slices, suffix)


def _problems(copy: ClusterCopy, changes: Changes) -> Iterator[str]:
    """Problems of the pools of the added slices."""
    slices = [item for item in changes.objects if isinstance(item, ResourceSlice)]
    for pool in dict.fromkeys((item.spec.driver, item.spec.pool.name) for item in slices):
        published = copy.cluster.inventory.pool(pool)
        for problem in problems_of(pool, tuple(published.newest()), copy.cluster.features) if published else ():
            yield f"{problem.object}: {problem.what}"


# --- results ----------------------------------------------------------------------------------------------------------


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


def _tolerating(copy: ClusterCopy, changes: Changes, pods: Sequence[Pod]) -> Turns[list[Pod]]:
    """The pods with the tolerations added. The copy adds them to the pods' claims."""
    if not changes.tolerations:
        return list(pods)
    known: set[str] = set()
    for pod in pods:
        claims = resolve_claims(pod, copy.cluster.ledger.get, copy.cluster.features)
        for claim in () if isinstance(claims, Unschedulable) else claims:
            if claim.allocation is None and claim.metadata.key not in known:
                known.add(claim.metadata.key)
                copy.put(tolerant_claim(claim, changes.tolerations))
        yield
    return [tolerant_pod(pod, changes.tolerations) for pod in pods]


def _remedies(copy: ClusterCopy, pods: Sequence[Pod], placed: Mapping[str, Placed]) -> Turns[dict[str, str]]:
    """By UID: what would help a pod that fits no node. Of pods that request the same, only the first is diagnosed."""
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
            diagnosis = yield from diagnosing(copy.view, pod, tenants=copy.tenants)
            if diagnosis.remedies:
                found[uid] = diagnosis.remedies[0].text
    return found


def _outcomes(
    pods: Sequence[Pod],
    displaced: Mapping[str, Pod],
    now: Mapping[str, Placed],
    then: Mapping[str, Placed],
    remedies: Mapping[str, str],
) -> Iterator[PodOutcome]:
    for pod in pods:
        uid = pod.metadata.uid
        home = displaced.get(uid)
        before = home.spec.node_name if home is not None else now[uid].node if uid in now else None
        after = then.get(uid)
        if before is None or after is None:
            return
        yield PodOutcome(
            pod=pod.metadata.key,
            verdict=verdict_of(before, after.node),
            displaced=home is not None,
            now=before,
            node=after.node,
            reason=after.reason,
            remedy=remedies.get(uid, ""),
        )
