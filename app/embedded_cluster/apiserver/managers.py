"""Who wrote which fields: metadata.managedFields.

Every write through HTTP is noted under its field manager. A plain update takes what it changed from all other managers;
server-side apply (patches/apply.py) asks first. Entries without fields disappear.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from embedded_cluster.apiserver import fieldset
from embedded_cluster.apiserver.fieldset import FieldSet
from embedded_cluster.apiserver.registry import ServedResource
from embedded_cluster.apiserver.schema import schema
from embedded_cluster.apiserver.statuses import JSON

UPDATE: Final = "Update"
APPLY: Final = "Apply"


@dataclass(frozen=True, slots=True)
class Manager:
    """One entry: `fields` are those of the object at `api_version`."""

    name: str
    operation: str
    api_version: str
    subresource: str
    time: str
    fields: FieldSet

    def same(self, name: str, operation: str, api_version: str, subresource: str) -> bool:
        return (self.name, self.operation, self.api_version, self.subresource) == (
            name,
            operation,
            api_version,
            subresource,
        )

    def entry(self) -> JSON:
        """As metav1.ManagedFieldsEntry."""
        entry: JSON = {
            "manager": self.name,
            "operation": self.operation,
            "apiVersion": self.api_version,
            "time": self.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": self.fields,
        }
        if self.subresource:
            entry["subresource"] = self.subresource
        return entry


def read(metadata: JSON) -> list[Manager]:
    """The entries of an object."""
    return [
        Manager(
            entry.get("manager", ""),
            entry.get("operation", UPDATE),
            entry.get("apiVersion", ""),
            entry.get("subresource", ""),
            entry.get("time", ""),
            entry.get("fieldsV1", {}),
        )
        for entry in metadata.get("managedFields") or ()
    ]


def write(managers: list[Manager]) -> list[JSON]:
    """The entries, appliers first, as the API server orders them."""
    ordered = sorted(managers, key=lambda m: (m.operation != APPLY, m.time, m.name, m.subresource))
    return [manager.entry() for manager in ordered if manager.fields]


def without(managers: list[Manager], fields: FieldSet | None) -> list[Manager]:
    """Every manager without `fields`."""
    if fields is None:
        return managers
    kept: list[Manager] = []
    for manager in managers:
        left = fieldset.difference(manager.fields, fields)
        if left:
            kept.append(manager if left == manager.fields else replace(manager, fields=left))
    return kept


def _view(obj: JSON, resource: ServedResource, subresource: str) -> JSON:
    """What a write can change: through /status the status, else all but that where it has a subresource."""
    view: JSON = {"metadata": {}, "spec": {}, **fieldset.tracked(obj)}
    if resource.kind.status and not subresource:
        view.pop("status", None)
    else:
        view.setdefault("status", {})
    return view


def note_creation(resource: ServedResource, new: JSON, name: str, now: str) -> None:
    """Set `new`'s managedFields: everything in it was written by the manager `name`."""
    view = _view(new, resource, "status" if resource.kind.strategy.status_at_creation else "")
    shape = schema(resource.kind.model(resource.kind.storage_version)).shape
    written, _ = fieldset.changes({"metadata": {}, "spec": {}, "status": {}}, view, shape)
    if written:
        manager = Manager(name, UPDATE, resource.stored_api_version, "", now, written)
        new["metadata"]["managedFields"] = write([manager])


def note_update(resource: ServedResource, new: JSON, old: JSON, name: str, now: str, subresource: str) -> None:
    """Set `new`'s managedFields after an update of `old` by the manager `name`: it alone owns what it
    changed."""
    before, after = _view(old, resource, subresource), _view(new, resource, subresource)
    shape = schema(resource.kind.model(resource.kind.storage_version)).shape
    written, gone = fieldset.changes(before, after, shape)
    known = read(old["metadata"])
    if written is not None or gone is not None:
        known = _taken_over(known, resource.stored_api_version, written, gone, name, now, subresource)
    new["metadata"]["managedFields"] = write(known)


def _taken_over(
    known: list[Manager],
    api_version: str,
    written: FieldSet | None,
    gone: FieldSet | None,
    name: str,
    now: str,
    subresource: str,
) -> list[Manager]:
    mine = next((m for m in known if m.same(name, UPDATE, api_version, subresource)), None)
    others = without(without([m for m in known if m is not mine], gone), written)
    fields = fieldset.difference(mine.fields, gone) if mine is not None else None
    if written is not None:
        fields = written if fields is None else fieldset.union(fields, written)
    if fields is None:
        return others
    return [*others, Manager(name, UPDATE, api_version, subresource, now, fields)]
