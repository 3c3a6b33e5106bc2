"""How the object of a request becomes a stored one: canonical form, unknown fields, version, namespace, name.

And what must be true of the stored object for a write to go on, and what of it a write cannot change.
"""

from __future__ import annotations

import random
from typing import Final

from embedded_cluster.apiserver.registry import Kind, ServedResource
from embedded_cluster.apiserver.schema import schema
from embedded_cluster.apiserver.statuses import (
    JSON,
    FieldError,
    StatusError,
    bad_request,
    conflict,
    denied,
    forbidden,
    immutable,
    invalid,
    invalid_value,
    not_found,
)
from embedded_cluster.apiserver.storage import Stored
from embedded_cluster.apiserver.strategy import DeleteOptions, Lookup, WriteOptions

GENERATED_TRIES: Final = 8
_SUFFIX: Final = "bcdfghjklmnpqrstvwxz2456789"
_LONGEST_PREFIX: Final = 58


def admitted(resource: ServedResource, body: JSON, options: WriteOptions) -> JSON:
    """A new object in stored form from what a client sent for `resource`; raises 400."""
    kind = resource.kind.kind
    sent = body.get("apiVersion") or resource.api_version, body.get("kind") or kind
    if sent != (resource.api_version, kind):
        version = sent[0].rpartition("/")[2]
        why = f'no kind "{sent[1]}" is registered for version "{sent[0]}" here'
        raise bad_request(f'{sent[1]} in version "{version}" cannot be handled as a {kind}: {why}')
    obj, unknown = schema(resource.model).admit(body)
    if unknown:
        _report_unknown(resource, unknown, options)
    obj.setdefault("metadata", {})
    if resource.conversion is not None:
        obj = resource.conversion.to_stored(obj)
    obj["apiVersion"], obj["kind"] = resource.stored_api_version, kind
    if unvalidated := ", ".join(resource.kind.strategy.unvalidated(obj)):
        options.warnings.append(f"the embedded cluster stores {unvalidated} without validation")
    return obj


def _report_unknown(resource: ServedResource, unknown: list[str], options: WriteOptions) -> None:
    texts = [f'unknown field "{path}"' for path in unknown]
    if options.validation == "Strict":
        kind, version, listed = resource.kind.kind, resource.version, ", ".join(texts)
        why = f"strict decoding error: {listed}"
        raise bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {why}')
    if options.validation == "Warn":
        options.warnings.extend(texts)


def place(kind: Kind, metadata: JSON, namespace: str) -> None:
    """Set the object's namespace to that in the path; raises 400 when it names another."""
    if not kind.namespaced:
        metadata.pop("namespace", None)
        return
    if (metadata.get("namespace") or namespace) != namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    metadata["namespace"] = namespace


def generate_name(metadata: JSON, chance: random.Random, *, again: bool) -> None:
    """Give an object with generateName a name, or another one when the first is taken."""
    prefix = metadata.get("generateName")
    if prefix and (again or not metadata.get("name")):
        metadata["name"] = prefix[:_LONGEST_PREFIX] + "".join(chance.choices(_SUFFIX, k=5))


def require_namespace(kind: Kind, namespace: str, name: str, lookup: Lookup) -> None:
    """Raises 404 when the namespace does not exist, 403 when it is going away."""
    if not kind.namespaced:
        return
    found = lookup("namespaces", "", namespace)
    if found is None:
        raise not_found("", "namespaces", namespace)
    if not found["metadata"].get("deletionTimestamp"):
        return
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    cause = {
        "reason": "NamespaceTerminating",
        "message": f"namespace {namespace} is being terminated",
        "field": "metadata.namespace",
    }
    raise denied(kind.group, kind.plural, name, why, [cause])


SYSTEM_FIELDS: Final = (
    "creationTimestamp",
    "uid",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
)
_STATUS_KEEPS: Final = ("labels", "annotations", "finalizers", "ownerReferences", "managedFields")


def check_uid(kind: Kind, existing: Stored, uid: str) -> None:
    """Raises 409 when an update names another UID."""
    actual = existing.object["metadata"]["uid"]
    if uid and uid != actual:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {actual}"
        raise conflict(kind.group, kind.plural, existing.key[1], why)


def check_unversioned(metadata: JSON) -> None:
    """Raises 500 when a new object names a revision; a value that is not a number is ignored.

    Only storing looks at it: a dry run answers with the revision as it was sent.
    """
    revision = metadata.get("resourceVersion", "")
    if revision.isdigit() and int(revision):
        raise StatusError(500, "", "resourceVersion should not be set on objects to be created")


def check_revision(kind: Kind, existing: Stored, metadata: JSON) -> None:
    """Raises 409 when an update was made from another revision, 422 when it has to name one and does not."""
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


def check_deletion(kind: Kind, existing: Stored, deletion: DeleteOptions) -> None:
    """Raises 409 when a deletion is meant for another object or revision."""
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


def _restore(target: JSON, source: JSON, names: tuple[str, ...]) -> None:
    for name in names:
        if name in source:
            target[name] = source[name]
        else:
            target.pop(name, None)


def restore_system_fields(metadata: JSON, before: JSON) -> list[FieldError]:
    """Undo changes of what only the system writes; naming another UID is a problem."""
    uid = metadata.get("uid")
    problems = [immutable("metadata.uid", uid)] if uid and uid != before["uid"] else []
    _restore(metadata, before, SYSTEM_FIELDS)
    return problems


def finalizer_problems(metadata: JSON, before: JSON) -> list[FieldError]:
    """An object that is being deleted gets no new finalizers."""
    if not before.get("deletionTimestamp"):
        return []
    new = sorted(set(metadata.get("finalizers") or ()) - set(before.get("finalizers") or ()))
    if not new:
        return []
    listed = ", ".join(f'"{name}"' for name in new)
    detail = f"no new finalizers can be added if the object is being deleted, found new finalizers [{listed}]"
    return [forbidden("metadata.finalizers", detail)]


def keep_all_but_status(new: JSON, old: JSON, *, keep_metadata: bool) -> None:
    """A write to /status changes the status; through some kinds' also labels, annotations and finalizers."""
    if keep_metadata:
        _restore(new["metadata"], old["metadata"], _STATUS_KEEPS)
    rest = (set(new) | set(old)) - {"kind", "apiVersion", "metadata", "status"}
    _restore(new, old, tuple(rest))


def keep_status(new: JSON, old: JSON) -> None:
    """Undo any change of the status: it has a subresource of its own."""
    _restore(new, old, ("status",))


def finished(new: JSON, old: JSON) -> bool:
    """True when an update took away the last thing that held a deleted object."""
    before = old["metadata"]
    if new["metadata"].get("finalizers") or not before.get("deletionTimestamp"):
        return False
    return not before.get("deletionGracePeriodSeconds")
