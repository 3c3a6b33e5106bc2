"""The forms in which clients ask for objects: whole, as rows of a table, or their metadata only.

`negotiate` chooses one from the Accept header; each encodes single objects, lists and watch events.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

import orjson

from embedded_cluster.apiserver.registry import ServedResource
from embedded_cluster.apiserver.statuses import JSON, StatusError, bad_request
from embedded_cluster.apiserver.storage import StorageEvent, Stored

_JSON_TYPES: Final = ("application/json", "application/*", "*/*")
_INCLUDES: Final = ("", "None", "Metadata", "Object")
_OPEN: Final = b'{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":'


class Representation(Protocol):
    """How objects are encoded for one client."""

    def one(self, stored: Stored) -> bytes: ...

    def many(self, items: Sequence[Stored], metadata: JSON) -> bytes: ...

    def event(self, kind: str, event: StorageEvent) -> bytes: ...


class Whole:
    """Objects as they are, from bytes encoded when they were stored."""

    def __init__(self, resource: ServedResource) -> None:
        self._resource = resource

    def one(self, stored: Stored) -> bytes:
        return self._resource.type_meta + stored.encoded(self._resource)

    def many(self, items: Sequence[Stored], metadata: JSON) -> bytes:
        resource = self._resource
        head = b'{"kind":"%bList","apiVersion":"%b","metadata":%b,"items":[' % (
            resource.kind.kind.encode(),
            resource.api_version.encode(),
            orjson.dumps(metadata),
        )
        if not items:
            return head + b"]}"
        return head + b"{" + b",{".join([item.encoded(resource) for item in items]) + b"]}"

    def event(self, kind: str, event: StorageEvent) -> bytes:
        return event.encoded(kind, self._resource)


class Rows:
    """Tables; of a watch, only the first event has column definitions."""

    def __init__(self, resource: ServedResource, include: str) -> None:
        self._resource = resource
        self._include = include or "Metadata"
        self._headed = True

    def one(self, stored: Stored) -> bytes:
        return self.many([stored], {"resourceVersion": str(stored.revision)})

    def many(self, items: Sequence[Stored], metadata: JSON) -> bytes:
        return _table(self._resource, items, metadata, time.time(), self._include, headed=True)

    def event(self, kind: str, event: StorageEvent) -> bytes:
        metadata = {"resourceVersion": str(event.revision)}
        shown = event.shown(kind)
        body = _table(self._resource, [shown], metadata, time.time(), self._include, headed=self._headed)
        self._headed = False
        return b'{"type":"%b","object":%b}\n' % (kind.encode(), body)


def _columns(resource: ServedResource) -> list[JSON]:
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
    return b'{"cells":%b,"object":%b}' % (cells, orjson.dumps(_partial(stored)))


def _partial(stored: Stored) -> JSON:
    """The object's metadata as PartialObjectMetadata."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": stored.object["metadata"]}


def _table(
    resource: ServedResource, items: Iterable[Stored], metadata: JSON, now: float, include: str, *, headed: bool
) -> bytes:
    """A metav1.Table of `items`; `include` is the request's includeObject; `headed` adds the column definitions."""
    rows = b",".join(_row(resource, stored, now, include) for stored in items)
    heads = b'"columnDefinitions":%b,' % orjson.dumps(_columns(resource)) if headed else b""
    return b'%b%b,%b"rows":[%b]}' % (_OPEN, orjson.dumps(metadata), heads, rows)


class Partial:
    """PartialObjectMetadata."""

    def one(self, stored: Stored) -> bytes:
        return orjson.dumps(_partial(stored))

    def many(self, items: Sequence[Stored], metadata: JSON) -> bytes:
        listed = [_partial(item) for item in items]
        head = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
        return orjson.dumps({**head, "items": listed})

    def event(self, kind: str, event: StorageEvent) -> bytes:
        return b'{"type":"%b","object":%b}\n' % (kind.encode(), self.one(event.shown(kind)))


def negotiate(accept: str, include: str, resource: ServedResource) -> Representation:
    """The first supported form in the Accept header; raises 406 when no form is supported."""
    if not accept:
        return Whole(resource)
    for offer in accept.split(","):
        media, *parameters = (part.strip() for part in offer.split(";"))
        if media not in _JSON_TYPES:
            continue
        wanted = dict(parameter.partition("=")[::2] for parameter in parameters)
        form = wanted.get("as", "")
        if not form:
            return Whole(resource)
        if wanted.get("g") != "meta.k8s.io" or wanted.get("v") != "v1":
            continue
        if form == "Table":
            if include not in _INCLUDES:
                raise bad_request(f'unrecognized includeObject value: "{include}"')
            return Rows(resource, include)
        if form in ("PartialObjectMetadata", "PartialObjectMetadataList"):
            return Partial()
    raise StatusError(406, "NotAcceptable", "only the following media types are accepted: application/json", {})
