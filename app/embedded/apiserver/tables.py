"""Tables: the form in which `kubectl get` asks for objects (`Accept: application/json;as=Table;g=meta.k8s.io;v=v1`)."""

from __future__ import annotations

from collections.abc import Iterable

import orjson

from app.embedded.apiserver.registry import Resource
from app.embedded.apiserver.statuses import JSON
from app.embedded.apiserver.storage import Event, Stored

_OPEN = b'{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":'


def columns(resource: Resource) -> list[JSON]:
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


def _row(resource: Resource, stored: Stored, now: float, include: str) -> bytes:
    cells = orjson.dumps(resource.kind.printer.cells(stored.object, now))
    if include == "None":
        return b'{"cells":%b}' % cells
    if include == "Object":
        return b'{"cells":%b,"object":%b%b}' % (cells, resource.type_meta, stored.encoded(resource))
    partial = {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": stored.object["metadata"],
    }
    return b'{"cells":%b,"object":%b}' % (cells, orjson.dumps(partial))


def table(
    resource: Resource, items: Iterable[Stored], metadata: JSON, now: float, include: str, *, headed: bool = True
) -> bytes:
    """A metav1.Table of `items`; `include` is the request's includeObject; `headed` adds the column definitions."""
    rows = b",".join(_row(resource, stored, now, include) for stored in items)
    heads = orjson.dumps(columns(resource)) if headed else b"[]"
    return b'%b%b,"columnDefinitions":%b,"rows":[%b]}' % (_OPEN, orjson.dumps(metadata), heads, rows)


class TableEncoder:
    """Encodes watch events as one-row tables; only the first has column definitions."""

    def __init__(self, resource: Resource, now: float, include: str) -> None:
        self._resource = resource
        self._now = now
        self._include = include
        self._headed = True

    def __call__(self, kind: str, event: Event) -> bytes:
        metadata = {"resourceVersion": str(event.revision)}
        body = table(self._resource, [event.stored], metadata, self._now, self._include, headed=self._headed)
        self._headed = False
        return b'{"type":"%b","object":%b}\n' % (kind.encode(), body)
