"""Verified remedies: changes with which the pod fits, the smallest first.

Promises: hypothetical decisions have verified that with each remedy the pod fits the reported number of nodes. Each
kind of change is reported once, in its smallest form. If no single change helps, pairs of changes are tried. The budget
limits the work. If the budget ends the search early, `budget.complete` is False.

The commands of a remedy are in the order in which they have to run. A claim, a template and most of a pod cannot be
changed in place, so the commands delete and create the object again (`kubectl replace --force`). A pod that a
controller made is deleted, and its controller makes it again. There are no commands where the text of the remedy is
one, and where another person or component has to act, such as for a scheduling gate or a new node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import combinations, islice
from typing import Any, Final

from msgspec.structs import replace

from dra_extender.allocation.selectors import device_view
from dra_extender.api.core import Pod
from dra_extender.devices.models import DeviceModel
from dra_extender.insight.devicereport.listing import ClassMembers
from dra_extender.insight.snapshot import SimulatedPod
from dra_extender.insight.why import claimchanges, podchanges, selectorchanges, tenantchanges
from dra_extender.insight.why.candidates import (
    CandidateChange,
    ChangeList,
    ChangeLists,
    Fit,
    Order,
    as_yaml,
    changes_with,
    editable_claims,
    requests_of,
)
from dra_extender.insight.why.nodegroups import NodeGroups
from dra_extender.insight.why.report import Change, NodeGroup, Remedy
from dra_extender.plaintext import printable
from dra_extender.scheduling.turns import QueryBudget, Turns

MOST: Final = 8
"""Remedies that are reported at most."""
CLASSES: Final = 500
"""Of more classes, the drivers are not found."""
SELECTED: Final = 20_000
"""How often a class is compared with a device model, to find the drivers of the devices that each class selects."""
MODEL: Final = 10
"""Units of work to collect the words of one device model."""
ATTRIBUTE: Final = 2
"""Units of work per attribute or capacity of a device model."""
DEVICES: Final = 512
"""The vocabulary covers at most this number of devices per node, and of device models in total."""
CHANGE: Final = 20
"""Units of work to make a candidate."""
MADE: Final = 64
"""Candidates that are made of a list at most."""
TOGETHER: Final = 16
"""Pods or nodes that are named together at most."""
PAIRED: Final = 24
"""Changes that are tried in pairs at most."""

_KINDS: Final = {"Pod": "pod", "ResourceClaim": "resourceclaim", "ResourceClaimTemplate": "resourceclaimtemplate"}
_NONE: Final = frozenset(("gate", "claim made again", "node added", "uncordon", "gang size", "topology"))
"""Kinds of changes without commands."""


def remedies(nodes: NodeGroups, found: Sequence[NodeGroup], budget: QueryBudget) -> Turns[tuple[Remedy, ...]]:
    """At most one remedy of each list of candidates. If no list has one, the first pair of changes that helps."""
    lists: list[ChangeList] = []
    for tried in _candidates(nodes, found, budget):
        if tried is None:
            yield  # the generator may end its turn here
        elif tried.options:
            lists.append(tried)
            yield from budget.charge(CHANGE * min(len(tried.options), MADE))
        if budget.spent():
            break
    lists.sort(key=lambda each: each.order)
    helping: list[Remedy] = []
    for each in lists:
        if len(helping) >= MOST or budget.spent():
            break
        search = _fewest if each.several else _bisected if each.monotone else _first
        remedy = yield from search(nodes, each, budget)
        if remedy is not None:
            remedy = replace(remedy, weakens=each.order >= Order.COUNT)
        if remedy is not None and not any(remedy.changes == other.changes for other in helping):
            helping.append(remedy)
    if not helping:
        remedy = yield from _pair(nodes, lists, budget)
        helping.extend([remedy] if remedy is not None else [])
    return tuple(helping)


def _candidates(nodes: NodeGroups, found: Sequence[NodeGroup], budget: QueryBudget) -> ChangeLists:
    pod, known = nodes.pod, claimchanges.tallies(found)
    yield from budget.charge(sum(len(group.requests) for group in found))
    vocabulary, models = yield from _vocabulary(pod, found, budget)
    vocabulary.classes = yield from _drivers(pod, models, budget)
    for claim in editable_claims(pod):
        if claim.claim.allocation is not None:
            continue
        yield from claimchanges.of_claim(claim, known, vocabulary, budget)
        for request in requests_of(claim):
            tallies = known.get((claim.claim.metadata.key, request.name), ())
            yield from selectorchanges.of_selectors(request, tallies, vocabulary, budget)
    yield from claimchanges.of_names(pod, budget)
    yield from podchanges.of_pod(pod, nodes.obstacles, nodes.left, budget)
    yield from tenantchanges.of_others(pod, found, budget, nodes.joint is not None)


def _vocabulary(
    pod: SimulatedPod, found: Sequence[NodeGroup], budget: QueryBudget
) -> Turns[tuple[selectorchanges.Vocabulary, Iterable[DeviceModel]]]:
    """(the vocabulary of the devices on the groups' example nodes, the models of these devices)"""
    vocabulary, models = selectorchanges.Vocabulary(), dict[DeviceModel, None]()
    for group in found:
        values: dict[str, Any] = {}
        seen = pod.view.cluster.inventory.view(group.example or group.nodes[0])
        several = seen.devices[:DEVICES] if seen is not None else ()
        yield from budget.charge(1 + len(several))
        for device in several:
            if device.model in models:
                continue
            if len(models) >= DEVICES:
                return vocabulary, models
            models[device.model] = None
            traits = device.model.traits
            yield from budget.charge(MODEL + ATTRIBUTE * (len(traits.attributes) + len(traits.capacity)))
            view = device_view(device.model, pod.view.features)
            vocabulary.add(view)
            differing = (name for name, value in view.attributes.items() if values.setdefault(name, value) != value)
            vocabulary.differing.update(differing)
    return vocabulary, models


def _drivers(pod: SimulatedPod, models: Iterable[DeviceModel], budget: QueryBudget) -> Turns[Mapping[str, Set[str]]]:
    """By class: the drivers of the devices that it selects. Drivers are missing if the classes need too much work."""
    found: dict[str, set[str]] = {name: set() for name in sorted(pod.view.cluster.classes)}
    if len(found) > CLASSES:
        return found
    members = ClassMembers(pod.view)
    for model in islice(models, 1 + SELECTED // (1 + len(found))):
        yield from members.learn([model])
        for name in members.of(model):
            found[name].add(model.traits.driver)
        yield from budget.charge(1 + len(found))
    return found


def _first(nodes: NodeGroups, changes: ChangeList, budget: QueryBudget) -> Turns[Remedy | None]:
    """The first candidate that helps."""
    for option in changes.options:
        if budget.spent():
            return None
        if (remedy := (yield from _tried(nodes, [changes.make(option)], budget))) is not None:
            return remedy
    return None


def _bisected(nodes: NodeGroups, changes: ChangeList, budget: QueryBudget) -> Turns[Remedy | None]:
    """The first candidate that helps, by bisection. If any candidate helps, the last one does."""
    low, high = 0, len(changes.options) - 1
    best = yield from _tried(nodes, [changes.make(changes.options[high])], budget)
    while best is not None and low < high and not budget.spent():
        middle = (low + high) // 2
        remedy = yield from _tried(nodes, [changes.make(changes.options[middle])], budget)
        if remedy is None:
            low = middle + 1
        else:
            high, best = middle, remedy
    return best


def _fewest(nodes: NodeGroups, changes: ChangeList, budget: QueryBudget) -> Turns[Remedy | None]:
    """The first candidate that helps; or the fewest of the first candidates that help together, without unnecessary
    ones. A gang may need several of a kind, so these are tried together at once.
    """
    if nodes.joint is None and (alone := (yield from _first(nodes, changes, budget))) is not None:
        return alone
    joined, candidates = tenantchanges.joined, changes.options
    counts = range(1, len(candidates) + 1)
    prefixes = changes._replace(options=counts, make=lambda count: joined(candidates[:count]))
    remedy = yield from _bisected(nodes, prefixes, budget)
    chosen = list(candidates[: len(remedy.changes)]) if remedy is not None else []
    for each in chosen[:-1]:
        fewer = [other for other in chosen if other is not each]
        if budget.spent():
            break
        if (better := (yield from _tried(nodes, [joined(fewer)], budget))) is not None:
            chosen, remedy = fewer, better
    return remedy if len(chosen) <= TOGETHER else None


def _pair(nodes: NodeGroups, lists: Sequence[ChangeList], budget: QueryBudget) -> Turns[Remedy | None]:
    """The first pair of changes that helps. A pair has the smallest or the largest change of each of two lists."""
    ends: list[tuple[int, CandidateChange]] = []
    for number, each in enumerate(lists[:PAIRED]):
        ends.append((number, each.make(each.options[0])))
        if len(each.options) > 1:
            ends.append((number, each.make(each.options[-1])))
    pairs = combinations(ends[:PAIRED], 2)
    for (number, first), (other, second) in sorted(pairs, key=lambda pair: pair[0][0] + pair[1][0]):
        if number == other or _is_in_conflict(first.changes[0], second.changes[0]):
            continue
        if budget.spent():
            return None
        remedy = yield from _tried(nodes, [first, second], budget)
        if remedy is not None:
            return replace(remedy, weakens=max(lists[number].order, lists[other].order) >= Order.COUNT)
    return None


def _is_in_conflict(first: Change, second: Change) -> bool:
    """True when both set one field, or one removes an item of a list and the other changes the list."""
    lists = [change.path.rpartition("/")[0] for change in (first, second) if change.op == "remove"]
    return first.path == second.path or any(f"{place}/" in first.path and f"{place}/" in second.path for place in lists)


def _tried(nodes: NodeGroups, candidates: Sequence[CandidateChange], budget: QueryBudget) -> Turns[Remedy | None]:
    """These changes together; None if the pod does not fit with them."""
    found: Fit | None
    if nodes.joint is not None:
        found = yield from nodes.joint(candidates, nodes.pod.pod, budget)
    else:
        changed = nodes.pod
        for candidate in candidates:
            changed = candidate.apply(changed)
        found = yield from nodes.fit(changed, budget, candidates[0].only if len(candidates) == 1 else ())
        yield
    if found is None:
        return None
    changes = tuple(change for candidate in candidates for change in candidate.changes)
    fragments = ((each.changes[0], each.fragment) for each in candidates if each.fragment is not None)
    return Remedy(
        text=_together([candidate.text for candidate in candidates]),
        short=" and ".join(candidate.short for candidate in candidates),
        changes=changes,
        nodes=found.nodes,
        example=found.example,
        yaml="\n".join(f"# in {place(change)}\n{as_yaml(fragment)}" for change, fragment in fragments),
        commands=commands((nodes.pod.pod, *nodes.mates), changes),
        pods=found.pods,
    )


def _together(texts: Sequence[str]) -> str:
    """As one text. A question ends its sentence."""
    found = texts[0]
    for text in texts[1:]:
        found += f"{' Also needed: ' if found.endswith('?') else '; also needed: '}{text}"
    return found


def commands(pods: Sequence[Pod], changes: Sequence[Change]) -> tuple[str, ...]:
    """The commands for the changes of the pod and of other objects; empty if one of the changes has no command. `pods`:
    the pod, and those of its gang that change with it.
    """
    if len(pods) > MOST or any(change.kind in _NONE or change.object not in _KINDS for change in changes):
        return ()
    lines = dict.fromkeys(line for change in changes for line in _of_change(change))
    first = pods[0]
    concerned = [(pod, each) for pod in pods for each in changes if pod is first or changes_with(pod, first, each)]
    again = dict.fromkeys(line for pod, each in concerned for line in _of_pod(pod, each))
    return (*lines, *again)


def _of_change(change: Change) -> Iterator[str]:
    if change.op == "delete":
        yield f"kubectl delete {_named(change)}"
    elif change.object != "Pod" and change.op != "wait":
        yield from _edited(_named(change), change.name)


def _of_pod(pod: Pod, change: Change) -> Iterator[str]:
    """A pod takes its claims from the changed template when it is made again."""
    if change.op in ("wait", "delete") or change.object not in ("Pod", "ResourceClaimTemplate"):
        return
    meta = pod.metadata
    named, controller = f"pod {meta.name} -n {meta.namespace}", meta.controller
    if controller is None and change.object == "Pod":
        yield from _edited(named, meta.name)
    elif controller is None:
        yield f"kubectl get {named} -o yaml > {meta.name}.yaml"
        yield f"kubectl replace --force -f {meta.name}.yaml"
    else:
        if change.object == "Pod":
            owner = printable(f"{controller.kind} {controller.name}")
            yield f"# make the change in the pod template of {owner}, or of its owner"
        yield f"kubectl delete {named}"


def _edited(named: str, name: str) -> Iterator[str]:
    yield f"kubectl get {named} -o yaml > {name}.yaml"
    yield f"# make the change in {name}.yaml"
    yield f"kubectl replace --force -f {name}.yaml"


def _named(change: Change) -> str:
    return f"{_KINDS[change.object]} {change.name} -n {change.namespace}"


def place(change: Change) -> str:
    """Where in the manifest a field is, such as "spec.devices.requests[0].exactly of resourceclaim c"."""
    parts = change.path.split("/")[1:-1]
    path = "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in parts).removeprefix(".")
    return f"{path} of {_KINDS.get(change.object, change.object)} {change.name}"
