"""Metadata that every object carries, its times, and the base of all decoded structs.

`Object` promises: frozen, not tracked by the garbage collector, camelCase on the wire, defaults left out when encoded.
Absent and empty are the same thing for lists and maps; a scalar for which they differ is `T | None`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from typing import Final

import msgspec
from msgspec.structs import force_setattr

from dra_extender.limits import LABELS_OF_OBJECT


class Object(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """Base of all wire structs."""


class StrictObject(Object, frozen=True, gc=False, forbid_unknown_fields=True):
    """What users and drivers ask for. A field that is not known here may restrict it, so decoding fails."""


class Ignored:
    """The value of a field that is known and does not matter here. It is decoded without its content."""


IGNORED: Final = Ignored()


def version_number(resource_version: str) -> int:
    """The resourceVersion as a number, comparable for one kind of one API server; 0 when absent or not numeric."""
    return int(resource_version) if resource_version.isascii() and resource_version.isdigit() else 0


class OwnerReference(Object, frozen=True, gc=False):
    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Object, frozen=True, gc=False):
    """metav1.ObjectMeta, reduced to the fields that are read: managedFields is not among them, and of labels and
    annotations `LABELS_OF_OBJECT` each. Of more owners only the controller is kept.
    """

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()

    def __post_init__(self) -> None:
        if len(self.labels) > LABELS_OF_OBJECT:
            force_setattr(self, "labels", dict(islice(self.labels.items(), LABELS_OF_OBJECT)))
        if len(self.annotations) > LABELS_OF_OBJECT:
            force_setattr(self, "annotations", dict(islice(self.annotations.items(), LABELS_OF_OBJECT)))
        if len(self.owner_references) > LABELS_OF_OBJECT:
            force_setattr(self, "owner_references", tuple(filter(None, (self.controller,))))

    @property
    def key(self) -> str:
        """`namespace/name`, or `name` for cluster-wide objects."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that manages this object, if any."""
        return next((owner for owner in self.owner_references if owner.controller), None)

    @property
    def version(self) -> int:
        """See `version_number`."""
        return version_number(self.resource_version)


class ObjectKey(msgspec.Struct, frozen=True, gc=False, order=True):
    """Which object: its kind, and `namespace/name`, or `name` for cluster-wide objects."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class Condition(Object, frozen=True, gc=False):
    """metav1.Condition and the conditions of pods and nodes, as far as they agree."""

    type: str
    status: str = "Unknown"
    reason: str = ""
    message: str = ""
    observed_generation: int = 0
    last_transition_time: str | None = None


def format_time(moment: datetime) -> str:
    """As metav1.Time is written: RFC 3339 in UTC, the fraction of the second cut off. `moment` has a time zone."""
    return _written(moment, "seconds")


def format_micro_time(moment: datetime) -> str:
    """As metav1.MicroTime is written: RFC 3339 in UTC with six digits after the second. `moment` has a time zone."""
    return _written(moment, "microseconds")


def parse_time(text: str) -> datetime | None:
    """A metav1.Time or MicroTime, in UTC where it names no zone; None when it is neither."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _written(moment: datetime, precision: str) -> str:
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec=precision) + "Z"
