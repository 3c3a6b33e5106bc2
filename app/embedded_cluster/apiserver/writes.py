"""create, update, patch and delete over HTTP: from request bodies to verbs, and from their results to answers."""

from __future__ import annotations

from embedded_cluster.apiserver import reads, subresources
from embedded_cluster.apiserver.garbage import Garbage
from embedded_cluster.apiserver.patches.patching import patch_object
from embedded_cluster.apiserver.requests import APIResponse, ResourceRequest, document
from embedded_cluster.apiserver.statuses import JSON, StatusError, method_not_allowed
from embedded_cluster.apiserver.storage import Stored
from embedded_cluster.apiserver.strategy import DeleteOptions
from embedded_cluster.apiserver.verbs import ObjectVerbs


def _written(call: ResourceRequest, stored: Stored, code: int = 200) -> APIResponse:
    return reads.shown(call, stored, code)


def create(verbs: ObjectVerbs, call: ResourceRequest) -> APIResponse:
    """POST: a new object, or something done to a pod."""
    info, resource, body = call.info, call.resource, call.incoming.json_object()
    if info.subresource:
        if info.subresource not in resource.kind.subresources:
            reads.require_subresource(call)
            raise method_not_allowed()
        act = subresources.POSTED.get(info.subresource)
        if act is None:
            raise method_not_allowed()
        act(verbs, resource, info.namespace, info.name, body, call.options)
        return document(subresources.SUCCESS, 201)
    if info.name:
        raise method_not_allowed()
    return _written(call, verbs.create(resource, info.namespace, body, call.options), 201)


def update(verbs: ObjectVerbs, call: ResourceRequest) -> APIResponse:
    """PUT."""
    info = call.info
    if not info.name:
        raise method_not_allowed()
    if info.resource == "namespaces" and info.subresource == "finalize":
        return _finalize(verbs, call)
    reads.require_subresource(call)
    body = call.incoming.json_object()
    stored, created = verbs.update(call.resource, info.namespace, info.name, body, call.options, info.subresource)
    return _written(call, stored, 201 if created else 200)


def _finalize(verbs: ObjectVerbs, call: ResourceRequest) -> APIResponse:
    existing = verbs.get(call.resource, "", call.info.name)
    new = existing.thaw()
    new["spec"] = call.incoming.json_object().get("spec") or {}
    if new["metadata"].get("deletionTimestamp") and not new["spec"].get("finalizers"):
        return _written(call, verbs.storage.remove(call.resource.kind, existing.key))
    return _written(call, verbs.storage.put(call.resource.kind, new))


def patch(verbs: ObjectVerbs, call: ResourceRequest) -> APIResponse:
    """PATCH, in any of the four formats."""
    if not call.info.name:
        raise method_not_allowed()
    reads.require_subresource(call)
    info, incoming = call.info, call.incoming
    stored, created = patch_object(
        verbs,
        call.resource,
        info.namespace,
        info.name,
        incoming.content_type,
        incoming.document,
        call.options,
        info.subresource,
    )
    return _written(call, stored, 201 if created else 200)


def _deletion(call: ResourceRequest) -> DeleteOptions:
    body: JSON = call.incoming.json_object() if call.incoming.body.strip() else {}
    query = call.incoming.query
    if "gracePeriodSeconds" in query:
        body.setdefault("gracePeriodSeconds", int(query["gracePeriodSeconds"]))
    if "propagationPolicy" in query:
        body.setdefault("propagationPolicy", query["propagationPolicy"])
    return subresources.deletion_of(body)


def delete(verbs: ObjectVerbs, garbage: Garbage, call: ResourceRequest) -> APIResponse:
    """DELETE of one object: a Status when it is gone, the object while something still holds it."""
    info, kind, deletion = call.info, call.resource.kind, _deletion(call)
    if info.subresource:
        reads.require_subresource(call)
        raise method_not_allowed()
    uid = verbs.get(call.resource, info.namespace, info.name).object["metadata"]["uid"]
    if deletion.propagation == "Orphan" and not call.options.dry_run:
        garbage.orphan(uid)
    stored, gone = verbs.delete(call.resource, info.namespace, info.name, deletion, call.options)
    if not gone or kind.strategy.returns_deleted:
        return _written(call, stored)
    details: JSON = {"name": info.name, "kind": kind.plural, "uid": uid}
    if kind.group:
        details["group"] = kind.group
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    return document(status)


def delete_collection(verbs: ObjectVerbs, call: ResourceRequest) -> APIResponse:
    """DELETE of everything a selector chooses; answers with the list of what it found."""
    resource, deletion = call.resource, _deletion(call)
    collection = verbs.storage.collection(resource.kind)
    chosen = reads.selector_of(call).choose(collection.sorted())
    found = reads.in_namespace(chosen, call.info.namespace)
    for stored in found:
        try:
            verbs.delete(resource, *stored.key, deletion, call.options)
        except StatusError as error:
            if error.code != 404:
                raise
    metadata = {"resourceVersion": str(verbs.storage.revision)}
    return APIResponse(200, reads.representation_of(call).many(found, metadata))
