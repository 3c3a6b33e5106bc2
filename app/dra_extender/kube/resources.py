"""The kinds that the service reads from the API server: versions, URL paths and decoders.

Claims, slices and classes are read in v1. `discover` promises that it is served, and gives the newest served version
of DeviceTaintRules, and of PodGroups in each of their API groups.

`list_pages` promises: all pages belong to one consistent list; every failure is an ApiError, also a response that is
not a list. An item that is nested too deeply for the decoder is returned like the others. A page has at most
`PAGE_ITEMS` items, and at most `PAGE_BYTES` bytes unless a single item is larger, so large objects cannot exhaust the
memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import msgspec

from dra_extender.api import resource as v1
from dra_extender.api.core import Node, Pod, PodDisruptionBudget
from dra_extender.api.decoding import UNDECODABLE, Outline, OutlineError, decode, identity
from dra_extender.api.errors import NOT_FOUND, ApiError, NotFoundError, NotServedError, RejectedError, TooLargeError
from dra_extender.api.events import PartialAllocation, partial_allocation
from dra_extender.api.meta import Object
from dra_extender.api.resource import GROUP
from dra_extender.api.scheduling import CoschedulingPodGroup, PodGroup
from dra_extender.kube.client import KubeClient, decoded

RULE_VERSIONS = ("v1", "v1beta2", "v1alpha3")
POD_GROUP_VERSIONS = {
    PodGroup.api_group: ("v1beta1", "v1alpha3", "v1alpha2"),
    CoschedulingPodGroup.api_group: ("v1alpha1",),
}
POD_GROUPS = tuple((group, versions[0]) for group, versions in POD_GROUP_VERSIONS.items())

T = TypeVar("T")


class Served(msgspec.Struct, frozen=True):
    """`taint_rules` is the version that has DeviceTaintRules, or empty. `pod_groups` are API groups and their versions
    that have PodGroups.
    """

    taint_rules: str = ""
    server_version: str = ""
    pod_groups: tuple[tuple[str, str], ...] = ()


class _Entry(msgspec.Struct, frozen=True):
    name: str = ""
    version: str = ""


class _Discovery(msgspec.Struct, frozen=True, rename="camel"):
    """The versions of an API group, the resources of one of them, or the version of the API server."""

    versions: tuple[_Entry, ...] = ()
    resources: tuple[_Entry, ...] = ()
    git_version: str = ""


async def discover(client: KubeClient) -> Served:
    """Ask the API server. Raises RejectedError if it does not serve resource.k8s.io/v1, and the client's ApiErrors. An
    API group that answers with an error may have PodGroups: without them, gangs would be bound pod by pod.
    """
    resources = await _resources(client, GROUP, RULE_VERSIONS)
    if "resourceclaims" not in resources.get("v1", ()):
        offered = ", ".join(sorted(resources)) or "none"
        text = (
            f"the API server does not serve claims in {GROUP}/v1 (versions served: {offered}): "
            "upgrade it to Kubernetes 1.34 or newer, or turn the version on with its --runtime-config"
        )
        raise RejectedError(404, "NotServed", text)
    rules = _newest(resources, RULE_VERSIONS, "devicetaintrules")
    groups: list[tuple[str, str]] = []
    for group, versions in POD_GROUP_VERSIONS.items():
        if version := _newest(await _resources(client, group, versions), versions, "podgroups"):
            groups.append((group, version))
    server_version = ""
    with suppress(ApiError):
        server_version = (await _get(client, "/version")).git_version
    return Served(rules, server_version, tuple(groups))


async def _resources(client: KubeClient, group: str, versions: Sequence[str]) -> dict[str, frozenset[str]]:
    """The offered versions of the API group, and the resources of those in `versions`."""
    found: dict[str, frozenset[str]] = {}
    with suppress(NotServedError):
        found = {entry.version: frozenset() for entry in (await _get(client, f"/apis/{group}")).versions}
    for version in found.keys() & versions:
        listed = await _get(client, f"/apis/{group}/{version}")
        found[version] = frozenset(resource.name for resource in listed.resources)
    return found


def _newest(resources: Mapping[str, frozenset[str]], versions: Sequence[str], plural: str) -> str:
    """The first of the versions that has the resource, or empty."""
    return next((version for version in versions if plural in resources.get(version, ())), "")


async def _get(client: KubeClient, path: str) -> _Discovery:
    """Raises ApiError."""
    return decoded(_Discovery, await client.get(path), path)


class Resource(msgspec.Struct, Generic[T], frozen=True):
    """One kind as served: `plural` in `group`/`version`; the core group is empty."""

    group: str
    version: str
    plural: str
    kind: str
    decode: Callable[[bytes | msgspec.Raw], T]
    read_partially: Callable[[bytes | msgspec.Raw], PartialAllocation] | None = None
    """Reads the devices of a claim that cannot be decoded."""
    optional: bool = False
    """Other decisions than those about gangs do not need it: the service is Ready without it."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path of the collection, of one object, or of its subresource; no namespace means all of them.

        Raises NotFoundError for names that cannot exist.
        """
        namespace, name = segment(namespace), segment(name)
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        if namespace:
            root += f"/namespaces/{namespace}"
        return "/".join(part for part in (root, self.plural, name, subresource) if part)


def segment(name: str) -> str:
    """A name as one segment of a URL path.

    Names come from requests and from objects, so every character is quoted, also a slash or a question mark. Raises
    NotFoundError for "." and "..": they cannot be quoted, clients and proxies resolve such segments, and no object has
    these names (IsValidPathSegmentName of k8s.io/apimachinery).
    """
    if name in (".", ".."):
        raise NotFoundError(NOT_FOUND, "NotFound", f'no object can have the name "{name}": nothing was asked for')
    return quote(name, safe=":")


class Identity(Object, frozen=True, gc=False):
    """The part of the metadata that can be read even of an undecodable object."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class _Identified(Object, frozen=True, gc=False):
    metadata: Identity = Identity()


_envelope = msgspec.json.Decoder(_Identified)


def identify(data: bytes | msgspec.Raw) -> Identity:
    """The identity of any object; fields that cannot be read are empty."""
    try:
        return _envelope.decode(data).metadata
    except UNDECODABLE:
        return msgspec.convert(identity(data), Identity)


NODES: Resource[Node] = Resource("", "v1", "nodes", "Node", partial(decode, Node))
PODS: Resource[Pod] = Resource("", "v1", "pods", "Pod", partial(decode, Pod))
BUDGETS: Resource[PodDisruptionBudget] = Resource(
    "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", partial(decode, PodDisruptionBudget)
)
RESOURCE_CLAIMS: Resource[v1.ResourceClaim] = Resource(
    GROUP, "v1", "resourceclaims", "ResourceClaim", partial(decode, v1.ResourceClaim), partial_allocation
)
RESOURCE_SLICES: Resource[v1.ResourceSlice] = Resource(
    GROUP, "v1", "resourceslices", "ResourceSlice", partial(decode, v1.ResourceSlice)
)
DEVICE_CLASSES: Resource[v1.DeviceClass] = Resource(
    GROUP, "v1", "deviceclasses", "DeviceClass", partial(decode, v1.DeviceClass)
)


def device_taint_rules(version: str) -> Resource[v1.DeviceTaintRule]:
    """Taint rules; the layout is the same in all versions."""
    return Resource(GROUP, version, "devicetaintrules", "DeviceTaintRule", partial(decode, v1.DeviceTaintRule))


def pod_groups(group: str, version: str) -> Resource[PodGroup]:
    kind = PodGroup if group == PodGroup.api_group else CoschedulingPodGroup
    return Resource(group, version, "podgroups", kind.__name__, partial(decode, kind), optional=True)


def watched_kinds(served: Served, *, budgets: bool = False) -> tuple[Resource[Any], ...]:
    """All kinds that decisions read, in the served versions. `budgets`: PodDisruptionBudgets, too."""
    rules = (device_taint_rules(served.taint_rules),) if served.taint_rules else ()
    groups = (pod_groups(*each) for each in served.pod_groups)
    more = (BUDGETS,) if budgets else ()
    return (NODES, PODS, DEVICE_CLASSES, RESOURCE_SLICES, RESOURCE_CLAIMS, *rules, *groups, *more)


PAGE_ITEMS = 500
PAGE_BYTES = 2**24
_FEWER = 8
"""A page that is too large is requested again with its number of items divided by this, up to the next small page."""
_TIMEOUT = 60.0


class _ListMeta(Object, frozen=True, gc=False):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class Page(Object, frozen=True):
    """One page of a list. The resourceVersion belongs to the whole list."""

    metadata: _ListMeta = _ListMeta()
    items: list[msgspec.Raw] | None = None


_page = msgspec.json.Decoder(Page)
_meta = msgspec.json.Decoder(_ListMeta)


async def list_pages(client: KubeClient, resource: Resource[Any], selector: Mapping[str, str]) -> AsyncIterator[Page]:
    """One page or more. `selector`: fieldSelector and labelSelector. Raises ApiError."""
    token, size = "", PAGE_ITEMS
    while True:
        params = {**selector, "limit": str(size)} | ({"continue": token} if token else {})
        try:
            data = await client.get(resource.path(), params, timeout=_TIMEOUT, most=PAGE_BYTES if size > 1 else None)
        except TooLargeError:
            size = max(1, size // _FEWER)
            continue
        if len(data) * _FEWER < PAGE_BYTES:
            size = min(size * _FEWER, PAGE_ITEMS)
        page = await _decoded(resource, data)
        yield page
        token = page.metadata.continue_
        if not token:
            return


async def _decoded(resource: Resource[Any], data: bytes) -> Page:
    try:
        page = _page.decode(data)
    except UNDECODABLE as problem:
        try:
            # A page full of brackets takes seconds: a thread scans it, so the event loop goes on.
            page = await asyncio.to_thread(_outlined, data)
        except UNDECODABLE:
            raise ApiError(0, "Malformed", f"list of {resource.plural}: {problem}") from None
    if not page.metadata.resource_version:  # what a proxy answers must not count as an empty list
        raise ApiError(0, "Malformed", f"list of {resource.plural}: it has no metadata.resourceVersion")
    return page


def _outlined(data: bytes) -> Page:
    """The page, found by its brackets. Raises ValueError."""
    page = Outline(data, steps=None)
    parts = {name: at for name, at in page.members() if name in ("metadata", "items")}
    if parts.keys() != {"metadata", "items"}:
        raise OutlineError("not a list")
    metadata = _meta.decode(page.value(parts["metadata"]))
    return Page(metadata, [page.value(at) for at in page.elements(parts["items"])])
