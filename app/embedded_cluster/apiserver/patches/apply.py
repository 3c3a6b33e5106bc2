"""Server-side apply: merge what a manager wants, refuse what others own, remove what it stopped wanting.

The merge follows the shapes of the fields (schema.py): structs and maps merge, lists that are maps merge by key,
sets unite, everything else is replaced as a whole. Ownership is compared in the fields of the version sent.
"""

from __future__ import annotations

from typing import Any

from embedded_cluster.apiserver import admission, fieldset, managers
from embedded_cluster.apiserver.fieldset import FieldSet
from embedded_cluster.apiserver.managers import APPLY, Manager
from embedded_cluster.apiserver.registry import ServedResource
from embedded_cluster.apiserver.schema import FieldSchema, schema
from embedded_cluster.apiserver.statuses import JSON, StatusError, bad_request, conflict, invalid, required
from embedded_cluster.apiserver.storage import Stored
from embedded_cluster.apiserver.strategy import WriteOptions
from embedded_cluster.apiserver.verbs import ObjectVerbs, check_name


def apply(
    verbs: ObjectVerbs,
    resource: ServedResource,
    namespace: str,
    name: str,
    wanted: Any,
    options: WriteOptions,
    subresource: str,
) -> tuple[Stored, bool]:
    """Apply the configuration `wanted`: (the object, whether it is new). Raises 400, 409 with the conflicts, and
    422."""
    _check(resource, name, wanted, options)
    existing = verbs.storage.collection(resource.kind).items.get((namespace, name))
    config = _configuration(resource, wanted, subresource)
    shape = schema(resource.model).shape
    owned = fieldset.of_object(fieldset.tracked(config), shape)
    me = Manager(options.manager, APPLY, resource.api_version, subresource, verbs.now(), owned)
    if existing is None:
        if subresource:
            verbs.get(resource, namespace, name)
        return _create(verbs, resource, namespace, config, me, options), True
    live = existing.thaw()
    if resource.conversion is not None:
        live = resource.conversion.from_stored(live)
    live["apiVersion"] = resource.api_version
    before = existing.object["metadata"].get("managedFields", [])
    merged, known = _settle(
        live, _merge(live, config, shape), shape, managers.read(live["metadata"]), me, options.force
    )
    new = admission.admitted(resource, merged, options)
    new["metadata"]["resourceVersion"] = config["metadata"].get("resourceVersion", "")
    entries = managers.write(known)
    applied = before if _same_but_time(entries, before) else entries
    return verbs.replace(resource, existing, new, options, subresource, applied=applied), False


def _create(
    verbs: ObjectVerbs, resource: ServedResource, namespace: str, config: JSON, me: Manager, options: WriteOptions
) -> Stored:
    metadata = config["metadata"]
    if metadata.get("uid"):
        why = f"uid mismatch: the provided object specified uid {metadata['uid']}, and no existing object was found"
        raise conflict(resource.kind.group, resource.kind.plural, metadata["name"], why)
    metadata.pop("resourceVersion", None)
    return verbs.create(resource, namespace, config, options, applied=managers.write([me]))


def _check(resource: ServedResource, name: str, wanted: Any, options: WriteOptions) -> None:
    if not options.manager:
        problem = required("fieldManager", "is required for apply patch")
        raise invalid("meta.k8s.io", "PatchOptions", "", [problem])
    if not isinstance(wanted, dict) or not isinstance(wanted.get("metadata"), dict):
        raise bad_request("error decoding apply configuration: metadata is required")
    if wanted["metadata"].get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    if (wanted.get("apiVersion"), wanted.get("kind")) != (resource.api_version, resource.kind.kind):
        raise bad_request(f"invalid object type: {wanted.get('apiVersion', '')}, Kind={wanted.get('kind', '')}")
    wanted["metadata"].setdefault("name", name)
    check_name(wanted["metadata"], name)
    unknown = schema(resource.model).admit(wanted)[1]
    if unknown:
        raise StatusError(500, "", f"failed to create typed patch object: .{unknown[0]}: field not declared in schema")


def _configuration(resource: ServedResource, wanted: JSON, subresource: str) -> JSON:
    """What counts of a configuration: through /status only the status, through the object itself all but that."""
    if not resource.kind.status:
        return dict(wanted, metadata=dict(wanted["metadata"]))
    if subresource:
        kept = {name: value for name, value in wanted.items() if name in ("kind", "apiVersion", "status")}
        identity = {k: v for k, v in wanted["metadata"].items() if k in ("name", "namespace", "uid", "resourceVersion")}
        return {**kept, "metadata": identity}
    return {**{name: value for name, value in wanted.items() if name != "status"}, "metadata": dict(wanted["metadata"])}


def _merge(live: Any, config: Any, shape: FieldSchema | None) -> Any:
    """`live` with everything of `config`; neither is changed."""
    if shape is None or shape.atomic or shape.form in ("scalar", "any") or live is None or config is None:
        return config
    if shape.form in ("struct", "map"):
        if not isinstance(live, dict) or not isinstance(config, dict):
            return config
        merged = dict(live)
        for name, value in config.items():
            inner = shape.fields.get(name) if shape.form == "struct" else shape.element
            merged[name] = _merge(live.get(name), value, inner)
        return merged
    if not isinstance(live, list) or not isinstance(config, list):
        return config
    if shape.unique:
        return [*live, *(item for item in config if item not in live)]
    wanted = {fieldset.item_key(item, shape): item for item in config}
    merged_items = []
    for item in live:
        more = wanted.pop(fieldset.item_key(item, shape), None)
        merged_items.append(item if more is None else _merge(item, more, shape.element))
    return [*merged_items, *wanted.values()]


def _settle(
    live: JSON, merged: JSON, shape: FieldSchema, known: list[Manager], me: Manager, force: bool
) -> tuple[JSON, list[Manager]]:
    """The merged object without what this manager gave up, and everybody's fields after the apply; raises 409."""
    mine = next((m for m in known if m.same(me.name, APPLY, me.api_version, me.subresource)), None)
    others = [m for m in known if m is not mine]
    written, _ = fieldset.changes(fieldset.tracked(live), fieldset.tracked(merged), shape)
    if written is not None:
        clashes = [(m, common) for m in others if (common := fieldset.intersection(m.fields, written)) is not None]
        if clashes and not force:
            raise _conflict(clashes)
        for manager, common in clashes:
            others = [m for m in others if m is not manager] + managers.without([manager], common)
    if mine is not None:
        given_up: FieldSet | None = fieldset.difference(mine.fields, me.fields)
        for manager in others:
            if given_up is not None:
                given_up = fieldset.difference(given_up, manager.fields)
        if given_up is not None:
            merged = _without(merged, given_up, shape)
    if mine is not None and mine.fields == me.fields:
        me = mine
    return merged, [*others, me]


def _without(value: Any, fields: FieldSet, shape: FieldSchema | None) -> Any:
    """`value` without the members of `fields`; containers that become empty stay, items whose all is gone do not."""
    if not fieldset.granular(value, shape):
        return value
    assert shape is not None
    if shape.form in ("struct", "map"):
        kept: JSON = {}
        for name, inner in value.items():
            below = fields.get(f"f:{name}")
            if below is None:
                kept[name] = inner
                continue
            if not below:
                continue
            rest = _without(inner, below, shape.fields.get(name) if shape.form == "struct" else shape.element)
            if rest not in ({}, []) or name in ("metadata", "spec", "status"):
                kept[name] = rest
        return kept
    if shape.unique:
        return [item for item in value if fieldset.value_key(item) not in fields]
    items = []
    for item in value:
        below = fields.get(fieldset.item_key(item, shape))
        if below is None:
            items.append(item)
        elif fieldset.SELF not in below and below:
            items.append(_without(item, below, shape.element))
    return items


def _conflict(clashes: list[tuple[Manager, FieldSet]]) -> StatusError:
    causes: list[JSON] = []
    texts: list[str] = []
    for manager, common in clashes:
        who = f'"{manager.name}"'
        if manager.subresource:
            who += f' with subresource "{manager.subresource}"'
        if manager.operation != APPLY:
            who += f" using {manager.api_version}"
        found = sorted(fieldset.paths(common))
        causes += [
            {"reason": "FieldManagerConflict", "message": f"conflict with {who}", "field": path} for path in found
        ]
        if len(found) == 1:
            texts.append(f"conflict with {who}: {found[0]}")
        else:
            texts.append(f"conflicts with {who}:\n" + "\n".join(f"- {path}" for path in found))
    number = len(causes)
    message = f"Apply failed with {number} conflict{'s' if number > 1 else ''}: " + "\n".join(texts)
    return StatusError(409, "Conflict", message, {"causes": causes})


def _same_but_time(entries: list[JSON], before: list[JSON]) -> bool:
    def timeless(listed: list[JSON]) -> list[JSON]:
        return [{key: value for key, value in entry.items() if key != "time"} for entry in listed]

    return timeless(entries) == timeless(before)
