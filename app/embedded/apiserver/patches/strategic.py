"""Strategic merge patch: JSON merge patch that knows which lists are maps.

Directives: `$patch: delete | replace | merge` in maps and list items, `$retainKeys`, `$setElementOrder/FIELD` and
`$deleteFromPrimitiveList/FIELD` beside a list. Lists without a merge key are replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from app.embedded.apiserver.schema import Shape
from app.embedded.apiserver.statuses import JSON, bad_request

_PATCH: Final = "$patch"
_RETAIN: Final = "$retainKeys"
_ORDER: Final = "$setElementOrder/"
_DELETE: Final = "$deleteFromPrimitiveList/"


def strategic(target: Any, patch: JSON, shape: Shape | None) -> Any:
    """`target` (None when absent) patched; both stay as they are. Raises 400 for directives that make no sense."""
    directive = patch.get(_PATCH)
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != _PATCH}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise bad_request(f"unknown patch directive {directive!r}")
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
        elif not key.startswith(_ORDER):
            _patch_field(result, key, value, _child(shape, key))
    for key, order in patch.items():
        if key.startswith(_ORDER):
            name = key.removeprefix(_ORDER)
            if isinstance(result.get(name), list):
                result[name] = _ordered(result[name], order, _child(shape, name))
    return result


def _child(shape: Shape | None, key: str) -> Shape | None:
    if shape is None:
        return None
    return shape.fields.get(key) if shape.form == "struct" else shape.element


def _patch_field(result: JSON, key: str, value: Any, shape: Shape | None) -> None:
    if value is None:
        result.pop(key, None)
    elif isinstance(value, dict):
        if value.get(_PATCH) == "delete":
            result.pop(key, None)
        else:
            result[key] = strategic(result.get(key), value, shape)
    elif isinstance(value, list) and shape is not None and shape.form == "list" and shape.patch_merge:
        result[key] = _patch_list(result.get(key) or [], value, shape)
    else:
        result[key] = value


def _patch_list(items: list[Any], patch: list[Any], shape: Shape) -> list[Any]:
    if not shape.patch_key:
        return [*items, *(item for item in patch if item not in items)]
    if any(isinstance(item, dict) and item.get(_PATCH) == "replace" and len(item) == 1 for item in patch):
        return [item for item in patch if not (isinstance(item, dict) and _PATCH in item)]
    key = shape.patch_key
    result = list(items)
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            raise bad_request(f"map: {item!r} does not contain declared merge key: {key}")
        identity = item[key]
        at = next((i for i, old in enumerate(result) if old.get(key) == identity), None)
        if item.get(_PATCH) == "delete":
            result = [old for old in result if old.get(key) != identity]
        elif item.get(_PATCH) == "replace":
            new = {name: value for name, value in item.items() if name != _PATCH}
            result = [new if old.get(key) == identity else old for old in result] if at is not None else [*result, new]
        elif at is None:
            result.append(strategic(None, item, shape.element))
        else:
            result[at] = strategic(result[at], item, shape.element)
    return result


def _ordered(items: list[Any], order: list[Any], shape: Shape | None) -> list[Any]:
    """`items` so that those named in `order` follow it; the others keep their place relative to their neighbours."""
    key = shape.patch_key if shape is not None else ""
    identity: Callable[[Any], Any] = (lambda item: item.get(key)) if key else (lambda item: item)
    wanted = [identity(entry) for entry in order]
    listed = sorted((item for item in items if identity(item) in wanted), key=lambda item: wanted.index(identity(item)))
    result: list[Any] = []
    following = iter(listed)
    for item in items:
        result.append(next(following) if identity(item) in wanted else item)
    return result
