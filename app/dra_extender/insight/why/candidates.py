"""Candidate changes of a claim, a pod or a node: their types, how they are made and how they are tried.

Promises: if a claim was created from a template, its change names the template, because users edit the template. The
spec of a claim is immutable. So a `Change` of a claim describes the manifest for creating it again after its deletion.
A change of a field is tried as it is reported: as an operation of a JSON patch.
`near` compares names as `difflib.get_close_matches` does, and counts the work. Names longer than `LONGEST` match
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from enum import IntEnum, auto
from heapq import nlargest
from itertools import takewhile
from typing import Any, Final, Literal, NamedTuple, TypeVar

import msgspec
import yaml
from msgspec.structs import replace

from dra_extender.api.core import Pod
from dra_extender.api.decoding import convert
from dra_extender.api.meta import ObjectMeta
from dra_extender.api.resource import RequestedDevices, ResourceClaim
from dra_extender.insight.snapshot import SimulatedPod
from dra_extender.insight.why.report import Change, ChangeKind
from dra_extender.plaintext import counted
from dra_extender.scheduling.turns import QueryBudget, Turns

GATES: Final = 8
LONGEST: Final = 128
ALIKE: Final = 0.6
"""The least similarity of two names."""
LETTERS: Final = 4
"""Letters that are counted in a unit of work."""
SEPARATORS: Final = " -_./"
PAIRS: Final = 5
"""Pairs of letters that are compared in a unit of work."""

Apply = Callable[[SimulatedPod], SimulatedPod]

T = TypeVar("T")


class CandidateChange(NamedTuple):
    """A change that may let the pod fit. `apply` makes it. `only`: try it on these nodes only; empty: on all groups.
    `more`: further changes that users make together with it. `fragment`: the lines for a manifest, if `text` does not
    contain them.
    """

    text: str
    short: str
    change: Change
    apply: Apply
    fragment: Any = None
    only: tuple[str, ...] = ()
    more: tuple[Change, ...] = ()


class Fit(NamedTuple):
    """`nodes` nodes fit, `example` is one of them. For a gang: the nodes that its `pods` pods use."""

    nodes: int
    example: str
    pods: int = 0


JointFit = Callable[[Sequence[CandidateChange], Pod, QueryBudget], Turns[Fit | None]]
"""How many nodes the gang uses after these changes of its pod; None if it does not fit then."""


class Order(IntEnum):
    """What a person would do first: wait for what ends by itself, correct a mistake, free what is taken, and only then
    ask for less. Devices that are tainted are tolerated last.
    """

    ENDING = auto()
    MISTAKE = auto()
    NAME = auto()
    CLAIM_AGAIN = auto()
    POD_TOLERATION = auto()
    UNCORDON = auto()
    UNUSED_CLAIM = auto()
    LOWER_PRIORITY = auto()
    LOWER_PRIORITIES = auto()
    OTHER_POD = auto()
    COUNT = auto()
    CAPACITY = auto()
    RESOURCE = auto()
    NO_CAPACITY = auto()
    NODE_SELECTOR = auto()
    NO_NODE_SELECTOR = auto()
    SELECTOR = auto()
    NO_SELECTOR = auto()
    CONSTRAINT = auto()
    NO_CONSTRAINT = auto()
    CLASS = auto()
    DEVICE_TOLERATION = auto()
    NODE = auto()


class ChangeList(NamedTuple):
    """Changes of one kind, the smallest first. Only the first candidate that helps is reported. `monotone`: if a
    candidate helps, all later ones help too, so bisection finds the first. The lists are tried in their `order`.
    `joined` makes one change of several: then the fewest of the first candidates that help together are reported.
    """

    order: Order
    candidates: Sequence[CandidateChange]
    monotone: bool = False
    joined: Callable[[Sequence[CandidateChange]], CandidateChange] | None = None


ChangeLists = Generator[ChangeList | None, None, None]
"""Yields each list when it is found, also an empty one, and None where the caller may end its turn."""


class EditableClaim(NamedTuple):
    """A claim of the pod, and the `object` that users edit to change it: the claim, or its template. `prefix`: the path
    of the claim's spec in this object. `entry`: the name that users know the claim by.
    """

    claim: ResourceClaim
    object: Literal["ResourceClaim", "ResourceClaimTemplate"]
    name: str
    prefix: str
    entry: str

    def edit(
        self, kind: ChangeKind, path: str, value: Any, text: str, short: str, op: str = "replace", fragment: Any = None
    ) -> CandidateChange:
        """A change of the claim's spec. `path` is relative to the spec."""
        meta = self.claim.metadata
        change = object_change(kind, self.object, replace(meta, name=self.name), self.prefix + path, value, op)

        def apply(pod: SimulatedPod) -> SimulatedPod:
            now = pod.snapshot.claim(meta.namespace, meta.name) or self.claim
            return pod.on(pod.snapshot.with_claim(replace(now, spec=patched(now.spec, change, self.prefix))))

        return CandidateChange(text, short, change, apply, fragment)


class EditableRequest(NamedTuple):
    """A request of a claim, or one of its alternatives."""

    editable: EditableClaim
    request: int
    alternative: int | None
    source: RequestedDevices

    @property
    def name(self) -> str:
        """The name of the request in allocation results."""
        request = self.editable.claim.spec.devices.requests[self.request].name
        return request if self.alternative is None else f"{request}/{getattr(self.source, 'name', '')}"

    @property
    def label(self) -> str:
        """The name that users know the claim by. If the claim has several requests, the request follows."""
        several = len(self.editable.claim.spec.devices.requests) > 1 or self.alternative is not None
        return f"claim {self.editable.entry}" + (f", {request_text(self.name)}" if several else "")

    def edit(
        self, kind: ChangeKind, path: str, value: Any, text: str, short: str, op: str = "replace", fragment: Any = None
    ) -> CandidateChange:
        """A change of the request. `path` is relative to the request."""
        where = "exactly" if self.alternative is None else f"firstAvailable/{self.alternative}"
        path = f"/devices/requests/{self.request}/{where}{path}"
        return self.editable.edit(kind, path, value, text, short, op, fragment)


def gates_text(pod: Pod) -> str:
    """The names of the pod's scheduling gates, at most `GATES` of them."""
    gates = pod.spec.scheduling_gates
    names = ", ".join(gate.name for gate in gates[:GATES])
    return names + (f" and {counted(len(gates) - GATES, 'other gate')}" if len(gates) > GATES else "")


def request_text(name: str) -> str:
    """A request, or an alternative of a request with `firstAvailable`, by its name in allocation results."""
    return f"{'alternative' if '/' in name else 'request'} {name}"


def patched(spec: T, change: Change, prefix: str = "/spec") -> T:
    """The spec after this operation of a JSON patch. `prefix`: the path of the spec in the manifest."""
    tokens = change.path.removeprefix(prefix).split("/")[1:]
    made: T = _patched(spec, [token.replace("~1", "/").replace("~0", "~") for token in tokens], change)
    return made


def _patched(value: Any, tokens: Sequence[str], change: Change) -> Any:
    """Encodes only what the change writes, because the rest can be large."""
    first, *rest = tokens
    if isinstance(value, tuple):
        index = int(first)
        if rest:
            items = [_patched(value[index], rest, change)]
        else:
            items = [] if change.op == "remove" else [convert(type(value[index]), change.value)]
        return (*value[:index], *items, *value[index + 1 :])
    names = dict(zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True))
    inner, made = getattr(value, names[first]), change.value
    if rest and isinstance(inner, msgspec.Struct | tuple):
        return replace(value, **{names[first]: _patched(inner, rest, change)})
    for token in reversed(rest):
        made = {token: made}
    texts = {each: text for each, name in names.items() if isinstance(text := getattr(value, name), str)}
    others = {each: text for each, text in texts.items() if each != first}
    made = getattr(convert(type(value), others | ({first: made} if change.op != "remove" else {})), names[first])
    entries = {key: each for key, each in inner.items() if key != rest[0]} if rest and isinstance(inner, dict) else {}
    return replace(value, **{names[first]: {**entries, **made} if entries else made})


def changes_with(mate: Pod, member: Pod, change: Change) -> bool:
    """True when the change of a pod of a gang, or of the template of its claim, changes this pod of the gang, too."""
    if change.object == "ResourceClaimTemplate":
        return any(entry.resource_claim_template_name == change.name for entry in mate.spec.resource_claims)
    same = mate.metadata.controller == member.metadata.controller is not None
    return bool(change.path) and change.object == "Pod" and same and mate.spec.containers == member.spec.containers


def pod_edit(
    pod: Pod, kind: ChangeKind, path: str, value: Any, text: str, short: str = "", op: str = "replace",
    more: tuple[Change, ...] = (), fragment: Any = None,
) -> CandidateChange:  # fmt: skip
    """A change of the pod. `path` is relative to the pod's spec."""
    change = pod_change(pod, kind, path, value, op)

    def apply(simulated: SimulatedPod) -> SimulatedPod:
        spec = simulated.pod.spec
        for each in (change, *more):
            spec = patched(spec, each)
        return simulated.with_pod(replace(simulated.pod, spec=spec))

    return CandidateChange(text, short or text, change, apply, fragment, more=more)


def pod_change(pod: Pod, kind: ChangeKind, path: str, value: Any = None, op: str = "replace") -> Change:
    """`path` is relative to the pod's spec."""
    return object_change(kind, "Pod", pod.metadata, f"/spec{path}", value, op)


def editable_claims(simulated: SimulatedPod) -> Iterator[EditableClaim]:
    """The existing claims of the pod, each once, in the order of the pod's spec."""
    seen: set[str] = set()
    for entry in simulated.pod.spec.resource_claims:
        name = simulated.claim_names.get(entry.name, "")
        claim = simulated.claim(name) if name and name not in seen else None
        if claim is None:
            continue
        seen.add(name)
        template = entry.resource_claim_template_name
        if template and not entry.resource_claim_name:
            yield EditableClaim(claim, "ResourceClaimTemplate", template, "/spec/spec", entry.name)
        else:
            yield EditableClaim(claim, "ResourceClaim", name, "/spec", name)


def requests_of(editable: EditableClaim) -> Iterator[EditableRequest]:
    for index, request in enumerate(editable.claim.spec.devices.requests):
        if request.exactly is not None:
            yield EditableRequest(editable, index, None, request.exactly)
        for number, source in enumerate(request.first_available):
            yield EditableRequest(editable, index, number, source)


def object_change(
    kind: ChangeKind, object: str, meta: ObjectMeta, path: str = "", value: Any = None, op: str = "replace",
    like: str = "",
) -> Change:  # fmt: skip
    made = {"kind": kind, "object": object, "name": meta.name, "namespace": meta.namespace, "op": op}
    return msgspec.convert({**made, "path": path, "value": value, "like": like}, Change)


def as_yaml(value: Any) -> str:
    return yaml.safe_dump(msgspec.to_builtins(value), sort_keys=False, default_flow_style=False).rstrip()


def near(word: str, known: Iterable[str], budget: QueryBudget, most: int = 3) -> Turns[list[str]]:
    """The `most` known words that are most similar to the word, the most similar first. Words that only begin with the
    same words are not similar, such as "NVIDIA L4" and "NVIDIA H200".

    When the budget is spent, the remaining known words are not compared.
    """
    if not word or len(word) > LONGEST:
        return []
    compared: SequenceMatcher[str] = SequenceMatcher()
    compared.set_seq2(word)
    found: list[tuple[float, str]] = []
    for other in known:
        yield from budget.charge(1)
        shorter, both = min(len(word), len(other)), len(word) + len(other)
        if not 0 < len(other) <= LONGEST or 2 * shorter < ALIKE * both:  # real_quick_ratio
            continue
        if budget.spent():
            break
        yield from budget.charge(1 + both // LETTERS)
        compared.set_seq1(other)
        if compared.quick_ratio() < ALIKE:
            continue
        yield from budget.charge(1 + len(word) * len(other) // PAIRS)
        ratio = compared.ratio()
        if ratio >= ALIKE and _differ_by_letters(word, other):
            found.append((ratio, other))
    return [other for _, other in nlargest(most, found)]


def _differ_by_letters(word: str, other: str) -> bool:
    """False if the words behind the first words in common have no letter in common, and more than one letter."""
    same = sum(1 for _ in takewhile(lambda each: each[0] == each[1], zip(word, other, strict=False)))
    start = max(word.rfind(mark, 0, same) for mark in SEPARATORS) + 1
    rest, others = word[start:], other[start:]
    return len(rest) <= 1 or len(others) <= 1 or not set(rest).isdisjoint(others)
