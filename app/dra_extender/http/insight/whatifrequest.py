"""The body of a what-if request: decoded, validated, and turned into hypothetical changes.

Promises: every error is an `InvalidRequestError` with field, problem and remedy. Each object is decoded in a turn of
its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from dra_extender.api.core import Pod, PodStatus, Toleration
from dra_extender.api.decoding import UNDECODABLE, DecodeError, decode
from dra_extender.api.meta import ObjectMeta
from dra_extender.api.resource import MAX_TOLERATIONS, DeviceClass, ResourceClaim, ResourceClaimSpec, ResourceSlice
from dra_extender.insight.manifests import Draft, draft, hypothetical_claim
from dra_extender.insight.requests import DuplicateObjectError, InvalidRequestError, pod_named
from dra_extender.insight.whatif.changes import (
    MOST_NAMES,
    MOST_NODES,
    MOST_OBJECTS,
    Changes,
)
from dra_extender.scheduling.turns import Turns
from dra_extender.scheduling.view import View

MOST_PODS: Final = 100
"""Pods that are tried at once."""
RESOURCE: Final = "resource.k8s.io/v1"

T = TypeVar("T")

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
Key = Annotated[str, msgspec.Meta(pattern="^[^/]+/[^/]+$", max_length=507, description="NAMESPACE/NAME")]
Text = Annotated[str, msgspec.Meta(max_length=317)]


def _manifest(api_version: str, kinds: Sequence[str], **spec: Any) -> dict[str, Any]:
    """The schema of objects of these kinds, as far as it is not Kubernetes' own."""
    name = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string", "minLength": 1}}}
    return {
        "type": "object",
        "required": ["apiVersion", "kind", "metadata", *(["spec"] if spec else [])],
        "properties": {
            "apiVersion": {"const": api_version},
            "kind": {"enum": list(kinds)},
            "metadata": name,
            "spec": {"type": "object", **spec} if spec else {"type": ["object", "null"]},
        },
    }


_NAMED: Final = {"type": "string", "minLength": 1}
_SLICE: Final = _manifest(
    RESOURCE,
    ("ResourceSlice",),
    required=["driver", "pool"],
    properties={"driver": _NAMED, "pool": {"type": "object", "required": ["name"], "properties": {"name": _NAMED}}},
)
_OBJECT: Final = _manifest(RESOURCE, ("DeviceClass", "ResourceClaim", "ResourceClaimTemplate"))
_POD: Final = _manifest("v1", ("Pod",))
_KEY: Final = {"type": "string", "pattern": "^[^/]+/[^/]+$", "maxLength": 507}

Slice = Annotated[msgspec.Raw, msgspec.Meta(extra_json_schema=_SLICE)]
Manifest = Annotated[msgspec.Raw, msgspec.Meta(extra_json_schema={"anyOf": [_OBJECT, _SLICE]})]
Asked = Annotated[msgspec.Raw, msgspec.Meta(extra_json_schema={"anyOf": [_POD, _KEY]})]


class NodesLike(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """So many more nodes like this one, with nothing on them."""

    like: Name
    count: Annotated[float, msgspec.Meta(ge=1, le=MOST_NODES, multiple_of=1, extra_json_schema={"type": "integer"})] = 1
    """A whole number: to JSON 2.0 is one, too."""


class Tolerated(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A toleration of pods and of their claims."""

    key: Text = ""
    operator: Literal["Exists", "Equal", ""] = ""
    value: Text = ""
    effect: Literal["NoSchedule", "NoExecute", "PreferNoSchedule", "None", ""] = ""


_KEYED: Final = {"required": ["key"], "properties": {"key": _NAMED}}
_ALL: Final = {"required": ["operator"], "properties": {"operator": {"const": "Exists"}}}
Keyed = Annotated[Tolerated, msgspec.Meta(extra_json_schema={"anyOf": [_KEYED, _ALL]})]


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The hypothetical changes. `pods`: NAMESPACE/NAME of existing pods, or manifests of pods to try; without `pods`,
    all pods that wait for devices are tried.
    """

    add_nodes: Annotated[tuple[NodesLike, ...], msgspec.Meta(max_length=MOST_NODES)] = ()
    without_pods: Annotated[tuple[Key, ...], msgspec.Meta(max_length=MOST_NAMES)] = ()
    drain: Annotated[tuple[Name, ...], msgspec.Meta(max_length=MOST_NAMES)] = ()
    with_slices: Annotated[tuple[Slice, ...], msgspec.Meta(max_length=MOST_OBJECTS)] = ()
    with_objects: Annotated[tuple[Manifest, ...], msgspec.Meta(max_length=MOST_OBJECTS)] = ()
    tolerations: Annotated[tuple[Keyed, ...], msgspec.Meta(max_length=MAX_TOLERATIONS)] = ()
    pods: Annotated[tuple[Asked, ...], msgspec.Meta(max_length=MOST_PODS)] = ()


class WhatIfRequest(msgspec.Struct, frozen=True):
    """`drafts`: None means all pods that wait for devices."""

    changes: Changes
    drafts: Sequence[Draft] | None


class _Template(msgspec.Struct, frozen=True, rename="camel"):
    """A ResourceClaimTemplate."""

    class Spec(msgspec.Struct, frozen=True):
        spec: ResourceClaimSpec = ResourceClaimSpec()

    metadata: ObjectMeta
    spec: Spec = Spec()


class _Envelope(msgspec.Struct, frozen=True, rename="camel"):
    """What tells what an object is."""

    api_version: str = ""
    kind: str = ""


_PODS: Final[Mapping[str, type[Any]]] = {"Pod": Pod}
_SLICES: Final[Mapping[str, type[Any]]] = {"ResourceSlice": ResourceSlice}
_OBJECTS: Final[Mapping[str, type[Any]]] = {
    **_SLICES,
    "DeviceClass": DeviceClass,
    "ResourceClaim": ResourceClaim,
    "ResourceClaimTemplate": _Template,
}
_REMEDIES: Final[Mapping[str, str]] = {
    "addNodes": f"give a list such as [{{like: NODE, count: 1}}], 1 to {MOST_NODES} nodes",
    "withoutPods": f"give a list of NAMESPACE/NAME, at most {MOST_NAMES}",
    "drain": f"give a list of names of nodes, at most {MOST_NAMES}",
    "withSlices": f"give a list of ResourceSlices of {RESOURCE}, at most {MOST_OBJECTS}",
    "withObjects": f"give a list of {', '.join(_OBJECTS)} of {RESOURCE}, at most {MOST_OBJECTS}",
    "tolerations": f"give a list such as [{{key: KEY, operator: Exists}}], at most {MAX_TOLERATIONS}",
    "pods": f"give a list of NAMESPACE/NAME or manifests of kind Pod, at most {MOST_PODS}",
}
_ELSEWHERE: Final = f"give an object with any of {', '.join(_REMEDIES)}"
_LONGEST: Final = 300
"""Characters of a problem in an error."""

_body = msgspec.json.Decoder(Body)
_envelope = msgspec.json.Decoder(_Envelope)
_key = msgspec.json.Decoder(Key)


def reading(view: View, body: bytes) -> Turns[WhatIfRequest]:
    """Raises InvalidRequestError."""
    found = _read("", _body, body)
    slices, objects, drafts = [], [], []
    for number, raw in enumerate(found.with_slices):
        slices.append(_object(f"withSlices[{number}]", raw, _SLICES))
        yield
    for number, raw in enumerate(found.with_objects):
        objects.append(_object(f"withObjects[{number}]", raw, _OBJECTS))
        yield
    claims = [item for item in objects if isinstance(item, ResourceClaim)]
    templates = {item.metadata.name: item.spec.spec for item in objects if isinstance(item, _Template)}
    for number, raw in enumerate(found.pods):
        drafts.append(_pod(view, number, raw, claims, templates))
        yield
    _refuse_duplicates(drafts)
    drafted = {claim.metadata.key for item in drafts for claim in item.claims}
    added = [item for item in (*slices, *objects) if not isinstance(item, _Template)]
    changes = Changes(
        added=tuple((item.like, int(item.count)) for item in found.add_nodes),
        without=found.without_pods,
        drained=found.drain,
        objects=tuple(item for item in added if not (isinstance(item, ResourceClaim) and item.metadata.key in drafted)),
        tolerations=tuple(Toleration(item.key, item.operator, item.value, item.effect) for item in found.tolerations),
    )
    return WhatIfRequest(changes, drafts if found.pods else None)


def _object(field: str, raw: msgspec.Raw, kinds: Mapping[str, type[Any]]) -> Any:
    """An object of one of these kinds, with a name. Raises InvalidRequestError."""
    found = _manifested(field, raw, RESOURCE, kinds)
    return hypothetical_claim(found) if isinstance(found, ResourceClaim) else found


def _manifested(field: str, raw: msgspec.Raw, api_version: str, kinds: Mapping[str, type[Any]]) -> Any:
    """What a manifest is of, if it is of one of these kinds and has a name. Raises InvalidRequestError."""
    envelope = _read(field, _envelope, raw)
    if envelope.kind not in kinds or envelope.api_version != api_version:
        what = f"is {envelope.api_version[:80] or 'of no apiVersion'} {envelope.kind[:80] or 'of no kind'}"
        raise _mistake(field, what)
    try:
        found = decode(kinds[envelope.kind], raw)
    except DecodeError as mistake:
        raise _mistake(field, mistake.problem) from None
    if not found.metadata.name:
        raise _mistake(f"{field}.metadata.name", "is empty")
    return found


def _read(field: str, decoder: msgspec.json.Decoder[T], raw: bytes | msgspec.Raw) -> T:
    """Raises InvalidRequestError."""
    try:
        return decoder.decode(raw)
    except UNDECODABLE as problem:
        raise _mistake(field, str(problem) or "is nested too deeply") from None


def _pod(
    view: View,
    number: int,
    raw: msgspec.Raw,
    claims: Sequence[ResourceClaim],
    templates: Mapping[str, ResourceClaimSpec],
) -> Draft:
    """A pod that is there, by its name, or one to try. Raises InvalidRequestError."""
    field = f"pods[{number}]"
    if bytes(raw).startswith(b'"'):
        return Draft(pod_named(view.pods, _read(field, _key, raw), field, "name a pod as NAMESPACE/NAME"), ())
    pod: Pod = _manifested(field, raw, "v1", _PODS)
    meta = pod.metadata
    namespace = meta.namespace or "default"
    new = ObjectMeta(name=meta.name, namespace=namespace, uid=f"draft {number}", labels=meta.labels)
    beside = {claim.metadata.name: claim for claim in claims if claim.metadata.namespace == namespace}
    return draft(Pod(new, replace(pod.spec, node_name=""), PodStatus()), beside, templates)


def _refuse_duplicates(drafts: Sequence[Draft]) -> None:
    """Raises InvalidRequestError."""
    seen: set[str] = set()
    for number, item in enumerate(drafts):
        if item.pod.metadata.key in seen:
            raise DuplicateObjectError(
                f"pods[{number}]", f"there are two pods {item.pod.metadata.key}", "give each a name of its own"
            )
        seen.add(item.pod.metadata.key)


def _mistake(field: str, problem: str) -> InvalidRequestError:
    """`problem` may end with the place in the JSON."""
    what, _, path = problem.partition(" - at `$")
    what = what.replace("`float`", "`int`").removesuffix(".0")  # `count` is the only one, and has to be whole
    whole = f"{field}{path.rstrip('`')}".lstrip(".")
    first = re.match(r"\w*", whole)
    remedy = _REMEDIES.get(first.group() if first else "", _ELSEWHERE)
    return InvalidRequestError(whole[:_LONGEST] or "the body", what[:_LONGEST], remedy)
