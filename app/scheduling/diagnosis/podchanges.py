"""Changes of the pod itself, or of a node, that may help: names, room, labels, taints, gates.

Promises: only what the pod, the nodes and the names that are known suggest; whether it helps is decided by who asks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches

import msgspec

from app.api.core import Affinity, NodeAffinity, Pod, Taint, Toleration
from app.api.quantity import Format, Quantity
from app.api.resource import EXTENDED_RESOURCE_CLASS_PREFIX
from app.scheduling.diagnosis.edits import Candidate, Family, as_yaml, becomes, pod_change, replaced
from app.scheduling.diagnosis.report import Change
from app.scheduling.diagnosis.situation import Situation
from app.scheduling.noderules import KEEPING_AWAY, UNSCHEDULABLE, Obstacle, amount_text, taint_text

AMOUNTS = 16
VALUES = 8
NODES = 8

Obstacles = Mapping[str, tuple[Obstacle, ...]]
"""By node."""


def of_pod(situation: Situation, obstacles: Obstacles, left: Mapping[str, Collection[int]]) -> Iterator[Family]:
    """All families. `left`: per resource what nodes have left, in nano units."""
    yield from _gates(situation)
    yield from _names(situation)
    present = {found.rule for each in obstacles.values() for found in each}
    yield from _resources(situation, left)
    if present & {"node taint", "cordoned"}:
        yield from _taints(situation, obstacles)
    if present & {"node selector", "node affinity"}:
        yield from _labels(situation)


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
    served = situation.view.limits.scheduler_names
    if served and (pod.spec.scheduler_name or "default-scheduler") not in served:
        near = get_close_matches(pod.spec.scheduler_name, sorted(served), len(served), 0.0)
        yield Family(0, [_scheduler(pod, name) for name in near])


def _scheduler(pod: Pod, name: str) -> Candidate:
    change = pod_change(pod, "scheduler", "/spec/schedulerName", name)
    return Candidate(
        f"schedulerName: {name}", f"schedulerName {name}", change, becomes(pod, _with_spec(pod, scheduler_name=name))
    )


def _names(situation: Situation) -> Iterator[Family]:
    """A claim that does not exist may be another one that does."""
    pod = situation.pod
    namespace = pod.metadata.namespace
    claims = situation.view.ledger.claims()
    known = sorted(c.metadata.name for c in claims if c.metadata.namespace == namespace and not c.metadata.controller)
    for index, entry in enumerate(pod.spec.resource_claims):
        name = entry.resource_claim_name
        if not name or situation.claim(namespace, name) is not None:
            continue
        found: list[Candidate] = []
        for other in get_close_matches(name, known, 3):
            entries = replaced(
                pod.spec.resource_claims, index, msgspec.structs.replace(entry, resource_claim_name=other)
            )
            change = pod_change(pod, "name", f"/spec/resourceClaims/{index}/resourceClaimName", other)
            text = f"claim {name} does not exist; did you mean {other}?"
            made = _with_spec(pod, resource_claims=entries)
            found.append(Candidate(text, f"did you mean {other}?", change, becomes(pod, made)))
        if found:
            yield Family(0, found)


# --- room -------------------------------------------------------------------------------------------------------------


def _resources(situation: Situation, left: Mapping[str, Collection[int]]) -> Iterator[Family]:
    """Less of each resource that a container asks for, down to what some node has left; and other names for it."""
    free = {name: sorted(amounts, reverse=True) for name, amounts in left.items()}
    for kind in ("containers", "init_containers"):
        for index, container in enumerate(getattr(situation.pod.spec, kind)):
            for name, amount in container.resources.requests.items():
                if amount.nano <= 0:
                    continue
                if "/" in name:
                    yield from _extended(situation, kind, index, name, amount)
                short = situation.wants.amounts.get(name, 0)
                lefts = [amount.nano - (short - most) for most in free.get(name, ())]
                less = [_less(situation.pod, kind, index, name, nano) for nano in lefts if 0 < nano < amount.nano]
                if less:
                    yield Family(12, less[:AMOUNTS], monotone=True)


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


def _extended(situation: Situation, kind: str, index: int, name: str, amount: Quantity) -> Iterator[Family]:
    """Fewer of an extended resource; or another one, where nobody offers it."""
    pod, cluster = situation.pod, situation.view.cluster
    units = amount.value()
    fewer = [_less(pod, kind, index, name, count * 10**9) for count in range(min(units - 1, 64), 0, -1)]
    if fewer:
        yield Family(10, fewer, monotone=True)
    offered = {item.spec.extended_resource_name or "" for item in cluster.classes.values()} - {""}
    offered |= {resource for node in cluster.nodes.values() for resource in node.status.allocatable if "/" in resource}
    offered |= {EXTENDED_RESOURCE_CLASS_PREFIX + known for known in cluster.classes}
    if name in offered:
        return
    found = [_other(pod, kind, index, name, other) for other in get_close_matches(name, sorted(offered), 3)]
    if found:
        yield Family(0, found)


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


def _taints(situation: Situation, obstacles: Obstacles) -> Iterator[Family]:
    pod = situation.pod
    kinds: Counter[tuple[Taint, ...]] = Counter()
    cordoned: list[str] = []
    for name, found in obstacles.items():
        node = situation.node(name)
        if node is None or not found:
            continue
        if any(obstacle.rule == "cordoned" for obstacle in found):
            cordoned.append(name)
        taints = (taint for taint in node.spec.taints if taint.effect in KEEPING_AWAY)
        kept = tuple(
            taint for taint in taints if not situation.wants.tolerates(taint) and taint.key != UNSCHEDULABLE.key
        )
        if kept:
            kinds[kept] += 1
    if kinds:
        yield Family(20, [_tolerating(pod, taints) for taints, _ in kinds.most_common(VALUES)])
    if cordoned:
        yield Family(22, [_uncordon(situation, name) for name in cordoned[:NODES]])


def _tolerating(pod: Pod, taints: Sequence[Taint]) -> Candidate:
    more = [
        Toleration(key=taint.key, operator="Equal" if taint.value else "Exists", value=taint.value, effect=taint.effect)
        for taint in taints
    ]
    tolerations = (*pod.spec.tolerations, *more)
    said = ", ".join(map(taint_text, taints))
    change = pod_change(pod, "pod toleration", "/spec/tolerations", msgspec.to_builtins(list(tolerations)), "add")
    return Candidate(
        f"let the pod tolerate {said}",
        f"tolerate {said}",
        change,
        becomes(pod, _with_spec(pod, tolerations=tolerations)),
        as_yaml({"tolerations": more}),
    )


def _uncordon(situation: Situation, name: str) -> Candidate:
    node = situation.node(name)
    assert node is not None, name
    taints = tuple(taint for taint in node.spec.taints if taint.key != UNSCHEDULABLE.key)
    spec = msgspec.structs.replace(node.spec, unschedulable=False, taints=taints)
    made = msgspec.structs.replace(node, spec=spec)
    change = Change(kind="uncordon", object="Node", name=name, path="/spec/unschedulable", value=False)
    return Candidate(f"kubectl uncordon {name}", f"uncordon {name}", change, lambda found: found.with_node(made))


def _labels(situation: Situation) -> Iterator[Family]:
    pod = situation.pod
    selector = pod.spec.node_selector
    labels: dict[str, dict[str, None]] = {}
    for node in situation.view.cluster.nodes.values():
        for key, value in node.metadata.labels.items():
            labels.setdefault(key, {})[value] = None
    for key, value in selector.items():
        rest = {name: wanted for name, wanted in selector.items() if name != key}
        values = list(labels.get(key, ()))
        near = get_close_matches(value, values, 3) if value not in values else []
        keys = get_close_matches(key, list(labels), 3) if key not in labels else []
        misspelt = [({**rest, key: other}, f"{key}={value}", other) for other in near if other != value]
        misspelt += [({**rest, other: value}, key, other) for other in keys]
        if misspelt:
            yield Family(1, [_misspelt(pod, made, old, new) for made, old, new in misspelt])
        others = [other for other in values if other != value and other not in near][:VALUES]
        if others:
            yield Family(23, [_selecting(pod, {**rest, key: other}, f"nodeSelector {key}={other}") for other in others])
        yield Family(24, [_selecting(pod, rest, f"drop {key}={value} from the nodeSelector")])
    if pod.spec.affinity is not None and pod.spec.affinity.node_affinity is not None:
        affinity: Affinity = msgspec.structs.replace(pod.spec.affinity, node_affinity=NodeAffinity())
        path = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution"
        change = pod_change(pod, "node affinity", path, None, "remove")
        made = _with_spec(pod, affinity=affinity)
        text = "drop the required node affinity"
        yield Family(24, [Candidate(text, "without node affinity", change, becomes(pod, made))])


def _misspelt(pod: Pod, selector: Mapping[str, str], old: str, new: str) -> Candidate:
    found = _selecting(pod, selector, f"nodeSelector {old}: did you mean {new}?")
    return found._replace(short=f"did you mean {new}?")


def _selecting(pod: Pod, selector: Mapping[str, str], text: str) -> Candidate:
    change = pod_change(pod, "node selector", "/spec/nodeSelector", dict(selector))
    return Candidate(text, text, change, becomes(pod, _with_spec(pod, node_selector=dict(selector))))
