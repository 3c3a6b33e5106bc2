"""Field errors of device classes, device taint rules and claim templates."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from embedded_cluster.apiserver import names
from embedded_cluster.apiserver.statuses import JSON, FieldError, forbidden, invalid_value, too_many
from embedded_cluster.apiserver.strategy import Context
from embedded_cluster.apiserver.validation.parts import (
    MOST_CONFIGS,
    condition_problems,
    driver_problems,
    name_problems,
    opaque_problems,
    pool_problems,
    selector_problems,
    taint_problems,
)

MOST_CONDITIONS: Final = 8
_NOT_GIVEN: Final = (
    *("name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "generation", "creationTimestamp"),
    *("deletionTimestamp", "deletionGracePeriodSeconds", "ownerReferences", "finalizers", "managedFields"),
)
_CALLED: Final = {"uid": "uID"}
"""What messages call a field, where that differs."""


def class_problems(spec: JSON, context: Context) -> list[FieldError]:
    """Of a DeviceClass."""
    found = selector_problems(spec.get("selectors") or (), "spec.selectors")
    configs = spec.get("config") or ()
    if len(configs) > MOST_CONFIGS:
        found.append(too_many("spec.config", len(configs), MOST_CONFIGS))
    for index, config in enumerate(configs):
        found += opaque_problems(config, f"spec.config[{index}]")
    return [*found, *_extended_name_problems(spec.get("extendedResourceName"))]


def _extended_name_problems(name: str | None) -> Iterable[FieldError]:
    if name is None:
        return
    where = "spec.extendedResourceName"
    domain, slash, _ = name.partition("/")
    native = not slash or domain == "kubernetes.io" or domain.endswith(".kubernetes.io") or name.startswith("requests.")
    if native or names.qualified_name(name) or names.qualified_name(f"requests.{name}"):
        yield invalid_value(where, name, "must be a valid extended resource name")


def rule_problems(spec: JSON, old: JSON | None = None) -> list[FieldError]:
    """Problems of a DeviceTaintRule; an unchanged effect is not checked again."""
    selector = spec.get("deviceSelector") or {}
    found: list[FieldError] = []
    if "driver" in selector:
        found += driver_problems(selector["driver"], "spec.deviceSelector.driver")
    if "pool" in selector:
        found += pool_problems(selector["pool"], "spec.deviceSelector.pool")
    if "device" in selector:
        found += name_problems(selector["device"], "spec.deviceSelector.device", names.dns_label)
    taint = taint_problems(spec.get("taint", {}), "spec.taint")
    if old is not None and old.get("taint", {}).get("effect") == spec.get("taint", {}).get("effect"):
        taint = [problem for problem in taint if problem.field != "spec.taint.effect"]
    return found + taint


def rule_status_problems(status: JSON) -> list[FieldError]:
    return condition_problems(status.get("conditions") or (), "status.conditions", MOST_CONDITIONS)


def template_problems(spec: JSON) -> list[FieldError]:
    """Of a ResourceClaimTemplate's metadata: only labels and annotations can be given."""
    metadata, at = spec.get("metadata") or {}, "spec.metadata"
    found = names.label_problems(metadata.get("labels") or {}, f"{at}.labels")
    found += names.annotation_problems(metadata.get("annotations") or {}, f"{at}.annotations")
    return found + [
        forbidden(f"{at}.{_CALLED.get(part, part)}", "cannot be set") for part in _NOT_GIVEN if part in metadata
    ]
