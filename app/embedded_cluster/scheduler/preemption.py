"""Which pods would have to go for a pod that fits nowhere, as kube-scheduler's DefaultPreemption proposes it.

Source: Kubernetes 1.36, pkg/scheduler/framework/preemption and plugins/defaultpreemption. The dry run looks at in-tree
filters only; extenders with a preempt verb then veto nodes or change victims. Pod disruption budgets are not imitated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from dra_extender.api.core import requested
from embedded_cluster.objects import FullPod
from embedded_cluster.scheduler import fit
from embedded_cluster.scheduler.cache import Cache
from embedded_cluster.scheduler.calls import CallError, Extenders
from embedded_cluster.scheduler.fit import Amounts, NodeRefusal, NodeUsage

NOT_ELIGIBLE = "not eligible due to preemptionPolicy=Never."
TERMINATING = "not eligible due to a terminating pod on the nominated node."
NO_CANDIDATE = "no candidate node for preemption"

Victims = Mapping[str, Sequence[FullPod]]
"""Node -> pods that would be evicted there, the most important first."""


class PreemptionResult(msgspec.Struct, frozen=True):
    """What came of it: the node and its victims, or a message why nothing did."""

    node: str | None = ""
    """None: the nomination that the pod has already stays."""
    victims: tuple[FullPod, ...] = ()
    message: str = ""


def being_made(pod: FullPod, refusals: Mapping[str, NodeRefusal], cache: Cache) -> bool:
    """True when room is being made for the pod already: pods that it preempted are leaving its nominated node."""
    nominated = pod.status.nominated_node_name
    if nominated not in refusals or not refusals[nominated].resolvable:
        return False
    leaving = (other for other in cache.pods_on(nominated) if other.metadata.deletion_timestamp is not None)
    return any(other.spec.priority < pod.spec.priority for other in leaving)


def dry_run(
    pod: FullPod, asked: Amounts, nodes: Iterable[str], cache: Cache, ignored: Callable[[str], bool]
) -> dict[str, list[FullPod]]:
    """The nodes on which evicting pods of lower priority makes the in-tree filters pass; as few as needed."""
    found = {}
    for name in nodes:
        victims = _victims(pod, asked, name, cache, ignored)
        if victims is not None:
            found[name] = victims
    return found


def _victims(
    pod: FullPod, asked: Amounts, name: str, cache: Cache, ignored: Callable[[str], bool]
) -> list[FullPod] | None:
    """Take all lower pods away, then put back the most important ones that leave room; None when all is in vain."""
    node, before = cache.nodes[name], cache.room(name)
    room = NodeUsage(dict(before.amounts), before.pods)
    lower = sorted(
        (other for other in cache.pods_on(name) if other.spec.priority < pod.spec.priority),
        key=lambda other: (-other.spec.priority, other.status.start_time or "", other.metadata.version),
    )
    for other in lower:
        room.give(requested(other))
    if not lower or fit.obstacle(pod, asked, node, room, ignored) is not None:
        return None
    victims = []
    for other in lower:
        needs = requested(other)
        room.take(needs)
        if fit.obstacle(pod, asked, node, room, ignored) is not None:
            room.give(needs)
            victims.append(other)
    return victims


async def negotiate(
    extenders: Extenders, pod: FullPod, wire: bytes, proposed: Victims, cache: Cache
) -> dict[str, list[FullPod]]:
    """What the extenders leave of the proposal, one after another. Raises CallError."""
    current = {name: list(victims) for name, victims in proposed.items()}
    for extender in extenders.with_verb("preempt"):
        if not current:
            break
        uids = {name: [victim.metadata.uid for victim in victims] for name, victims in current.items()}
        answer = await extenders.preempt(extender, pod, wire, uids)
        current = {name: _pods(extender.url_prefix, name, wanted, cache) for name, wanted in answer.items()}
        for name, victims in current.items():
            if not victims:
                raise CallError(f'expected at least one victim pod on node "{name}"')
    return current


def _pods(extender: str, node: str, uids: Sequence[str], cache: Cache) -> list[FullPod]:
    """The pods of a node by UID; what the extender names must be there."""
    known = {pod.metadata.uid: pod for pod in cache.pods_on(node)}
    for uid in uids:
        if uid not in known:
            claim = f"extender: {extender} claims to preempt pod (UID: {uid}) on node: {node}"
            raise CallError(f"{claim}, but the pod is not found on that node")
    return [known[uid] for uid in uids]


def best(candidates: Victims) -> str:
    """The node whose loss is least: the lowest highest priority, the lowest sum of priorities, the fewest victims."""

    def loss(name: str) -> tuple[int, int, int]:
        priorities = [victim.spec.priority for victim in candidates[name]]
        return (priorities[0] if priorities else -(2**31), sum(priorities), len(priorities))

    return min(candidates, key=loss)


async def preempt(
    pod: FullPod,
    wire: bytes,
    asked: Amounts,
    refusals: Mapping[str, NodeRefusal],
    cache: Cache,
    extenders: Extenders,
    ignored: Callable[[str], bool],
) -> PreemptionResult:
    """Try to make room. Never raises: a failure of an extender is a message."""
    if pod.spec.preemption_policy == "Never":
        return PreemptionResult(message=NOT_ELIGIBLE)
    if being_made(pod, refusals, cache):
        return PreemptionResult(None, message=TERMINATING)
    total = len(cache.nodes)
    resolvable = [name for name, unfit in refusals.items() if unfit.resolvable]
    proposed = dry_run(pod, asked, resolvable, cache, ignored)
    if not proposed:
        return PreemptionResult(message=fit.no_preemption(total, len(resolvable)))
    try:
        candidates = await negotiate(extenders, pod, wire, proposed, cache)
    except CallError as problem:
        return PreemptionResult(message=str(problem))
    if not candidates:
        return PreemptionResult(message=NO_CANDIDATE)
    node = best(candidates)
    return PreemptionResult(node, tuple(candidates[node]))
