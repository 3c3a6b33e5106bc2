"""Configurations that kube-scheduler accepts and refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from embedded_cluster.scheduler import config
from embedded_cluster.scheduler.config import ConfigError

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
PROFILE = "profiles: [{schedulerName: s, plugins: {multiPoint: {disabled: [{name: DynamicResources}]}}}]\n"
ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", ["secondary-scheduler.yaml", "stock-scheduler.yaml"])
def test_the_shipped_configurations_are_used_as_they_are(name: str) -> None:
    loaded = config.relocate(config.load(ROOT / "scheduler_config" / name), "http://127.0.0.1:8888")
    first, second = loaded.extenders
    assert first.url(first.filter_verb) == "http://127.0.0.1:8888/scheduler/filter"
    assert second.url(second.bind_verb) == "http://127.0.0.1:8888/scheduler/bind"
    assert first.timeout < second.timeout
    assert loaded.profiles[0].gates_claims and not loaded.profiles[0].allocates_in_tree


def test_the_built_in_configuration_is_that_of_the_secondary_scheduler() -> None:
    shipped = config.relocate(config.load(ROOT / "scheduler_config/secondary-scheduler.yaml"), "http://x:1")
    built_in = config.takeover("http://x:1")
    assert built_in.extenders == shipped.extenders
    assert built_in.percentage_of_nodes_to_score == shipped.percentage_of_nodes_to_score
    assert built_in.scheduler_names == shipped.scheduler_names


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("kind: Other\napiVersion: v1\n" + PROFILE, "must be a KubeSchedulerConfiguration"),
        (HEAD + PROFILE + "colour: red\n", "unknown field 'colour'"),
        (HEAD + PROFILE + "extenders: [{urlPrefix: http://x, nodeCacheCapable: true, prioritizeVerb: p}]", "weight"),
        (HEAD + PROFILE + "extenders: [{urlPrefix: http://x, filter: yes}]", "unknown field `filter`"),
        (HEAD + PROFILE + "extenders: [{urlPrefix: x, bindVerb: b, nodeCacheCapable: true}, "
         "{urlPrefix: y, bindVerb: b, nodeCacheCapable: true}]", "only one can implement bind"),
        (HEAD + PROFILE + "extenders: [{urlPrefix: x, filterVerb: f}]", "nodeCacheCapable"),
        (HEAD + PROFILE + "extenders: [{urlPrefix: x, nodeCacheCapable: true, httpTimeout: soon}]", "not a duration"),
        (HEAD + PROFILE + "podInitialBackoffSeconds: 5\npodMaxBackoffSeconds: 4\n", "podMaxBackoffSeconds"),
        (HEAD + "profiles: [{schedulerName: s}]", "must be disabled"),
        ("just text", "not a YAML mapping"),
        ("a: [", "expected"),
    ],
)  # fmt: skip
def test_what_kube_scheduler_would_not_start_with_is_refused(text: str, want: str) -> None:
    with pytest.raises(ConfigError, match=want):
        config.parse(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("", 0), ("300ms", 0.3), ("3s", 3), ("1m30s", 90), ("11m", 660), ("1.5h", 5400)]
)
def test_durations_are_read_as_in_go(text: str, seconds: float) -> None:
    assert config.duration(text) == pytest.approx(seconds)
