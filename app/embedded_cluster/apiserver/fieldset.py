"""Sets of fields, in the form metav1.FieldsV1 writes them, and how they follow from objects.

A set is a tree of dicts: keys are `f:NAME` (field or map key), `k:{...}` (list item by keys) and `v:...` (item of a
set); an empty dict is a member, `"."` inside a non-empty one makes the node itself a member too. Sets are values:
no function changes its arguments.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import orjson

from embedded_cluster.apiserver.schema import FieldSchema
from embedded_cluster.apiserver.statuses import JSON

FieldSet = dict[str, Any]

SELF: Final = "."
_KEY_DEFAULTS: Final[dict[str, Any]] = {"protocol": "TCP"}
_UNTRACKED: Final = {
    "metadata": frozenset(
        {
            "name",
            "namespace",
            "creationTimestamp",
            "selfLink",
            "uid",
            "generation",
            "resourceVersion",
            "managedFields",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
        }
    )
}


def tracked(obj: JSON) -> JSON:
    """`obj` without the fields that have no owner: type meta and what the system writes into metadata."""
    kept = {name: value for name, value in obj.items() if name not in ("kind", "apiVersion", "metadata")}
    metadata = {k: v for k, v in obj.get("metadata", {}).items() if k not in _UNTRACKED["metadata"]}
    if metadata:
        kept["metadata"] = metadata
    return kept


def item_key(item: JSON, shape: FieldSchema) -> str:
    """What identifies an item of a list that is a map, as FieldsV1 writes it."""
    keys = {}
    for name in sorted(shape.keys):
        value = item.get(name, _KEY_DEFAULTS.get(name))
        if value is not None:
            keys[name] = value
    return "k:" + orjson.dumps(keys).decode()


def value_key(item: object) -> str:
    return "v:" + orjson.dumps(item).decode()


def children(value: Any, shape: FieldSchema) -> Iterator[tuple[str, Any, FieldSchema | None]]:
    """(key, value, shape) of what a granular value consists of."""
    if shape.form == "struct":
        for name, item in value.items():
            yield f"f:{name}", item, shape.fields.get(name)
    elif shape.form == "map":
        for name, item in value.items():
            yield f"f:{name}", item, shape.element
    elif shape.unique:
        for item in value:
            yield value_key(item), item, None
    else:
        for item in value:
            yield item_key(item, shape), item, shape.element


def _container(value: Any, shape: FieldSchema | None) -> bool:
    """True for a value of a kind whose parts can have different owners."""
    if shape is None or shape.atomic:
        return False
    if shape.form in ("struct", "map"):
        return isinstance(value, dict)
    return shape.form == "list" and isinstance(value, list)


def granular(value: Any, shape: FieldSchema | None) -> bool:
    """True when a value has parts that can have different owners."""
    return bool(value) and _container(value, shape)


def of_object(value: Any, shape: FieldSchema | None, *, item: bool = False, containers: bool = False) -> FieldSet:
    """The leaves of a value; items of list maps are members themselves, and so are all containers if asked for."""
    if not granular(value, shape):
        return {}
    assert shape is not None
    found: FieldSet = {SELF: {}} if item or containers else {}
    for key, inner, inner_shape in children(value, shape):
        found[key] = of_object(inner, inner_shape, item=key.startswith("k:"), containers=containers)
    return found


def changes(old: Any, new: Any, shape: FieldSchema | None) -> tuple[FieldSet | None, FieldSet | None]:
    """(what `new` adds or changes, what it lacks) against `old`, both present; None where there is nothing."""
    if old is new or old == new:
        return None, None
    if not _container(old, shape) or not _container(new, shape):
        if _container(old, shape):
            return {}, _below(old, shape)
        return of_object(new, shape, containers=True), None
    assert shape is not None
    before = {key: (value, inner) for key, value, inner in children(old, shape)}
    written: FieldSet = {}
    gone: FieldSet = {}
    for key, value, inner in children(new, shape):
        if key not in before:
            written[key] = of_object(value, inner, item=key.startswith("k:"), containers=True)
            continue
        more, less = changes(before.pop(key)[0], value, inner)
        if more is not None:
            written[key] = more
        if less is not None:
            gone[key] = less
    for key, (value, inner) in before.items():
        gone[key] = of_object(value, inner, item=True, containers=True)
    return written or None, gone or None


def _below(value: Any, shape: FieldSchema | None) -> FieldSet | None:
    """All members below a container, without itself."""
    return {key: node for key, node in of_object(value, shape, containers=True).items() if key != SELF} or None


def _member(node: FieldSet) -> bool:
    return not node or SELF in node


def union(a: FieldSet, b: FieldSet) -> FieldSet:
    """Members of either."""
    if not a and not b:
        return {}
    result: FieldSet = {SELF: {}} if (a == {} or b == {} or SELF in a or SELF in b) else {}
    for key in sorted((set(a) | set(b)) - {SELF}):
        if key in a and key in b:
            result[key] = union(a[key], b[key])
        else:
            result[key] = a[key] if key in a else b[key]
    return result


def difference(a: FieldSet, b: FieldSet | None) -> FieldSet | None:
    """Members of `a` that are not members of `b`; None when none are left."""
    if b is None:
        return a
    member = _member(a) and not _member(b)
    result: FieldSet = {}
    for key, node in a.items():
        if key == SELF:
            continue
        left = difference(node, b.get(key))
        if left is not None:
            result[key] = left
    if result:
        return {SELF: {}, **result} if member else result
    return {} if member else None


def intersection(a: FieldSet, b: FieldSet) -> FieldSet | None:
    """Members of both sets; None for an empty intersection."""
    member = _member(a) and _member(b)
    result: FieldSet = {}
    for key in a:
        if key != SELF and key in b:
            common = intersection(a[key], b[key])
            if common is not None:
                result[key] = common
    if result:
        return {SELF: {}, **result} if member else result
    return {} if member else None


def paths(fields: FieldSet, prefix: str = "") -> Iterator[str]:
    """The members as people read them: `.spec.containers[name="a"].image`."""
    if _member(fields) and prefix:
        yield prefix
    for key, node in fields.items():
        if key != SELF:
            yield from paths(node, prefix + _step(key))


def _step(key: str) -> str:
    kind, text = key[0], key[2:]
    if kind == "f":
        return f".{text}"
    if kind == "v":
        return f"[={text}]"
    pairs = orjson.loads(text)
    return "[" + ",".join(f"{name}={orjson.dumps(value).decode()}" for name, value in pairs.items()) + "]"
