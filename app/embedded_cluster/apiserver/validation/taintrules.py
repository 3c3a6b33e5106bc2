"""Field errors of device taint rules."""

from __future__ import annotations

from embedded_cluster.apiserver import names
from embedded_cluster.apiserver.statuses import JSON, Problem
from embedded_cluster.apiserver.validation.parts import (
    condition_problems,
    driver_problems,
    name_problems,
    pool_problems,
    taint_problems,
)

MOST_CONDITIONS = 8


def problems(spec: JSON, old: JSON | None = None) -> list[Problem]:
    selector = spec.get("deviceSelector") or {}
    found: list[Problem] = []
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


def status_problems(status: JSON) -> list[Problem]:
    return condition_problems(status.get("conditions") or (), "status.conditions", MOST_CONDITIONS)
