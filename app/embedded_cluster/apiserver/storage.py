"""Objects and their history: one revision counter, one collection per kind, events for everything that changes.

Promises: a stored object is never changed, only replaced; every change has its own revision; each collection keeps
its last `window` events, so a watch can resume and a list can be continued at an older revision until that window
has passed. An object's JSON is encoded once, when it is stored, and shared by all readers; so is each event.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

import orjson

from embedded_cluster.apiserver.registry import Kind, Registry, ServedResource
from embedded_cluster.apiserver.statuses import JSON, expired

Key = tuple[str, str]
"""(namespace, name); the namespace is '' for cluster-wide objects."""

ADDED: Final = "ADDED"
MODIFIED: Final = "MODIFIED"
DELETED: Final = "DELETED"


class Stored:
    """An object as stored: its JSON, its revision, its bytes without type meta, and what selectors look at."""

    __slots__ = ("_converted", "body", "fields", "key", "labels", "object", "revision")

    def __init__(self, key: Key, obj: JSON, revision: int, body: bytes, fields: dict[str, str]) -> None:
        self.key = key
        self.object = obj
        self.revision = revision
        self.body = body
        self.labels: dict[str, str] = obj["metadata"].get("labels") or {}
        self.fields = fields
        self._converted: dict[str, bytes] | None = None

    def thaw(self) -> JSON:
        """A copy that may be changed."""
        copy: JSON = {"kind": self.object["kind"], "apiVersion": self.object["apiVersion"]}
        copy.update(orjson.loads(b"{" + self.body))
        return copy

    def encoded(self, resource: ServedResource) -> bytes:
        """The object's JSON in the form of `resource`, without the opening brace and type meta."""
        if resource.conversion is None:
            return self.body
        if self._converted is None:
            self._converted = {}
        body = self._converted.get(resource.api_version)
        if body is None:
            body = without_type_meta(resource.conversion.from_stored(self.object))
            self._converted[resource.api_version] = body
        return body


class StorageEvent:
    """One change of one object. `previous` is what selectors saw before; the encoding is shared by all watchers."""

    __slots__ = ("_encoded", "_left", "previous", "revision", "stored", "type")

    def __init__(self, kind: str, stored: Stored, previous: Stored | None) -> None:
        self.type = kind
        self.stored = stored
        self.previous = previous
        self.revision = stored.revision
        self._encoded: dict[tuple[str, str], bytes] = {}
        self._left: Stored | None = None

    def shown(self, kind: str) -> Stored:
        """The object as the event shows it to who sees it as one of type `kind`: one that left a selector as it last
        matched, with the revision of the event."""
        if kind != DELETED or self.type == DELETED or self.previous is None:
            return self.stored
        if self._left is None:
            last = self.previous.thaw()
            last["metadata"]["resourceVersion"] = str(self.revision)
            self._left = Stored(self.stored.key, last, self.revision, without_type_meta(last), self.previous.fields)
        return self._left

    def encoded(self, kind: str, resource: ServedResource) -> bytes:
        """The line of the watch stream that reports this event to `resource`'s watchers as one of type `kind`."""
        line = self._encoded.get((kind, resource.api_version))
        if line is None:
            line = frame(kind, resource, self.shown(kind).encoded(resource))
            self._encoded[kind, resource.api_version] = line
        return line


def frame(kind: str, resource: ServedResource, body: bytes) -> bytes:
    """One line of a watch stream."""
    return b'{"type":"%b","object":%b%b}\n' % (kind.encode(), resource.type_meta, body)


def without_type_meta(obj: JSON) -> bytes:
    """The object's JSON from its metadata on: `"metadata":{...},...}`."""
    return orjson.dumps({key: value for key, value in obj.items() if key not in ("kind", "apiVersion")})[1:]


Listener = Callable[[StorageEvent], None]


class Collection:
    """All objects of one kind."""

    def __init__(self, kind: Kind, window: int) -> None:
        self.kind = kind
        self.items: dict[Key, Stored] = {}
        self.history: deque[StorageEvent] = deque(maxlen=window)
        self.listeners: list[Listener] = []
        self.forgotten = 0
        """The highest revision whose event is no longer in `history`."""
        self._sorted: list[Stored] | None = None

    def sorted(self) -> list[Stored]:
        """The current objects in key order; shared, not to be changed."""
        if self._sorted is None:
            self._sorted = [self.items[key] for key in sorted(self.items)]
        return self._sorted

    def record(self, event: StorageEvent) -> None:
        """Keep an event and notify the listeners."""
        if len(self.history) == self.history.maxlen:
            self.forgotten = self.history[0].revision
        self.history.append(event)
        self._sorted = None
        for listener in tuple(self.listeners):
            listener(event)

    def since(self, revision: int) -> list[StorageEvent]:
        """The events after `revision`; raises 410 when some of them are forgotten."""
        if revision < self.forgotten:
            raise expired(f"too old resource version: {revision} ({self.forgotten})")
        events = self.history
        if not events or events[-1].revision <= revision:
            return []
        found: list[StorageEvent] = []
        for event in reversed(events):
            if event.revision <= revision:
                break
            found.append(event)
        found.reverse()
        return found

    def at(self, revision: int) -> list[Stored]:
        """The objects as they were at `revision`, in key order; raises 410 when that is forgotten."""
        undo = self.since(revision)
        if not undo:
            return self.sorted()
        items = dict(self.items)
        for event in reversed(undo):
            if event.previous is None:
                items.pop(event.stored.key, None)
            else:
                items[event.stored.key] = event.previous
        return [items[key] for key in sorted(items)]


class Storage:
    """All collections and the revision they share."""

    def __init__(self, registry: Registry, window: int = 20_000) -> None:
        self.revision = 1
        self.collections = {kind.key: Collection(kind, window) for kind in registry.kinds()}

    def collection(self, kind: Kind) -> Collection:
        return self.collections[kind.key]

    def put(self, kind: Kind, obj: JSON) -> Stored:
        """Store `obj` (complete, owned by the storage from now on) under its namespace and name."""
        collection = self.collections[kind.key]
        metadata = obj["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        previous = collection.items.get(key)
        stored = self._next(kind, key, obj)
        collection.items[key] = stored
        collection.record(StorageEvent(ADDED if previous is None else MODIFIED, stored, previous))
        return stored

    def remove(self, kind: Kind, key: Key, last: JSON | None = None) -> Stored:
        """Forget an object; its last state (as stored, or `last`) gets the revision of the deletion, as watchers
        see it."""
        collection = self.collections[kind.key]
        previous = collection.items.pop(key)
        last = dict(previous.object if last is None else last)
        last["metadata"] = dict(last["metadata"])
        stored = self._next(kind, key, last)
        collection.record(StorageEvent(DELETED, stored, previous))
        return stored

    def _next(self, kind: Kind, key: Key, obj: JSON) -> Stored:
        self.revision += 1
        obj["metadata"]["resourceVersion"] = str(self.revision)
        ordered: JSON = {"kind": kind.kind, "apiVersion": obj["apiVersion"], "metadata": obj["metadata"]}
        ordered.update(obj)
        return Stored(key, ordered, self.revision, without_type_meta(ordered), self._fields(kind, ordered))

    @staticmethod
    def _fields(kind: Kind, obj: JSON) -> dict[str, str]:
        metadata = obj["metadata"]
        fields = {"metadata.name": metadata["name"]}
        if kind.namespaced:
            fields["metadata.namespace"] = metadata.get("namespace", "")
        fields.update(kind.strategy.fields(obj))
        return fields

    def forget(self, collections: Iterable[Collection] | None = None) -> None:
        """Drop all history: every watch at an older revision is answered with 410 from now on."""
        for collection in self.collections.values() if collections is None else collections:
            collection.history.clear()
            collection.forgotten = self.revision


def page(items: list[Stored], after: Key | None) -> int:
    """The index of the first item behind `after` in key order."""
    return 0 if after is None else bisect_right(items, after, key=lambda stored: stored.key)
