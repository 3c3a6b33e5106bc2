"""Changes of a pod's claims: fewer devices, less capacity, a toleration, another class, constraint or name.

Promises: all changes are derived from the claims and the devices. `remedies` verifies whether a change helps.
Suggests only names that exist. It finds templates through the pods whose claims were created from them, so the service
needs no permission to read templates.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from functools import partial
from itertools import islice
from typing import Final, Literal

from dra_extender.allocation.tally import RequestTally
from dra_extender.api.core import Pod, taint_text
from dra_extender.api.decoding import to_builtins
from dra_extender.api.quantity import Quantity
from dra_extender.api.resource import (
    MAX_RESULTS,
    MAX_TOLERATIONS,
    ResourceClaimSpec,
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
    editable_pod,
    near,
    object_change,
    requests_of,
    tolerating,
)
from dra_extender.insight.why.report import NodeGroup
from dra_extender.insight.why.selectorchanges import Vocabulary
from dra_extender.plaintext import counted
from dra_extender.scheduling.claims import created_names
from dra_extender.scheduling.turns import QueryBudget, Turns

CLASSES = 8
ATTRIBUTES = 12
AMOUNTS = 16
HALVED: Final = 6
"""How often a requested amount is halved."""
TAINTS = 64
"""Sets of taints that are tried at most."""
REQUEST: Final = 50
"""Units of work per request."""

Tallies = Mapping[tuple[str, str], Sequence[RequestTally]]
"""By claim (namespace/name) and request: the tallies of the nodes."""


def tallies(groups: Sequence[NodeGroup]) -> Tallies:
    found: dict[tuple[str, str], list[RequestTally]] = {}
    for group in groups:
        for request in group.requests:
            found.setdefault((request.tally.claim, request.tally.request), []).append(request.tally)
    return found


def of_claim(claim: EditableClaim, known: Tallies, names: Vocabulary, budget: QueryBudget) -> ChangeLists:
    """All changes of one claim, except those of its selectors."""
    for request in requests_of(claim):
        found = known.get((claim.claim.metadata.key, request.name), ())
        yield from budget.charge(REQUEST + len(found))
        yield _counts(request, found)
        yield from _capacities(request, found, names.capacities, budget)
        yield from _tolerations(request, found, budget)
        yield from _classes(request, names.classes, budget)
    yield from _constraints(claim, names, budget)


def _counts(request: EditableRequest, found: Sequence[RequestTally]) -> ChangeList:
    source, part = request.source, request.part
    every = source.allocation_mode == "All"
    most = max((tally.offered for tally in found), default=0) if every else source.count - 1
    candidates: list[CandidateChange] = []
    for count in range(min(most, MAX_RESULTS), 0, -1):
        devices = counted(count, "device")
        if every:
            written = to_builtins(source) | {"allocationMode": "ExactCount", "count": count}
            text, short = f"request {devices} instead of all in {part.label}", f"{count} instead of all"
            candidates.append(part.edit("count", "", written, text, short))
        else:
            text = f"request at most {devices} instead of {source.count} in {part.label}"
            candidates.append(part.edit("count", "/count", count, text, f"count <= {count}"))
    return ChangeList(Order.COUNT, candidates, monotone=not request.alternative)


def _capacities(
    request: EditableRequest, found: Sequence[RequestTally], known: Collection[str], budget: QueryBudget
) -> ChangeLists:
    part = request.part
    asked = request.source.capacity.requests if request.source.capacity is not None else {}
    for name, amount in asked.items():
        yield from budget.charge(sum(len(tally.capacities) for tally in found))
        path = f"/capacity/requests/{name.replace('~', '~0').replace('/', '~1')}"
        less = [
            part.edit(
                "capacity",
                path,
                other.text,
                f"request at most {other.text} of {name} instead of {amount.text} in {part.label}",
                f"{name} <= {other.text}",
            )
            for other in _smaller(name, amount, found)
        ]
        yield ChangeList(Order.CAPACITY, less, monotone=not request.alternative)
        rest = {key: value.text for key, value in asked.items() if key != name}
        others = [other for other in known if other not in asked] if name not in known else []
        for other in (yield from near(name, others, budget, 2)):
            short = f"capacity {name}: did you mean {other}?"
            written = rest | {other: amount.text}
            meant = part.edit("capacity", "/capacity/requests", written, f"{part.label}: {short}", short)
            yield ChangeList(Order.NAME, [meant])
        text = f"remove capacity {name} from {part.label}"
        yield ChangeList(Order.NO_CAPACITY, [part.edit("capacity", "/capacity/requests", rest, text)])


def _smaller(name: str, asked: Quantity, found: Sequence[RequestTally]) -> Sequence[Quantity]:
    """Amounts that devices have left, and parts of the requested amount; the largest first."""
    offered = (capacity for tally in found for capacity in tally.capacities if capacity.name == name)
    amounts = {Quantity.parse(text) for text in ("1", *(text for capacity in offered for text in capacity.amounts))}
    parts = (Quantity(asked.nano >> halved, asked.format) for halved in range(1, HALVED))
    amounts.update(part for part in parts if part.nano % 10**9 == 0)  # a policy may round up what devices have left
    return sorted((amount for amount in amounts if 0 < amount.nano < asked.nano), reverse=True)[-AMOUNTS:]


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
    yield ChangeList(Order.DEVICE_TOLERATION, chosen, partial(_toleration, request))


def _toleration(request: EditableRequest, taints: Sequence[tuple[str, str, str]]) -> CandidateChange:
    now, keys = request.source.tolerations, {key for key, _, _ in taints}
    alike = (taint_text(each.key, each.value, each.effect).rstrip(":") for each in now if each.key in keys)
    present = ", ".join(alike)
    return tolerating(request.part, now, taints, present and f" (it already tolerates {present})")


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
    yield from budget.charge(len(classes) // 4)
    misspelt = close if now not in known else []
    rest = [name for name in dict.fromkeys((*close, *classes)) if name not in misspelt]
    if len(rest) > CLASSES:
        budget.complete = False
    for order, names, short in (
        (Order.MISTAKE, misspelt, "did you mean class {}?"),
        (Order.CLASS, rest[:CLASSES], "class {}"),
    ):
        texts = ((name, f"use class {name} instead of {now} in {request.part.label}") for name in names)
        edits = [request.part.edit("class", "/deviceClassName", name, text, short.format(name)) for name, text in texts]
        yield ChangeList(order, edits)


def _constraints(claim: EditableClaim, known: Vocabulary, budget: QueryBudget) -> ChangeLists:
    spec = claim.spec
    for index, constraint in enumerate(claim.claim.spec.devices.constraints):
        kind = "matchAttribute" if constraint.match_attribute else "distinctAttribute"
        now, path = constraint.match_attribute or constraint.distinct_attribute or "", f"/devices/constraints/{index}"
        close = yield from near(now, known.attributes, budget)
        useful = known.differing if now in known.attributes else {*close, *known.differing}
        candidates: list[CandidateChange] = []
        for name in islice(dict.fromkeys((*close, *known.attributes)), ATTRIBUTES):
            if name != now and name in useful:
                text = f"use {kind} {name} instead of {now} in {spec.label}"
                candidates.append(spec.edit("constraint", f"{path}/{kind}", name, text, f"{kind} {name}"))
        yield ChangeList(Order.CONSTRAINT, candidates)
        text, short = f"remove {kind} {now} from {spec.label}", f"without {kind} {now}"
        yield ChangeList(Order.NO_CONSTRAINT, [spec.edit("constraint", path, None, text, short, "remove")])


def of_names(found: SimulatedPod, budget: QueryBudget) -> ChangeLists:
    """All changes of the names by which a pod refers to its claims, and of claims that are being deleted."""
    pod, created = found.pod, created_names(found.pod)
    entries = list(enumerate(pod.spec.resource_claims))
    yield from budget.charge(3 * len(entries))
    claims = [(at, name, found.claim(name)) for at, entry in entries if (name := entry.resource_claim_name)]
    known = (yield from _claim_names(found, budget)) if any(claim is None for _, _, claim in claims) else ()
    for at, name, claim in claims:
        if claim is None:
            close = yield from near(name, known, budget)
            yield ChangeList(Order.MISTAKE, [_meant(pod, at, "claim", name, other) for other in close])
    missing = [
        (at, entry.name, entry.resource_claim_template_name)
        for at, entry in entries
        if entry.resource_claim_template_name and not entry.resource_claim_name and entry.name not in created
    ]
    specs = (yield from _known_templates(found, budget)) if missing else {}
    for at, entry_name, name in missing:
        close = (yield from near(name, specs, budget)) if name not in specs else []
        meant = [
            _meant(pod, at, "template", name, other)._replace(
                creates=(entry_name, claim_from_template(pod.metadata, entry_name, specs[other]))
            )
            for other in close
        ]
        yield ChangeList(Order.MISTAKE, meant)
    for _, name, claim in claims:
        if claim is not None and claim.metadata.deletion_timestamp:
            text, value = f"create claim {name} again after it is deleted", {"spec": to_builtins(claim.spec)}
            change = object_change("claim made again", "ResourceClaim", claim.metadata, value=value, op="create")
            yield ChangeList(Order.CLAIM_AGAIN, [CandidateChange(text, text, (change,))])


def _meant(pod: Pod, at: int, kind: Literal["claim", "template"], name: str, other: str) -> CandidateChange:
    """Another claim or template in this entry of the pod's spec."""
    path = f"/resourceClaims/{at}/resourceClaim{'Template' if kind == 'template' else ''}Name"
    text = f"use {kind} {other} instead of {name} in the pod"
    return editable_pod(pod).edit("name", path, other, text, f"did you mean {other}?")


def _claim_names(found: SimulatedPod, budget: QueryBudget) -> Turns[list[str]]:
    """The names of the claims in the pod's namespace that no controller created."""
    names: list[str] = []
    for claim in list(found.view.ledger.claims()):
        yield from budget.charge(1)
        if claim.metadata.namespace == found.pod.metadata.namespace and not claim.metadata.controller:
            names.append(claim.metadata.name)
    return sorted(names)


def _known_templates(found: SimulatedPod, budget: QueryBudget) -> Turns[Mapping[str, ResourceClaimSpec]]:
    """The templates from which claims of pods in the namespace were created."""
    namespace, ledger = found.pod.metadata.namespace, found.view.ledger
    known: dict[str, ResourceClaimSpec] = {}
    for pod in list(found.view.pods):
        yield from budget.charge(1 + len(pod.spec.resource_claims))
        created = created_names(pod) if pod.metadata.namespace == namespace and pod.spec.resource_claims else {}
        for entry in pod.spec.resource_claims if created else ():
            template, made = entry.resource_claim_template_name, created.get(entry.name)
            claim = ledger.get(namespace, made) if template and made else None
            if template and claim is not None:
                known[template] = claim.spec
    return known
