"""A list that cannot follow what is known, by the watch and by replies, shows that the API server was set back."""

from __future__ import annotations

import msgspec
import pytest

from dra_extender.api.core import Pod
from dra_extender.api.errors import SetBackError
from dra_extender.api.events import Applied, ClusterEvent, Removed, Source
from dra_extender.api.features import FeatureGates
from dra_extender.api.resource import ResourceClaim
from dra_extender.devices.cluster import Cluster
from tests.support.simulation.objects import make_allocated, make_claim, make_pod

COMPLETE = 10
"""The watches have shown everything up to this version."""


def at(version: int, obj: ResourceClaim | Pod) -> ResourceClaim | Pod:
    """The object at this version."""
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, resource_version=str(version)))


def claim(version: int) -> ResourceClaim | Pod:
    return at(version, make_claim("c"))


def shown(obj: ResourceClaim | Pod, source: Source = "watch") -> Applied:
    return Applied(obj, source)


def gone(obj: ResourceClaim | Pod, source: Source = "watch") -> Removed:
    return Removed.of(obj, source)


RENAMED = msgspec.structs.replace(
    make_claim("c"), metadata=msgspec.structs.replace(make_claim("c").metadata, uid="new")
)

FOLLOWS: dict[str, tuple[list[ClusterEvent], ResourceClaim | Pod]] = {
    "what the watch has shown": ([shown(claim(9))], claim(9)),
    "a newer version": ([shown(claim(9))], claim(12)),
    "a new object": ([], claim(12)),
    "another object of the same name": ([shown(claim(9))], at(12, RENAMED)),
    "what a reply has shown": ([shown(claim(12), "reply")], claim(12)),
    "more than a reply has shown": ([shown(claim(12), "reply")], claim(13)),
    "a pod that a reply has shown": ([shown(at(12, make_pod("p", "c")), "reply")], at(12, make_pod("p", "c"))),
}

SET_BACK: dict[str, tuple[list[ClusterEvent], ResourceClaim | Pod]] = {
    "an older version": ([shown(claim(9))], claim(8)),
    "the same version with other content": ([shown(claim(9))], at(9, make_allocated("c", "p"))),
    "a version that nobody has shown": ([shown(claim(8))], claim(9)),
    "what the watch has shown to be gone": ([shown(claim(8)), gone(claim(8))], claim(8)),
    "what a reply has shown to be gone": ([shown(claim(8)), gone(claim(8), "reply")], claim(8)),
    "what a reply brought and another one has shown to be gone": (
        [shown(claim(12), "reply"), gone(claim(12), "reply")],
        claim(11),
    ),
    "less than a reply has shown": ([shown(claim(9)), shown(claim(12), "reply")], claim(9)),
    "less than a reply has shown, though newer than the watch": ([shown(claim(12), "reply")], claim(11)),
    "a pod older than a reply has shown it": (
        [shown(at(9, make_pod("p", "c"))), shown(at(12, make_pod("p", "c")), "reply")],
        at(9, make_pod("p", "c")),
    ),
    "a pod that is not bound any more": ([shown(at(9, make_pod("p", "c", node="n1")))], at(9, make_pod("p", "c"))),
}


def about_to_list(before: list[ClusterEvent], listed: ResourceClaim | Pod) -> Cluster:
    """What is known by these events, at the beginning of a list of this kind."""
    cluster = Cluster(FeatureGates())
    for event in before:
        cluster.apply(event)
    cluster.continuity.begin_list(type(listed).__name__)
    return cluster


def shows_set_back(cluster: Cluster, listed: ResourceClaim | Pod, version: int) -> bool:
    """Whether a list of this version, with this object alone, cannot follow what is known."""
    try:
        cluster.continuity.listed(listed, COMPLETE)
        cluster.continuity.end_list(type(listed).__name__, version)
    except SetBackError:
        return True
    return False


@pytest.mark.parametrize(("before", "listed"), FOLLOWS.values(), ids=FOLLOWS)
def test_a_list_that_can_follow_what_is_known_is_no_set_back(
    before: list[ClusterEvent], listed: ResourceClaim | Pod
) -> None:
    cluster = about_to_list(before, listed)
    assert not shows_set_back(cluster, listed, 13)


@pytest.mark.parametrize(("before", "listed"), SET_BACK.values(), ids=SET_BACK)
def test_a_list_that_cannot_follow_what_is_known_shows_a_set_back(
    before: list[ClusterEvent], listed: ResourceClaim | Pod
) -> None:
    cluster = about_to_list(before, listed)
    with pytest.raises(SetBackError, match=f"{type(listed).__name__} default/"):
        cluster.continuity.listed(listed, COMPLETE)


@pytest.mark.parametrize("event", [shown(claim(12), "reply"), gone(claim(9), "reply")], ids=["newer", "gone"])
def test_a_reply_that_comes_while_the_list_is_read_may_be_ahead_of_it(event: ClusterEvent) -> None:
    cluster = Cluster(FeatureGates())
    cluster.apply(shown(claim(9)))
    cluster.continuity.begin_list("ResourceClaim")
    cluster.apply(event)
    assert not shows_set_back(cluster, claim(9), COMPLETE)


def test_a_list_that_is_older_than_a_reply_before_it_shows_a_set_back() -> None:
    cluster = Cluster(FeatureGates())
    cluster.apply(shown(claim(12), "reply"))
    cluster.continuity.begin_list("Pod")
    cluster.continuity.end_list("Pod", 11)  # versions of different kinds are not compared
    cluster.continuity.begin_list("ResourceClaim")
    with pytest.raises(SetBackError, match="version 12 was known before"):
        cluster.continuity.end_list("ResourceClaim", 11)
