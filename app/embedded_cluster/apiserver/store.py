"""The cluster's objects for programs in the same process: what HTTP clients can do, without HTTP.

Same rules, same history, same watches; objects are plain dicts with apiVersion and kind. What is returned is a copy.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator

from embedded_cluster.apiserver.registry import Registry, ServedResource
from embedded_cluster.apiserver.selectors import parse
from embedded_cluster.apiserver.statuses import JSON, StatusError, bad_request
from embedded_cluster.apiserver.storage import Storage, StorageEvent, Stored
from embedded_cluster.apiserver.strategy import DeleteOptions, WriteOptions
from embedded_cluster.apiserver.verbs import ObjectVerbs


class Store:
    """Errors are StatusErrors, as over HTTP. `manager` is the field manager of writes; '' leaves managedFields
    alone."""

    def __init__(self, registry: Registry, storage: Storage, verbs: ObjectVerbs) -> None:
        self._registry = registry
        self._storage = storage
        self._verbs = verbs

    @property
    def revision(self) -> int:
        """The revision of the last change."""
        return self._storage.revision

    def _resource(self, obj: JSON) -> ServedResource:
        api_version, kind = obj.get("apiVersion", ""), obj.get("kind", "")
        resource = self._registry.of_object(api_version, kind)
        if resource is None:
            raise bad_request(f'no matches for kind "{kind}" in version "{api_version}"')
        return resource

    @staticmethod
    def _namespace(resource: ServedResource, namespace: str) -> str:
        return (namespace or "default") if resource.kind.namespaced else ""

    def create(self, obj: JSON, *, manager: str = "") -> JSON:
        """Create an object; namespaced ones without a namespace go to `default`."""
        return self.create_stored(obj, manager=manager).thaw()

    def create_stored(self, obj: JSON, *, manager: str = "") -> Stored:
        """`create` for many objects: without the copy."""
        resource = self._resource(obj)
        namespace = self._namespace(resource, obj.get("metadata", {}).get("namespace", ""))
        return self._verbs.create(resource, namespace, obj, WriteOptions(manager=manager))

    def create_all(self, objects: Iterable[JSON]) -> int:
        """Create many objects; returns how many. Nothing of it is garbage, so the collector is off until the end."""
        collecting, count = gc.isenabled(), 0
        gc.disable()
        try:
            for obj in objects:
                self.create_stored(obj)
                count += 1
        finally:
            if collecting:
                gc.enable()
        return count

    def update(self, obj: JSON, *, subresource: str = "", manager: str = "") -> JSON:
        """Replace an object (or its status)."""
        resource, metadata = self._resource(obj), obj["metadata"]
        namespace = self._namespace(resource, metadata.get("namespace", ""))
        stored, _ = self._verbs.update(
            resource, namespace, metadata["name"], obj, WriteOptions(manager=manager), subresource
        )
        return stored.thaw()

    def get(self, plural: str, name: str, namespace: str = "") -> JSON | None:
        """An object, or None."""
        resource = self._registry.stored_form(plural)
        try:
            return self._verbs.get(resource, self._namespace(resource, namespace), name).thaw()
        except StatusError:
            return None

    def list(self, plural: str, namespace: str = "", *, labels: str = "", fields: str = "") -> list[JSON]:
        """Objects in key order, of all namespaces unless one is named. They are the stored ones: not to be changed."""
        resource = self._registry.stored_form(plural)
        known = frozenset({"metadata.name", "metadata.namespace", *resource.kind.strategy.selectable})
        selector = parse(labels, fields, known=known)
        items = self._storage.collection(resource.kind).sorted()
        return [s.object for s in selector.choose(items) if not namespace or s.key[0] == namespace]

    def count(self, plural: str) -> int:
        """How many objects there are."""
        return len(self._storage.collection(self._registry.stored_form(plural).kind).items)

    def delete(self, plural: str, name: str, namespace: str = "", *, grace: int | None = None, uid: str = "") -> None:
        """Delete an object."""
        resource = self._registry.stored_form(plural)
        self._verbs.delete(
            resource, self._namespace(resource, namespace), name, DeleteOptions(grace, uid), WriteOptions()
        )

    def history(self, plural: str) -> Iterator[StorageEvent]:
        """The kept events of a kind, oldest first."""
        return iter(self._storage.collection(self._registry.stored_form(plural).kind).history)

    def forget_history(self) -> None:
        """As after a compaction: every watch from an older revision is answered with 410."""
        self._storage.forget()
