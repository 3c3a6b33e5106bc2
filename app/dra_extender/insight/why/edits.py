"""One change of a pod's claim, as a struct for machines and as a claim to decide on.

Promises: a change of a claim that a template made is one of the template, which is where people have to make it. Specs
of claims cannot be changed: `Change` says what the object has to say, whoever deletes it and makes it again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
import yaml

from dra_extender.api.core import Pod
from dra_extender.api.resource import (
    DeviceClaim,
    DeviceConstraint,
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
)
from dra_extender.insight.why.report import Change, ChangeKind
from dra_extender.insight.why.situation import Situation
from dra_extender.scheduling.claims import created_names

Apply = Callable[[Situation], Situation]
Source = ExactDeviceRequest | DeviceSubRequest


class Candidate(NamedTuple):
    """A change that may help. `only`: where it is asked about, when that is clear. `more`: what has to be changed with
    it. `fragment`: what to write in a manifest, where that is more than a word.
    """

    text: str
    short: str
    change: Change
    apply: Apply
    fragment: Any = None
    only: tuple[str, ...] = ()
    more: tuple[Change, ...] = ()


class Family(NamedTuple):
    """Candidates of which the first that helps is told, the nearest first. `monotone`: when one helps, all later ones
    do, so it is found by halving. `rank` orders families, the nearest first.
    """

    rank: int
    candidates: Sequence[Candidate]
    monotone: bool = False


Families = Generator[Family | None, None, None]
"""Families as they are found; None where others may go first."""


class Target(NamedTuple):
    """The object that people write: the claim, or the template it is made from. `prefix`: where the claim's spec is."""

    object: Literal["ResourceClaim", "ResourceClaimTemplate"]
    namespace: str
    name: str
    prefix: str
    entry: str

    def change(self, kind: ChangeKind, path: str, value: Any = None, op: str = "replace") -> Change:
        made = {"kind": kind, "object": self.object, "name": self.name, "namespace": self.namespace, "op": op}
        return msgspec.convert({**made, "path": self.prefix + path, "value": value}, Change)


class Place(NamedTuple):
    """A request of a claim, or one of its alternatives."""

    claim: ResourceClaim
    target: Target
    request: int
    alternative: int | None
    source: Source

    @property
    def name(self) -> str:
        """As results carry it."""
        request = self.claim.spec.devices.requests[self.request].name
        return request if self.alternative is None else f"{request}/{getattr(self.source, 'name', '')}"

    @property
    def path(self) -> str:
        where = "exactly" if self.alternative is None else f"firstAvailable/{self.alternative}"
        return f"/devices/requests/{self.request}/{where}"

    @property
    def label(self) -> str:
        """For people: the claim as the pod calls it, and the request where there are several."""
        several = len(self.claim.spec.devices.requests) > 1 or self.alternative is not None
        return f"claim {self.target.entry}" + (f", request {self.name}" if several else "")

    def written(self, **fields: Any) -> ResourceClaim:
        """The claim with these fields of the source."""
        source = msgspec.structs.replace(self.source, **fields)
        request = self.claim.spec.devices.requests[self.request]
        if isinstance(source, ExactDeviceRequest):
            request = msgspec.structs.replace(request, exactly=source)
        elif self.alternative is not None:
            first = replaced(request.first_available, self.alternative, source)
            request = msgspec.structs.replace(request, first_available=first)
        return with_devices(self.claim, requests=replaced(self.claim.spec.devices.requests, self.request, request))


def replaced(items: tuple[Any, ...], index: int, item: Any) -> tuple[Any, ...]:
    """The items with another one at the index."""
    return (*items[:index], item, *items[index + 1 :])


def with_devices(
    claim: ResourceClaim,
    requests: tuple[DeviceRequest, ...] | None = None,
    constraints: tuple[DeviceConstraint, ...] | None = None,
) -> ResourceClaim:
    devices = claim.spec.devices
    found = DeviceClaim(
        requests=devices.requests if requests is None else requests,
        constraints=devices.constraints if constraints is None else constraints,
        config=devices.config,
    )
    return msgspec.structs.replace(claim, spec=msgspec.structs.replace(claim.spec, devices=found))


def merged(now: Any, before: Any, after: Any) -> Any:
    """What differs between `before` and `after`, made to `now`, which may differ from `before` in other places."""
    if before == after:
        return now
    if isinstance(after, msgspec.Struct) and type(now) is type(before) is type(after):
        names = after.__struct_fields__
        fields = {name: merged(getattr(now, name), getattr(before, name), getattr(after, name)) for name in names}
        return msgspec.structs.replace(now, **fields)
    if isinstance(after, tuple) and isinstance(before, tuple) and len(now) == len(before) == len(after):
        return tuple(map(merged, now, before, after))
    if isinstance(after, dict):
        kept = {key: value for key, value in now.items() if key in after or key not in before}
        return kept | {key: value for key, value in after.items() if before.get(key) != value}
    return after


def swapped(before: ResourceClaim, after: ResourceClaim) -> Apply:
    """As if the claim had been changed so."""
    meta = before.metadata

    def apply(situation: Situation) -> Situation:
        now = situation.claim(meta.namespace, meta.name) or before
        return situation.with_claim(merged(now, before, after))

    return apply


def becomes(before: Pod, after: Pod) -> Apply:
    """As if the pod had been changed so."""
    return lambda situation: situation.with_pod(merged(situation.pod, before, after))


def claims_with_targets(situation: Situation) -> Iterator[tuple[ResourceClaim, Target]]:
    """The claims of the pod that exist, each once, in the order of its spec."""
    pod = situation.pod
    created = created_names(pod)
    seen: set[str] = set()
    for entry in pod.spec.resource_claims:
        name = entry.resource_claim_name or created.get(entry.name) or ""
        claim = situation.claim(pod.metadata.namespace, name) if name and name not in seen else None
        if claim is None:
            continue
        seen.add(name)
        template = entry.resource_claim_template_name
        if template and not entry.resource_claim_name:
            made = Target("ResourceClaimTemplate", pod.metadata.namespace, template, "/spec/spec", entry.name)
        else:
            made = Target("ResourceClaim", pod.metadata.namespace, name, "/spec", name)
        yield claim, made


def places(claim: ResourceClaim, target: Target) -> Iterator[Place]:
    """All requests and alternatives of a claim."""
    for index, request in enumerate(claim.spec.devices.requests):
        if request.exactly is not None:
            yield Place(claim, target, index, None, request.exactly)
        for number, source in enumerate(request.first_available):
            yield Place(claim, target, index, number, source)


def pod_change(pod: Pod, kind: ChangeKind, path: str, value: Any = None, op: str = "replace") -> Change:
    """A change of the pod itself."""
    made = {"kind": kind, "object": "Pod", "name": pod.metadata.name, "namespace": pod.metadata.namespace, "op": op}
    return msgspec.convert({**made, "path": path, "value": value}, Change)


def as_yaml(value: Any) -> str:
    """As it stands in a manifest."""
    return yaml.safe_dump(msgspec.to_builtins(value), sort_keys=False, default_flow_style=False).rstrip()
