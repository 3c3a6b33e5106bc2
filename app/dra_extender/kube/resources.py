"""The kinds of objects that are read from the API server: where each is served and how its JSON becomes a struct.

A `Resource` is pure data plus a decoder; it promises that `decode` gives the v1 form whatever version is served.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import msgspec

from dra_extender.api import outline, v1beta1
from dra_extender.api import resource as v1
from dra_extender.api.core import Node, Pod
from dra_extender.api.decoding import UNDECODABLE, decode
from dra_extender.api.errors import NOT_FOUND, NotFoundError
from dra_extender.api.meta import Object
from dra_extender.api.partial import PartialAllocation, partial_allocation
from dra_extender.api.policy import PodDisruptionBudget
from dra_extender.kube.discovery import Served

T = TypeVar("T")


class Resource(msgspec.Struct, Generic[T], frozen=True):
    """One kind as served: `plural` in `group`/`version`; the core group is empty."""

    group: str
    version: str
    plural: str
    kind: str
    decode: Callable[[bytes | msgspec.Raw], T]
    namespaced: bool = False
    partial: Callable[[bytes | msgspec.Raw], PartialAllocation] | None = None
    """Reads what an object that cannot be decoded holds."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path of the collection, of one object, or of its subresource; no namespace means all of them.

        Raises NotFoundError for names that cannot exist, before anything is asked.
        """
        namespace, name = segment(namespace), segment(name)
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        if namespace:
            root += f"/namespaces/{namespace}"
        return "/".join(part for part in (root, self.plural, name, subresource) if part)


def segment(name: str) -> str:
    """A name as one segment of a URL path.

    Names come from requests and from objects of other people: what stands in them is part of the name, also a slash or
    a question mark. "." and ".." cannot be quoted: on its way such a segment is taken for a step to another path.
    Kubernetes gives no object these names (IsValidPathSegmentName of k8s.io/apimachinery), so there is none: raises
    NotFoundError.
    """
    if name in (".", ".."):
        raise NotFoundError(NOT_FOUND, "NotFound", f'no object can have the name "{name}": nothing was asked for')
    return quote(name, safe=":")


class _Meta(Object, frozen=True, gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Envelope(Object, frozen=True, gc=False):
    metadata: _Meta = _Meta()


class Identity(msgspec.Struct, frozen=True, gc=False):
    """What can be read even of an object that does not decode."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


_envelope = msgspec.json.Decoder(_Envelope)


def identify(data: bytes | msgspec.Raw) -> Identity:
    """The identity of any object, however little of it can be read; fields that cannot be are empty."""
    try:
        meta = _envelope.decode(data).metadata
    except UNDECODABLE:
        found = outline.identity(data)
        return Identity(*(found.get(field, "") for field in ("namespace", "name", "uid", "resourceVersion")))
    return Identity(meta.namespace, meta.name, meta.uid, meta.resource_version)


def _node(data: bytes | msgspec.Raw) -> Node:
    return decode(Node, data)


def _pod(data: bytes | msgspec.Raw) -> Pod:
    return decode(Pod, data)


def _device_class(data: bytes | msgspec.Raw) -> v1.DeviceClass:
    return decode(v1.DeviceClass, data)


def _taint_rule(data: bytes | msgspec.Raw) -> v1.DeviceTaintRule:
    return decode(v1.DeviceTaintRule, data)


def _claim(data: bytes | msgspec.Raw) -> v1.ResourceClaim:
    return decode(v1.ResourceClaim, data)


def _slice(data: bytes | msgspec.Raw) -> v1.ResourceSlice:
    return decode(v1.ResourceSlice, data)


def _claim_v1beta1(data: bytes | msgspec.Raw) -> v1.ResourceClaim:
    return decode(v1beta1.ResourceClaim, data).convert()


def _slice_v1beta1(data: bytes | msgspec.Raw) -> v1.ResourceSlice:
    return decode(v1beta1.ResourceSlice, data).convert()


NODES: Resource[Node] = Resource("", "v1", "nodes", "Node", _node)
PODS: Resource[Pod] = Resource("", "v1", "pods", "Pod", _pod, namespaced=True)


def _budget(data: bytes | msgspec.Raw) -> PodDisruptionBudget:
    return decode(PodDisruptionBudget, data)


BUDGETS: Resource[PodDisruptionBudget] = Resource(
    "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", _budget, namespaced=True
)


def resource_claims(version: str) -> Resource[v1.ResourceClaim]:
    """Claims in `v1`, `v1beta2` (same layout) or `v1beta1` (requests are flat)."""
    read = _claim_v1beta1 if version == "v1beta1" else _claim
    return Resource(
        v1.GROUP, version, "resourceclaims", "ResourceClaim", read, namespaced=True, partial=partial_allocation
    )


def resource_slices(version: str) -> Resource[v1.ResourceSlice]:
    """Slices in `v1`, `v1beta2` (same layout) or `v1beta1` (devices under `basic`)."""
    read = _slice_v1beta1 if version == "v1beta1" else _slice
    return Resource(v1.GROUP, version, "resourceslices", "ResourceSlice", read)


def device_classes(version: str) -> Resource[v1.DeviceClass]:
    """Classes; the layout is the same in all versions."""
    return Resource(v1.GROUP, version, "deviceclasses", "DeviceClass", _device_class)


def device_taint_rules(version: str) -> Resource[v1.DeviceTaintRule]:
    """Taint rules; the layout is the same in all versions."""
    return Resource(v1.GROUP, version, "devicetaintrules", "DeviceTaintRule", _taint_rule)


def followed(served: Served, *, budgets: bool = False) -> tuple[Resource[Any], ...]:
    """All kinds that decisions are made of, in the versions that are served. `budgets`: those of preemption, too."""
    kinds = (device_classes, resource_slices, resource_claims)
    rules = (device_taint_rules(served.taint_rules),) if served.taint_rules else ()
    more = (BUDGETS,) if budgets else ()
    return (NODES, PODS, *(kind(served.version) for kind in kinds), *rules, *more)
