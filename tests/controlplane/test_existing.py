"""Which clusters the end-to-end tests take, and where their schedulers may put pods; no cluster is needed to tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e import existing
from tests.e2e.components import NotBuiltError
from tests.e2e.controlplane import DRA_FEATURES, DRA_RUNTIME_CONFIG
from tests.e2e.existing import ExistingCluster, RefusedError, chosen, objection

ROOT = Path(__file__).parents[2]
EMPTY = ("namespace/default", "namespace/kube-system", "namespace/local-path-storage", "node/kind-control-plane")


def cluster(directory: Path, monkeypatch: pytest.MonkeyPatch, kubeconfig: Path) -> ExistingCluster:
    """With a kubectl that must not be asked anything."""
    for name in ExistingCluster.NEEDED:
        (directory / name).write_text("#!/bin/sh\necho asked >&2\nexit 1\n")
        (directory / name).chmod(0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(directory))
    return ExistingCluster(directory, kubeconfig)


def test_the_kubeconfig_of_ones_shell_is_never_taken(tmp_path: Path) -> None:
    assert chosen({"KUBECONFIG": str(tmp_path)}) is None
    assert chosen({"E2E_KUBECONFIG": ""}) is None
    assert chosen({"KUBECONFIG": "other", "E2E_KUBECONFIG": str(tmp_path)}) == tmp_path


def test_a_cluster_that_does_not_say_that_it_may_be_thrown_away_is_refused() -> None:
    reason = objection(None, EMPTY)
    assert "does not say that it may be thrown away" in reason
    assert "kubectl create configmap dra-extender-e2e --namespace=kube-system" in reason


def test_a_cluster_that_says_so_and_that_nobody_uses_is_taken() -> None:
    assert objection({}, EMPTY) == ""


@pytest.mark.parametrize(
    ("found", "named"),
    [
        ("namespace/shop", "shop"),
        ("namespace/dra-system", "dra-system"),
        ("deviceclass.resource.k8s.io/gpu", "deviceclass.resource.k8s.io/gpu"),
        ("resourceslice.resource.k8s.io/s", "resourceslice.resource.k8s.io/s"),
    ],
)
def test_a_cluster_that_is_used_for_something_is_refused_whatever_it_says(found: str, named: str) -> None:
    assert named in objection({}, [*EMPTY, found])


def test_a_cluster_where_tests_run_or_were_killed_is_refused() -> None:
    assert "python -m tests.e2e.existing" in objection({"before": "[]"}, EMPTY)


def test_a_kubeconfig_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(RefusedError, match=rf"{missing} \(E2E_KUBECONFIG"):
        cluster(tmp_path, monkeypatch, missing).__enter__()


def test_a_kubeconfig_that_kubectl_cannot_use_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RefusedError, match=r"cannot be used: .*asked"):
        cluster(tmp_path, monkeypatch, Path(__file__)).__enter__()


def test_a_scheduler_and_kubectl_are_all_the_binaries_that_are_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    with pytest.raises(NotBuiltError, match=r"^kube-scheduler, kubectl missing"):
        ExistingCluster(tmp_path, Path("kubeconfig"))


def test_schedulers_stay_away_from_the_clusters_own_nodes_and_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = cluster(tmp_path, monkeypatch, Path(__file__))
    made.others = ("a", "b")
    given: dict[str, Any] = {"leaderElection": {"leaderElect": True}, "profiles": [{"schedulerName": "mine"}, {}]}
    fitted = made.fitted(given)
    assert [profile["schedulerName"] for profile in fitted["profiles"]] == ["mine", existing.STOCK_SCHEDULER + "-e2e"]
    for profile in fitted["profiles"]:
        (added,) = profile["pluginConfig"]
        affinity = added["args"]["addedAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        (term,) = affinity["nodeSelectorTerms"]
        fields = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in made.others]
        assert term["matchFields"] == fields
    assert fitted["leaderElection"] == {"leaderElect": True, "resourceNamespace": "dra-e2e"}
    assert given["profiles"] == [{"schedulerName": "mine"}, {}]
    given["leaderElection"] |= {"resourceNamespace": "dra-system"}
    assert made.fitted(given)["leaderElection"]["resourceNamespace"] == "dra-system"


def test_kind_has_the_features_of_the_control_plane_that_tests_start() -> None:
    config = yaml.safe_load((ROOT / "hack" / "kind.yaml").read_text())
    assert config["featureGates"] == DRA_FEATURES
    assert [f"{group}={on}" for group, on in config["runtimeConfig"].items()] == list(DRA_RUNTIME_CONFIG)


def test_the_cluster_that_kind_makes_says_that_it_may_be_thrown_away() -> None:
    assert f"configmap {existing.MARK}" in (ROOT / "hack" / "kind-up.sh").read_text()
