"""What must be true of the stored object for a write to go on, and what of it a write cannot change."""

from __future__ import annotations

from typing import Final

from embedded_cluster.apiserver.options import DeleteOptions
from embedded_cluster.apiserver.registry import Kind
from embedded_cluster.apiserver.statuses import (
    JSON,
    FieldError,
    StatusError,
    conflict,
    forbidden,
    immutable,
    invalid,
    invalid_value,
)
from embedded_cluster.apiserver.storage import Stored

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
    """Raises 500 when an object to be stored for the first time names a revision; what is no number names none.

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


def finished(new: JSON, old: JSON) -> bool:
    """True when an update took away the last thing that held a deleted object."""
    before = old["metadata"]
    if new["metadata"].get("finalizers") or not before.get("deletionTimestamp"):
        return False
    return not before.get("deletionGracePeriodSeconds")
