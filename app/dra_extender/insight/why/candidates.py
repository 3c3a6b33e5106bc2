"""Candidate changes of a claim, a pod or a node: their types, how they are made and how they are tried.

Promises: if a claim was created from a template, its change names the template, because users edit the template. The
spec of a claim is immutable. So a `Change` of a claim describes the manifest for creating it again after its deletion.
A change is tried as it is reported: a change of a field as an operation of a JSON patch, a change of a template in all
claims that the pod has from it.
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

from dra_extender.api.core import Pod, PodResourceClaimStatus, Toleration, taint_text
from dra_extender.api.decoding import convert, to_builtins
from dra_extender.api.meta import ObjectMeta
from dra_extender.api.resource import RequestedDevices, ResourceClaim, ResourceClaimStatus
from dra_extender.insight.snapshot import ClusterSnapshot, SimulatedPod, node_like, uncordoned
from dra_extender.insight.why.report import Change, ChangeKind, ChangeOp
from dra_extender.plaintext import counted
from dra_extender.scheduling.turns import QueryBudget, Turns

AGAIN: Final = "-again"
"""Follows the UID of a claim that is made again."""
GATES: Final = 8
LONGEST: Final = 128
ALIKE: Final = 0.6
"""The least similarity of two names."""
LETTERS: Final = 4
"""Letters that are counted in a unit of work."""
SEPARATORS: Final = " -_./"
PAIRS: Final = 5
"""Pairs of letters that are compared in a unit of work."""

T = TypeVar("T")


class CandidateChange(NamedTuple):
    """`changes` that are made together and may let the pod fit. `fragment`: the lines for a manifest, if `text` does
    not contain them. `only`: try it on these nodes only; empty: on all groups. `creates`: an entry of the pod's spec
    and the claim that is then created for it.
    """

    text: str
    short: str
    changes: tuple[Change, ...]
    fragment: Any = None
    only: tuple[str, ...] = ()
    creates: tuple[str, ResourceClaim] | None = None

    def apply(self, pod: SimulatedPod) -> SimulatedPod:
        for change in self.changes:
            pod = applied(pod, change)
        if self.creates is not None:
            entry, claim = self.creates
            created = (*pod.pod.status.resource_claim_statuses, PodResourceClaimStatus(entry, claim.metadata.name))
            status = replace(pod.pod.status, resource_claim_statuses=created)
            pod = SimulatedPod(replace(pod.pod, status=status), pod.snapshot.with_claim(claim))
        return pod


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
    """Changes of one kind, the smallest first: `make` makes a candidate of each of the `options`, which are candidates
    by default. Only the first candidate that helps is reported. `monotone`: if a candidate helps, all later ones help
    too, so bisection finds the first. The lists are tried in their `order`. `several`: if no candidate helps alone,
    they are tried together, and the fewest that help are reported.
    """

    order: Order
    options: Sequence[Any]
    make: Callable[[Any], CandidateChange] = lambda candidate: candidate
    monotone: bool = False
    several: bool = False


ChangeLists = Generator[ChangeList | None, None, None]
"""Yields each list when it is found, also an empty one, and None where the caller may end its turn."""


class Editable(NamedTuple):
    """The part at `path` of a manifest that users edit. `label`: the part, for people."""

    object: Literal["Pod", "ResourceClaim", "ResourceClaimTemplate"]
    meta: ObjectMeta
    path: str
    label: str

    def change(self, kind: ChangeKind, path: str, value: Any = None, op: ChangeOp = "replace") -> Change:
        """`path` is relative to the part."""
        return object_change(kind, self.object, self.meta, self.path + path, value, op)

    def edit(
        self, kind: ChangeKind, path: str, value: Any, text: str, short: str = "", op: ChangeOp = "replace",
        fragment: Any = None, more: tuple[Change, ...] = (),
    ) -> CandidateChange:  # fmt: skip
        """As `change`. `more`: what users change together with it."""
        return CandidateChange(text, short or text, (self.change(kind, path, value, op), *more), fragment)


class EditableClaim(NamedTuple):
    """A claim of the pod, and the `spec` that users edit to change it: of the claim, or of its template. `entry`: the
    name that users know the claim by.
    """

    claim: ResourceClaim
    entry: str
    spec: Editable


class EditableRequest(NamedTuple):
    """A request of a claim, or one of its alternatives. `name`: in allocation results. The label of the `part` is that
    of the claim; if the claim has several requests, the request follows.
    """

    name: str
    alternative: bool
    source: RequestedDevices
    part: Editable


def tolerating(
    part: Editable, now: Sequence[Toleration], taints: Iterable[tuple[str, str, str]], note: str = ""
) -> CandidateChange:
    """Tolerate these taints (key, value, effect) as well. `now`: the tolerations of the part."""
    more = [Toleration(key, "Equal" if value else "Exists", value, effect) for key, value, effect in taints]
    shown = ", ".join(taint_text(each.key, each.value, each.effect) for each in more)
    kind: ChangeKind = "pod toleration" if part.object == "Pod" else "toleration"
    text, value = f"add a toleration of {shown} to {part.label}{note}", to_builtins([*now, *more])
    return part.edit(kind, "/tolerations", value, text, f"tolerate {shown}", "add", {"tolerations": more})


def gates_text(pod: Pod) -> str:
    """The names of the pod's scheduling gates, at most `GATES` of them."""
    gates = pod.spec.scheduling_gates
    names = ", ".join(gate.name for gate in gates[:GATES])
    return names + (f" and {counted(len(gates) - GATES, 'other gate')}" if len(gates) > GATES else "")


def request_text(name: str) -> str:
    """A request, or an alternative of a request with `firstAvailable`, by its name in allocation results."""
    return f"{'alternative' if '/' in name else 'request'} {name}"


def applied(pod: SimulatedPod, change: Change) -> SimulatedPod:
    """The pod after this change, in the state after it. A change of an object that is gone changes nothing."""
    now, where = pod.snapshot, (change.namespace, change.name)
    match change.object, change.op:
        case "Pod", "wait" | "delete":
            gone = pod.view.pods.named(*where)
            return pod.on(now.without_pods([gone])) if gone is not None else pod
        case "Pod", _:
            return SimulatedPod(replace(pod.pod, spec=patched(pod.pod.spec, change)), now)
        case "Node", _:
            return pod.on(_with_node(now, change))
        case "ResourceClaim", "delete" | "create":
            if (claim := now.claim(*where)) is not None:
                now = now.without_claim(claim)
                if change.op == "create":
                    meta = replace(claim.metadata, uid=claim.metadata.uid + AGAIN, deletion_timestamp=None)
                    now = now.with_claim(replace(claim, metadata=meta, status=ResourceClaimStatus()))
            return pod.on(now)
    return pod.on(replace(now, claims={**now.claims, **dict(_changed_claims(pod, change))}))


def _with_node(now: ClusterSnapshot, change: Change) -> ClusterSnapshot:
    """A node is added that equals another one, or is uncordoned."""
    like = now.node(change.like or change.name)
    if like is None:
        return now
    if not change.like:
        return now.with_node(uncordoned(like))
    slices = now.view.cluster.inventory.own_slices(change.like)
    node, copies = node_like(like, slices, change.name.removeprefix(change.like))
    return replace(now.with_node(node), overlay=now.overlay.with_nodes([node], copies))


def _changed_claims(pod: SimulatedPod, change: Change) -> Iterator[tuple[str, ResourceClaim]]:
    """The changed claim, or all claims of the pod from the changed template, by namespace/name."""
    names, prefix = [change.name], "/spec"
    if change.object == "ResourceClaimTemplate":
        entries = pod.pod.spec.resource_claims
        made = (entry.name for entry in entries if entry.resource_claim_template_name == change.name)
        names, prefix = [pod.claim_names[entry] for entry in made if entry in pod.claim_names], "/spec/spec"
    for claim in map(pod.claim, names):
        if claim is not None and claim.allocation is None:
            yield claim.metadata.key, replace(claim, spec=patched(claim.spec, change, prefix))


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


def editable_pod(pod: Pod) -> Editable:
    return Editable("Pod", pod.metadata, "/spec", "the pod")


def editable_claims(simulated: SimulatedPod) -> Iterator[EditableClaim]:
    """The existing claims of the pod, each once, in the order of the pod's spec."""
    seen: set[str] = set()
    for entry in simulated.pod.spec.resource_claims:
        name = simulated.claim_names.get(entry.name, "")
        claim = simulated.claim(name) if name and name not in seen else None
        if claim is None:
            continue
        seen.add(name)
        template, label = entry.resource_claim_template_name, f"claim {entry.name}"
        if template and not entry.resource_claim_name:
            meta = replace(claim.metadata, name=template)
            yield EditableClaim(claim, entry.name, Editable("ResourceClaimTemplate", meta, "/spec/spec", label))
        else:
            yield EditableClaim(claim, name, Editable("ResourceClaim", claim.metadata, "/spec", f"claim {name}"))


def requests_of(claim: EditableClaim) -> Iterator[EditableRequest]:
    requests, spec = claim.claim.spec.devices.requests, claim.spec
    for index, request in enumerate(requests):
        found: list[tuple[str, str, RequestedDevices]] = []
        if request.exactly is not None:
            found.append((request.name, "exactly", request.exactly))
        for number, source in enumerate(request.first_available):
            found.append((f"{request.name}/{source.name}", f"firstAvailable/{number}", source))
        for name, where, each in found:
            alternative = each is not request.exactly
            label = f"{spec.label}, {request_text(name)}" if alternative or len(requests) > 1 else spec.label
            part = spec._replace(path=f"{spec.path}/devices/requests/{index}/{where}", label=label)
            yield EditableRequest(name, alternative, each, part)


def object_change(
    kind: ChangeKind, object: str, meta: ObjectMeta, path: str = "", value: Any = None, op: ChangeOp = "replace",
    like: str = "",
) -> Change:  # fmt: skip
    return Change(kind, object, meta.name, meta.namespace, op, path, value, like)


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
