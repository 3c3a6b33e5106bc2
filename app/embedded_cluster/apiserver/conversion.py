"""Versions whose objects look different from the stored ones: v1beta1 of resource.k8s.io, v1 of events.k8s.io and of
autoscaling.

Pure functions from dict to dict; the argument is not changed, but the result shares parts with it. The rules of
v1beta1 are those of Kubernetes' own conversion: everything of a device but its name lies below `basic`, and an
exact request is written flat. In autoscaling/v1, what is not about the use of CPU stands in annotations; other metrics
do so in the form of v2 here.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from embedded_cluster.apiserver.registry import Conversion
from embedded_cluster.apiserver.statuses import JSON

_EXACT: Final = ("deviceClassName", "selectors", "allocationMode", "count", "adminAccess", "tolerations", "capacity")


def _flat_request(request: JSON) -> JSON:
    flat = {name: value for name, value in request.items() if name != "exactly"}
    flat.update(request.get("exactly") or {"deviceClassName": ""})
    return flat


def _nested_request(request: JSON) -> JSON:
    nested = {name: value for name, value in request.items() if name not in _EXACT}
    given = {name: request.get(name) for name in _EXACT}
    exactly = {name: value for name, value in given.items() if value is False or value not in (None, "", [], 0)}
    if exactly:
        nested["exactly"] = exactly
    return nested


def _with_requests(spec: JSON, convert: object) -> JSON:
    devices = spec.get("devices")
    if not devices or not devices.get("requests"):
        return spec
    assert callable(convert)
    return {**spec, "devices": {**devices, "requests": [convert(request) for request in devices["requests"]]}}


def _claim_to_beta(claim: JSON) -> JSON:
    return {
        **claim,
        "apiVersion": "resource.k8s.io/v1beta1",
        "spec": _with_requests(claim.get("spec", {}), _flat_request),
    }


def _claim_from_beta(claim: JSON) -> JSON:
    return {**claim, "spec": _with_requests(claim.get("spec", {}), _nested_request)}


def _template_to_beta(template: JSON) -> JSON:
    spec = template.get("spec", {})
    spec = {**spec, "spec": _with_requests(spec.get("spec", {}), _flat_request)}
    return {**template, "apiVersion": "resource.k8s.io/v1beta1", "spec": spec}


def _template_from_beta(template: JSON) -> JSON:
    spec = template.get("spec", {})
    return {**template, "spec": {**spec, "spec": _with_requests(spec.get("spec", {}), _nested_request)}}


def _slice_to_beta(item: JSON) -> JSON:
    spec = dict(item.get("spec", {}))
    if "devices" in spec:
        spec["devices"] = [
            {"name": device.get("name", ""), "basic": {k: v for k, v in device.items() if k != "name"}}
            for device in spec["devices"]
        ]
    return {**item, "apiVersion": "resource.k8s.io/v1beta1", "spec": spec}


def _slice_from_beta(item: JSON) -> JSON:
    spec = dict(item.get("spec", {}))
    if "devices" in spec:
        spec["devices"] = [
            {"name": device.get("name", ""), **(device.get("basic") or {})} for device in spec["devices"]
        ]
    if spec.get("nodeName") == "":
        del spec["nodeName"]
    if spec.get("allNodes") is False:
        del spec["allNodes"]
    return {**item, "spec": spec}


V1BETA1: Final = {
    "resourceclaims": Conversion(_claim_to_beta, _claim_from_beta),
    "resourceclaimtemplates": Conversion(_template_to_beta, _template_from_beta),
    "resourceslices": Conversion(_slice_to_beta, _slice_from_beta),
}

_EVENT_NAMES: Final = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedCount": "count",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
}
_CORE_NAMES: Final = {core: name for name, core in _EVENT_NAMES.items()}


def _event_to_core(event: JSON) -> JSON:
    return {_EVENT_NAMES.get(name, name): value for name, value in event.items()}


def _event_from_core(event: JSON) -> JSON:
    converted = {_CORE_NAMES.get(name, name): value for name, value in event.items()}
    converted["apiVersion"] = "events.k8s.io/v1"
    return converted


EVENTS: Final = Conversion(_event_from_core, _event_to_core)


# autoscaling/v1

_ANNOTATED: Final = "autoscaling.alpha.kubernetes.io/"
_CPU_SHARE: Final = "targetCPUUtilizationPercentage"


def _cpu_share(metric: JSON) -> int | None:
    """The percentage that a metric wishes for, if it is the one that v1 has a field for."""
    source = metric.get("resource") or {}
    share: int | None = (source.get("target") or {}).get("averageUtilization")
    return share if metric.get("type") == "Resource" and source.get("name") == "cpu" else None


def _autoscaler_to_v1(obj: JSON) -> JSON:
    spec, status = dict(obj.get("spec", {})), dict(obj.get("status", {}))
    metrics: list[JSON] = spec.pop("metrics", None) or []
    shares = [metric for metric in metrics if _cpu_share(metric) is not None][:1]
    aside = {
        "metrics": [metric for metric in metrics if metric not in shares],
        "behavior": spec.pop("behavior", None),
        "conditions": status.pop("conditions", None),
        "current-metrics": status.pop("currentMetrics", None),
    }
    if shares:
        spec[_CPU_SHARE] = _cpu_share(shares[0])
    texts = {_ANNOTATED + name: orjson.dumps(value).decode() for name, value in aside.items() if value}
    metadata = dict(obj["metadata"])
    if texts:
        metadata["annotations"] = {**metadata.get("annotations", {}), **texts}
    status.setdefault("currentReplicas", 0)
    return {**obj, "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status}


def _autoscaler_from_v1(obj: JSON) -> JSON:
    spec, metadata = dict(obj.get("spec") or {}), dict(obj["metadata"])
    annotations = dict(metadata.pop("annotations", None) or {})
    aside = {name: _json(annotations.pop(_ANNOTATED + name, "")) for name in ("metrics", "behavior", "conditions")}
    annotations.pop(_ANNOTATED + "current-metrics", None)
    metrics = aside["metrics"] or []
    if (share := spec.pop(_CPU_SHARE, None)) is not None:
        target = {"type": "Utilization", "averageUtilization": share}
        metrics = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}, *metrics]
    if metrics:
        spec["metrics"] = metrics
    if aside["behavior"]:
        spec["behavior"] = aside["behavior"]
    status = dict(obj.get("status") or {})
    if aside["conditions"]:
        status["conditions"] = aside["conditions"]
    if annotations:
        metadata["annotations"] = annotations
    converted = {**obj, "metadata": metadata, "spec": spec}
    return converted | ({"status": status} if status else {})


def _json(text: str) -> Any:
    """What an annotation says; nothing when it is no JSON."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


AUTOSCALERS: Final = Conversion(_autoscaler_to_v1, _autoscaler_from_v1)
