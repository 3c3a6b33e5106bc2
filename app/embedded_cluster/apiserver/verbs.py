"""The verbs on objects: create, update, delete, with the rules every kind shares.

What the API server does around a kind's own rules: canonical form, names and namespaces (admission.py),
resourceVersion and UID preconditions, fields that only the system sets (admission.py), generation, finalizers and
grace periods, writes that change nothing, dry runs. Everything is synchronous: between two awaits of a request
nothing else changes.
"""

from __future__ import annotations

import random
import uuid
from datetime import UTC, datetime, timedelta

from dra_extender.api.meta import format_time
from embedded_cluster.apiserver import admission, managers, names
from embedded_cluster.apiserver.registry import Kind, Registry, ServedResource
from embedded_cluster.apiserver.statuses import JSON, already_exists, bad_request, invalid, not_found
from embedded_cluster.apiserver.storage import Key, Storage, Stored, without_type_meta
from embedded_cluster.apiserver.strategy import Clock, Context, DeleteOptions, WriteOptions

FOREGROUND = "foregroundDeletion"
"""The finalizer that holds an owner until its dependents are gone."""


def _now() -> datetime:
    return datetime.now(UTC)


class ObjectVerbs:
    """Writes to one storage. `seed` makes generated names and UIDs repeatable."""

    def __init__(
        self, storage: Storage, registry: Registry, *, clock: Clock | None = None, seed: int | None = None
    ) -> None:
        self.storage = storage
        self.registry = registry
        self.clock = clock or _now
        self._random = random.Random(seed)

    # reading

    def get(self, resource: ServedResource, namespace: str, name: str) -> Stored:
        """The stored object; raises 404."""
        stored = self.storage.collection(resource.kind).items.get((namespace, name))
        if stored is None:
            raise not_found(resource.kind.group, resource.kind.plural, name)
        return stored

    def lookup(self, plural: str, namespace: str, name: str) -> JSON | None:
        """Another object, for rules that need one."""
        kind = self.registry.stored_form(plural).kind
        stored = self.storage.collection(kind).items.get((namespace, name))
        return None if stored is None else stored.object

    def now(self) -> str:
        """The time as objects carry it."""
        return format_time(self.clock())

    def _context(self, options: WriteOptions, verb: str) -> Context:
        return Context(self.now(), self.lookup, options.caller, verb)

    # create

    def create(
        self,
        resource: ServedResource,
        namespace: str,
        body: JSON,
        options: WriteOptions,
        *,
        applied: list[JSON] | None = None,
    ) -> Stored:
        """Store a new object; raises 400, 403, 404 (namespace), 409 or 422. `applied` are its managedFields, if
        known."""
        kind = resource.kind
        new = admission.admitted(resource, body, options)
        metadata = new["metadata"]
        admission.place(kind, metadata, namespace)
        admission.require_namespace(kind, namespace, metadata.get("name", ""), self.lookup)
        for attempt in range(admission.GENERATED_TRIES):
            admission.generate_name(metadata, self._random, again=attempt > 0)
            if (namespace, metadata.get("name", "")) not in self.storage.collection(kind).items:
                break
        return self._insert(resource, namespace, new, options, applied)

    def _insert(
        self,
        resource: ServedResource,
        namespace: str,
        new: JSON,
        options: WriteOptions,
        applied: list[JSON] | None = None,
        *,
        put: bool = False,
    ) -> Stored:
        kind, strategy, context = resource.kind, resource.kind.strategy, self._context(options, "create")
        metadata = new["metadata"]
        for name in admission.SYSTEM_FIELDS:
            if name != "generation":
                metadata.pop(name, None)
        metadata["uid"] = str(uuid.UUID(int=self._random.getrandbits(128), version=4))
        metadata["creationTimestamp"] = context.now
        if strategy.generation:
            metadata["generation"] = 1
        strategy.default(new, context)
        if applied:
            metadata["managedFields"] = applied
        elif applied is None and options.manager:
            managers.note_creation(resource, new, options.manager, context.now)
        strategy.prepare_create(new, context)
        problems = names.metadata_problems(metadata, namespaced=kind.namespaced, name_check=_name_check(kind))
        problems += strategy.validate_create(new, context)
        if problems:
            raise invalid(kind.group, kind.kind, metadata.get("name", ""), problems)
        if not put and not options.dry_run:
            admission.check_unversioned(metadata)
        key = (namespace, metadata["name"])
        if key in self.storage.collection(kind).items:
            raise already_exists(kind.group, kind.plural, metadata["name"])
        return self._store(kind, key, new, options)

    # update

    def update(
        self,
        resource: ServedResource,
        namespace: str,
        name: str,
        body: JSON,
        options: WriteOptions,
        subresource: str = "",
    ) -> tuple[Stored, bool]:
        """Replace an object, or create it where the kind allows that: (object, whether it is new)."""
        kind = resource.kind
        new = admission.admitted(resource, body, options)
        metadata = new["metadata"]
        admission.place(kind, metadata, namespace)
        check_name(metadata, name)
        existing = self.storage.collection(kind).items.get((namespace, name))
        metadata["name"] = name
        if existing is None:
            if subresource or not kind.strategy.allow_create_on_update or metadata.get("uid"):
                raise not_found(kind.group, kind.plural, name)
            admission.require_namespace(kind, namespace, name, self.lookup)
            return self._insert(resource, namespace, new, options, put=True), True
        admission.check_uid(kind, existing, metadata.get("uid", ""))
        return self.replace(resource, existing, new, options, subresource), False

    def replace(
        self,
        resource: ServedResource,
        existing: Stored,
        new: JSON,
        options: WriteOptions,
        subresource: str = "",
        *,
        applied: list[JSON] | None = None,
    ) -> Stored:
        """Store `new` (stored form, owned by the call) in place of `existing` after all checks of an update.

        `applied` are the managedFields a server-side apply computed; otherwise they follow from what changed.
        """
        kind, strategy, old = resource.kind, resource.kind.strategy, existing.object
        context = self._context(options, "update")
        metadata, before = new["metadata"], old["metadata"]
        admission.check_revision(kind, existing, metadata)
        problems = admission.restore_system_fields(metadata, before)
        if subresource:
            admission.keep_all_but_status(new, old, keep_metadata=strategy.status_keeps_metadata)
            strategy.default(new, context)
            strategy.prepare_status(new, old, context)
            problems += strategy.validate_status(new, old, context)
        else:
            strategy.default(new, context)
            if kind.status:
                admission.keep_status(new, old)
            strategy.prepare_update(new, old, context)
            if strategy.generation and new.get("spec") != old.get("spec"):
                metadata["generation"] = before.get("generation", 0) + 1
            problems += names.metadata_problems(metadata, namespaced=kind.namespaced, name_check=_name_check(kind))
            problems += admission.finalizer_problems(metadata, before)
            problems += strategy.validate_update(new, old, context)
        if problems:
            raise invalid(kind.group, kind.kind, existing.key[1], problems)
        if applied is not None:
            metadata["managedFields"] = applied
        elif options.manager:
            managers.note_update(resource, new, old, options.manager, context.now, subresource)
        return self._commit(kind, existing, new, options)

    def _commit(self, kind: Kind, existing: Stored, new: JSON, options: WriteOptions) -> Stored:
        if not new["metadata"].get("managedFields"):
            new["metadata"].pop("managedFields", None)
        if new == existing.object:
            return existing
        if admission.finished(new, existing.object):
            if not options.dry_run:
                self.storage.remove(kind, existing.key)
            return _unstored(kind, existing.key, new)
        return self._store(kind, existing.key, new, options)

    # delete

    def delete(
        self, resource: ServedResource, namespace: str, name: str, deletion: DeleteOptions, options: WriteOptions
    ) -> tuple[Stored, bool]:
        """Delete an object or mark it as being deleted: (its state, whether it is gone)."""
        kind = resource.kind
        existing = self.get(resource, namespace, name)
        admission.check_deletion(kind, existing, deletion)
        obj = existing.object
        grace = kind.strategy.grace_period(obj, deletion.grace)
        foreground = deletion.propagation == "Foreground"
        if grace or foreground or obj["metadata"].get("finalizers") or kind.strategy.finalized(obj):
            return self._mark(kind, existing, grace, options, foreground), False
        last = existing
        if kind.strategy.graceful:
            new = existing.thaw()
            metadata = new["metadata"]
            if not metadata.get("deletionTimestamp"):
                metadata["generation"] = metadata.get("generation", 0) + 1
            metadata |= {"deletionTimestamp": self.now(), "deletionGracePeriodSeconds": 0}
            last = _unstored(kind, existing.key, new)
        return (last if options.dry_run else self.storage.remove(kind, existing.key, last.object)), True

    def _mark(self, kind: Kind, existing: Stored, grace: int, options: WriteOptions, foreground: bool) -> Stored:
        old = existing.object["metadata"]
        if old.get("deletionTimestamp") and old.get("deletionGracePeriodSeconds", 0) <= grace:
            return existing
        new = existing.thaw()
        metadata = new["metadata"]
        metadata["deletionTimestamp"] = format_time(self.clock() + timedelta(seconds=grace))
        if not kind.strategy.finalized(new):
            metadata["deletionGracePeriodSeconds"] = grace
        if "generation" in metadata and not old.get("deletionTimestamp"):
            metadata["generation"] += 1
        if foreground and FOREGROUND not in metadata.get("finalizers", ()):
            metadata.setdefault("finalizers", []).append(FOREGROUND)
        kind.strategy.prepare_delete(new)
        return self._store(kind, existing.key, new, options)

    def _store(self, kind: Kind, key: Key, new: JSON, options: WriteOptions) -> Stored:
        return _unstored(kind, key, new) if options.dry_run else self.storage.put(kind, new)


def _unstored(kind: Kind, key: Key, new: JSON) -> Stored:
    """`new` in the form of a stored object, without storing it."""
    ordered: JSON = {"kind": kind.kind, "apiVersion": new["apiVersion"], "metadata": new["metadata"]}
    ordered.update(new)
    return Stored(key, ordered, 0, without_type_meta(ordered), {})


def check_name(metadata: JSON, name: str) -> None:
    """Raises 400 when an object has another name than the path."""
    said = metadata.get("name")
    if said and said != name:
        raise bad_request(f"the name of the object ({said}) does not match the name on the URL ({name})")


def _name_check(kind: Kind) -> names.Check:
    if kind.strategy.path_names:
        return names.path_segment
    return names.dns_label if kind.strategy.labels_are_names else names.dns_subdomain
