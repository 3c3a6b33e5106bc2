"""Changes of the pod itself, or of a node: fewer resources, labels, tolerations, scheduling gates.

Promises: all changes are derived from the pod, the nodes and known names. `remedies` verifies whether a change helps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import partial
from typing import Final, NamedTuple

from dra_extender.api.core import NodeSelector, Pod, ResourceRequirements, Taint
from dra_extender.api.quantity import Quantity
from dra_extender.api.resource import EXTENDED_RESOURCE_CLASS_PREFIX
from dra_extender.insight.snapshot import SimulatedPod
from dra_extender.insight.why.candidates import (
    LONGEST,
    CandidateChange,
    ChangeList,
    ChangeLists,
    Editable,
    Order,
    editable_pod,
    gates_text,
    near,
    object_change,
    tolerating,
)
from dra_extender.scheduling.noderules import (
    KEEPING_AWAY,
    UNHEALTHY,
    UNSCHEDULABLE,
    Obstacle,
    amount_text,
    required_affinity,
)
from dra_extender.scheduling.turns import QueryBudget, Turns

UNITS = 64
"""Smaller amounts of an extended resource that are tried at most."""
VALUES = 8
NODES = 8
TAINTS: Final = 16
"""Taints of one node that are tolerated together at most."""

Obstacles = Mapping[str, tuple[Obstacle, ...]]
"""By node."""


def of_pod(
    found: SimulatedPod, obstacles: Obstacles, left: Mapping[str, Collection[int]], budget: QueryBudget
) -> ChangeLists:
    """All changes. `left`: for each resource, the amounts that nodes have free, in nano units."""
    yield from _gates(found)
    present: set[str] = set()
    for each in obstacles.values():
        yield from budget.charge(1 + len(each))
        present.update(obstacle.rule for obstacle in each)
    yield from _resources(found, left, budget)
    if present & {"node taint", "cordoned"}:
        yield from _taints(found, obstacles, budget)
    if present & {"node selector", "node affinity"}:
        yield from _labels(found, budget)


def _gates(simulated: SimulatedPod) -> Iterator[ChangeList]:
    pod, spec = simulated.pod, editable_pod(simulated.pod)
    if pod.spec.scheduling_gates:
        names = gates_text(pod)
        text = f"have the owner of scheduling gate {names} remove it"
        yield ChangeList(Order.MISTAKE, [spec.edit("gate", "/schedulingGates", [], text, f"remove gate {names}")])
    served = simulated.view.config.scheduler_names
    if served and simulated.scheduler not in served:
        names_like = get_close_matches(pod.spec.scheduler_name[:LONGEST], sorted(served), len(served), 0.0)
        edits = [
            spec.edit("scheduler", "/schedulerName", name, f"set schedulerName to {name}", f"schedulerName {name}")
            for name in names_like
        ]
        yield ChangeList(Order.MISTAKE, edits)


class _ContainerResource(NamedTuple):
    """One of the `resources` that a container of the pod requests, or the pod as a whole, and their `part`."""

    pod: Pod
    part: Editable
    resources: ResourceRequirements
    name: str


def _of_each(pod: Pod) -> Iterator[tuple[Editable, ResourceRequirements]]:
    spec = editable_pod(pod)
    for kind, containers in (("containers", pod.spec.containers), ("initContainers", pod.spec.init_containers)):
        for at, container in enumerate(containers):
            label = f"container {container.name or f'#{at}'}"
            yield spec._replace(path=f"/spec/{kind}/{at}/resources", label=label), container.resources
    yield spec._replace(path="/spec/resources"), pod.spec.resources


def _resources(found: SimulatedPod, left: Mapping[str, Collection[int]], budget: QueryBudget) -> ChangeLists:
    """For each requested resource: smaller amounts that fit some node, and similar names."""
    free = {name: sorted(amounts, reverse=True) for name, amounts in left.items()}
    yield from budget.charge(sum(map(len, free.values())))
    offered: Collection[str] | None = None
    for part, resources in _of_each(found.pod):
        for name, amount in resources.requests.items():
            if amount.nano <= 0:
                continue
            resource = _ContainerResource(found.pod, part, resources, name)
            if "/" in name:
                if offered is None:
                    offered = yield from _offered(found, budget)
                yield from _renamed(resource, offered, budget)
            total = found.wants.amounts.get(name, 0)
            lefts = [amount.nano - (total - most) for most in free.get(name, ())]
            yield from budget.charge(1 + len(lefts) // 4)
            units = range(10**9, min(amount.nano, (UNITS + 1) * 10**9), 10**9) if "/" in name else ()
            amounts = sorted({*units, *(nano for nano in lefts if 0 < nano < amount.nano)}, reverse=True)
            order = Order.COUNT if "/" in name else Order.RESOURCE
            yield ChangeList(order, amounts, partial(_less, resource), monotone=True)


def _offered(found: SimulatedPod, budget: QueryBudget) -> Turns[dict[str, None]]:
    """The extended resources that nodes or device classes provide, in order."""
    cluster = found.view.cluster
    names: set[str] = set()
    for name, item in list(cluster.classes.items()):
        names |= {EXTENDED_RESOURCE_CLASS_PREFIX + name, item.spec.extended_resource_name or ""}
        yield from budget.charge(1)
    for node in list(cluster.nodes.values()):
        names.update(resource for resource in node.status.allocatable if "/" in resource)
        yield from budget.charge(1 + len(node.status.allocatable) // 4)
    return dict.fromkeys(sorted(names - {""}))


def _less(resource: _ContainerResource, nano: int) -> CandidateChange:
    """Request this amount, rounded down: CPU to milli, memory to Mi, other resources to whole units."""
    pod, part, resources, name = resource
    binary = name in ("memory", "ephemeral-storage")
    unit = 10**6 if name == "cpu" else 2**20 * 10**9 if binary else 10**9
    amount = amount_text(name, nano // unit * unit or nano)
    key, what = name.replace("/", "~1"), "CPU" if name == "cpu" else f"of {name}"
    limit = part.change("resources", f"/limits/{key}", amount)
    several = sum(name in each.resources.requests for each in pod.spec.containers) > 1
    return part.edit(
        "resources",
        f"/requests/{key}",
        amount,
        f"request at most {amount} {what} instead of {resources.requests[name].text} in {part.label}",
        f"{name} <= {amount}" + (f" in {part.label}" if several else ""),
        more=(limit,) if "/" in name and name in resources.limits else (),
    )


def _renamed(resource: _ContainerResource, offered: Collection[str], budget: QueryBudget) -> ChangeLists:
    """A resource with a similar name, if no node or class provides it."""
    if resource.name not in offered:
        close = yield from near(resource.name, offered, budget)
        kinds = yield from near(_kind(resource.name), dict.fromkeys(map(_kind, close)), budget)
        yield ChangeList(Order.MISTAKE, [_other(resource, other) for other in close if _kind(other) in kinds])


def _kind(resource: str) -> str:
    """What the resource is, without its vendor: a MIG profile is no misspelt GPU."""
    return resource.rpartition("/")[2]


def _other(resource: _ContainerResource, other: str) -> CandidateChange:
    _, part, resources, name = resource

    def renamed(amounts: Mapping[str, Quantity]) -> Mapping[str, str]:
        return {other if key == name else key: amount.text for key, amount in amounts.items()}

    text = f"use {other} instead of {name} in {part.label}"
    more = (part.change("name", "/limits", renamed(resources.limits)),) if name in resources.limits else ()
    return part.edit("name", "/requests", renamed(resources.requests), text, f"did you mean {other}?", more=more)


def _taints(found: SimulatedPod, obstacles: Obstacles, budget: QueryBudget) -> ChangeLists:
    kinds: Counter[tuple[Taint, ...]] = Counter()
    cordoned: list[str] = []
    for name, each in obstacles.items():
        node = found.snapshot.node(name)
        yield from budget.charge(1 + (len(node.spec.taints) if node is not None else 0))
        if node is None or not each:
            continue
        if any(obstacle.rule == "cordoned" for obstacle in each):
            cordoned.append(name)
        taints = (taint for taint in node.spec.taints if taint.effect in KEEPING_AWAY)
        kept = tuple(taint for taint in taints if not found.wants.tolerates(taint) and taint.key != UNSCHEDULABLE.key)
        if any(taint.key.startswith(UNHEALTHY) for taint in kept):
            continue  # the node is not ready, or lacks memory: the pod would not run there
        if 0 < len(kept) <= TAINTS:
            kinds[kept] += 1
        elif kept:
            budget.complete = False
    if len(kinds) > VALUES or len(cordoned) > NODES:
        budget.complete = False
    now, spec = found.pod.spec.tolerations, editable_pod(found.pod)
    keys = ([(each.key, each.value, each.effect) for each in taints] for taints, _ in kinds.most_common(VALUES))
    yield ChangeList(Order.POD_TOLERATION, [tolerating(spec, now, taints) for taints in keys])
    nodes = [node for name in cordoned[:NODES] if (node := found.snapshot.node(name)) is not None]
    changes = [object_change("uncordon", "Node", node.metadata, "/spec/unschedulable", False) for node in nodes]
    edits = [CandidateChange(f"kubectl uncordon {each.name}", f"uncordon {each.name}", (each,)) for each in changes]
    yield ChangeList(Order.UNCORDON, edits)


def _labels(found: SimulatedPod, budget: QueryBudget) -> ChangeLists:
    pod, spec = found.pod, editable_pod(found.pod)
    labels = yield from _known_labels(found, budget)
    for key, value in pod.spec.node_selector.items():
        if budget.spent():
            break
        yield from _label(pod, key, value, labels, budget)
    if (required := required_affinity(pod)) is not None:
        path = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution"
        for place, word, known in _unknown_words(required, f"{path}/nodeSelectorTerms", labels):
            edits: list[CandidateChange] = []
            for name in (yield from near(word, known, budget)):
                text = f"use {name} instead of {word} in the node affinity"
                edits.append(spec.edit("node affinity", place, name, text, f"did you mean {name}?"))
            yield ChangeList(Order.NAME, edits)
        text, short = "remove the required node affinity", "without node affinity"
        yield ChangeList(Order.NO_NODE_SELECTOR, [spec.edit("node affinity", path, None, text, short, "remove")])


def _known_labels(found: SimulatedPod, budget: QueryBudget) -> Turns[Mapping[str, Mapping[str, int]]]:
    """The label keys of all nodes, in order. Only keys in the pod's nodeSelector have their values, each with the
    number of nodes that have it, the most frequent first.
    """
    wanted, required = set(found.pod.spec.node_selector), required_affinity(found.pod)
    for term in required.node_selector_terms if required is not None else ():
        yield from budget.charge(1 + len(term.match_expressions))
        wanted.update(each.key for each in term.match_expressions)
    known: dict[str, dict[str, int]] = {}
    for node in list(found.view.cluster.nodes.values()):
        labels = node.metadata.labels
        yield from budget.charge(1 + len(labels) // 4)
        for key, value in labels.items():
            values = known.setdefault(key, {})
            if key in wanted:
                values[value] = values.get(value, 0) + 1
    return {key: dict(sorted(known[key].items(), key=lambda item: (-item[1], item[0]))) for key in sorted(known)}


def _unknown_words(
    required: NodeSelector, path: str, labels: Mapping[str, Mapping[str, int]]
) -> Iterator[tuple[str, str, Iterable[str]]]:
    """(path, word, what it may mean): keys and values of the node affinity that no node has."""
    for number, term in enumerate(required.node_selector_terms):
        for index, each in enumerate(term.match_expressions):
            place, known = f"{path}/{number}/matchExpressions/{index}", labels.get(each.key)
            if known is None:
                yield f"{place}/key", each.key, labels
            for at, value in enumerate(each.values if known and each.operator == "In" else ()):
                if known and value not in known:
                    yield f"{place}/values/{at}", value, known


def _label(pod: Pod, key: str, value: str, labels: Mapping[str, Mapping[str, int]], budget: QueryBudget) -> ChangeLists:
    rest = {name: wanted for name, wanted in pod.spec.node_selector.items() if name != key}
    values = labels.get(key, {})
    yield from budget.charge(1 + (len(rest) + len(values)) // 4)
    close = (yield from near(value, values, budget)) if value not in values else []
    keys = (yield from near(key, labels, budget)) if key not in labels else []

    def edit(selector: Mapping[str, str], text: str, short: str = "") -> CandidateChange:
        return editable_pod(pod).edit("node selector", "/nodeSelector", {**rest, **selector}, text, short)

    meant = [
        edit({key: other}, f"use {key}={other} instead of {key}={value} in the nodeSelector", f"did you mean {other}?")
        for other in close
    ]
    meant += [
        edit({other: value}, f"use label {other} instead of {key} in the nodeSelector", f"did you mean {other}?")
        for other in keys
    ]
    yield ChangeList(Order.NAME, meant)
    others = [other for other in values if other != value and other not in close]
    if len(others) > VALUES:
        budget.complete = False
    shorts = ((other, f"nodeSelector {key}={other}") for other in others[:VALUES])
    edits = [edit({key: other}, f"use {short} instead of {key}={value}", short) for other, short in shorts]
    yield ChangeList(Order.NODE_SELECTOR, edits)
    yield ChangeList(Order.NO_NODE_SELECTOR, [edit({}, f"remove {key}={value} from the nodeSelector")])
