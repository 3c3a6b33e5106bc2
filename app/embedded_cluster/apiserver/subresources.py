"""What is below an object: bindings and evictions of pods, and the scale of sets of pods."""

from __future__ import annotations

from typing import Final

from embedded_cluster.apiserver.patches.patching import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, json_patched, merge
from embedded_cluster.apiserver.registry import ServedResource
from embedded_cluster.apiserver.requests import APIResponse, ResourceRequest, document
from embedded_cluster.apiserver.statuses import (
    JSON,
    StatusError,
    bad_request,
    conflict,
    invalid,
    invalid_value,
    unsupported_media_type,
)
from embedded_cluster.apiserver.storage import Stored
from embedded_cluster.apiserver.strategy import DeleteOptions, WriteOptions
from embedded_cluster.apiserver.verbs import ObjectVerbs

SUCCESS: JSON = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def bind(
    verbs: ObjectVerbs, pods: ServedResource, namespace: str, name: str, body: JSON, options: WriteOptions
) -> None:
    """Assign a pod to a node: once, to a node that is named, if UID and resourceVersion (where given) are still right.

    Annotations of the binding are merged into the pod in the same write, and a nomination goes.
    """
    metadata, target = body.get("metadata") or {}, body.get("target") or {}
    if metadata.get("name") not in (None, "", name):
        raise bad_request("name in URL does not match name in Binding object")
    if target.get("kind") not in (None, "", "Node"):
        raise StatusError(500, "", f'target.kind: Unsupported value: "{target["kind"]}": supported values: "Node"')
    if not target.get("name"):
        raise StatusError(500, "", "target.name: Required value")
    existing = verbs.get(pods, namespace, name)
    _check_bindable(existing, metadata)
    new = existing.thaw()
    new["spec"]["nodeName"] = target["name"]
    if metadata.get("annotations"):
        new["metadata"].setdefault("annotations", {}).update(metadata["annotations"])
    now = verbs.now()
    condition = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    conditions = new["status"].setdefault("conditions", [])
    conditions[:] = [c for c in conditions if c.get("type") != "PodScheduled"]
    conditions.append({key: value for key, value in condition.items() if value is not None})
    new["status"].pop("nominatedNodeName", None)  # ClearingNominatedNodeNameAfterBinding
    if not options.dry_run:
        verbs.storage.put(pods.kind, new)


def _check_bindable(existing: Stored, metadata: JSON) -> None:
    pod, name = existing.object, existing.key[1]
    uid, revision = metadata.get("uid"), metadata.get("resourceVersion")
    actual = pod["metadata"]["uid"]
    if uid and uid != actual:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {actual}"
        raise conflict("", "pods", name, why)
    if revision and revision != str(existing.revision):
        why = (
            f"Precondition failed: ResourceVersion in precondition: {revision}, "
            f"ResourceVersion in object meta: {existing.revision}"
        )
        raise conflict("", "pods", name, why)
    if pod["metadata"].get("deletionTimestamp"):
        raise conflict("", "pods/binding", name, f"pod {name} is being deleted, cannot be assigned to a host")
    if pod["spec"].get("nodeName"):
        raise conflict("", "pods/binding", name, f'pod {name} is already assigned to node "{pod["spec"]["nodeName"]}"')
    if pod["spec"].get("schedulingGates"):
        raise conflict("", "pods/binding", name, f"pod {name} has non-empty .spec.schedulingGates")


def evict(
    verbs: ObjectVerbs, pods: ServedResource, namespace: str, name: str, body: JSON, options: WriteOptions
) -> None:
    """Delete a pod when no disruption budget that selects it is used up."""
    pod = verbs.get(pods, namespace, name).object
    labels = pod["metadata"].get("labels") or {}
    budgets = verbs.storage.collection(verbs.registry.stored_form("poddisruptionbudgets").kind)
    for budget in budgets.items.values():
        spec, status = budget.object.get("spec", {}), budget.object.get("status", {})
        wanted = (spec.get("selector") or {}).get("matchLabels")
        selected = wanted is not None and all(labels.get(key) == value for key, value in wanted.items())
        if (
            budget.key[0] == namespace
            and selected
            and "disruptionsAllowed" in status
            and status["disruptionsAllowed"] <= 0
        ):
            message = "Cannot evict pod as it would violate the pod's disruption budget."
            raise StatusError(429, "TooManyRequests", message, {"causes": [{"reason": "DisruptionBudget"}]})
    verbs.delete(pods, namespace, name, deletion_of(body.get("deleteOptions") or {}), options)


POSTED: Final = {"binding": bind, "eviction": evict}
"""By the name of the subresource."""


def deletion_of(body: JSON) -> DeleteOptions:
    """metav1.DeleteOptions from a request's body."""
    preconditions = body.get("preconditions") or {}
    propagation = body.get("propagationPolicy") or ""
    if propagation not in ("", "Background", "Foreground", "Orphan"):
        raise bad_request(f'propagationPolicy: Unsupported value: "{propagation}"')
    return DeleteOptions(
        body.get("gracePeriodSeconds"),
        preconditions.get("uid") or "",
        preconditions.get("resourceVersion") or "",
        "Orphan" if body.get("orphanDependents") else propagation,
    )


_KEPT: Final = ("name", "namespace", "uid", "creationTimestamp")
_FORMATS: Final = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH)


def _get_scale(verbs: ObjectVerbs, call: ResourceRequest) -> APIResponse:
    return document(_scale(verbs.get(call.resource, call.info.namespace, call.info.name)))


def _update_scale(verbs: ObjectVerbs, call: ResourceRequest) -> APIResponse:
    """PUT."""
    return _write_scale(verbs, call, call.incoming.json_object())


def _patch_scale(verbs: ObjectVerbs, call: ResourceRequest) -> APIResponse:
    """PATCH; no list is in a Scale, so that both kinds of merge are the same."""
    form = call.incoming.content_type
    if form not in _FORMATS:
        raise unsupported_media_type(_FORMATS, {})
    current = _scale(verbs.get(call.resource, call.info.namespace, call.info.name))
    told = call.incoming.document()
    changed = json_patched(current, told) if form == JSON_PATCH else merge(current, told)
    return _write_scale(verbs, call, changed)


def _write_scale(verbs: ObjectVerbs, call: ResourceRequest, body: JSON) -> APIResponse:
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


SCALE: Final = {"get": _get_scale, "update": _update_scale, "patch": _patch_scale}
"""How many pods a set wants, without the rest of it (autoscaling/v1 Scale), by verb.

A write changes spec.replicas and nothing else, by the rules of an update of the whole object; the resource version of a
Scale is that of its object.
"""
