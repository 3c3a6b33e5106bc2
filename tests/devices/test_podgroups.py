"""The PodGroups of the cluster, and which changes of them requeue refused pods."""

from __future__ import annotations

from typing import Any

import pytest

from dra_extender.api.decoding import convert
from dra_extender.api.events import Applied, Removed
from dra_extender.api.features import FeatureGates
from dra_extender.api.meta import ObjectKey
from dra_extender.api.scheduling import CoschedulingPodGroup, PodGroup
from dra_extender.devices.cluster import Cluster
from tests.support.devices.changing import drop, put, spoil

GROUP, COSCHEDULING = "scheduling.k8s.io", "scheduling.x-k8s.io"


def group(size: int = 2, version: str = "1", **metadata: Any) -> PodGroup:
    meta = {"name": "g", "namespace": "ns", "uid": "u", "resourceVersion": version, **metadata}
    return convert(PodGroup, {"metadata": meta, "spec": {"schedulingPolicy": {"gang": {"minCount": size}}}})


def member_group(size: int) -> CoschedulingPodGroup:
    meta = {"name": "g", "namespace": "ns", "uid": "x"}
    return convert(CoschedulingPodGroup, {"metadata": meta, "spec": {"minMember": size}})


def size(cluster: Cluster, api_group: str = GROUP) -> int | None:
    found = cluster.pod_groups.get(api_group, "ns", "g")
    return found.min_count if found is not None else None


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(FeatureGates())


def test_a_new_a_changed_and_a_removed_group_requeue_refused_pods(cluster: Cluster) -> None:
    assert put(cluster, group(2)) and size(cluster) == 2
    assert put(cluster, group(3, "2")) and size(cluster) == 3
    assert put(cluster, group(3, "3", annotations={"dra-extender.dev/topology-required": "rack"}))
    assert drop(cluster, group(3)) and cluster.pod_groups.get(GROUP, "ns", "g") is None
    assert not drop(cluster, group(3))


def test_a_group_that_is_made_anew_while_the_watch_is_down_requeues_them(cluster: Cluster) -> None:
    put(cluster, group(2))
    assert put(cluster, group(2, "5", uid="another"))


def test_a_write_of_its_status_or_labels_does_not(cluster: Cluster) -> None:
    put(cluster, group(2))
    assert not put(cluster, group(2, "2", labels={"a": "b"}))
    found = cluster.pod_groups.get(GROUP, "ns", "g")
    assert found is not None and found.metadata.resource_version == "2"


def test_groups_of_one_name_in_both_apis_are_two(cluster: Cluster) -> None:
    put(cluster, group(2))
    assert put(cluster, member_group(5))
    assert (size(cluster), size(cluster, COSCHEDULING)) == (2, 5)
    assert {each.min_count for each in cluster.pod_groups} == {2, 5}
    assert drop(cluster, group(2))
    assert (size(cluster), size(cluster, COSCHEDULING)) == (None, 5)
    assert drop(cluster, member_group(5)) and list(cluster.pod_groups) == []


def test_names_count_with_their_namespace(cluster: Cluster) -> None:
    put(cluster, group(2))
    assert cluster.pod_groups.get(GROUP, "other", "g") is None


@pytest.mark.parametrize("made", [group(2), member_group(2)])
def test_an_undecodable_group_counts_as_absent_and_is_reported(cluster: Cluster, made: PodGroup) -> None:
    kind = type(made).__name__
    put(cluster, made)
    assert spoil(cluster, kind, "ns/g", "minCount is text")
    assert size(cluster, made.api_group) is None
    (problem,) = cluster.problems
    assert (str(problem.object), problem.what) == (f"{kind} ns/g", "cannot be read: minCount is text")
    assert "correct or delete it" in problem.advice
    effects = cluster.apply(Applied(made))
    assert effects.requeue and effects.recovered and not cluster.problems


def test_an_undecodable_group_that_goes_is_no_problem_any_more(cluster: Cluster) -> None:
    spoil(cluster, "PodGroup", "ns/g", "minCount is text")
    assert cluster.apply(Removed(ObjectKey("PodGroup", "ns/g"))).recovered
    assert not cluster.problems
