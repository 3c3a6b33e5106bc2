"""Who wrote which fields: metadata.managedFields.

Every write through HTTP is noted under its field manager. A plain update takes what it changed from all other managers;
server-side apply (patches/apply.py) asks first. Entries without fields disappear.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from app.embedded.apiserver import fieldset
from app.embedded.apiserver.fieldset import FieldSet
from app.embedded.apiserver.registry import Resource
from app.embedded.apiserver.schema import schema
from app.embedded.apiserver.statuses import JSON

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


def note_update(resource: Resource, new: JSON, old: JSON | None, name: str, now: str, subresource: str) -> None:
    """Set `new`'s managedFields after an update (or creation, `old` None) by the manager `name`."""
    shape = schema(resource.kind.model(resource.kind.storage_version)).shape
    before = {key: {} for key in ("metadata", "spec", "status")} if old is None else fieldset.tracked(old)
    after = fieldset.tracked(new)
    written, gone = fieldset.changes({**before}, after, shape) if before else (None, None)
    if old is None:
        written = {key: value for key, value in fieldset.of_object(after, shape, containers=True).items() if key != "."}
        for top in written.values():
            top.pop(".", None)
        gone = None
    known = read(new["metadata"] if old is None else old["metadata"])
    if written is None and gone is None:
        if known:
            new["metadata"]["managedFields"] = old["metadata"]["managedFields"] if old else write(known)
        return
    api_version = resource.stored_api_version
    others = without(without([m for m in known if not m.same(name, UPDATE, api_version, subresource)], gone), written)
    mine = next((m for m in known if m.same(name, UPDATE, api_version, subresource)), None)
    fields = mine.fields if mine is not None else {}
    fields = (fieldset.difference(fields, gone) or {}) if fields else {}
    if written is not None:
        fields = fieldset.union(fields, written) if fields else written
    if fields:
        others.append(Manager(name, UPDATE, api_version, subresource, now, fields))
    entries = write(others)
    if entries:
        new["metadata"]["managedFields"] = entries
    else:
        new["metadata"].pop("managedFields", None)
