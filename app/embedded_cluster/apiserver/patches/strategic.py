"""Strategic merge patch: JSON merge patch that knows which lists are maps.

Directives: `$patch: delete | replace | merge` in maps and list items, `$retainKeys`, `$setElementOrder/FIELD` and
`$deleteFromPrimitiveList/FIELD` beside a list. Lists without a merge key are replaced. Items of a merged list stand
in the order of the patch (or of `$setElementOrder`), with the items only the server has between them as near to
their old place as that allows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from embedded_cluster.apiserver.schema import FieldSchema
from embedded_cluster.apiserver.statuses import JSON, StatusError

_PATCH: Final = "$patch"
_RETAIN: Final = "$retainKeys"
_ORDER: Final = "$setElementOrder/"
_DELETE: Final = "$deleteFromPrimitiveList/"

Identity = Callable[[Any], Any]


def strategic(target: Any, patch: JSON, shape: FieldSchema | None) -> Any:
    """`target` (None when absent) patched; both stay as they are. Raises a StatusError for directives that make no
    sense."""
    directive = patch.get(_PATCH)
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != _PATCH}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise StatusError(500, "", f"unknown patch type: {directive}")
    result: JSON = dict(target) if isinstance(target, dict) else {}
    if _RETAIN in patch:
        kept = set(patch[_RETAIN])
        result = {key: value for key, value in result.items() if key in kept}
    for key, value in patch.items():
        if key in (_PATCH, _RETAIN):
            continue
        if key.startswith(_DELETE):
            name = key.removeprefix(_DELETE)
            if isinstance(result.get(name), list):
                result[name] = [item for item in result[name] if item not in value]
        elif key.startswith(_ORDER):
            name = key.removeprefix(_ORDER)
            if name not in patch and isinstance(result.get(name), list):
                result[name] = _merged(result[name], [], value, _child(shape, name))
        else:
            _patch_field(result, key, value, patch.get(_ORDER + key), _child(shape, key))
    return result


def _child(shape: FieldSchema | None, key: str) -> FieldSchema | None:
    if shape is None:
        return None
    return shape.fields.get(key) if shape.form == "struct" else shape.element


def _patch_field(result: JSON, key: str, value: Any, order: list[Any] | None, shape: FieldSchema | None) -> None:
    if value is None:
        result.pop(key, None)
    elif isinstance(value, dict):
        if value.get(_PATCH) == "delete":
            result.pop(key, None)
        else:
            result[key] = strategic(result.get(key), value, shape)
    elif isinstance(value, list) and shape is not None and shape.form == "list" and shape.patch_merge:
        result[key] = _merged(result.get(key) or [], value, order, shape)
    else:
        result[key] = value


def _merged(items: list[Any], patch: list[Any], order: list[Any] | None, shape: FieldSchema | None) -> list[Any]:
    """A list that merges: the patched items in the right order."""
    key = shape.patch_key if shape is not None else ""
    if not key:
        merged = [*items, *(item for item in patch if item not in items)]
        return _interleaved(merged, items, patch if order is None else order, lambda item: item)
    if any(isinstance(item, dict) and item.get(_PATCH) == "replace" and len(item) == 1 for item in patch):
        return [item for item in patch if not (isinstance(item, dict) and _PATCH in item)]
    merged = _patched_items(items, patch, shape, key)
    wanted = order if order is not None else [item for item in patch if item.get(_PATCH) != "delete"]
    return _interleaved(merged, items, wanted, lambda item: item.get(key))


def _patched_items(items: list[Any], patch: list[Any], shape: FieldSchema | None, key: str) -> list[Any]:
    element = shape.element if shape is not None else None
    result = list(items)
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            raise StatusError(500, "", f"map: {item} does not contain declared merge key: {key}")
        identity = item[key]
        at = next((i for i, old in enumerate(result) if old.get(key) == identity), None)
        directive = item.get(_PATCH)
        if directive == "delete":
            result = [old for old in result if old.get(key) != identity]
        elif at is None:
            result.append(strategic(None, item, element))
        else:
            result[at] = strategic(result[at], item, element)
    return result


def _interleaved(merged: list[Any], live: list[Any], order: list[Any], identity: Identity) -> list[Any]:
    """`merged` with the items of `order` in that order; the server's own items go before the first of them that the
    live list
    had behind them."""
    wanted = [identity(entry) for entry in order]
    places = {_hashable(identity(item)): place for place, item in enumerate(live)}
    ours = sorted((i for i in merged if identity(i) in wanted), key=lambda item: wanted.index(identity(item)))
    theirs = [item for item in merged if identity(item) not in wanted]
    result: list[Any] = []
    for item in ours:
        here = places.get(_hashable(identity(item)))
        while theirs and here is not None and places.get(_hashable(identity(theirs[0])), here) < here:
            result.append(theirs.pop(0))
        result.append(item)
    return result + theirs


def _hashable(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool) else repr(value)
