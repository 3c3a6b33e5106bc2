"""Why a pod does not fit, node by node, in groups of nodes with the same reason.

Promises: the same decision as filter's, on the same state; nothing is changed or remembered. What devices had to do
with it is told by the allocator's own search; at most `EXAMINED` nodes per reason are searched again for that, so that
an answer about thousands of nodes takes no longer than one about a few dozen. `explaining` does it in small steps, so
that a service can go on between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from dra_extender.allocation.budget import Deferred, TurnSpent
from dra_extender.allocation.plan import Explanation, Failure, Plan, Unfit
from dra_extender.api.core import Pod
from dra_extender.api.resource import ResourceClaim
from dra_extender.placement.ranking import Account
from dra_extender.plurals import counted
from dra_extender.scheduling import extended
from dra_extender.scheduling.feasibility import (
    NodeStatuses,
    PreFilterResult,
    PreFilterState,
    node_statuses,
    pre_filter,
    typical,
)
from dra_extender.scheduling.preemption.evaluator import PreemptionEvaluator
from dra_extender.scheduling.preemption.result import Preemption
from dra_extender.scheduling.preemption.terms import PreemptionTerms
from dra_extender.scheduling.slices import Slices, run_at_once
from dra_extender.scheduling.view import View

TermsFor = Callable[[Pod], PreemptionTerms | None]
"""On what terms a pod may preempt others; None: nobody preempts."""

EXAMINED = 32
SHOWN = 5
PORTION = 250
"""Nodes judged in one step."""


def off(pod: Pod) -> PreemptionTerms | None:
    """Nobody preempts."""
    return None


class NodeGroup(msgspec.Struct, frozen=True):
    """Nodes that refuse the pod for one reason. `example` is the search's own account of one of them, and but for names
    of all that were searched again; None when the search has nothing to say, or was not asked (`examined`).
    """

    reason: str
    nodes: tuple[str, ...]
    example: Explanation | None = None
    examined: bool = True

    def lines(self) -> Iterator[str]:
        """For people."""
        yield f"{counted(len(self.nodes), 'node')}: {self.reason} ({_some(self.nodes)})"
        if not self.examined:
            yield "  not examined one by one"
        if self.example is None:
            return
        if len(self.nodes) > 1:
            yield f"  node {self.example.node}, for example:"
        indent = "    " if len(self.nodes) > 1 else "  "
        yield from (indent + line for line in self.example.lines())


class PodExplanation(msgspec.Struct, frozen=True):
    """`error` aborts the attempt on all nodes; then there are no groups. `state`: what already happened to the pod."""

    pod: str
    state: str
    claims: tuple[str, ...]
    fits: tuple[str, ...]
    groups: tuple[NodeGroup, ...]
    error: str = ""
    placement: Account | None = None
    """Which of the nodes that fit the policy prefers, when there is one."""
    preemption: str = ""
    """Whom the pod would preempt to fit, or why nobody; empty when it fits, or nobody preempts."""

    def text(self) -> str:
        """For people."""
        lines = [f"pod {self.pod}: {self.state}", *(f"  claim {claim}" for claim in self.claims)]
        if self.error:
            lines.append(f"error: {self.error}")
        if self.fits:
            lines.append(f"fits {counted(len(self.fits), 'node')}: {_some(self.fits)}")
        if self.placement is not None:
            lines.extend(self.placement.lines())
        for group in self.groups:
            lines.extend(group.lines())
        if self.preemption:
            lines.append(self.preemption)
        return "\n".join(lines)


def explain_pod(view: View, pod: Pod, names: Sequence[str], terms: TermsFor = off) -> PodExplanation:
    """Where the pod could go now, and why nowhere else; whom it would preempt, on these terms."""
    return run_at_once(explaining(view, pod, names, terms))


def explaining(view: View, pod: Pod, names: Sequence[str], terms: TermsFor = off) -> Slices[PodExplanation]:
    """As `explain_pod`, in steps of some nodes each. When the state changes between steps the answer is about both."""
    view = view.with_pod(pod)
    prefiltered, turns = pre_filter(view, pod), view.turns()
    fits: list[str] = []
    by_reason: dict[str, list[str]] = {}
    error = ""
    for start in range(0, len(names), PORTION):
        statuses = yield from _judged(turns, prefiltered, names[start : start + PORTION])
        error = error or statuses.error
        fits.extend(statuses.fits)
        for name, reason in statuses.refused.items():
            by_reason.setdefault(reason, []).append(name)
        yield
    groups: list[NodeGroup] = []
    for reason, nodes in () if error else by_reason.items():
        groups.extend((yield from _examined(view, turns, prefiltered, reason, nodes)))
    preemption = ""
    if not error and not fits and not pod.spec.node_name and (agreed := terms(pod)) is not None:
        preemption = yield from _preempting(turns, agreed, names)
    return PodExplanation(
        pod=pod.metadata.key,
        state=_state(pod),
        claims=_claims(view, pod, prefiltered),
        fits=() if error else tuple(fits),
        groups=tuple(sorted(groups, key=lambda group: -len(group.nodes))),
        error=error,
        placement=None if error else _placement(next(turns), prefiltered, fits),
        preemption=preemption,
    )


def _preempting(turns: Iterator[View], terms: PreemptionTerms, names: Sequence[str]) -> Slices[str]:
    """Whom the pod would preempt, or why nobody, in as many turns as it takes."""
    search = PreemptionEvaluator(terms, names)
    while True:
        try:
            found = search.evaluate(next(turns))
        except TurnSpent:
            yield
            continue
        if isinstance(found, Preemption):
            return f"would preempt {found.text}"
        return f"would preempt nobody: {found.reason}"


def _placement(view: View, prefiltered: PreFilterResult, fits: Sequence[str]) -> Account | None:
    """What the pod's policy says about the nodes that fit, and the devices it would take on the best."""
    if view.placement is None or not isinstance(prefiltered, PreFilterState) or prefiltered.pod.spec.node_name:
        return None
    claims, names = typical(view, prefiltered, fits)
    account = view.placement.account(prefiltered.pod, claims, names)
    if account is None or not account.nodes or not claims:
        return account
    node = account.nodes[0].node
    try:
        first = view.decisions.plan(claims, node)
        chosen = view.decisions.plan(
            claims, node, view.placement.chooser(prefiltered.pod, claims, node, prefiltered.claims.allocated)
        )
    except (TurnSpent, Deferred):
        return account
    return msgspec.structs.replace(account, devices=_devices(chosen), first=_devices(first))


def _devices(plan: Plan | Unfit | Failure) -> tuple[str, ...]:
    if not isinstance(plan, Plan):
        return ()
    return tuple("/".join(result.id) for found in plan.allocations for result in found.devices.results)


def _examined(
    view: View,
    turns: Iterator[View],
    prefiltered: PreFilterResult,
    reason: str,
    nodes: list[str],
) -> Slices[Sequence[NodeGroup]]:
    """The nodes of one reason, told apart by what the search says about the first of them, names aside."""
    if not isinstance(prefiltered, PreFilterState):
        return [NodeGroup(reason, tuple(nodes))]
    examples: dict[Explanation | None, Explanation | None] = {}
    alike: dict[Explanation | None, list[str]] = {}
    for name in nodes[:EXAMINED]:
        found = yield from _explanation(view, turns, prefiltered, name)
        kind = found and found.anonymous()
        examples.setdefault(kind, found)
        alike.setdefault(kind, []).append(name)
        yield
    if len(examples) == 1:
        return [NodeGroup(reason, tuple(nodes), next(iter(examples.values())))]
    groups = [NodeGroup(reason, tuple(alike[kind]), example) for kind, example in examples.items()]
    if nodes[EXAMINED:]:
        groups.append(NodeGroup(reason, tuple(nodes[EXAMINED:]), examined=False))
    return groups


def _judged(turns: Iterator[View], prefiltered: PreFilterResult, names: Sequence[str]) -> Slices[NodeStatuses]:
    """In as many turns as it takes: what is found out in one is remembered for the next."""
    while True:
        try:
            return node_statuses(next(turns), prefiltered, names)
        except TurnSpent:
            yield


def _explanation(
    view: View, turns: Iterator[View], prefiltered: PreFilterState, name: str
) -> Slices[Explanation | None]:
    """The allocator's account; None when there is nothing to allocate on the node, or nobody knows yet."""
    claims = _pending(view, prefiltered, name)
    if not claims or name not in view.cluster.nodes:
        return None
    while True:
        try:
            return next(turns).decisions.explain(claims, name)
        except TurnSpent:
            yield
        except Deferred:
            return None


def _pending(view: View, prefiltered: PreFilterState, name: str) -> tuple[ResourceClaim, ...]:
    """What has to be allocated on the node, the claim for extended resources included."""
    pending = prefiltered.claims.pending
    node = view.cluster.nodes.get(name)
    if prefiltered.wanted is None or prefiltered.existing is not None or node is None:
        return pending
    resources = extended.through_devices(prefiltered.wanted, node)
    if resources is None:
        return ()
    requests = extended.requests_of(prefiltered.pod, prefiltered.wanted, resources)
    return (*pending, extended.synthetic_claim(prefiltered.pod, requests)) if requests.requests else pending


def _state(pod: Pod) -> str:
    if pod.spec.node_name:
        return f"bound to node {pod.spec.node_name}"
    waiting = next((item for item in pod.status.conditions if item.type == "PodScheduled"), None)
    return f"pending: {waiting.message}" if waiting is not None and waiting.message else "pending"


def _claims(view: View, pod: Pod, prefiltered: PreFilterResult) -> tuple[str, ...]:
    if not isinstance(prefiltered, PreFilterState):
        return ()
    return tuple(_claim(claim) for claim in prefiltered.order)


def _claim(claim: ResourceClaim) -> str:
    if claim.allocation is None:
        return f"{claim.metadata.key}: not allocated"
    devices = ", ".join("/".join(result.id) for result in claim.allocation.devices.results)
    consumers = counted(len(claim.status.reserved_for), "consumer")
    return f"{claim.metadata.key}: allocated {devices or 'no devices'}, {consumers}"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
