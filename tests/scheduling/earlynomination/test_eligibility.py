"""Which pods lose nothing by an early nomination, as a table."""

from __future__ import annotations

from typing import Any

import pytest

from dra_extender.api.core import Pod
from dra_extender.api.decoding import convert
from dra_extender.scheduling.earlynomination.queue import is_eligible

REQUIRED, PREFERRED = (f"{word}DuringSchedulingIgnoredDuringExecution" for word in ("required", "preferred"))
TERMS = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}
SPREAD = {"maxSkew": 1, "topologyKey": "zone"}


def _terms(count: int) -> dict[str, Any]:
    return {"nodeSelectorTerms": [{"matchExpressions": [{"key": f"k{i}", "operator": "Exists"}]} for i in range(count)]}


def made(spec: dict[str, Any], status: dict[str, Any] | None = None, **meta: Any) -> Pod:
    return convert(Pod, {"metadata": {"name": "p", "uid": "u", **meta}, "spec": spec, "status": status or {}})


@pytest.mark.parametrize(
    ("spec", "eligible"),
    [
        ({}, True),
        ({"nodeSelector": {"zone": "a"}, "priority": 7}, True),
        ({"affinity": {"nodeAffinity": {REQUIRED: TERMS}}}, True),
        ({"volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "projected": {}}]}, True),
        ({"nodeName": "n1"}, False),
        ({"schedulingGates": [{"name": "later"}]}, False),
        ({"schedulingGroup": {"podGroupName": "g"}}, False),
        ({"volumes": [{"name": f"v{i}"} for i in range(1_001)]}, False),
        ({"nodeSelector": {f"k{i}": "v" for i in range(1_001)}}, False),
        ({"containers": [{"name": "c", "ports": [{"containerPort": 80}] * 1_001}]}, False),
        ({"affinity": {"nodeAffinity": {REQUIRED: _terms(1_001)}}}, False),
        ({"affinity": {"nodeAffinity": {REQUIRED: _terms(1_000)}}}, True),
        ({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}, False),
        ({"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}]}, False),
        ({"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": "zone"}]}}}, False),
        ({"affinity": {"podAntiAffinity": {REQUIRED: [{"topologyKey": "zone"}]}}}, False),
        ({"topologySpreadConstraints": [SPREAD | {"whenUnsatisfiable": "DoNotSchedule"}]}, False),
        ({"affinity": {"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": {}}]}}}, False),
        ({"affinity": {"podAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": {}}]}}}, False),
        ({"affinity": {"podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": {}}]}}}, False),
        ({"topologySpreadConstraints": [SPREAD | {"whenUnsatisfiable": "ScheduleAnyway"}]}, False),
    ],
)
def test_pods_that_lose_something_or_cannot_be_judged_are_left_alone(spec: dict[str, Any], *, eligible: bool) -> None:
    assert is_eligible(made(spec)) is eligible


def test_pods_that_are_going_are_left_alone() -> None:
    assert not is_eligible(made({}, deletionTimestamp="2026-01-01T00:00:00Z"))
    assert not is_eligible(made({}, {"phase": "Failed"}))
