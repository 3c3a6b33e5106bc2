"""What is posted below a pod: bindings and evictions."""

from __future__ import annotations

from typing import Final

from embedded_cluster.apiserver.options import DeleteOptions, WriteOptions
from embedded_cluster.apiserver.registry import ServedResource
from embedded_cluster.apiserver.statuses import (
    JSON,
    StatusError,
    bad_request,
    conflict,
)
from embedded_cluster.apiserver.storage import Stored
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
