"""Changes of the pod itself, or of a node, that may help: room, labels, taints, gates.

Promises: only what the pod, the nodes and the names that are known suggest; whether it helps is decided by who asks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Final

import msgspec

from dra_extender.api.core import Affinity, NodeAffinity, Pod, Taint, Toleration
from dra_extender.api.quantity import Format, Quantity
from dra_extender.api.resource import EXTENDED_RESOURCE_CLASS_PREFIX
from dra_extender.insight.why.edits import Candidate, Families, Family, becomes, pod_change, replaced
from dra_extender.insight.why.nearness import near
from dra_extender.insight.why.report import Change
from dra_extender.insight.why.situation import Situation
from dra_extender.scheduling.noderules import KEEPING_AWAY, UNSCHEDULABLE, NodeRule, Obstacle, amount_text
from dra_extender.scheduling.slices import LazySequence, QueryBudget, Slices

UNITS = 64
"""Units of an extended resource from which on fewer are tried."""
VALUES = 8
NODES = 8
TAINTS: Final = 16
"""Taints of a node that a pod is made to tolerate together."""
CHANGE: Final = 20
"""Units of work that a change takes."""

Obstacles = Mapping[str, tuple[Obstacle, ...]]
"""By node."""


def of_pod(
    situation: Situation, obstacles: Obstacles, left: Mapping[str, Collection[int]], budget: QueryBudget
) -> Families:
    """All families. `left`: per resource what nodes have left, in nano units."""
    yield from _gates(situation)
    present: set[NodeRule] = set()
    for each in obstacles.values():
        if budget.must_yield(1 + len(each)):
            yield None
        present.update(found.rule for found in each)
    yield from _resources(situation, left, budget)
    if present & {"node taint", "cordoned"}:
        yield from _taints(situation, obstacles, budget)
    if present & {"node selector", "node affinity"}:
        yield from _labels(situation, budget)


def _with_spec(pod: Pod, **fields: object) -> Pod:
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, **fields))


# --- what keeps the pod from all nodes --------------------------------------------------------------------------------


def _gates(situation: Situation) -> Iterator[Family]:
    pod = situation.pod
    if pod.spec.scheduling_gates:
        names = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
        change = pod_change(pod, "gate", "/spec/schedulingGates", [])
        text = f"let the owner of the scheduling gate {names} remove it"
        yield Family(
            0, [Candidate(text, f"remove gate {names}", change, becomes(pod, _with_spec(pod, scheduling_gates=())))]
        )
    served = situation.view.config.scheduler_names
    if served and situation.scheduler not in served:
        near = get_close_matches(pod.spec.scheduler_name, sorted(served), len(served), 0.0)
        yield Family(0, [_scheduler(pod, name) for name in near])


def _scheduler(pod: Pod, name: str) -> Candidate:
    change = pod_change(pod, "scheduler", "/spec/schedulerName", name)
    return Candidate(
        f"schedulerName: {name}", f"schedulerName {name}", change, becomes(pod, _with_spec(pod, scheduler_name=name))
    )


# --- room -------------------------------------------------------------------------------------------------------------


def _resources(situation: Situation, left: Mapping[str, Collection[int]], budget: QueryBudget) -> Families:
    """Less of each resource that a container asks for, down to what some node has left; and other names for it."""
    free = {name: sorted(amounts, reverse=True) for name, amounts in left.items()}
    if budget.must_yield(sum(map(len, free.values()))):
        yield None
    offered: Sequence[str] | None = None
    for kind in ("containers", "init_containers"):
        for index, container in enumerate(getattr(situation.pod.spec, kind)):
            for name, amount in container.resources.requests.items():
                if amount.nano <= 0:
                    continue
                if "/" in name:
                    if offered is None:
                        offered = yield from _offered(situation, budget)
                    yield from _extended(situation, kind, index, name, amount, offered, budget)
                short = situation.wants.amounts.get(name, 0)
                lefts = [amount.nano - (short - most) for most in free.get(name, ())]
                if budget.must_yield(CHANGE + len(lefts) // 4):
                    yield None
                yield from _lesser(situation.pod, kind, index, name, [n for n in lefts if 0 < n < amount.nano])


def _lesser(pod: Pod, kind: str, index: int, name: str, amounts: Sequence[int]) -> Families:
    """Less of the resource, the most of it first."""
    if amounts:
        yield Family(
            12, LazySequence(len(amounts), lambda at: _less(pod, kind, index, name, amounts[at])), monotone=True
        )


def _offered(situation: Situation, budget: QueryBudget) -> Slices[list[str]]:
    """The extended resources that nodes or device classes have, in order."""
    cluster = situation.view.cluster
    found: set[str] = set()
    for name, item in list(cluster.classes.items()):
        found |= {EXTENDED_RESOURCE_CLASS_PREFIX + name, item.spec.extended_resource_name or ""}
        if budget.must_yield(1):
            yield
    for node in list(cluster.nodes.values()):
        found.update(resource for resource in node.status.allocatable if "/" in resource)
        if budget.must_yield(1 + len(node.status.allocatable) // 4):
            yield
    return sorted(found - {""})


def _rounded(name: str, nano: int) -> int:
    """Down to what people write: milli of CPU, whole Mi of memory, whole units of the rest."""
    unit = 10**6 if name == "cpu" else 2**20 * 10**9 if name in ("memory", "ephemeral-storage") else 10**9
    return nano // unit * unit or nano


def _less(pod: Pod, kind: str, index: int, name: str, nano: int) -> Candidate:
    nano = _rounded(name, nano)
    text = amount_text(name, nano)
    container = getattr(pod.spec, kind)[index]
    amount = _quantity(name, nano)
    made = _asking(pod, kind, index, {**container.resources.requests, name: amount})
    path = f"/spec/{_camel(kind)}/{index}/resources/requests/{name.replace('/', '~1')}"
    limited = "/" in name and name in container.resources.limits
    what = {"cpu": "CPU", "memory": "memory"}.get(name, name)
    label = container.name or f"#{index}"
    was = container.resources.requests[name].text
    return Candidate(
        f"ask container {label} for at most {text} of {what} instead of {was}",
        f"{name} <= {text}",
        pod_change(pod, "resources", path, text),
        becomes(pod, made),
        more=(pod_change(pod, "resources", path.replace("/requests/", "/limits/"), text),) if limited else (),
    )


def _quantity(name: str, nano: int) -> Quantity:
    return Quantity(nano, Format.BINARY_SI if name in ("memory", "ephemeral-storage") else Format.DECIMAL_SI)


def _asking(pod: Pod, kind: str, index: int, requests: Mapping[str, Quantity]) -> Pod:
    containers = getattr(pod.spec, kind)
    resources = msgspec.structs.replace(containers[index].resources, requests=dict(requests))
    container = msgspec.structs.replace(containers[index], resources=resources)
    return _with_spec(pod, **{kind: replaced(containers, index, container)})


def _camel(kind: str) -> str:
    return "initContainers" if kind == "init_containers" else kind


def _extended(
    situation: Situation,
    kind: str,
    index: int,
    name: str,
    amount: Quantity,
    offered: Sequence[str],
    budget: QueryBudget,
) -> Families:
    """Fewer of an extended resource; or another one, where nobody offers it."""
    pod, units = situation.pod, amount.value()
    most = min(units - 1, UNITS)
    yield from _fewer(pod, kind, index, name, most)
    if name in offered:
        return
    found = [_other(pod, kind, index, name, other) for other in (yield from near(name, offered, budget))]
    if found:
        yield Family(0, found)


def _fewer(pod: Pod, kind: str, index: int, name: str, most: int) -> Families:
    if most > 0:
        yield Family(
            10, LazySequence(most, lambda at: _less(pod, kind, index, name, (most - at) * 10**9)), monotone=True
        )


def _other(pod: Pod, kind: str, index: int, name: str, other: str) -> Candidate:
    """The same amount of another resource."""
    resources = getattr(pod.spec, kind)[index].resources
    path = f"/spec/{_camel(kind)}/{index}/resources"
    requests = {other if key == name else key: amount for key, amount in resources.requests.items()}
    limits = {other if key == name else key: amount.text for key, amount in resources.limits.items()}
    change = pod_change(pod, "name", f"{path}/requests", {key: amount.text for key, amount in requests.items()})
    more = (pod_change(pod, "name", f"{path}/limits", limits),) if name in resources.limits else ()
    text = f"nothing offers {name}; did you mean {other}?"
    made = becomes(pod, _asking(pod, kind, index, requests))
    return Candidate(text, f"did you mean {other}?", change, made, more=more)


# --- nodes ------------------------------------------------------------------------------------------------------------


def _taints(situation: Situation, obstacles: Obstacles, budget: QueryBudget) -> Families:
    pod = situation.pod
    kinds: Counter[tuple[Taint, ...]] = Counter()
    cordoned: list[str] = []
    for name, found in obstacles.items():
        node = situation.node(name)
        if budget.must_yield(1 + (len(node.spec.taints) if node is not None else 0)):
            yield None
        if node is None or not found:
            continue
        if any(obstacle.rule == "cordoned" for obstacle in found):
            cordoned.append(name)
        taints = (taint for taint in node.spec.taints if taint.effect in KEEPING_AWAY)
        kept = tuple(
            taint for taint in taints if not situation.wants.tolerates(taint) and taint.key != UNSCHEDULABLE.key
        )
        if 0 < len(kept) <= TAINTS:
            kinds[kept] += 1
        elif kept:
            budget.complete = False
    if len(kinds) > VALUES or len(cordoned) > NODES:
        budget.complete = False
    if kinds:
        yield Family(20, [_tolerating(pod, taints) for taints, _ in kinds.most_common(VALUES)])
    if cordoned:
        made = (_uncordon(situation, name) for name in cordoned[:NODES])
        yield Family(22, [candidate for candidate in made if candidate is not None])


def _tolerating(pod: Pod, taints: Sequence[Taint]) -> Candidate:
    more = [
        Toleration(key=taint.key, operator="Equal" if taint.value else "Exists", value=taint.value, effect=taint.effect)
        for taint in taints
    ]
    tolerations = (*pod.spec.tolerations, *more)
    said = ", ".join(map(str, taints))
    change = pod_change(pod, "pod toleration", "/spec/tolerations", msgspec.to_builtins(list(tolerations)), "add")
    return Candidate(
        f"let the pod tolerate {said}",
        f"tolerate {said}",
        change,
        becomes(pod, _with_spec(pod, tolerations=tolerations)),
        {"tolerations": more},
    )


def _uncordon(situation: Situation, name: str) -> Candidate | None:
    node = situation.node(name)
    if node is None:  # gone since the last step
        return None
    taints = tuple(taint for taint in node.spec.taints if taint.key != UNSCHEDULABLE.key)
    spec = msgspec.structs.replace(node.spec, unschedulable=False, taints=taints)
    made = msgspec.structs.replace(node, spec=spec)
    change = Change(kind="uncordon", object="Node", name=name, path="/spec/unschedulable", value=False)
    return Candidate(f"kubectl uncordon {name}", f"uncordon {name}", change, lambda found: found.with_node(made))


def _labels(situation: Situation, budget: QueryBudget) -> Families:
    pod = situation.pod
    labels = yield from _known_labels(situation, budget)
    for key, value in pod.spec.node_selector.items():
        if budget.spent():
            break
        yield from _label(pod, key, value, labels, budget)
    if pod.spec.affinity is not None and pod.spec.affinity.node_affinity is not None:
        affinity: Affinity = msgspec.structs.replace(pod.spec.affinity, node_affinity=NodeAffinity())
        path = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution"
        change = pod_change(pod, "node affinity", path, None, "remove")
        made = _with_spec(pod, affinity=affinity)
        text = "drop the required node affinity"
        yield Family(24, [Candidate(text, "without node affinity", change, becomes(pod, made))])


def _known_labels(situation: Situation, budget: QueryBudget) -> Slices[Mapping[str, Mapping[str, None]]]:
    """The labels that nodes have, with the values of those that the pod selects by."""
    wanted = situation.pod.spec.node_selector
    found: dict[str, dict[str, None]] = {}
    for node in list(situation.view.cluster.nodes.values()):
        labels = node.metadata.labels
        if budget.must_yield(1 + len(labels) // 4):
            yield
        for key, value in labels.items():
            values = found.setdefault(key, {})
            if key in wanted:
                values[value] = None
    return found


def _label(pod: Pod, key: str, value: str, labels: Mapping[str, Mapping[str, None]], budget: QueryBudget) -> Families:
    """What helps against one label that the pod selects by."""
    rest = {name: wanted for name, wanted in pod.spec.node_selector.items() if name != key}
    values = labels.get(key, {})
    if budget.must_yield(CHANGE + (len(rest) + len(values)) // 4):
        yield None
    close = (yield from near(value, values, budget)) if value not in values else []
    keys = (yield from near(key, labels, budget)) if key not in labels else []
    misspelt = [({**rest, key: other}, f"{key}={value}", other) for other in close]
    misspelt += [({**rest, other: value}, key, other) for other in keys]
    if misspelt:
        yield Family(1, [_misspelt(pod, made, old, new) for made, old, new in misspelt])
    others = [other for other in values if other != value and other not in close]
    if len(others) > VALUES:
        budget.complete = False
    if others:
        chosen = others[:VALUES]
        yield Family(23, [_selecting(pod, {**rest, key: other}, f"nodeSelector {key}={other}") for other in chosen])
    yield Family(24, [_selecting(pod, rest, f"drop {key}={value} from the nodeSelector")])


def _misspelt(pod: Pod, selector: Mapping[str, str], old: str, new: str) -> Candidate:
    found = _selecting(pod, selector, f"nodeSelector {old}: did you mean {new}?")
    return found._replace(short=f"did you mean {new}?")


def _selecting(pod: Pod, selector: Mapping[str, str], text: str) -> Candidate:
    change = pod_change(pod, "node selector", "/spec/nodeSelector", dict(selector))
    return Candidate(text, text, change, becomes(pod, _with_spec(pod, node_selector=dict(selector))))
