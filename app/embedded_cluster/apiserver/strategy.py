"""The rules of one kind, as hooks around create, update, status update and delete, and the options of a write.

The verbs (verbs.py) call them in the order the Kubernetes API server does: defaults, prepare, validate. Objects
passed as `new` belong to the call and may be changed in place; `old` is stored and must not be. Validation returns
problems and never raises for bad input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Protocol

from embedded_cluster.apiserver.statuses import JSON, FieldError


class Lookup(Protocol):
    """Reads other objects while deciding about one."""

    def __call__(self, plural: str, namespace: str, name: str) -> JSON | None: ...


@dataclass(frozen=True)
class Caller:
    """Who asks, and what the access policy says of further permissions that some rules need."""

    user: str = "system:admin"
    allowed: Callable[[str, str, str, str, str, str], bool] = lambda *attributes: True
    """Asked for verb, group, resource, subresource, namespace and name."""


@dataclass(frozen=True)
class Context:
    """What a rule may read in addition to the objects: the time, other objects, and the caller."""

    now: str
    lookup: Lookup
    caller: Caller = field(default_factory=Caller)
    verb: str = "update"


class RESTStrategy:
    """A kind without rules of its own: metadata only. Subclasses override what they need."""

    allow_create_on_update = False
    """True when PUT of an unknown name creates."""

    allow_unconditional_update = True
    """True when PUT without a resourceVersion overwrites."""

    generation = False
    """True when spec changes count in metadata.generation."""

    graceful = False
    """True when deleting can take a grace period (pods)."""

    returns_deleted = False
    """True when DELETE answers with the last state of the object instead of a Status."""

    status_at_creation = False
    """True when an object can be created with a status (nodes)."""

    labels_are_names = False
    """True when names are DNS labels (63 characters), False for DNS subdomains (253)."""

    path_names = False
    """True when any path segment is a name (RBAC)."""

    status_keeps_metadata = True
    """True when a write to /status leaves labels, annotations, finalizers and owners alone."""

    selectable: ClassVar[Mapping[str, str]] = {}
    """Field selectors besides metadata.name and metadata.namespace, with the value of a field that is not set."""

    def default(self, new: JSON, context: Context) -> None:
        """Fill in the values the API server fills in, on every write."""

    def unvalidated(self, new: JSON) -> Iterable[str]:
        """Paths of fields in a request that are stored without validation, for a warning."""
        return ()

    def prepare_create(self, new: JSON, context: Context) -> None:
        """Drop what a client may not set at creation."""

    def validate_create(self, new: JSON, context: Context) -> list[FieldError]:
        return []

    def prepare_update(self, new: JSON, old: JSON, context: Context) -> None:
        """Restore what a client may not change through the main resource (the verbs restore the status already)."""

    def validate_update(self, new: JSON, old: JSON, context: Context) -> list[FieldError]:
        return self.validate_create(new, context)

    def prepare_status(self, new: JSON, old: JSON, context: Context) -> None:
        """Restore what a client may not change through /status (the verbs restore spec and metadata already)."""

    def validate_status(self, new: JSON, old: JSON, context: Context) -> list[FieldError]:
        return []

    def fields(self, stored: JSON) -> dict[str, str]:
        """Values of `selectable`."""
        return {name: _text(stored, name.split("."), value) for name, value in self.selectable.items()}

    def grace_period(self, stored: JSON, wanted: int | None) -> int:
        """Seconds between the deletion and the end of the object, when a client wants `wanted` (None: the usual)."""
        return 0

    def finalized(self, stored: JSON) -> bool:
        """True when a deleted object stays even without metadata.finalizers (namespaces)."""
        return False

    def prepare_delete(self, new: JSON) -> None:
        """Show in the object that it is being deleted, in addition to the deletionTimestamp."""


def _text(obj: JSON, path: Sequence[str], missing: str) -> str:
    """The value at a path, as field selectors write it."""
    value: Any = obj
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return missing if value in (None, "", False) else "true" if value is True else str(value)


Clock = Callable[[], datetime]


@dataclass(frozen=True)
class WriteOptions:
    """Options of create, update and patch. `manager` is the field manager, '' for none; `validation` says what
    happens to unknown fields (Strict, Warn, Ignore); `warnings` collects warnings for the client."""

    dry_run: bool = False
    manager: str = ""
    validation: str = "Warn"
    force: bool = False
    caller: Caller = field(default_factory=Caller)
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """metav1.DeleteOptions: seconds of grace (None: the usual), preconditions, and what happens to dependents."""

    grace: int | None = None
    uid: str = ""
    revision: str = ""
    propagation: str = ""
