"""The scale subresource: how many pods a set wants, without the rest of it (autoscaling/v1 Scale).

Promises: a write changes spec.replicas and nothing else, by the rules of an update of the whole object; the resource
version of a Scale is that of its object.
"""

from __future__ import annotations

from typing import Final

from embedded_cluster.apiserver.patches.merge import merge
from embedded_cluster.apiserver.patches.patching import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, json_patched
from embedded_cluster.apiserver.requests import APIResponse, ResourceRequest, document
from embedded_cluster.apiserver.statuses import JSON, bad_request, invalid, invalid_value, unsupported_media_type
from embedded_cluster.apiserver.storage import Stored
from embedded_cluster.apiserver.verbs import ObjectVerbs

_KEPT: Final = ("name", "namespace", "uid", "creationTimestamp")
_FORMATS: Final = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH)


def is_meant(call: ResourceRequest) -> bool:
    """True for a request about the scale of an object that has one."""
    return call.info.subresource == "scale" and "scale" in call.resource.kind.subresources


def get(verbs: ObjectVerbs, call: ResourceRequest) -> APIResponse:
    return document(_scale(verbs.get(call.resource, call.info.namespace, call.info.name)))


def update(verbs: ObjectVerbs, call: ResourceRequest) -> APIResponse:
    """PUT."""
    return _write(verbs, call, call.incoming.json_object())


def patch(verbs: ObjectVerbs, call: ResourceRequest) -> APIResponse:
    """PATCH; no list is in a Scale, so that both kinds of merge are the same."""
    form = call.incoming.content_type
    if form not in _FORMATS:
        raise unsupported_media_type(_FORMATS, {})
    current = _scale(verbs.get(call.resource, call.info.namespace, call.info.name))
    told = call.incoming.document()
    changed = json_patched(current, told) if form == JSON_PATCH else merge(current, told)
    return _write(verbs, call, changed)


def _write(verbs: ObjectVerbs, call: ResourceRequest, body: JSON) -> APIResponse:
    existing = verbs.get(call.resource, call.info.namespace, call.info.name)
    count = (body.get("spec") or {}).get("replicas", 0)
    if not isinstance(count, int) or isinstance(count, bool):
        raise bad_request('Scale in version "v1" cannot be handled as a Scale: spec.replicas must be an integer')
    if count < 0:
        problem = invalid_value("spec.replicas", count, "must be greater than or equal to 0")
        raise invalid("autoscaling", "Scale", call.info.name, [problem])
    new = existing.thaw()
    new["spec"]["replicas"] = count
    told = body.get("metadata") or {}
    if told.get("resourceVersion"):
        new["metadata"]["resourceVersion"] = told["resourceVersion"]
    return document(_scale(verbs.replace(call.resource, existing, new, call.options)))


def _scale(stored: Stored) -> JSON:
    obj = stored.object
    metadata = {key: obj["metadata"][key] for key in _KEPT if key in obj["metadata"]}
    labels = (obj["spec"].get("selector") or {}).get("matchLabels") or {}
    selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata | {"resourceVersion": str(stored.revision)},
        "spec": {"replicas": obj["spec"].get("replicas", 0)},
        "status": {"replicas": obj.get("status", {}).get("replicas", 0), "selector": selector},
    }
