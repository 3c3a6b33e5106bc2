"""Tables: the form in which `kubectl get` asks for objects (`Accept: application/json;as=Table;g=meta.k8s.io;v=v1`)."""

from __future__ import annotations

from collections.abc import Iterable

import orjson

from embedded_cluster.apiserver.registry import ServedResource
from embedded_cluster.apiserver.statuses import JSON
from embedded_cluster.apiserver.storage import Stored

_OPEN = b'{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":'


def columns(resource: ServedResource) -> list[JSON]:
    """metav1.TableColumnDefinitions of a resource."""
    return [
        {
            "name": column.name,
            "type": column.type,
            "format": column.format,
            "description": column.description,
            "priority": column.priority,
        }
        for column in resource.kind.printer.columns
    ]


def _row(resource: ServedResource, stored: Stored, now: float, include: str) -> bytes:
    cells = orjson.dumps(resource.kind.printer.cells(stored.object, now))
    conditions = resource.kind.printer.conditions(stored.object)
    if conditions:
        cells += b',"conditions":' + orjson.dumps(conditions)
    if include == "None":
        return b'{"cells":%b}' % cells
    if include == "Object":
        return b'{"cells":%b,"object":%b%b}' % (cells, resource.type_meta, stored.encoded(resource))
    return b'{"cells":%b,"object":%b}' % (cells, orjson.dumps(partial(stored)))


def partial(stored: Stored) -> JSON:
    """The object's metadata as PartialObjectMetadata."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": stored.object["metadata"]}


def table(
    resource: ServedResource, items: Iterable[Stored], metadata: JSON, now: float, include: str, *, headed: bool = True
) -> bytes:
    """A metav1.Table of `items`; `include` is the request's includeObject; `headed` adds the column definitions."""
    rows = b",".join(_row(resource, stored, now, include) for stored in items)
    heads = b'"columnDefinitions":%b,' % orjson.dumps(columns(resource)) if headed else b""
    return b'%b%b,%b"rows":[%b]}' % (_OPEN, orjson.dumps(metadata), heads, rows)
