"""The verbs on objects: create, update, patch, delete, with the rules every kind shares.

What the API server does around a kind's own rules: canonical form and unknown fields, names and generateName, namespaces that
must exist, resourceVersion and UID preconditions, system fields nobody may set, generation, finalizers and grace periods, writes
that change nothing, dry runs. Everything here is synchronous: between two awaits of a request nothing else changes.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from app.api.features import FeatureGates
from app.embedded.apiserver import managers, names
from app.embedded.apiserver.registry import Kind, Registry, Resource
from app.embedded.apiserver.schema import schema
from app.embedded.apiserver.statuses import (
    JSON,
    StatusError,
    already_exists,
    bad_request,
    conflict,
    denied,
    immutable,
    invalid,
    invalid_value,
    not_found,
)
from app.embedded.apiserver.storage import Key, Storage, Stored, without_type_meta
from app.embedded.apiserver.strategy import Caller, CELCheck, Context

GENERATED_TRIES: Final = 8
_SUFFIX: Final = "bcdfghjklmnpqrstvwxz2456789"
_LONGEST_PREFIX: Final = 58
_SYSTEM_FIELDS: Final = (
    "creationTimestamp",
    "uid",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
)
_STATUS_KEEPS: Final = ("labels", "annotations", "finalizers", "ownerReferences", "managedFields")


@dataclass(frozen=True)
class Options:
    """What a write may say beside the object."""

    dry_run: bool = False
    manager: str = ""
    validation: str = "Warn"
    force: bool = False
    caller: Caller = field(default_factory=Caller)
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Deletion:
    """metav1.DeleteOptions."""

    grace: int | None = None
    uid: str = ""
    revision: str = ""
    propagation: str = ""


Clock = Callable[[], datetime]


def timestamp(moment: datetime) -> str:
    """RFC 3339 in whole seconds, as metav1.Time is written."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


class Verbs:
    """Writes to one storage. `seed` makes generated names repeatable."""

    def __init__(
        self,
        storage: Storage,
        registry: Registry,
        *,
        clock: Clock = lambda: datetime.now(UTC),
        check_cel: CELCheck | None = None,
        features: FeatureGates | None = None,
        seed: int | None = None,
        track_managers: bool = True,
    ) -> None:
        self.storage = storage
        self.registry = registry
        self.clock = clock
        self.check_cel = check_cel
        self.features = features or FeatureGates()
        self.track_managers = track_managers
        self._random = random.Random(seed)

    # reading

    def get(self, resource: Resource, namespace: str, name: str) -> Stored:
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

    def _context(self, options: Options, verb: str) -> Context:
        now = timestamp(self.clock())
        return Context(now, self.lookup, options.caller, self.check_cel, verb, self.features)

    # admission

    def admitted(self, resource: Resource, body: JSON, options: Options) -> JSON:
        """A new object in stored form from what a client sent for `resource`."""
        api_version, kind = body.get("apiVersion") or resource.api_version, body.get("kind") or resource.kind.kind
        if (api_version, kind) != (resource.api_version, resource.kind.kind):
            sent = f"{kind} of {api_version}"
            raise bad_request(f"the object provided is {sent}, expected {resource.kind.kind} of {resource.api_version}")
        obj, unknown = schema(resource.model).admit(body)
        if unknown:
            self._report_unknown(resource, body, unknown, options)
        obj["apiVersion"], obj["kind"] = api_version, kind
        obj.setdefault("metadata", {})
        if resource.conversion is not None:
            obj = resource.conversion.to_stored(obj)
        obj["apiVersion"] = resource.stored_api_version
        return obj

    @staticmethod
    def _report_unknown(resource: Resource, body: JSON, unknown: list[str], options: Options) -> None:
        texts = [f'unknown field "{path}"' for path in unknown]
        if options.validation == "Strict":
            kind, version = resource.kind.kind, resource.version
            listed = ", ".join(texts)
            raise bad_request(
                f'{kind} in version "{version}" cannot be handled as a {kind}: strict decoding error: {listed}'
            )
        if options.validation == "Warn":
            options.warnings.extend(texts)

    # create

    def create(self, resource: Resource, namespace: str, body: JSON, options: Options) -> Stored:
        """Store a new object; raises 400, 403, 404 (namespace), 409 or 422."""
        kind = resource.kind
        new = self.admitted(resource, body, options)
        self.place(kind, new["metadata"], namespace)
        if new["metadata"].get("resourceVersion"):
            raise StatusError(500, "", "resourceVersion should not be set on objects to be created")
        self._require_namespace(kind, namespace, new)
        for attempt in range(GENERATED_TRIES):
            self._name(new["metadata"], again=attempt > 0)
            if (namespace, new["metadata"].get("name", "")) not in self.storage.collection(kind).items:
                break
        return self._insert(resource, namespace, new, options)

    def _insert(self, resource: Resource, namespace: str, new: JSON, options: Options) -> Stored:
        kind, strategy, context = resource.kind, resource.kind.strategy, self._context(options, "create")
        metadata = new["metadata"]
        for name in _SYSTEM_FIELDS:
            metadata.pop(name, None)
        metadata["uid"] = str(uuid.UUID(int=self._random.getrandbits(128), version=4))
        metadata["creationTimestamp"] = context.now
        if strategy.generation:
            metadata["generation"] = 1
        strategy.default(new, context)
        strategy.prepare_create(new, context)
        problems = names.metadata_problems(metadata, namespaced=kind.namespaced, name_check=_name_check(kind))
        problems += strategy.validate_create(new, context)
        if problems:
            raise invalid(kind.group, kind.kind, metadata.get("name", ""), problems)
        key = (namespace, metadata["name"])
        if key in self.storage.collection(kind).items:
            raise already_exists(kind.group, kind.plural, metadata["name"])
        self._track(resource, new, None, options, "")
        return self._dry(kind, key, new) if options.dry_run else self.storage.put(kind, new)

    @staticmethod
    def place(kind: Kind, metadata: JSON, namespace: str) -> None:
        """Make the object's namespace that of the path; raises 400 when it says another."""
        if not kind.namespaced:
            metadata.pop("namespace", None)
            return
        said = metadata.get("namespace") or namespace
        if said != namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        metadata["namespace"] = namespace

    def _name(self, metadata: JSON, again: bool) -> None:
        prefix = metadata.get("generateName")
        if prefix and (again or not metadata.get("name")):
            suffix = "".join(self._random.choices(_SUFFIX, k=5))
            metadata["name"] = prefix[:_LONGEST_PREFIX] + suffix

    def _require_namespace(self, kind: Kind, namespace: str, new: JSON) -> None:
        if not kind.namespaced:
            return
        found = self.lookup("namespaces", "", namespace)
        if found is None:
            raise not_found("", "namespaces", namespace)
        if found["metadata"].get("deletionTimestamp"):
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            error = denied(kind.group, kind.plural, new["metadata"].get("name", ""), why)
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {namespace} is being terminated",
                "field": "metadata.namespace",
            }
            error.details = {**(error.details or {}), "causes": [cause]}
            raise error

    # update

    def update(
        self, resource: Resource, namespace: str, name: str, body: JSON, options: Options, subresource: str = ""
    ) -> tuple[Stored, bool]:
        """Replace an object, or create it where the kind allows that: (object, whether it is new)."""
        kind = resource.kind
        new = self.admitted(resource, body, options)
        self.place(kind, new["metadata"], namespace)
        said = new["metadata"].get("name")
        if said and said != name:
            raise bad_request(f"the name of the object ({said}) does not match the name on the URL ({name})")
        existing = self.storage.collection(kind).items.get((namespace, name))
        if existing is None:
            if subresource or not kind.strategy.allow_create_on_update or new["metadata"].get("uid"):
                raise not_found(kind.group, kind.plural, name)
            new["metadata"]["name"] = name
            new["metadata"].pop("resourceVersion", None)
            self._require_namespace(kind, namespace, new)
            return self._insert(resource, namespace, new, options), True
        new["metadata"]["name"] = name
        self._check_uid(kind, existing, new["metadata"].get("uid", ""))
        return self.replace(resource, existing, new, options, subresource), False

    @staticmethod
    def _check_uid(kind: Kind, existing: Stored, uid: str) -> None:
        actual = existing.object["metadata"]["uid"]
        if uid and uid != actual:
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {actual}"
            raise conflict(kind.group, kind.plural, existing.key[1], why)

    def replace(
        self,
        resource: Resource,
        existing: Stored,
        new: JSON,
        options: Options,
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
        self._check_revision(kind, existing, metadata)
        problems = self._restore_system_fields(metadata, before)
        if subresource:
            self._keep_all_but_status(new, old, keep_metadata=strategy.status_keeps_metadata)
        strategy.default(new, context)
        if subresource:
            strategy.prepare_status(new, old, context)
            problems += strategy.validate_status(new, old, context)
        else:
            strategy.prepare_update(new, old, context)
            if strategy.generation and new.get("spec") != old.get("spec"):
                metadata["generation"] = before.get("generation", 0) + 1
            problems += names.metadata_problems(metadata, namespaced=kind.namespaced, name_check=_name_check(kind))
            problems += strategy.validate_update(new, old, context)
        if problems:
            raise invalid(kind.group, kind.kind, existing.key[1], problems)
        return self._commit(resource, existing, new, options, subresource, applied)

    def _commit(
        self,
        resource: Resource,
        existing: Stored,
        new: JSON,
        options: Options,
        subresource: str,
        applied: list[JSON] | None,
    ) -> Stored:
        kind, metadata = resource.kind, new["metadata"]
        if applied is None:
            self._track(resource, new, existing.object, options, subresource)
        else:
            metadata["managedFields"] = applied
        if new == existing.object:
            return existing
        if self._finished(new, existing.object):
            result = self._dry(kind, existing.key, new)
            if not options.dry_run:
                self.storage.remove(kind, existing.key)
            return result
        return self._dry(kind, existing.key, new) if options.dry_run else self.storage.put(kind, new)

    @staticmethod
    def _finished(new: JSON, old: JSON) -> bool:
        """Whether this update took away the last thing that held a deleted object."""
        before = old["metadata"]
        if new["metadata"].get("finalizers") or not before.get("deletionTimestamp"):
            return False
        return not before.get("deletionGracePeriodSeconds")

    @staticmethod
    def _check_revision(kind: Kind, existing: Stored, metadata: JSON) -> None:
        revision = metadata.get("resourceVersion", "")
        if not revision:
            if not kind.strategy.allow_unconditional_update:
                problem = invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
                raise invalid(kind.group, kind.plural, existing.key[1], [problem])
        elif not revision.isdigit():
            raise StatusError(500, "", f'parsing "{revision}": invalid syntax')
        elif revision != str(existing.revision):
            raise conflict(kind.group, kind.plural, existing.key[1])
        metadata["resourceVersion"] = str(existing.revision)

    @staticmethod
    def _restore_system_fields(metadata: JSON, before: JSON) -> list:  # type: ignore[type-arg]
        uid = metadata.get("uid")
        problems = [immutable("metadata.uid", uid)] if uid and uid != before["uid"] else []
        for name in _SYSTEM_FIELDS:
            if name in before:
                metadata[name] = before[name]
            else:
                metadata.pop(name, None)
        return problems

    @staticmethod
    def _keep_all_but_status(new: JSON, old: JSON, *, keep_metadata: bool) -> None:
        """A write to /status changes the status; through some kinds' also labels, annotations and finalizers."""
        metadata, before = new["metadata"], old["metadata"]
        if keep_metadata:
            for name in _STATUS_KEEPS:
                if name in before:
                    metadata[name] = before[name]
                else:
                    metadata.pop(name, None)
        for name in set(new) | set(old):
            if name in ("kind", "apiVersion", "metadata", "status"):
                continue
            if name in old:
                new[name] = old[name]
            else:
                new.pop(name)

    # delete

    def delete(
        self, resource: Resource, namespace: str, name: str, deletion: Deletion, options: Options
    ) -> tuple[Stored, bool]:
        """Delete an object or mark it as being deleted: (its state, whether it is gone)."""
        kind = resource.kind
        existing = self.get(resource, namespace, name)
        self._check_preconditions(kind, existing, deletion)
        grace = self._grace(kind, existing.object, deletion)
        metadata = existing.object["metadata"]
        if grace or metadata.get("finalizers") or kind.strategy.finalized(existing.object):
            return self._mark(kind, existing, grace, options), False
        last = existing
        if kind.strategy.grace:
            new = existing.thaw()
            moment = timestamp(self.clock())
            new["metadata"] |= {"deletionTimestamp": moment, "deletionGracePeriodSeconds": 0}
            last = self._dry(kind, existing.key, new)
        return (last if options.dry_run else self.storage.remove(kind, existing.key, last.object)), True

    @staticmethod
    def _check_preconditions(kind: Kind, existing: Stored, deletion: Deletion) -> None:
        actual, revision = existing.object["metadata"]["uid"], str(existing.revision)
        if deletion.uid and deletion.uid != actual:
            why = (
                f"the UID in the precondition ({deletion.uid}) does not match the UID in record ({actual}). "
                "The object might have been deleted and then recreated"
            )
            raise conflict(kind.group, kind.kind, existing.key[1], why)
        if deletion.revision and deletion.revision != revision:
            why = (
                f"the ResourceVersion in the precondition ({deletion.revision}) does not match the ResourceVersion "
                f"in record ({revision}). The object might have been modified"
            )
            raise conflict(kind.group, kind.kind, existing.key[1], why)

    @staticmethod
    def _grace(kind: Kind, obj: JSON, deletion: Deletion) -> int:
        if not kind.strategy.grace:
            return 0
        spec, status = obj.get("spec", {}), obj.get("status", {})
        if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
            return 0
        usual = spec.get("terminationGracePeriodSeconds", 30)
        wanted = usual if deletion.grace is None else max(deletion.grace, 0)
        before = obj["metadata"].get("deletionGracePeriodSeconds")
        return int(wanted if before is None else min(before, wanted))

    def _mark(self, kind: Kind, existing: Stored, grace: int, options: Options) -> Stored:
        old = existing.object["metadata"]
        if old.get("deletionTimestamp") and old.get("deletionGracePeriodSeconds", 0) <= grace:
            return existing
        new = existing.thaw()
        metadata = new["metadata"]
        metadata["deletionTimestamp"] = timestamp(self.clock() + timedelta(seconds=grace))
        if not kind.strategy.finalized(new):
            metadata["deletionGracePeriodSeconds"] = grace
        if "generation" in metadata and not old.get("deletionTimestamp"):
            metadata["generation"] += 1
        kind.strategy.prepare_delete(new)
        return self._dry(kind, existing.key, new) if options.dry_run else self.storage.put(kind, new)

    # shared

    def _track(self, resource: Resource, new: JSON, old: JSON | None, options: Options, subresource: str) -> None:
        if self.track_managers and options.manager:
            managers.note_update(resource, new, old, options.manager, timestamp(self.clock()), subresource)

    @staticmethod
    def _dry(kind: Kind, key: Key, new: JSON) -> Stored:
        """`new` as if it was stored, without storing it."""
        ordered: JSON = {"kind": kind.kind, "apiVersion": new["apiVersion"], "metadata": new["metadata"]}
        ordered.update(new)
        return Stored(key, ordered, 0, without_type_meta(ordered), {})


def _name_check(kind: Kind) -> names.Check:
    if kind.strategy.path_names:
        return names.path_segment
    return names.dns_label if kind.strategy.labels_are_names else names.dns_subdomain
