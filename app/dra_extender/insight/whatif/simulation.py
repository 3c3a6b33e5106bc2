"""Which nodes would fit a pod, and how many new nodes would be needed for more of it? Autoscalers ask this.

Promises: the cluster does not change, because everything happens on a copy. Pods are placed one after the other, as in
a what-if. A new node counts only when a pod does not fit without it. It runs in turns. An invalid request raises
InvalidRequestError, which names field, problem and remedy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Annotated, Any, Final

import msgspec
from msgspec.structs import replace

from dra_extender.api.core import Node, Pod
from dra_extender.api.decoding import convert
from dra_extender.api.groups import GANG, GANG_SIZE
from dra_extender.api.quantity import Quantity
from dra_extender.api.resource import MAX_DEVICES, ResourceSlice
from dra_extender.insight.manifests import draft, manifests, pods_of
from dra_extender.insight.requests import InvalidRequestError, nodes_named, parsed, pod_named
from dra_extender.insight.snapshot import NewNode, examples_of_nodes, nodes_like, opened
from dra_extender.insight.whatif.clustercopy import ClusterCopy, Placed, Placing, copied, decided_on
from dra_extender.insight.whatif.whatif import MOST_NAMES, NODE_OR_POOL, problems_of_slices
from dra_extender.insight.why.diagnosis import of_pod
from dra_extender.limits import PODS_OF_GANG
from dra_extender.placement.freestates import FreeStates
from dra_extender.placement.podshape import Loads
from dra_extender.scheduling.claims import created_names
from dra_extender.scheduling.feasibility import NodeAllocation, allocate
from dra_extender.scheduling.gangs.gang import gang_of
from dra_extender.scheduling.gangs.topology import REQUIRED
from dra_extender.scheduling.turns import PORTION, UNDECIDED, QueryBudget, Turns
from dra_extender.scheduling.view import View

Json = dict[str, Any]
Count = Annotated[float, msgspec.Meta(ge=1, le=MOST_NAMES, multiple_of=1, extra_json_schema={"type": "integer"})]
Parts = msgspec.Meta(max_length=MOST_NAMES)


class NewNodes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`count` new nodes: like an existing one, or the first one of a NodePool of Karpenter, of which `like` is the
    name; or like a Node (`node`) with ResourceSlices (`slices`). With `like` and `node`, they have the devices of the
    one, and labels, taints and resources of the other.
    """

    like: str = ""
    node: Json = {}
    slices: Annotated[tuple[Json, ...], Parts] = ()
    count: Count = 1


class SimulationRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How many of `count` pods, or gangs, fit? Either `pod` or `gang`, whose pods are placed together or not at all. A
    pod is a Pod, or NAMESPACE/NAME of an existing one. `placed`: pods that are placed before, on spec.nodeName if they
    have one. `objects`: ResourceClaims and ResourceClaimTemplates that the pods name and the cluster lacks. `nodes`:
    the existing nodes that count, by default all. `newNodes`: nodes to add, in this order, when a pod does not fit.
    """

    pod: str | Json = ""
    gang: Annotated[tuple[str | Json, ...], msgspec.Meta(max_length=int(PODS_OF_GANG))] = ()
    count: Count = 1
    placed: Annotated[tuple[str | Json, ...], Parts] = ()
    objects: Annotated[tuple[Json, ...], Parts] = ()
    nodes: tuple[str, ...] | None = None
    new_nodes: Annotated[tuple[NewNodes, ...], Parts] = ()


_POD: Final = "give a Pod, or NAMESPACE/NAME of an existing one"
_REMEDIES: Final = {
    **dict.fromkeys(("pod", "gang", "placed"), _POD),
    "count": f"give a whole number from 1 to {MOST_NAMES:,}",
    "objects": "give a list of ResourceClaims and ResourceClaimTemplates",
    "nodes": "give a list of names of existing nodes",
    "newNodes": f"give a list such as [{{like: NODE, count: 1}}], at most {MOST_NAMES:,} nodes",
}
_decoder = msgspec.json.Decoder(SimulationRequest)


def request_of(data: bytes) -> SimulationRequest:
    """Raises InvalidRequestError."""
    found = parsed(_decoder.decode, data, _REMEDIES)
    if bool(found.pod) == bool(found.gang):
        raise InvalidRequestError("pod", "needs one of pod and gang", _POD)
    if max(found.count * len(found.gang), sum(item.count for item in found.new_nodes)) > MOST_NAMES:
        raise InvalidRequestError("count", f"more than {MOST_NAMES:,} pods or new nodes, all together", "ask for fewer")
    return found


class Capacity(msgspec.Struct, frozen=True):
    """Of the status of a Node."""

    capacity: dict[str, Quantity] = {}


class Simulation(msgspec.Struct, frozen=True, kw_only=True):
    """`fit`: by node that the first pod fits alone, after `placed`, the devices that its claims would get
    (driver/pool/device). `refused`: by other node, all that keeps the pod from it. `pods`: by pod (namespace/name), its
    node, or the reason why it fits none. `fits_on`: how many of the pods or gangs fit with 0, 1, 2 and so on new nodes,
    placed one after the other. `least`: how many new nodes are needed for all; null if even all of them are too few.
    `left_whole` and `left_in_parts`: how many devices of the new nodes in use stay free, and of which parts stay free,
    all parts together. `problems`: of the slices in the request. The answer is not `complete` if some node was not
    decided.
    """

    fit: Mapping[str, tuple[str, ...]]
    refused: Mapping[str, tuple[str, ...]]
    pods: Mapping[str, Placed]
    fits_on: tuple[int, ...]
    least: int | None
    left_whole: int
    left_in_parts: float
    problems: tuple[str, ...]
    complete: bool


def simulation(view: View, request: SimulationRequest) -> Turns[Simulation]:
    """The answer. Raises InvalidRequestError."""
    only = None if request.nodes is None else frozenset(request.nodes)
    nodes_named(view.cluster.nodes, only or (), "nodes", "name existing nodes")
    copy = yield from copied(view, only)
    return (yield from _Simulating(view, copy, request).answer())


class _Simulating:
    def __init__(self, view: View, copy: ClusterCopy, request: SimulationRequest) -> None:
        self._view = view
        self._copy = copy
        self._request = request
        self._placing = Placing(copy)
        self._existing = frozenset(copy.cluster.nodes)
        self._unused: list[str] = []
        """New nodes that do not count yet."""
        self._objects = parsed(manifests, request.objects, _REMEDIES, "objects")
        self._pods: dict[str, Placed] = {}
        self._problems: list[str] = []
        self._complete = True

    def answer(self) -> Turns[Simulation]:
        request, copy = self._request, self._copy
        yield from self._add_nodes()
        new = [*self._unused]
        if len(self._objects.claims) + len(self._objects.templates) != len(request.objects):
            raise InvalidRequestError("objects", "has other objects, or two of one name", _REMEDIES["objects"])
        given = {f"gang[{number}]": each for number, each in enumerate(request.gang)} or {"pod": request.pod}
        unit = [self._read_pod(field, each) for field, each in given.items()]
        copy.kept = self._view.kept(unit[0])
        for number, each in enumerate(request.placed):
            pod = self._read_pod(f"placed[{number}]", each)
            if target := pod.spec.node_name:
                nodes_named(copy.cluster.nodes, [target], f"placed[{number}].spec.nodeName", "name a node that counts")
            yield from self._place([self._copy_of(pod, 1)], target)
        units = yield from self._units(unit)
        fit, refused = yield from self._nodes(units[0][0])
        fits_on = [0]
        for fits, members in enumerate(units, start=1):
            if not (yield from self._place(members)):
                break
            used = sum(bool(copy.usage.on(name)) for name in new)
            fits_on += [fits - 1] * (used + 1 - len(fits_on))
            fits_on[used] = fits
        left = yield from self._left(new)
        return Simulation(
            fit=fit,
            refused=refused,
            pods=self._pods,
            fits_on=tuple(fits_on),
            least=len(fits_on) - 1 if fits_on[-1] == len(units) else None,
            left_whole=left.count(1.0),
            left_in_parts=round(sum((part for part in left if part < 1), 0.0), 3),
            problems=tuple(self._problems),
            complete=self._complete,
        )

    def _add_nodes(self) -> Turns[None]:
        copy, used, examples = self._copy, {*self._view.cluster.nodes}, examples_of_nodes(self._view)
        drivers = {driver for driver, _ in self._view.cluster.inventory.pools}
        for number, item in enumerate(self._request.new_nodes):
            node, slices = _node_of(self._view, examples, f"newNodes[{number}]", item)
            for new in islice(nodes_like(node, slices, used), int(item.count)):
                self._unused.append(new[0].name)
                copy.put(new[0])
                for each in new[1]:
                    copy.put(each)
                    yield
                copy.cluster.inventory.view(new[0].name)  # a decision that reads many new nodes would take too long
                if not slices:
                    yield
            unknown = sorted({each.spec.driver for each in slices} - drivers)
            self._problems += [f"newNodes[{number}]: no slice of the cluster has driver {each}" for each in unknown]
            self._problems += problems_of_slices(copy, new[1])

    def _read_pod(self, field: str, given: str | Json) -> Pod:
        if isinstance(given, str):
            return pod_named(self._view.pods, given, field, _POD)
        return parsed(partial(pods_of, field), [{"kind": "Pod", **given}], _REMEDIES, field).pods[0]

    def _units(self, unit: Sequence[Pod]) -> Turns[list[list[Pod]]]:
        """The pods, and copies of them until there are `count`. Each copy of `gang` is a gang of its own."""
        found, marks = list[list[Pod]](), dict[str, str]()
        if self._request.gang:
            gang, marks = gang_of(self._copy.view, unit[0]), {GANG_SIZE: str(len(unit))}
            if gang is not None and gang.levels[-1]:
                marks[REQUIRED] = gang.levels[-1][0]
            unit = [replace(pod, spec=replace(pod.spec, scheduling_group=None)) for pod in unit]
        for number in range(1, int(self._request.count) + 1):
            marks |= {GANG: f"simulated {number}"} if marks else {}
            found.append([])
            for pod in unit:
                annotations = {**pod.metadata.annotations, **marks}
                pod = replace(pod, metadata=replace(pod.metadata, annotations=annotations))
                found[-1].append(self._copy_of(pod, number))
                yield
        return found

    def _copy_of(self, pod: Pod, number: int) -> Pod:
        """The pod, or one like it with another name, and claims of its own."""
        meta, created, known = pod.metadata, created_names(pod), self._view.pods.get(pod.metadata.uid)
        pod = replace(pod, spec=replace(pod.spec, node_name=""))
        if number > 1 or (known is not None and known.spec.node_name):
            pod, known = replace(pod, metadata=replace(meta, name=f"{meta.name} ({number})", uid="")), None
        if known is None:
            specs = {**self._objects.templates}
            for entry in pod.spec.resource_claims:
                own = self._view.ledger.get(meta.namespace, created.get(entry.name) or "")
                if own is not None and entry.resource_claim_template_name:
                    specs[entry.resource_claim_template_name] = own.spec
            pod, claims = draft(pod, self._objects.claims, specs)
            for claim in claims:
                if self._copy.cluster.ledger.get(claim.metadata.namespace, claim.metadata.name) is None:
                    self._copy.put(claim)
        if known is None and self._copy.pods.get(pod.metadata.uid) is not None:
            raise InvalidRequestError("", f"pod {pod.metadata.key} is given twice", "rename it, or leave it out")
        self._copy.put_pod(pod)
        return pod

    def _place(self, pods: Sequence[Pod], target: str = "") -> Turns[bool]:
        """Whether all fit. Until they do, more new nodes count."""
        while True:
            for pod in pods:
                placed = yield from self._placing.place(pod, target)
                self._pods[pod.metadata.key] = placed = placed or Placed(reason=UNDECIDED, decided=False)
                self._complete &= placed.decided
                yield
            fit = all(self._pods[pod.metadata.key].node for pod in pods)
            if fit or target or not self._unused or not self._complete:
                return fit
            self._placing.node_added(self._unused.pop(0))

    def _left(self, names: Sequence[str]) -> Turns[list[float]]:
        """Of each device of those of the nodes that are in use, the part that is free."""
        cluster, budget = self._copy.cluster, QueryBudget(self._copy.view)
        states = FreeStates(cluster.inventory.nodes, cluster.ledger, Loads(), cluster.features)

        def parts(name: str, view: View) -> list[float]:
            return [group.free for group in states.beside(name, {}, view.decisions.budget).devices.groups]

        left = list[float]()
        for number, name in enumerate(names, start=1):
            if self._copy.usage.on(name):
                left += (yield from budget.turn(partial(parts, name))) or ()
            if number % PORTION == 0:
                yield
        return left

    def _nodes(self, first: Pod) -> Turns[tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]]:
        """Decide on the pod alone, on each node."""
        fit, refused, error = dict[str, tuple[str, ...]](), dict[str, tuple[str, ...]](), ""
        pod, existing = self._copy.pod(first), sorted(self._existing)
        whole, portions = of_pod(pod), [existing[at : at + PORTION] for at in range(0, len(existing), PORTION)]
        for names in (*portions, *([name] for name in self._copy.cluster.nodes if name not in self._existing)):
            budget = QueryBudget(pod.view)
            obstacles, statuses = yield from decided_on(pod, names, budget)
            self._complete &= statuses is not None and not statuses.waiting
            if statuses is not None and names[0] in self._existing:
                error = error or statuses.error
            for name, reasons in obstacles.items():
                if whole is not None:
                    reasons.append(whole.text)
                elif not reasons and statuses is not None and name not in statuses.fits:
                    reasons.append(statuses.error or statuses.refused[name])
                if reasons:
                    refused[name] = tuple(reasons)
                    continue
                plan = yield from budget.turn(partial(allocate, prefiltered=pod.prefiltered, name=name))
                yield
                if isinstance(plan, NodeAllocation):
                    results = (result for allocation in plan.allocations for result in allocation.devices.results)
                    fit[name] = tuple("/".join(result.id) for result in results)
                else:
                    refused[name], self._complete = (UNDECIDED,), False
            yield
        if error:  # the scheduler ends its attempt
            return {}, {**dict.fromkeys(fit, (error,)), **refused}
        return fit, refused


def _node_of(view: View, examples: Mapping[str, str], field: str, item: NewNodes) -> NewNode:
    """The node that the new ones are like, and its slices. Raises InvalidRequestError."""
    if not (item.like or item.node) or (item.like and item.slices):
        raise InvalidRequestError(field, "needs like or node, and slices only without like", "change it")
    given = parsed(partial(convert, Node), item.node, _REMEDIES, f"{field}.node") if item.node else None
    if given is not None:
        status = parsed(partial(convert, Capacity), item.node.get("status") or {}, _REMEDIES, f"{field}.node.status")
        for name, amount in given.status.allocatable.items():
            if not 0 <= amount.nano <= status.capacity.get(name, amount).nano:
                what = "is negative" if amount.nano < 0 else "is more than status.capacity"
                raise InvalidRequestError(f"{field}.node.status.allocatable", f"{name} {what}", "correct it")
    if item.like:
        (name,) = nodes_named(examples, [item.like], f"{field}.like", NODE_OR_POOL)
        like, slices = opened(view, examples[name])
        return given or like, slices
    assert given is not None
    if not given.name:
        raise InvalidRequestError(f"{field}.node", "has no metadata.name", "give it one")
    node, slices = given, list[ResourceSlice]()
    for number, document in enumerate(item.slices):
        at = f"{field}.slices[{number}]"
        each = parsed(partial(convert, ResourceSlice), document, _REMEDIES, at)
        elsewhere = each.spec.node_selector or each.spec.all_nodes or each.spec.per_device_node_selection
        if elsewhere or each.spec.node_name not in (None, "", node.name):
            raise InvalidRequestError(at, f"is not of node {node.name} alone", "correct it, or leave it out")
        if len(each.spec.devices) > MAX_DEVICES:
            raise InvalidRequestError(at, f"has more than {MAX_DEVICES} devices", "divide it")
        if each.spec.devices and each.spec.shared_counters:
            raise InvalidRequestError(at, "has devices and sharedCounters", "divide it")
        slices.append(replace(each, metadata=replace(each.metadata, name=at)))
    return node, slices
