"""Candidate changes of a claim, a pod or a node: their types, and the functions that build them.

Promises: if a claim was created from a template, its change names the template, because users edit the template. The
spec of a claim is immutable. So a `Change` of a claim describes the manifest for creating it again after its deletion.
`near` compares names as `difflib.get_close_matches` does, and counts the work. Names longer than `LONGEST` match
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from heapq import nlargest
from typing import Any, Final, Literal, NamedTuple

import msgspec
import yaml
from msgspec.structs import replace

from dra_extender.api.core import Pod
from dra_extender.api.meta import ObjectMeta
from dra_extender.api.resource import DeviceSubRequest, ExactDeviceRequest, ResourceClaim
from dra_extender.insight.snapshot import SimulatedPod
from dra_extender.insight.why.report import Change, ChangeKind
from dra_extender.scheduling.turns import QueryBudget, Turns

LONGEST: Final = 128
ALIKE: Final = 0.6
"""The least similarity of two names."""
LETTERS: Final = 4
"""Letters that are counted in a unit of work."""
PAIRS: Final = 5
"""Pairs of letters that are compared in a unit of work."""

Apply = Callable[[SimulatedPod], SimulatedPod]


class CandidateChange(NamedTuple):
    """A change that may let the pod fit. `only`: try it on these nodes only; empty: on all groups. `more`: further
    changes that users make together with it. `fragment`: the lines for a manifest, if `text` does not contain them.
    """

    text: str
    short: str
    change: Change
    apply: Apply
    fragment: Any = None
    only: tuple[str, ...] = ()
    more: tuple[Change, ...] = ()


class Family(NamedTuple):
    """Candidates of one kind, the smallest change first. Only the first candidate that helps is reported. `monotone`:
    if a candidate helps, all later ones help too, so bisection finds the first. Families with the lowest `rank` are
    tried first.
    """

    rank: int
    candidates: Sequence[CandidateChange]
    monotone: bool = False


Families = Generator[Family | None, None, None]
"""Yields each family when it is found, and None where the caller may end its turn."""


class Target(NamedTuple):
    """The object that users edit: the claim, or its template. `prefix`: the path of the claim's spec."""

    object: Literal["ResourceClaim", "ResourceClaimTemplate"]
    namespace: str
    name: str
    prefix: str
    entry: str

    def change(self, kind: ChangeKind, path: str, value: Any = None, op: str = "replace") -> Change:
        made = {"kind": kind, "object": self.object, "name": self.name, "namespace": self.namespace, "op": op}
        return msgspec.convert({**made, "path": self.prefix + path, "value": value}, Change)


class EditableRequest(NamedTuple):
    """A request of a claim, or one of its alternatives."""

    claim: ResourceClaim
    target: Target
    request: int
    alternative: int | None
    source: ExactDeviceRequest | DeviceSubRequest

    @property
    def name(self) -> str:
        """The name of the request in allocation results."""
        request = self.claim.spec.devices.requests[self.request].name
        return request if self.alternative is None else f"{request}/{getattr(self.source, 'name', '')}"

    @property
    def path(self) -> str:
        where = "exactly" if self.alternative is None else f"firstAvailable/{self.alternative}"
        return f"/devices/requests/{self.request}/{where}"

    @property
    def label(self) -> str:
        """The name that users know the claim by. If the claim has several requests, the request follows."""
        several = len(self.claim.spec.devices.requests) > 1 or self.alternative is not None
        return f"claim {self.target.entry}" + (f", request {self.name}" if several else "")

    def candidate(self, text: str, short: str, change: Change, fragment: Any = None, **fields: Any) -> CandidateChange:
        """The change that gives the request these fields."""
        return CandidateChange(text, short, change, claim_becomes(self.claim, self.with_fields(**fields)), fragment)

    def change(self, kind: ChangeKind, path: str, value: Any = None, op: str = "replace") -> Change:
        """`path` is relative to the request."""
        return self.target.change(kind, self.path + path, value, op)

    def with_fields(self, **fields: Any) -> ResourceClaim:
        """The claim after these fields of the request are set."""
        source, devices = replace(self.source, **fields), self.claim.spec.devices
        request = devices.requests[self.request]
        if isinstance(source, ExactDeviceRequest):
            request = replace(request, exactly=source)
        elif self.alternative is not None:
            request = replace(request, first_available=replaced(request.first_available, self.alternative, source))
        return with_devices(self.claim, requests=replaced(devices.requests, self.request, request))


def replaced(items: tuple[Any, ...], index: int, *new: Any) -> tuple[Any, ...]:
    """The items with `new` in place of the one at the index."""
    return (*items[:index], *new, *items[index + 1 :])


def with_devices(claim: ResourceClaim, **fields: Any) -> ResourceClaim:
    """The claim after these fields of `spec.devices` are set."""
    return replace(claim, spec=replace(claim.spec, devices=replace(claim.spec.devices, **fields)))


def with_spec(pod: Pod, **fields: Any) -> Pod:
    """The pod after these fields of its spec are set."""
    return replace(pod, spec=replace(pod.spec, **fields))


def merged(now: Any, before: Any, after: Any) -> Any:
    """Apply the difference between `before` and `after` to `now`, which may differ from `before` in other fields."""
    if before == after:
        return now
    if isinstance(after, msgspec.Struct) and type(now) is type(before) is type(after):
        names = after.__struct_fields__
        fields = {name: merged(getattr(now, name), getattr(before, name), getattr(after, name)) for name in names}
        return replace(now, **fields)
    if isinstance(after, tuple) and isinstance(before, tuple) and len(now) == len(before) == len(after):
        return tuple(map(merged, now, before, after))
    if isinstance(after, dict):
        kept = {key: value for key, value in now.items() if key in after or key not in before}
        return kept | {key: value for key, value in after.items() if before.get(key) != value}
    return after


def claim_becomes(before: ResourceClaim, after: ResourceClaim) -> Apply:
    def apply(found: SimulatedPod) -> SimulatedPod:
        now = found.snapshot.claim(before.metadata.namespace, before.metadata.name) or before
        return found.on(found.snapshot.with_claim(merged(now, before, after)))

    return apply


def pod_becomes(before: Pod, after: Pod) -> Apply:
    return lambda found: found.with_pod(merged(found.pod, before, after))


def claims_with_targets(found: SimulatedPod) -> Iterator[tuple[ResourceClaim, Target]]:
    """The existing claims of the pod with the objects that users edit, each once, in the order of the pod's spec."""
    namespace = found.pod.metadata.namespace
    seen: set[str] = set()
    for entry in found.pod.spec.resource_claims:
        name = found.claim_names.get(entry.name, "")
        claim = found.claim(name) if name and name not in seen else None
        if claim is None:
            continue
        seen.add(name)
        template = entry.resource_claim_template_name
        if template and not entry.resource_claim_name:
            yield claim, Target("ResourceClaimTemplate", namespace, template, "/spec/spec", entry.name)
        else:
            yield claim, Target("ResourceClaim", namespace, name, "/spec", name)


def requests_of(claim: ResourceClaim, target: Target) -> Iterator[EditableRequest]:
    """All requests and alternatives of a claim."""
    for index, request in enumerate(claim.spec.devices.requests):
        if request.exactly is not None:
            yield EditableRequest(claim, target, index, None, request.exactly)
        for number, source in enumerate(request.first_available):
            yield EditableRequest(claim, target, index, number, source)


def object_change(
    kind: ChangeKind, object: str, meta: ObjectMeta, path: str = "", value: Any = None, op: str = "replace",
    like: str = "",
) -> Change:  # fmt: skip
    """A change of a pod, a claim or a node, by its metadata."""
    made = {"kind": kind, "object": object, "name": meta.name, "namespace": meta.namespace, "op": op}
    return msgspec.convert({**made, "path": path, "value": value, "like": like}, Change)


def pod_change(pod: Pod, kind: ChangeKind, path: str, value: Any = None, op: str = "replace") -> Change:
    return object_change(kind, "Pod", pod.metadata, path, value, op)


def as_yaml(value: Any) -> str:
    """The value as YAML for a manifest."""
    return yaml.safe_dump(msgspec.to_builtins(value), sort_keys=False, default_flow_style=False).rstrip()


# --- names that are nearly the same -----------------------------------------------------------------------------------


def near(word: str, known: Iterable[str], budget: QueryBudget, most: int = 3) -> Turns[list[str]]:
    """The `most` known words that are most similar to the word, the most similar first.

    When the budget is spent, the remaining known words are not compared.
    """
    if not word or len(word) > LONGEST:
        return []
    compared: SequenceMatcher[str] = SequenceMatcher()
    compared.set_seq2(word)
    found: list[tuple[float, str]] = []
    for other in known:
        yield from budget.charge(1)
        if not _lengths_are_alike(word, other):
            continue
        if budget.spent():
            break
        yield from budget.charge(1 + (len(word) + len(other)) // LETTERS)
        compared.set_seq1(other)
        if compared.quick_ratio() < ALIKE:
            continue
        yield from budget.charge(1 + len(word) * len(other) // PAIRS)
        ratio = compared.ratio()
        if ratio >= ALIKE:
            found.append((ratio, other))
    return [other for _, other in nlargest(most, found)]


def nearest_first(
    word: str, known: Sequence[str], budget: QueryBudget, most: int
) -> Turns[tuple[list[str], list[str]]]:
    """(the known words that are similar to the word, all known words starting with these)"""
    close = yield from near(word, known, budget, most)
    return close, [*close, *(name for name in known if name not in close)]


def _lengths_are_alike(word: str, other: str) -> bool:
    """True when words of these lengths can be as similar as `ALIKE` (real_quick_ratio)."""
    return 0 < len(other) <= LONGEST and 2 * min(len(word), len(other)) >= ALIKE * (len(word) + len(other))
