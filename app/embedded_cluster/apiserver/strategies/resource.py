"""The kinds of resource.k8s.io: claims, templates, slices, classes and taint rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from embedded_cluster.apiserver.statuses import JSON, FieldError, immutable
from embedded_cluster.apiserver.strategy import Context, RESTStrategy
from embedded_cluster.apiserver.validation import claims, devicekinds, slices


def default_devices(devices: JSON) -> None:
    """Defaults of a claim's `spec.devices`: ExactCount, one device, toleration operator Equal."""
    for request in devices.setdefault("requests", None) or ():
        for part in (request.get("exactly"), *(request.get("firstAvailable") or ())):
            if part is None:
                continue
            if not part.get("allocationMode"):
                part["allocationMode"] = "ExactCount"
            if part["allocationMode"] == "ExactCount" and not part.get("count"):
                part["count"] = 1
            for toleration in part.get("tolerations") or ():
                if not toleration.get("operator"):
                    toleration["operator"] = "Equal"


def default_taint(taint: JSON, now: str) -> None:
    """The API server notes when a taint came."""
    taint.setdefault("timeAdded", now)


class ClaimStrategy(RESTStrategy):
    """Spec immutable; allocation set or cleared, never changed; consumers need an allocation."""

    returns_deleted = True

    def default(self, new: JSON, context: Context) -> None:
        default_devices(new.setdefault("spec", {}).setdefault("devices", {}))

    def prepare_create(self, new: JSON, context: Context) -> None:
        new["status"] = {}

    def validate_create(self, new: JSON, context: Context) -> list[FieldError]:
        problems = claims.admin_access_problems(new["spec"], new["metadata"]["namespace"], context, "spec.devices")
        return problems + claims.spec_problems(new["spec"], "spec", context)

    def validate_update(self, new: JSON, old: JSON, context: Context) -> list[FieldError]:
        return [] if new["spec"] == old["spec"] else [immutable("spec", new["spec"])]

    def prepare_status(self, new: JSON, old: JSON, context: Context) -> None:
        status = new.setdefault("status", {})
        _drop_deallocated(status, old.get("status", {}))
        if status.get("allocation") is not None:
            status["allocation"].setdefault("devices", {})
        for result in _results(status):
            for toleration in result.get("tolerations") or ():
                toleration.setdefault("operator", "Equal")

    def validate_status(self, new: JSON, old: JSON, context: Context) -> list[FieldError]:
        return claims.status_problems(new, old, context)


def _results(status: JSON) -> list[JSON]:
    allocation: JSON = status.get("allocation") or {}
    results: list[JSON] = allocation.get("devices", {}).get("results", [])
    return results


def device_id(entry: JSON) -> tuple[Any, ...]:
    """What identifies an allocated device in results and device statuses."""
    return entry.get("driver"), entry.get("pool"), entry.get("device"), entry.get("shareID")


def _drop_deallocated(status: JSON, old: JSON) -> None:
    """Device statuses of devices that were allocated before and are not any more go away silently."""
    if not status.get("devices"):
        return
    now, before = {device_id(r) for r in _results(status)}, {device_id(r) for r in _results(old)}
    gone = before - now
    if not gone:
        return
    kept = [entry for entry in status["devices"] if device_id(entry) not in gone]
    if kept:
        status["devices"] = kept
    else:
        del status["devices"]


class ClaimTemplateStrategy(RESTStrategy):
    """Spec immutable; what is in it is checked like a claim's."""

    returns_deleted = True

    def default(self, new: JSON, context: Context) -> None:
        spec = new.setdefault("spec", {})
        spec.setdefault("metadata", {})
        default_devices(spec.setdefault("spec", {}).setdefault("devices", {}))

    def validate_create(self, new: JSON, context: Context) -> list[FieldError]:
        inner = new["spec"]["spec"]
        problems = claims.admin_access_problems(inner, new["metadata"]["namespace"], context, "spec.devices")
        problems += devicekinds.template_problems(new["spec"])
        return problems + claims.spec_problems(inner, "spec.spec", context)

    def validate_update(self, new: JSON, old: JSON, context: Context) -> list[FieldError]:
        return [] if new["spec"] == old["spec"] else [immutable("spec", new["spec"])]


class SliceStrategy(RESTStrategy):
    """Driver, pool and node of a slice never change; generation counts changes of the spec."""

    generation = True
    returns_deleted = True
    selectable: ClassVar[Mapping[str, str]] = {"spec.nodeName": "", "spec.driver": "", "spec.pool.name": ""}

    def default(self, new: JSON, context: Context) -> None:
        for device in new.setdefault("spec", {}).get("devices") or ():
            for attribute in (device.get("attributes") or {}).values():
                for kind in [kind for kind in attribute if kind in slices.LIST_KINDS]:
                    del attribute[kind]  # the feature DRAListTypeAttributes is off
            for taint in device.get("taints") or ():
                default_taint(taint, context.now)

    def validate_create(self, new: JSON, context: Context) -> list[FieldError]:
        return slices.problems(new["spec"])

    def validate_update(self, new: JSON, old: JSON, context: Context) -> list[FieldError]:
        if new["spec"] == old["spec"]:
            return []
        return slices.problems(new["spec"]) + slices.changed_problems(new["spec"], old["spec"])


class DeviceClassStrategy(RESTStrategy):
    """Device classes may change at any time."""

    generation = True
    returns_deleted = True

    def default(self, new: JSON, context: Context) -> None:
        new.setdefault("spec", {})

    def validate_create(self, new: JSON, context: Context) -> list[FieldError]:
        return devicekinds.class_problems(new["spec"], context)


class DeviceTaintRuleStrategy(RESTStrategy):
    """A change of the effect restarts the clock of the taint."""

    generation = True
    returns_deleted = True

    def default(self, new: JSON, context: Context) -> None:
        default_taint(new.setdefault("spec", {}).setdefault("taint", {}), context.now)

    def prepare_create(self, new: JSON, context: Context) -> None:
        new["status"] = {}

    def prepare_update(self, new: JSON, old: JSON, context: Context) -> None:
        taint, before = new["spec"]["taint"], old["spec"]["taint"]
        if taint.get("effect") != before.get("effect") and taint["timeAdded"] == before["timeAdded"]:
            taint["timeAdded"] = context.now

    def validate_create(self, new: JSON, context: Context) -> list[FieldError]:
        return devicekinds.rule_problems(new["spec"])

    def validate_update(self, new: JSON, old: JSON, context: Context) -> list[FieldError]:
        return devicekinds.rule_problems(new["spec"], old["spec"])

    def validate_status(self, new: JSON, old: JSON, context: Context) -> list[FieldError]:
        return devicekinds.rule_status_problems(new.get("status", {}))
