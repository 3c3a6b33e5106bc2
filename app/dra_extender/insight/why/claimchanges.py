"""Changes of a pod's claims: fewer devices, less capacity, a toleration, another class, constraint or name.

Promises: all changes are derived from the claims and the devices. `remedies` verifies whether a change helps.
Suggests only names that exist. It finds templates through the pods whose claims were created from them, so the service
needs no permission to read templates.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from itertools import islice
from typing import Final

from msgspec.structs import replace

from dra_extender.allocation.tally import RequestTally
from dra_extender.api.core import Pod, PodResourceClaim, PodResourceClaimStatus, taint_text
from dra_extender.api.decoding import to_builtins
from dra_extender.api.quantity import Quantity
from dra_extender.api.resource import (
    MAX_RESULTS,
    MAX_TOLERATIONS,
    DeviceToleration,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimStatus,
)
from dra_extender.insight.manifests import claim_from_template
from dra_extender.insight.snapshot import SimulatedPod
from dra_extender.insight.why.candidates import (
    CandidateChange,
    ChangeList,
    ChangeLists,
    EditableClaim,
    EditableRequest,
    Order,
    near,
    object_change,
    pod_edit,
    requests_of,
)
from dra_extender.insight.why.report import NodeGroup
from dra_extender.insight.why.selectorchanges import Vocabulary
from dra_extender.plaintext import counted
from dra_extender.scheduling.claims import created_names
from dra_extender.scheduling.turns import LazySequence, QueryBudget, Turns

CLASSES = 8
ATTRIBUTES = 12
AGAIN: Final = "-again"
AMOUNTS = 16
HALVED: Final = 6
"""How often a requested amount is halved."""
TAINTS = 64
"""Sets of taints that are tried at most."""
REQUEST: Final = 50
"""Units of work per request."""
CHANGE: Final = 20
"""Units of work per change of a request."""

Tallies = Mapping[tuple[str, str], Sequence[RequestTally]]
"""By claim (namespace/name) and request: the tallies of the nodes."""


def tallies(groups: Sequence[NodeGroup]) -> Tallies:
    found: dict[tuple[str, str], list[RequestTally]] = {}
    for group in groups:
        for request in group.requests:
            found.setdefault((request.tally.claim, request.tally.request), []).append(request.tally)
    return found


def of_claim(editable: EditableClaim, known: Tallies, names: Vocabulary, budget: QueryBudget) -> ChangeLists:
    """All changes of one claim, except those of its selectors."""
    for request in requests_of(editable):
        found = known.get((editable.claim.metadata.key, request.name), ())
        yield from budget.charge(REQUEST + len(found) + (MAX_RESULTS + len(request.source.tolerations)) * CHANGE)
        yield from _counts(request, found)
        yield from _capacities(request, found, names.capacities, budget)
        yield from _tolerations(request, found, budget)
        yield from _classes(request, names.classes, budget)
    yield from _constraints(editable, names, budget)


def _counts(request: EditableRequest, found: Sequence[RequestTally]) -> Iterator[ChangeList]:
    most = request.source.count - 1
    if request.source.allocation_mode == "All":
        most = max((tally.offered for tally in found), default=0)
    candidates = [_count(request, count) for count in range(min(most, MAX_RESULTS), 0, -1)]
    yield ChangeList(Order.COUNT, candidates, monotone=request.alternative is None)


def _count(request: EditableRequest, count: int) -> CandidateChange:
    source = request.source
    if source.allocation_mode == "All":
        text = f"request {counted(count, 'device')} instead of all in {request.label}"
        written = to_builtins(source) | {"allocationMode": "ExactCount", "count": count}
        return request.edit("count", "", written, text, f"{count} instead of all")
    text = f"request at most {counted(count, 'device')} instead of {source.count} in {request.label}"
    return request.edit("count", "/count", count, text, f"count <= {count}")


def _capacities(
    request: EditableRequest, found: Sequence[RequestTally], known: Collection[str], budget: QueryBudget
) -> ChangeLists:
    asked = request.source.capacity.requests if request.source.capacity is not None else {}
    for name, amount in asked.items():
        yield from budget.charge(sum(len(tally.capacities) for tally in found) + 3 * AMOUNTS * CHANGE)
        offered = [capacity for tally in found for capacity in tally.capacities if capacity.name == name]
        texts = dict.fromkeys(text for capacity in offered for text in capacity.amounts)
        parts = (Quantity(amount.nano >> halved, amount.format) for halved in range(1, HALVED))
        whole = {part for part in parts if part.nano % 10**9 == 0}  # where a policy rounds up what devices have left
        amounts = sorted({Quantity.parse(text) for text in texts} | {Quantity.parse("1")} | whole, reverse=True)
        less = [_capacity(request, name, amount, other) for other in amounts if 0 < other.nano < amount.nano]
        yield ChangeList(Order.CAPACITY, less[-AMOUNTS:], monotone=request.alternative is None)
        others = [other for other in known if other not in asked] if name not in known else []
        for other in (yield from near(name, others, budget, 2)):
            yield ChangeList(Order.NAME, [_renamed(request, name, other)])
        yield ChangeList(Order.NO_CAPACITY, [_renamed(request, name, "")])


def _capacity(request: EditableRequest, name: str, before: Quantity, amount: Quantity) -> CandidateChange:
    text = f"request at most {amount.text} of {name} instead of {before.text} in {request.label}"
    path = f"/capacity/requests/{name.replace('~', '~0').replace('/', '~1')}"
    return request.edit("capacity", path, amount.text, text, f"{name} <= {amount.text}")


def _renamed(request: EditableRequest, name: str, other: str) -> CandidateChange:
    """The capacity under another name; removed if `other` is empty."""
    asked = dict(request.source.capacity.requests) if request.source.capacity is not None else {}
    amount = asked.pop(name)
    if other:
        asked[other] = amount
    short = f"capacity {name}: did you mean {other}?" if other else f"remove capacity {name} from {request.label}"
    text = f"{request.label}: {short}" if other else short
    written = {key: value.text for key, value in asked.items()}
    return request.edit("capacity", "/capacity/requests", written, text, short)


def _tolerations(request: EditableRequest, found: Sequence[RequestTally], budget: QueryBudget) -> ChangeLists:
    """Tolerations of one taint first, then of all taints that a tally has. Small sets come before large ones."""
    sets: dict[tuple[tuple[str, str, str], ...], None] = {}
    for tally in found:
        if tally.taints:
            sets[tuple((taint.key, taint.value, taint.effect) for taint in tally.taints)] = None
        yield from budget.charge(1 + len(tally.taints))
    room = MAX_TOLERATIONS - len(request.source.tolerations)
    several = sorted((taints for taints in sets if 1 < len(taints) <= room), key=len)
    singles = dict.fromkeys((taint,) for taints in sets for taint in taints if room > 0)
    chosen = (*islice(singles, TAINTS), *several[:TAINTS])
    if len(chosen) < len(singles) + len(several):
        budget.complete = False
    made = LazySequence(len(chosen), lambda index: _toleration(request, chosen[index]))
    yield ChangeList(Order.DEVICE_TOLERATION, made)


def _toleration(request: EditableRequest, taints: Sequence[tuple[str, str, str]]) -> CandidateChange:
    more = [
        DeviceToleration(key=key, operator="Equal" if value else "Exists", value=value, effect=effect)
        for key, value, effect in taints
    ]
    shown = ", ".join(taint_text(*taint) for taint in taints)
    alike = (each for each in request.source.tolerations if any(each.key == key for key, _, _ in taints))
    present = ", ".join(taint_text(each.key, each.value, each.effect).rstrip(":") for each in alike)
    text = f"add a toleration of {shown} to {request.label}{present and f' (it already tolerates {present})'}"
    tolerations = to_builtins([*request.source.tolerations, *more])
    return request.edit(
        "toleration", "/tolerations", tolerations, text, f"tolerate {shown}", "add", {"tolerations": more}
    )


def _classes(request: EditableRequest, known: Mapping[str, Set[str]], budget: QueryBudget) -> ChangeLists:
    """Other classes that may select devices of the same driver. A class without known drivers may select any device."""
    now = request.source.device_class_name
    drivers = known.get(now)
    classes: list[str] = []
    for name, found in known.items():
        yield from budget.charge(1)
        if name != now and (not drivers or not found or found & drivers):
            classes.append(name)
    close = yield from near(now, classes, budget, CLASSES)
    yield from budget.charge(CLASSES * CHANGE + len(classes) // 4)
    misspelt = close if now not in known else []
    yield ChangeList(Order.MISTAKE, [_class(request, name, near=True) for name in misspelt])
    rest = [name for name in dict.fromkeys((*close, *classes)) if name not in misspelt]
    if len(rest) > CLASSES:
        budget.complete = False
    yield ChangeList(Order.CLASS, [_class(request, name, near=False) for name in rest[:CLASSES]])


def _class(request: EditableRequest, name: str, *, near: bool) -> CandidateChange:
    now = request.source.device_class_name
    short = f"did you mean class {name}?" if near else f"class {name}"
    text = f"use class {name} instead of {now} in {request.label}"
    return request.edit("class", "/deviceClassName", name, text, short)


def _constraints(editable: EditableClaim, known: Vocabulary, budget: QueryBudget) -> ChangeLists:
    for index, constraint in enumerate(editable.claim.spec.devices.constraints):
        kind = "matchAttribute" if constraint.match_attribute else "distinctAttribute"
        now = constraint.match_attribute or constraint.distinct_attribute or ""
        path, where = f"/devices/constraints/{index}", f"claim {editable.entry}"
        close = yield from near(now, known.attributes, budget)
        useful = known.differing if now in known.attributes else {*close, *known.differing}
        yield from budget.charge(ATTRIBUTES * CHANGE)
        candidates = [
            editable.edit(
                "constraint", f"{path}/{kind}", name, f"use {kind} {name} instead of {now} in {where}", f"{kind} {name}"
            )
            for name in islice(dict.fromkeys((*close, *known.attributes)), ATTRIBUTES)
            if name != now and name in useful
        ]
        yield ChangeList(Order.CONSTRAINT, candidates)
        text, short = f"remove {kind} {now} from {where}", f"without {kind} {now}"
        yield ChangeList(Order.NO_CONSTRAINT, [editable.edit("constraint", path, None, text, short, "remove")])


def of_names(found: SimulatedPod, budget: QueryBudget) -> ChangeLists:
    """All changes of the names by which a pod refers to its claims, and of claims that are being deleted."""
    yield from _claims(found, budget)
    yield from _templates(found, budget)
    yield from _deleted(found, budget)


def _claims(found: SimulatedPod, budget: QueryBudget) -> ChangeLists:
    """For a claim that does not exist, claims with a similar name."""
    pod = found.pod
    missing = [
        (index, entry.resource_claim_name)
        for index, entry in enumerate(pod.spec.resource_claims)
        if entry.resource_claim_name and found.claim(entry.resource_claim_name) is None
    ]
    yield from budget.charge(len(pod.spec.resource_claims))
    known = (yield from _claim_names(found, budget)) if missing else []
    for index, name in missing:
        path = f"/resourceClaims/{index}/resourceClaimName"
        close = yield from near(name, known, budget)
        yield ChangeList(
            Order.MISTAKE, [_meant(pod, path, other, f"claim {other} instead of {name}") for other in close]
        )


def _meant(pod: Pod, path: str, other: str, change: str) -> CandidateChange:
    return pod_edit(pod, "name", path, other, f"use {change} in the pod", f"did you mean {other}?")


def _claim_names(found: SimulatedPod, budget: QueryBudget) -> Turns[list[str]]:
    """The names of the claims in the pod's namespace that no controller created."""
    namespace = found.pod.metadata.namespace
    names: list[str] = []
    for claim in list(found.view.ledger.claims()):
        yield from budget.charge(1)
        if claim.metadata.namespace == namespace and not claim.metadata.controller:
            names.append(claim.metadata.name)
    return sorted(names)


def _templates(found: SimulatedPod, budget: QueryBudget) -> ChangeLists:
    """For a template without a claim, templates with a similar name."""
    pod = found.pod
    created = created_names(pod)
    missing = [
        (index, entry, entry.resource_claim_template_name)
        for index, entry in enumerate(pod.spec.resource_claims)
        if entry.resource_claim_template_name and not entry.resource_claim_name and entry.name not in created
    ]
    yield from budget.charge(len(pod.spec.resource_claims))
    known = (yield from _known_templates(found, budget)) if missing else {}
    for index, entry, name in missing:
        close = (yield from near(name, known, budget)) if name not in known else []
        yield ChangeList(Order.MISTAKE, [_template(pod, index, entry, other, known[other]) for other in close])


def _known_templates(found: SimulatedPod, budget: QueryBudget) -> Turns[Mapping[str, ResourceClaimSpec]]:
    """The templates from which claims of pods in the namespace were created."""
    namespace, ledger = found.pod.metadata.namespace, found.view.ledger
    known: dict[str, ResourceClaimSpec] = {}
    for pod in list(found.view.pods):
        yield from budget.charge(1 + len(pod.spec.resource_claims))
        if pod.metadata.namespace != namespace or not pod.spec.resource_claims:
            continue
        created = created_names(pod)
        for entry in pod.spec.resource_claims:
            template, made = entry.resource_claim_template_name, created.get(entry.name)
            claim = ledger.get(namespace, made) if template and made else None
            if template and claim is not None:
                known[template] = claim.spec
    return known


def _template(pod: Pod, index: int, entry: PodResourceClaim, other: str, spec: ResourceClaimSpec) -> CandidateChange:
    claim = claim_from_template(pod.metadata, entry.name, spec)
    path = f"/resourceClaims/{index}/resourceClaimTemplateName"
    meant = _meant(pod, path, other, f"template {other} instead of {entry.resource_claim_template_name}")

    def apply(simulated: SimulatedPod) -> SimulatedPod:
        after = meant.apply(simulated.on(simulated.snapshot.with_claim(claim)))
        statuses = (*pod.status.resource_claim_statuses, PodResourceClaimStatus(entry.name, claim.metadata.name))
        return after.with_pod(replace(after.pod, status=replace(pod.status, resource_claim_statuses=statuses)))

    return meant._replace(apply=apply)


def _deleted(found: SimulatedPod, budget: QueryBudget) -> ChangeLists:
    """Create a claim again after its deletion ends."""
    for entry in found.pod.spec.resource_claims:
        yield from budget.charge(1)
        claim = found.claim(entry.resource_claim_name) if entry.resource_claim_name else None
        if claim is not None and claim.metadata.deletion_timestamp:
            yield ChangeList(Order.CLAIM_AGAIN, [_again(claim)])


def _again(claim: ResourceClaim) -> CandidateChange:
    meta = claim.metadata
    fresh = replace(meta, uid=meta.uid + AGAIN, deletion_timestamp=None)
    made = replace(claim, metadata=fresh, status=ResourceClaimStatus())
    value = {"spec": to_builtins(claim.spec)}
    change = object_change("claim made again", "ResourceClaim", meta, value=value, op="create")
    text = f"create claim {meta.name} again after it is deleted"
    return CandidateChange(
        text, text, change, lambda found: found.on(found.snapshot.without_claim(claim).with_claim(made))
    )
