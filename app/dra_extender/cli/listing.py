"""Names of objects, for shell completion. Loads the API client, so import it only when needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from dra_extender.cli.cluster import connected, stored
from dra_extender.cli.source import Source
from dra_extender.kube.pages import list_pages
from dra_extender.kube.resources import NODES, PODS, Identity, Resource, device_classes, identify, resource_slices

_NAMESPACES: Final[Resource[Identity]] = Resource("", "v1", "namespaces", "Namespace", identify)
_RESOURCES: Final[dict[str, Callable[[str], Resource[Any]]]] = {
    "pods": lambda version: PODS,
    "nodes": lambda version: NODES,
    "namespaces": lambda version: _NAMESPACES,
    "deviceclasses": device_classes,
    "drivers": resource_slices,
}
"""Version of resource.k8s.io -> what tells the names."""
_FILED: Final[dict[str, tuple[str, ...]]] = {
    "drivers": ("resourceslices",),
    "namespaces": ("pods", "resourceclaims"),
}
"""The same in a file, where it is not what is listed in a cluster."""


async def listed(source: Source, kind: str, namespace: str = "") -> list[str]:
    """The names on the first page, or all of a file. Raises as `read`."""
    if source.from_file:
        file = stored(source)
        items = (item for plural in _FILED.get(kind, (kind,)) for item in file.objects.get(plural, ()))
        return list(_names(kind, items, namespace))
    async with connected(source) as (client, served):
        selector = {"fieldSelector": f"metadata.namespace={namespace}"} if namespace else {}
        async for page in list_pages(client, _RESOURCES[kind](served.version), selector):
            return list(_names(kind, page.items or (), namespace))
    return []


class _Spec(msgspec.Struct, frozen=True):
    driver: str = ""


class _Slice(msgspec.Struct, frozen=True):
    spec: _Spec = _Spec()


def _names(kind: str, items: Iterable[msgspec.Raw], namespace: str) -> Iterator[str]:
    for item in items:
        found = identify(item)
        if kind == "drivers":
            yield msgspec.json.decode(item, type=_Slice).spec.driver
        elif kind == "namespaces":
            yield found.namespace or found.name
        elif not namespace or found.namespace == namespace:
            yield found.name
