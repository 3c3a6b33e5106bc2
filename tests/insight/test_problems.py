"""What is listed as a problem, and that there always is something to do about it."""

from __future__ import annotations

from typing import cast

import pytest

from dra_extender.api.events import Undecodable
from dra_extender.api.features import FeatureGates
from dra_extender.api.meta import ObjectKey
from dra_extender.devices.audit import Violation
from dra_extender.devices.cluster import Cluster
from dra_extender.insight.problems import cluster_problems
from dra_extender.kube import reflector
from dra_extender.kube.client import KubeClient
from dra_extender.kube.resources import Served


def followed() -> list[str]:
    """Every kind of objects that may be found unreadable."""
    made = reflector.Watches(cast(KubeClient, None), Served(taint_rules="v1alpha3"), lambda event: None)
    return [each.resource.kind for each in made.reflectors]


@pytest.mark.parametrize("kind", followed())
def test_an_object_of_any_kind_that_cannot_be_read_comes_with_advice(kind: str) -> None:
    cluster = Cluster(FeatureGates())
    cluster.apply(Undecodable(ObjectKey(kind, "some"), "spec: nonsense"))
    (found,) = cluster_problems(cluster, [], [], [])
    assert (found.object, found.problem) == (f"{kind} some", "cannot be read: spec: nonsense")
    assert "correct" in found.what_to_do


def test_a_conflict_names_everybody_involved() -> None:
    twice = Violation("device", "gpu.example.com/n1/gpu-0", ("a/one", "b/two"), "allocated to 2 claims")
    (found,) = cluster_problems(Cluster(FeatureGates()), [], [twice], [])
    assert (found.object, found.problem) == (
        "device gpu.example.com/n1/gpu-0",
        "allocated to 2 claims (claims: a/one, b/two)",
    )


def test_an_api_server_that_was_set_back_comes_first_with_its_runbook() -> None:
    found, _ = cluster_problems(
        Cluster(FeatureGates()), [], [], ["bind pods"], "Pod: version 4 is shown after version 7"
    )
    assert (found.kind, found.object) == ("server", "the API server")
    assert "version 4 is shown after version 7" in found.problem
    assert "docs/runbooks/api-server-set-back.md" in found.what_to_do


def test_a_missing_permission_is_to_be_granted() -> None:
    (found,) = cluster_problems(Cluster(FeatureGates()), [], [], ["bind pods"])
    assert (found.problem, found.what_to_do) == (
        "the API server does not allow it: bind pods",
        "grant it, as manifests/rbac does",
    )
