"""Versions whose objects look different from the stored ones: v1beta1 of resource.k8s.io, v1 of events.k8s.io.

Pure functions from dict to dict; the argument is not changed, but the result shares parts with it. The rules of
v1beta1 are those of Kubernetes' own conversion: everything of a device but its name lies below `basic`, and an
exact request is written flat.
"""

from __future__ import annotations

from typing import Final

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
