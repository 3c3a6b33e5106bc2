"""The filter verb: on which of these nodes can the pod's claims be allocated or used?

Promises: a pod without devices passes unchanged. Every refused node is in FailedAndUnresolvableNodes with one of few
constant texts. While preemption is on, a node where it would help is in FailedNodes instead, and so is the node for
which the pod is nominated. A node that fits and is not offered is in no list. A claim that the pod names and no watch
has shown is read before the pod is refused.
All pods of a gang are offered nodes of one plan, or none is offered a node.

cluster-autoscaler sends whole Node objects: it asks about nodes that it may add (`on_whole_nodes`). Nothing is
remembered of such a call. A node that does not exist counts with the labels, taints and allocatable resources of its
object, without pods, and with the devices of slices that apply to it by their node selector, or to all nodes. The pod
is decided on alone, also if it belongs to a gang. A call about existing nodes only is refused: it comes from a
kube-scheduler with the wrong setting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec
import structlog
from cachetools import TTLCache
from msgspec.structs import replace

from dra_extender.api.core import Node, Pod
from dra_extender.api.decoding import DecodeError, decode
from dra_extender.api.errors import ApiError
from dra_extender.api.extender import NEEDS_NAMES, ExtenderArgs, ExtenderFilterResult, ExtenderNodesResult, NodeList
from dra_extender.api.groups import GroupKey
from dra_extender.devices.readonly import with_nodes
from dra_extender.limits import CLAIMS_OF_POD
from dra_extender.plaintext import printable
from dra_extender.scheduling import extended
from dra_extender.scheduling.claims import Unschedulable, claim_names
from dra_extender.scheduling.deferred import WORKERS
from dra_extender.scheduling.feasibility import (
    NodeStatuses,
    PreFilterResult,
    PreFilterState,
    node_statuses,
    pre_filter,
    typical,
)
from dra_extender.scheduling.gangs.controller import Gangs
from dra_extender.scheduling.gangs.decision import GangDecision
from dra_extender.scheduling.gangs.gang import Gang, gang_with_devices
from dra_extender.scheduling.handle import Handle
from dra_extender.scheduling.noderules import NOTHING_USED
from dra_extender.scheduling.nomination.controller import PreemptionController
from dra_extender.scheduling.nomination.nominations import Nominations
from dra_extender.scheduling.outcomes import FILTER_RESULTS
from dra_extender.scheduling.preemption.candidates import resolvable
from dra_extender.scheduling.release.unused import Sweeper, Unblocker
from dra_extender.scheduling.tentativeplans import TentativePlan, TentativePlans
from dra_extender.scheduling.turns import PORTION, UNDECIDED, QueryBudget, Turns
from dra_extender.scheduling.verbs.prioritize import Offers, expected
from dra_extender.scheduling.view import View

log = structlog.get_logger(__name__)

ELSEWHERE = "a bind of the pod to another node is in progress"

REMEMBERED_ABSENCES = 10_000

MOST_READS: Final = 8
"""How many claims one call reads."""


class _Decided(msgspec.Struct, frozen=True, kw_only=True):
    """One decision, on the state of `revision`. `tentative`: the plan for the only node that is offered."""

    revision: int
    claims_missing: bool = False
    prefiltered: PreFilterResult
    statuses: NodeStatuses
    offered: list[str]
    tentative: TentativePlan | None = None
    resolvable: frozenset[str] = frozenset()
    """The nodes, when all are refused, where evicting pods of lower priority may help."""
    gang: tuple[GroupKey, GangDecision] | None = None


@dataclass(eq=False)
class FilterVerb:
    """A scheduler sends one call at a time; several schedulers may call."""

    _handle: Handle
    _tentative_plans: TentativePlans
    _nominations: Nominations
    _unblocker: Unblocker
    _sweeper: Sweeper
    _gangs: Gangs
    _preemption: PreemptionController

    def __post_init__(self) -> None:
        self._view, self._observer = self._handle.view, self._handle.observer
        self._offers = Offers()
        self._absent: TTLCache[tuple[str, str], bool] = TTLCache(
            REMEMBERED_ABSENCES, self._view.config.missing_seconds, timer=self._view.clock.monotonic
        )

    async def filter(self, args: ExtenderArgs) -> ExtenderFilterResult:
        """The answer to one call. Never raises for what is in `args` or in the cluster."""
        pod, names = args.Pod, args.NodeNames or ()
        if not self._view.uses_devices(pod) and gang_with_devices(self._view, pod) is None:
            self._observer.count(FILTER_RESULTS, "untouched")
            return ExtenderFilterResult(NodeNames=list(names))
        await self._learn_missing(pod)
        answer = await self._answer(pod, tuple(dict.fromkeys(names)))
        self._add_leftover(pod)
        return answer

    async def _learn_missing(self, pod: Pod) -> None:
        """Read the first few claims that the pod names and no watch has shown: the scheduler's watch may be ahead.

        A claim that is not read, or not in time, counts as missing until the watch shows it. The wait is charged to the
        namespace, as long calls are.
        """
        namespace, clock, deferred = pod.metadata.namespace, self._view.clock, self._handle.deferred
        unseen = [
            name
            for name in _names(pod)
            if self._view.ledger.get(namespace, name) is None and (namespace, name) not in self._absent
        ]
        if not unseen or deferred.gets_one_turn(namespace):
            return
        name, started = "", clock.monotonic()
        try:
            async with asyncio.timeout(self._view.config.reading_seconds):
                for name in unseen[:MOST_READS]:
                    claim = await self._handle.ports.read_claim(namespace, name)
                    if claim is not None:
                        self._handle.event_handler.replied(claim)
        except TimeoutError:
            log.warning("a claim of a pod could not be read", claim=f"{namespace}/{name}", error="no answer in time")
        except ApiError as error:
            log.warning("a claim of a pod could not be read", claim=f"{namespace}/{name}", error=repr(error))
            unseen = []
        self._absent.update({(namespace, name): True for name in unseen})
        deferred.charge_calls(namespace, clock.monotonic() - started)

    def _add_leftover(self, pod: Pod) -> None:
        """Release a claim for extended resources that an earlier attempt did not allocate."""
        uid = pod.metadata.uid
        owned = self._view.ledger.owned_by(pod.metadata.namespace, uid)
        existing = extended.existing_claim(pod, owned) if owned else None
        if existing is not None and existing.allocation is None and uid not in self._view.binding:
            self._unblocker.add_leftover(existing)

    async def _answer(self, pod: Pod, names: tuple[str, ...]) -> ExtenderFilterResult:
        """Decide, and remember what later calls need."""
        tentative_plans = self._tentative_plans
        planned = tentative_plans.get(pod.metadata.uid)
        if planned is not None and names != (planned.node,):
            tentative_plans.drop(pod.metadata.uid)
            planned = None
        found, unfinished = await self._handle.deferred.decide(
            pod, lambda view: self._decide(view, pod, names, planned)
        )
        if not isinstance(found, _Decided):
            return found
        statuses = found.statuses
        if found.gang is not None:
            self._gangs.keep(found.gang[0], pod, names, found.gang[1])
        if isinstance(found.prefiltered, PreFilterState) and found.offered:
            self._passed(found.prefiltered, found.tentative)
        else:
            tentative_plans.drop(pod.metadata.uid)
            self._refused(pod, found, names)
        if unfinished:  # kube-scheduler may reject the offered nodes, and other nodes may fit once the work is done
            self._handle.requeue.refused(pod.metadata.uid, found.revision, (WORKERS,))
        self._observer.count(FILTER_RESULTS, statuses.result)
        if statuses.error:
            return ExtenderFilterResult(Error=printable(statuses.error))
        return self._result(pod, found.offered, statuses.refused, found.resolvable)

    def _decide(
        self, view: View, pod: Pod, names: tuple[str, ...], planned: TentativePlan | None
    ) -> _Decided | ExtenderFilterResult:
        """Decide on one state. May run several times: it does not change the state that it decides on, and placement
        counts the pod's workload once. `planned`: the plan for the only node that is asked about, because the pod is
        nominated there.
        """
        uid = pod.metadata.uid
        if uid in view.binding:
            return self._only(uid, view.binding[uid], names)
        revision = self._handle.requeue.revision
        claims = view.claims_of(pod)
        prefiltered = pre_filter(view, pod, claims)
        gang = gang_with_devices(view, pod)
        if gang is not None and isinstance(prefiltered, PreFilterState):
            return self._decide_gang(view, gang, prefiltered, names)
        if isinstance(prefiltered, PreFilterState):
            self._handle.event_handler.learn_workload(pod, typical(view, prefiltered, names)[0])
        statuses = node_statuses(view, prefiltered, names)
        others = self._tentative_plans.others(uid) if len(statuses.fits) > 1 else {}
        offered = self._offers.choose(view, prefiltered, statuses.fits, len(names), others)
        tentative = None
        if isinstance(prefiltered, PreFilterState) and len(offered) == 1:
            tentative = planned or expected(view, prefiltered, offered[0])
        return _Decided(
            revision=revision,
            claims_missing=isinstance(claims, Unschedulable),
            prefiltered=prefiltered,
            statuses=statuses,
            offered=offered,
            tentative=tentative,
            resolvable=self._resolvable(view, prefiltered, statuses),
        )

    def _decide_gang(self, view: View, gang: Gang, prefiltered: PreFilterState, names: tuple[str, ...]) -> _Decided:
        """Later turns reuse what the first turn has found, so the decision has the revision of the first turn."""
        revision = view.decisions.budget.found.setdefault(FilterVerb, self._handle.requeue.revision)
        found = self._gangs.decide(view, gang, prefiltered, names)
        fits = list(names) if found.anywhere else [found.node] if found.node else []
        refused = dict.fromkeys(names, found.reason) if not fits and not found.error else {}
        blocked = found.unfit and prefiltered.usable_on  # only then may the claims of members be in the way
        blocking = node_statuses(view, prefiltered, names).blocking if blocked else ()
        return _Decided(
            revision=revision,
            prefiltered=prefiltered,
            statuses=NodeStatuses(fits, refused, found.error, blocking, str(gang.key), found.waiting),
            offered=fits,
            gang=(gang.key, found),
        )

    def _resolvable(self, view: View, prefiltered: PreFilterResult, statuses: NodeStatuses) -> frozenset[str]:
        """The nodes where preemption may help; none for a pod that fits: preempt is not called then."""
        if statuses.fits or view.config.preemption != "on" or not isinstance(prefiltered, PreFilterState):
            return frozenset()
        if prefiltered.pod.metadata.uid in self._nominations:
            return frozenset()
        return resolvable(view, prefiltered, self._preemption.terms(prefiltered.pod), list(statuses.refused))

    def _result(
        self, pod: Pod, offered: list[str], refused: Mapping[str, str], resolvable: frozenset[str]
    ) -> ExtenderFilterResult:
        """The node on which victims are being evicted is in FailedNodes: if it were unresolvable, kube-scheduler would
        clear the nomination instead of waiting. kube-scheduler writes the reasons to the pod, so they are printable.
        """
        texts = {reason: printable(reason) for reason in set(refused.values())}
        refused = {name: texts[reason] for name, reason in refused.items()}
        nomination = self._nominations.get(pod.metadata.uid)
        if nomination is not None:
            resolvable = frozenset((nomination.by_pod.get(pod.metadata.uid, nomination.node),))
        if not resolvable or resolvable.isdisjoint(refused):
            return ExtenderFilterResult(NodeNames=offered, FailedAndUnresolvableNodes=refused)
        failed = {name: reason for name, reason in refused.items() if name in resolvable}
        others = {name: reason for name, reason in refused.items() if name not in resolvable}
        return ExtenderFilterResult(NodeNames=offered, FailedNodes=failed, FailedAndUnresolvableNodes=others)

    def _only(self, uid: str, node: str, names: tuple[str, ...]) -> ExtenderFilterResult:
        """The scheduler has given up on a bind that is still in progress: only the node of that bind is offered."""
        fits = [name for name in names if name == node]
        refused = {name: ELSEWHERE for name in names if name != node}
        if not fits:
            requeue = self._handle.requeue
            requeue.refused(uid, requeue.revision, (uid,))
        self._observer.count(FILTER_RESULTS, "fits" if fits else "refused")
        return ExtenderFilterResult(NodeNames=fits, FailedAndUnresolvableNodes=refused)

    def _passed(self, prefiltered: PreFilterState, tentative: TentativePlan | None) -> None:
        uid = prefiltered.pod.metadata.uid
        for claim in prefiltered.order:
            self._sweeper.offered(claim.metadata.uid)
        self._handle.requeue.forget(uid)
        self._unblocker.forget(uid)
        self._preemption.withdraw(uid)
        if tentative is not None:
            self._tentative_plans.put(tentative)

    def _refused(self, pod: Pod, found: _Decided, names: tuple[str, ...]) -> None:
        """A pod that names a missing or wrong claim is requeued when a claim of that name appears or changes. A gang
        with a plan needs no victims, and keeps its claims.
        """
        uid, statuses = pod.metadata.uid, found.statuses
        awaiting = [statuses.awaiting] if statuses.awaiting else []
        if found.claims_missing:
            awaiting += [f"{pod.metadata.namespace}/{name}" for name in _names(pod)]
        if found.gang is not None:
            awaiting += found.gang[1].missing
        self._handle.requeue.refused(uid, found.revision, awaiting)
        planned = found.gang is not None and self._gangs.plans.get(found.gang[0]) is not None
        self._unblocker.refused(pod, names, () if planned else statuses.blocking)
        decided = isinstance(found.prefiltered, PreFilterState) and not statuses.error
        if decided and not planned:
            self._preemption.refused(pod, names)


def _names(pod: Pod) -> list[str]:
    """The names of the pod's claims, unless there are too many to read."""
    return claim_names(pod) if len(pod.spec.resource_claims) <= CLAIMS_OF_POD else []


def on_whole_nodes(view: View, args: ExtenderArgs) -> Turns[ExtenderFilterResult]:
    """The answer to a call without `NodeNames`."""
    items, given = args.Nodes.items if args.Nodes is not None else (), dict[str, tuple[Node, msgspec.Raw]]()
    for raw in items or ():
        try:
            node = decode(Node, raw)
            problem = f"Node {node.name!r} needs a name of its own" if not node.name or node.name in given else ""
        except DecodeError as error:
            problem = str(error)
        if problem:
            return ExtenderFilterResult(Error=f"dra-extender: filter request: {problem}")
        given[node.name] = node, raw
        yield
    if all(name in view.cluster.nodes for name in given):
        return ExtenderFilterResult(Error=NEEDS_NAMES)
    budget, names, refused = QueryBudget(view), list(given), dict[str, str]()
    for start in range(0, len(names), PORTION):
        portion = [given[name][0] for name in names[start : start + PORTION]]
        found = yield from budget.turn(partial(_decide_on, pod=args.Pod, nodes=portion))
        if found is not None and found.error:
            return ExtenderFilterResult(Error=found.error)
        refused |= found.refused if found is not None else {node.name: UNDECIDED for node in portion}
        yield
    fits = {name: raw for name, (_, raw) in given.items() if name not in refused}
    nodes = NodeList(tuple(fits.values()))
    return ExtenderNodesResult(NodeNames=list(fits), FailedAndUnresolvableNodes=refused, Nodes=nodes)


def _decide_on(view: View, pod: Pod, nodes: Iterable[Node]) -> NodeStatuses:
    """On the state with those of these nodes that do not exist."""
    new = {node.name: node for node in nodes if node.name not in view.cluster.nodes}
    wants = view.wants(pod)
    view.decisions.budget.spend(wants.cost * len(new))
    obstacles = {name: next(wants.obstacles(node, *NOTHING_USED), None) for name, node in new.items()}
    refused = {
        name: "the node does not suit the pod: " + " ".join(dict.fromkeys((each.rule, each.what))).rstrip()
        for name, each in obstacles.items()
        if each is not None
    }
    free = view.with_pod(pod)
    added = replace(free.with_state(free.overlay().with_nodes(new.values())), cluster=with_nodes(view.cluster, new))
    found = node_statuses(added, pre_filter(added, pod), [node.name for node in nodes if node.name not in refused])
    return replace(found, refused={**found.refused, **refused})
