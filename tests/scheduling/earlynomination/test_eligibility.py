"""Which pods lose nothing by an early nomination, as a table."""

from __future__ import annotations

from typing import Any

import pytest

from dra_extender.api.core import Pod
from dra_extender.api.decoding import convert
from dra_extender.scheduling.earlynomination.queue import why_not_eligible

REQUIRED, PREFERRED = (f"{word}DuringSchedulingIgnoredDuringExecution" for word in ("required", "preferred"))
TERMS = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}
SPREAD = {"maxSkew": 1, "topologyKey": "zone"}


def _terms(count: int) -> dict[str, Any]:
    return {"nodeSelectorTerms": [{"matchExpressions": [{"key": f"k{i}", "operator": "Exists"}]} for i in range(count)]}


def made(spec: dict[str, Any], status: dict[str, Any] | None = None, **meta: Any) -> Pod:
    return convert(Pod, {"metadata": {"name": "p", "uid": "u", **meta}, "spec": spec, "status": status or {}})


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({}, None),
        ({"nodeSelector": {"zone": "a"}, "priority": 7}, None),
        ({"affinity": {"nodeAffinity": {REQUIRED: TERMS}}}, None),
        ({"volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "projected": {}}]}, None),
        ({"nodeName": "n1"}, "bound"),
        ({"schedulingGates": [{"name": "later"}]}, "gated"),
        ({"schedulingGroup": {"podGroupName": "g"}}, "group"),
        ({"volumes": [{"name": f"v{i}"} for i in range(1_001)]}, "large"),
        ({"nodeSelector": {f"k{i}": "v" for i in range(1_001)}}, "large"),
        ({"affinity": {"nodeAffinity": {REQUIRED: _terms(1_001)}}}, "large"),
        ({"affinity": {"nodeAffinity": {REQUIRED: _terms(1_000)}}}, None),
        ({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}, "volumes"),
        ({"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}]}, "volumes"),
        ({"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": "zone"}]}}}, "affinity to other pods"),
        ({"affinity": {"podAntiAffinity": {REQUIRED: [{"topologyKey": "zone"}]}}}, "affinity to other pods"),
        ({"topologySpreadConstraints": [SPREAD | {"whenUnsatisfiable": "DoNotSchedule"}]}, "topology spread"),
        ({"affinity": {"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": {}}]}}}, "prefers"),
        ({"affinity": {"podAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": {}}]}}}, "prefers"),
        ({"affinity": {"podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": {}}]}}}, "prefers"),
        ({"topologySpreadConstraints": [SPREAD | {"whenUnsatisfiable": "ScheduleAnyway"}]}, "prefers"),
    ],
)
def test_pods_that_lose_something_or_cannot_be_judged_are_left_alone(spec: dict[str, Any], why: str | None) -> None:
    assert why_not_eligible(made(spec)) == why


def test_pods_that_are_going_or_are_nominated_already_are_left_alone() -> None:
    assert why_not_eligible(made({}, deletionTimestamp="2026-01-01T00:00:00Z")) == "leaving"
    assert why_not_eligible(made({}, {"phase": "Failed"})) == "leaving"
    assert why_not_eligible(made({}, {"nominatedNodeName": "n1"})) == "nominated"
