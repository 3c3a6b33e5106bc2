"""The scheduler is configured as the shipped files say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from embedded_cluster.scheduler.config import takeover

ROOT = Path(__file__).parents[3]
SHIPPED: dict[str, dict[str, Any]] = {
    name: yaml.safe_load((ROOT / "scheduler_config" / name).read_text())
    for name in ("secondary-scheduler.yaml", "stock-scheduler.yaml")
}


@pytest.mark.parametrize("name", SHIPPED)
def test_the_extenders_are_those_of_the_shipped_configurations(name: str) -> None:
    entries = SHIPPED[name]["extenders"]
    verbs = ("filterVerb", "prioritizeVerb", "preemptVerb", "bindVerb", "weight")
    shipped = [tuple(entry.get(verb, 0 if verb == "weight" else "") for verb in verbs) for entry in entries]
    built_in = takeover("http://x:1").extenders
    assert [(e.filter_verb, e.prioritize_verb, e.preempt_verb, e.bind_verb, e.weight) for e in built_in] == shipped
    assert [f"{entry.timeout:g}s" for entry in built_in] == [entry["httpTimeout"] for entry in entries]
    assert all(entry["nodeCacheCapable"] and not entry.get("ignorable") for entry in entries)
    assert built_in[0].url(built_in[0].filter_verb) == "http://x:1/scheduler/filter"


def test_the_built_in_configuration_is_that_of_the_secondary_scheduler() -> None:
    shipped, built_in = SHIPPED["secondary-scheduler.yaml"], takeover("http://x:1")
    (profile,) = shipped["profiles"]
    plugins = profile["plugins"]
    assert (profile["schedulerName"],) == built_in.scheduler_names
    assert plugins == {
        "multiPoint": {"disabled": [{"name": "DynamicResources"}]},
        "preEnqueue": {"enabled": [{"name": "DynamicResources"}]},
    }
    assert shipped["percentageOfNodesToScore"] == built_in.percentage_of_nodes_to_score
    assert shipped["podInitialBackoffSeconds"] == built_in.pod_initial_backoff_seconds
    assert shipped["podMaxBackoffSeconds"] == built_in.pod_max_backoff_seconds
