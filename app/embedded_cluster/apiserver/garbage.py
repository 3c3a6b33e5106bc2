"""Objects that have lost their owners: dependents of deleted owners, and the contents of deleted namespaces.

Follows every change of the storage. Deleting is put off to a task of its own, as the real garbage collector is a
controller: a client sees the owner go first and the dependents a moment later.
"""

from __future__ import annotations

import asyncio
from typing import Final

from embedded_cluster.apiserver.registry import Kind, Registry
from embedded_cluster.apiserver.statuses import JSON, StatusError
from embedded_cluster.apiserver.storage import ADDED, DELETED, Key, Listener, Storage, StorageEvent, Stored
from embedded_cluster.apiserver.strategy import DeleteOptions, WriteOptions
from embedded_cluster.apiserver.verbs import FOREGROUND, ObjectVerbs

Item = tuple[Kind, Key, str]
"""(kind, key, uid) of one object."""

_NOW: Final = DeleteOptions(grace=None)


class Garbage:
    """Collects in the background between `start` and `stop`; `collect` does it at once."""

    def __init__(self, storage: Storage, registry: Registry, verbs: ObjectVerbs) -> None:
        self._storage = storage
        self._registry = registry
        self._verbs = verbs
        self._alive: dict[str, Item] = {}
        self._dependents: dict[str, set[str]] = {}
        self._orphaned: set[str] = set()
        self._suspects: dict[str, Item] = {}
        self._work = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        for collection in storage.collections.values():
            collection.listeners.append(self._listener(collection.kind))

    def _listener(self, kind: Kind) -> Listener:
        namespaces = kind.key == ("", "namespaces")

        def hear(event: StorageEvent) -> None:
            self._hear(kind, event)
            if namespaces and event.stored.object["metadata"].get("deletionTimestamp"):
                self._suspect((kind, event.stored.key, event.stored.object["metadata"]["uid"]))
            elif event.type == DELETED and event.stored.key[0]:
                self._recheck_namespace(event.stored.key[0])

        return hear

    def _hear(self, kind: Kind, event: StorageEvent) -> None:
        metadata = event.stored.object["metadata"]
        uid: str = metadata["uid"]
        item = (kind, event.stored.key, uid)
        before = _owners(event.previous.object["metadata"]) if event.previous else ()
        if event.type == DELETED:
            self._alive.pop(uid, None)
            for owner in before:
                self._dependents.get(owner, set()).discard(uid)
                self._recheck_foreground(owner)
            self._owner_gone(uid)
            return
        owners = _owners(metadata)
        if event.type == ADDED:
            self._alive[uid] = item
        if FOREGROUND in metadata.get("finalizers", ()) and metadata.get("deletionTimestamp"):
            self._suspect(item)
        if owners == before:
            return
        for owner in before:
            self._dependents.get(owner, set()).discard(uid)
        for owner in owners:
            self._dependents.setdefault(owner, set()).add(uid)
        if owners and not any(owner in self._alive for owner in owners):
            self._suspect(item)

    def _owner_gone(self, uid: str) -> None:
        dependents = self._dependents.pop(uid, None) or ()
        orphaned = uid in self._orphaned
        self._orphaned.discard(uid)
        for dependent in sorted(dependents):
            if dependent in self._alive and not orphaned:
                self._suspect(self._alive[dependent])

    def _recheck_foreground(self, uid: str) -> None:
        """An owner that waits for its dependents may go when the last is gone."""
        if uid in self._alive:
            kind, key, _ = self._alive[uid]
            metadata = self._storage.collection(kind).items[key].object["metadata"]
            if FOREGROUND in metadata.get("finalizers", ()):
                self._suspect(self._alive[uid])

    def orphan(self, uid: str) -> None:
        """The dependents of this owner are to stay when it goes; they lose their reference to it now."""
        self._orphaned.add(uid)
        for dependent in sorted(self._dependents.get(uid, ())):
            kind, key, _ = self._alive[dependent]
            new = self._storage.collection(kind).items[key].thaw()
            metadata = new["metadata"]
            metadata["ownerReferences"] = [owner for owner in metadata["ownerReferences"] if owner.get("uid") != uid]
            if not metadata["ownerReferences"]:
                del metadata["ownerReferences"]
            self._storage.put(kind, new)

    def _recheck_namespace(self, name: str) -> None:
        kind = self._registry.stored_form("namespaces").kind
        found = self._storage.collection(kind).items.get(("", name))
        if found is not None and found.object["metadata"].get("deletionTimestamp"):
            self._suspect((kind, found.key, found.object["metadata"]["uid"]))

    def _suspect(self, item: Item) -> None:
        self._suspects[item[2]] = item
        self._work.set()

    # collecting

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="garbage-collector")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            self.collect()

    def collect(self) -> int:
        """Delete everything that is garbage now; returns how many objects were looked at."""
        looked = 0
        while self._suspects:
            looked += 1
            uid = next(iter(self._suspects))
            kind, key, _ = self._suspects.pop(uid)
            stored = self._storage.collection(kind).items.get(key)
            if stored is None or stored.object["metadata"]["uid"] != uid:
                continue
            if kind.key == ("", "namespaces"):
                self._empty_namespace(kind, key)
                if not stored.object["metadata"].get("ownerReferences"):
                    continue
            metadata = stored.object["metadata"]
            if FOREGROUND in metadata.get("finalizers", ()) and metadata.get("deletionTimestamp"):
                self._finish_foreground(kind, stored)
                continue
            owners = _owners(metadata)
            if owners and not any(owner in self._alive for owner in owners):
                self._delete(kind, key)
        return looked

    def _delete(self, kind: Kind, key: Key) -> None:
        resource = self._registry.of_kind(kind)
        try:
            self._verbs.delete(resource, *key, _NOW, WriteOptions())
        except StatusError as error:
            if error.code not in (404, 409):
                raise

    def _finish_foreground(self, kind: Kind, owner: Stored) -> None:
        """Delete the dependents of an owner that waits for them; without dependents, delete the owner."""
        uid = owner.object["metadata"]["uid"]
        dependents = [self._alive[each] for each in sorted(self._dependents.get(uid, ())) if each in self._alive]
        for dependent_kind, key, _ in dependents:
            self._delete(dependent_kind, key)
        if self._dependents.get(uid):
            return
        new = owner.thaw()
        new["metadata"]["finalizers"].remove(FOREGROUND)
        resource = self._registry.of_kind(kind)
        self._verbs.replace(resource, owner, new, WriteOptions())

    def _empty_namespace(self, kind: Kind, key: Key) -> None:
        name, left = key[1], 0
        for collection in self._storage.collections.values():
            for other in [other for other in collection.items if other[0] == name]:
                self._delete(collection.kind, other)
            left += sum(1 for other in collection.items if other[0] == name)
        stored = self._storage.collection(kind).items.get(key)
        if left or stored is None:
            return
        self._storage.remove(kind, key)


def _owners(metadata: JSON) -> tuple[str, ...]:
    return tuple(owner.get("uid", "") for owner in metadata.get("ownerReferences") or ())
