"""A PATCH request: read the object, apply the patch in the form of the version it was sent for, store the result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jsonpatch
import jsonpointer

from embedded_cluster.apiserver import admission
from embedded_cluster.apiserver.patches.apply import apply
from embedded_cluster.apiserver.patches.strategic import strategic
from embedded_cluster.apiserver.registry import ServedResource
from embedded_cluster.apiserver.requests import APPLY_TYPE
from embedded_cluster.apiserver.schema import schema
from embedded_cluster.apiserver.statuses import JSON, StatusError, bad_request, unsupported_media_type
from embedded_cluster.apiserver.storage import Stored
from embedded_cluster.apiserver.strategy import WriteOptions
from embedded_cluster.apiserver.verbs import ObjectVerbs, check_name


def merge(target: Any, patch: Any) -> Any:
    """`target` patched; both stay as they are."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
FORMATS: Final = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_TYPE)


def patch_object(
    verbs: ObjectVerbs,
    resource: ServedResource,
    namespace: str,
    name: str,
    content_type: str,
    read: Callable[[], Any],
    options: WriteOptions,
    subresource: str = "",
) -> tuple[Stored, bool]:
    """Patch one object with the document `read` returns: (its new state, whether apply created it).

    Raises 400 for a bad patch, 404, 409, 415 for an unknown format, and 422.
    """
    if content_type not in FORMATS:
        raise unsupported_media_type(FORMATS, {})
    patch = read()
    if content_type == APPLY_TYPE:
        return apply(verbs, resource, namespace, name, patch, options, subresource)
    existing = verbs.get(resource, namespace, name)
    current = existing.thaw()
    if resource.conversion is not None:
        current = resource.conversion.from_stored(current)
    current["apiVersion"] = resource.api_version
    changed = _patched(resource, current, patch, content_type)
    try:
        new = admission.admitted(resource, changed, options)
    except StatusError as error:
        raise _unprocessable(error.message) from None
    admission.place(resource.kind, new["metadata"], namespace)
    check_name(new["metadata"], name)
    new["metadata"]["name"] = name
    return verbs.replace(resource, existing, new, options, subresource), False


def _patched(resource: ServedResource, current: JSON, patch: Any, content_type: str) -> JSON:
    if content_type == JSON_PATCH:
        changed = json_patched(current, patch)
    elif not isinstance(patch, dict):
        raise bad_request("error decoding patch: the patch must be an object")
    elif content_type == MERGE_PATCH:
        changed = merge(current, patch)
    else:
        changed = strategic(current, patch, schema(resource.model).shape)
    if not isinstance(changed, dict):
        raise bad_request("the patched document is not an object")
    return changed


def json_patched(current: JSON, patch: Any) -> Any:
    """The document after the operations; raises 400 and 422."""
    if not isinstance(patch, list):
        raise bad_request("error decoding patch: a JSON patch is a list of operations")
    try:
        return jsonpatch.apply_patch(current, patch)
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException) as error:
        raise _unprocessable(f"the server rejected our request due to an error in our request: {error}") from None


def _unprocessable(message: str) -> StatusError:
    return StatusError(422, "Invalid", message, {})
