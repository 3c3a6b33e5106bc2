"""What if nodes were added or drained, or pods were gone: who would fit, and who would not any more?

Promises: asking has no effect. Pods are placed one after the other, each decided by the one allocator on what those
before it leave, on the first node that fits by name: those that lose their node first, then those that wait, by
priority. Besides devices, the rules of kube-scheduler count that `noderules` checks. Whether a pod fits now
is decided in the same way without the changes.

A drained node is cordoned and loses its pods; those of DaemonSets and static pods go with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from app.allocation.plan import Failure, Plan, Unfit
from app.api.core import Node, Pod
from app.api.meta import ObjectMeta
from app.api.resource import ResourceClaim, ResourceSlice
from app.plurals import counted
from app.scheduling.claims import Refusal
from app.scheduling.diagnosis.situation import Situation, situation
from app.scheduling.diagnosis.summary import words
from app.scheduling.judgement import Subject, pending_on
from app.scheduling.preemption.occupants import MIRROR
from app.scheduling.tenants import Tenants
from app.scheduling.view import View

MOST_PODS: Final = 500
"""Pods that are placed at most."""
MOST_NODES: Final = 100
_HOSTNAME: Final = "kubernetes.io/hostname"


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """`added`: (node, how many more like it). `without`: pods (namespace/name) that would be gone. `drained`: nodes."""

    added: tuple[tuple[str, int], ...] = ()
    without: tuple[str, ...] = ()
    drained: tuple[str, ...] = ()


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One pod (namespace/name). `displaced`: it would lose its node. `node`: where it would fit, and `now`, where it
    fits as things are, or is; empty when nowhere. `reason`: why it would not.
    """

    pod: str
    displaced: bool
    now: str
    node: str
    reason: str = ""

    @property
    def verdict(self) -> Literal["fits", "would fit", "no more", "does not fit"]:
        if self.node:
            return "fits" if self.now else "would fit"
        return "no more" if self.now else "does not fit"


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """`left_out`: pods that were not looked at, because there are too many."""

    nodes_added: tuple[str, ...]
    outcomes: tuple[Outcome, ...]
    left_out: int = 0

    def text(self) -> str:
        """For people."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        if self.nodes_added:
            yield f"With {counted(len(self.nodes_added), 'more node')}: {', '.join(self.nodes_added)}."
        if not self.outcomes:
            yield "No pod waits, and none would lose its node."
        for title, verdict in (
            ("would not fit any more", "no more"),
            ("would fit then", "would fit"),
            ("would still not fit", "does not fit"),
            ("would fit, as now", "fits"),
        ):
            found = [outcome for outcome in self.outcomes if outcome.verdict == verdict]
            if found:
                yield f"{counted(len(found), 'pod')} {title}:"
            for outcome in found:
                source = f"{outcome.now} -> " if outcome.displaced and outcome.node else ""
                yield f"  {outcome.pod}: {source}{outcome.node or outcome.reason}"
        if self.left_out:
            yield f"Not looked at: {counted(self.left_out, 'more pod')}."


def what_if(
    view: View,
    changes: Changes,
    asked: Sequence[tuple[Pod, Sequence[ResourceClaim]]] | None = None,
    most: int = MOST_PODS,
) -> WhatIf:
    """`asked`: pods, with claims that nobody has made yet; None stands for all that wait for devices. Raises ValueError
    for what does not exist.
    """
    displaced = sorted(_displaced(view, changes), key=_order)
    waiting = [(pod, ()) for pod in sorted(_waiting(view, changes), key=_order)] if asked is None else list(asked)
    base = situation(view, Pod(ObjectMeta(name="nobody")), (claim for _, claims in waiting for claim in claims))
    added = list(_added(view, changes))
    gone = [pod.metadata.uid for pod in (*displaced, *_removed(view, changes))]
    changed = base.without_pods(gone)
    for made, slices in added:
        changed = changed.with_new_node(made, slices)
    names = sorted(name for name in (*view.cluster.nodes, *(made.name for made, _ in added)))
    before = _Placing(base, sorted(view.cluster.nodes))
    then = _Placing(changed, [name for name in names if name not in changes.drained])
    outcomes: list[Outcome] = []
    for pod in displaced[:most]:
        node, reason = then.place(replace(pod, spec=replace(pod.spec, node_name="")))
        outcomes.append(Outcome(pod=pod.metadata.key, displaced=True, now=pod.spec.node_name, node=node, reason=reason))
    left = most - len(outcomes)
    for pod, _ in waiting[:left]:
        node, reason = then.place(pod)
        now, _ = before.place(pod)
        outcomes.append(Outcome(pod=pod.metadata.key, displaced=False, now=now, node=node, reason=reason))
    return WhatIf(
        nodes_added=tuple(made.name for made, _ in added),
        outcomes=tuple(outcomes),
        left_out=len(displaced) + len(waiting) - len(outcomes),
    )


class _Placing:
    """Pods that get a node on paper, one after the other."""

    def __init__(self, start: Situation, names: Sequence[str]) -> None:
        self._now = start
        self._names = names
        self._tenants = [pod for pod in start.view.pods if pod.metadata.uid not in start.removed]

    def place(self, pod: Pod) -> tuple[str, str]:
        """(the node, or nothing; why not). Who has a place takes it from those who follow."""
        now = replace(self._now, pod=pod)
        gate, subject = now.is_gated(), now.subject
        if gate or not isinstance(subject, Subject):
            return "", gate or _why_not(subject)
        obstacles: Counter[str] = Counter()
        free: list[str] = []
        for name in self._names:
            node = now.node(name)
            obstacle = next(now.obstacles(node), None) if node is not None else None
            if obstacle is None:
                free.append(name)
            else:
                obstacles[words(obstacle)] += 1
        for name in sorted(now.fitting(now.view, free))[:1]:
            self._taken(now, subject, name)
            return name, ""
        return "", _reason(len(free), obstacles)

    def _taken(self, now: Situation, subject: Subject, name: str) -> None:
        node = now.node(name)
        pending = pending_on(subject, node) if node is not None else None
        if isinstance(pending, Unfit) or pending is None:
            return
        self._tenants.append(replace(now.pod, spec=replace(now.pod.spec, node_name=name)))
        now = replace(now, tenants=Tenants(self._tenants), removed=frozenset[str]())
        if pending.claims:
            found = now.view.decisions.over(now.overlay).plan(pending.claims, name)
            plans = list(zip(pending.claims, found.allocations, strict=True)) if isinstance(found, Plan) else []
            now = replace(now, overlay=now.overlay.beside(plans))
            for claim, allocation in plans:
                status = replace(claim.status, allocation=allocation)
                now = replace(now, gone=now.gone - {claim.metadata.uid}).with_claim(replace(claim, status=status))
        self._now = now


def _why_not(subject: Refusal | Failure | Subject) -> str:
    return subject.reason if isinstance(subject, Refusal) else subject.error if isinstance(subject, Failure) else ""


def _reason(free: int, obstacles: Counter[str]) -> str:
    parts = [f"{counted(free, 'node')} {'lacks' if free == 1 else 'lack'} the devices"] if free else []
    parts += [f"{counted(count, 'node')}: {what}" for what, count in obstacles.most_common(2)]
    return "; ".join(parts) or "there are no nodes"


def _order(pod: Pod) -> tuple[int, str]:
    return -pod.spec.priority, pod.metadata.key


def _waiting(view: View, changes: Changes) -> Iterator[Pod]:
    """Those that want devices and have no node."""
    for pod in view.pods:
        alive = not pod.spec.node_name and not pod.finished and pod.metadata.key not in changes.without
        if alive and view.uses_devices(pod):
            yield pod


def _removed(view: View, changes: Changes) -> Iterator[Pod]:
    """The pods that would be gone. Raises ValueError."""
    for key in changes.without:
        pod = view.pods.named(*key.split("/", 1)) if "/" in key else None
        if pod is None:
            raise ValueError(f"pod {key} is not known: it does not exist, or has finished; it is NAMESPACE/NAME")
        yield pod
    for pod in view.pods:
        if pod.spec.node_name in changes.drained and _goes_with_its_node(pod):
            yield pod


def _displaced(view: View, changes: Changes) -> Iterator[Pod]:
    """The pods that would have to find another node. Raises ValueError."""
    for name in changes.drained:
        if name not in view.cluster.nodes:
            raise ValueError(f"node {name} is not known")
    for pod in view.pods:
        here = pod.spec.node_name in changes.drained and not pod.finished and not pod.metadata.deletion_timestamp
        if here and not _goes_with_its_node(pod) and pod.metadata.key not in changes.without:
            yield pod


def _goes_with_its_node(pod: Pod) -> bool:
    owner = pod.metadata.controller
    return MIRROR in pod.metadata.annotations or (owner is not None and owner.kind == "DaemonSet")


# --- nodes that are added ---------------------------------------------------------------------------------------------


def _added(view: View, changes: Changes) -> Iterator[tuple[Node, list[ResourceSlice]]]:
    """New nodes like others, with pools of their own and nothing on them. Raises ValueError."""
    for like, count in changes.added:
        node = view.cluster.nodes.get(like)
        if node is None:
            raise ValueError(f"node {like} is not known")
        if not 0 < count <= MOST_NODES:
            raise ValueError(f"{count} nodes like {like}: 1 to {MOST_NODES} can be added")
        for number in range(1, count + 1):
            made = _like(node, number)
            if made.name in view.cluster.nodes:
                raise ValueError(f"node {made.name} is there already")
            yield made, [_published(item, made.name, number) for item in view.cluster.inventory.own_slices(like)]


def _like(node: Node, number: int) -> Node:
    name = f"{node.name}-like-{number}"
    labels = {key: name if key == _HOSTNAME else value for key, value in node.metadata.labels.items()}
    metadata = replace(node.metadata, name=name, uid=f"{node.metadata.uid} (like, {number})", labels=labels)
    return replace(node, metadata=metadata, spec=replace(node.spec, unschedulable=False))


def _published(item: ResourceSlice, node: str, number: int) -> ResourceSlice:
    """The slice as the new node would publish it."""
    pool = replace(item.spec.pool, name=f"{item.spec.pool.name}-like-{number}")
    metadata = replace(item.metadata, name=f"{item.metadata.name}-like-{number}")
    return replace(item, metadata=metadata, spec=replace(item.spec, node_name=node, pool=pool))
