"""What is known about pods, and which objects were deleted lately."""

from __future__ import annotations

import sys
from collections import OrderedDict
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from dra_extender.api.core import Pod
from dra_extender.api.groups import GroupKey
from dra_extender.devices.pods import Deletions, Pods
from tests.support.simulation.objects import make_pod


def at(pod: Pod, version: int) -> Pod:
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, resource_version=str(version)))


def test_the_newest_version_wins_whoever_brings_it() -> None:
    pods = Pods()
    new, old = at(make_pod("p", node="n"), 5), at(make_pod("p"), 4)
    pods.apply(new, reply=True)
    pods.apply(old)
    assert pods.get("uid-p") is new
    pods.apply(at(new, 6))
    assert pods.get("uid-p") is not new


def test_a_deleted_pod_does_not_come_back_with_a_late_read() -> None:
    pods = Pods()
    pod = at(make_pod("p"), 4)
    pods.apply(pod)
    pods.remove("uid-p")
    pods.apply(pod, reply=True)
    assert pods.get("uid-p") is None
    assert pods.is_terminating("uid-p")


def test_a_pod_made_anew_replaces_its_namesake() -> None:
    pods = Pods()
    old, new = at(make_pod("p", uid="old"), 4), at(make_pod("p", uid="new"), 5)
    pods.apply(old)
    pods.apply(new)
    assert pods.named("default", "p") is new
    assert pods.get("old") is None
    assert pods.is_terminating("old")
    pods.remove("old")
    assert pods.named("default", "p") is new
    assert list(pods) == [new]


def test_the_pods_of_a_group_are_known_until_they_go() -> None:
    pods = Pods()
    group: dict[str, Any] = {"schedulingGroup": {"podGroupName": "g"}}
    one, other = at(make_pod("one", **group), 4), at(make_pod("other", namespace="elsewhere", **group), 5)
    for pod in (one, other, at(make_pod("alone"), 6)):
        pods.apply(pod)
    assert pods.members(GroupKey("PodGroup", "default", "g")) == [one]
    new = at(make_pod("one", uid="new", **group), 7)
    pods.apply(new)
    assert pods.members(GroupKey("PodGroup", "default", "g")) == [new]
    pods.remove("new")
    assert pods.members(GroupKey("PodGroup", "default", "g")) == []
    assert pods.members(GroupKey("PodGroup", "elsewhere", "g")) == [other]


def test_a_late_event_of_a_predecessor_leaves_its_successor_alone() -> None:
    pods = Pods()
    old, new = at(make_pod("p", uid="old"), 4), at(make_pod("p", uid="new"), 6)
    pods.apply(new, reply=True)  # a read is ahead of the watch, which shows the end of the old pod later
    pods.apply(at(old, 5))
    assert pods.named("default", "p") is new
    assert list(pods) == [new]
    assert pods.is_terminating("old")
    pods.remove("old")
    assert pods.named("default", "p") is new


def test_a_pod_that_ends_is_leaving() -> None:
    pods = Pods()
    assert not pods.is_terminating("unheard-of")
    pod = make_pod("p")
    pods.apply(at(pod, 1))
    assert not pods.is_terminating("uid-p")
    ended = msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, phase="Succeeded"))
    pods.apply(at(ended, 2))
    assert pods.is_terminating("uid-p")
    deleted = msgspec.structs.replace(
        pod, metadata=msgspec.structs.replace(pod.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    )
    pods.apply(at(deleted, 3))
    assert pods.is_terminating("uid-p")


def test_the_lowest_priority_is_that_of_the_pods_that_are_there() -> None:
    assert Pods().lowest_priority is None
    pods = Pods()
    low, high = make_pod("low", priority=-5), make_pod("high", priority=7)
    pods.apply(low)
    pods.apply(high)
    pods.apply(high)
    assert pods.lowest_priority == -5
    pods.apply(make_pod("low", priority=9))
    assert pods.lowest_priority == 7
    pods.remove("uid-high")
    pods.remove("uid-high")
    assert pods.lowest_priority == 9
    pods.apply(make_pod("low", uid="another", priority=3))
    assert pods.lowest_priority == 3


def test_the_version_of_a_deletion_is_known_until_the_object_is_there_again() -> None:
    deletions = Deletions(4)
    deletions.put("a", 7)
    assert (deletions.get("a"), "a" in deletions, deletions.get("b")) == (7, True, None)
    deletions.discard("a")
    deletions.discard("b")
    assert (deletions.get("a"), "a" in deletions, len(deletions)) == (None, False, 0)


def test_a_version_larger_than_any_server_has_is_the_largest() -> None:
    deletions = Deletions(4)
    deletions.put("a", 10**30)
    assert deletions.get("a") == 2**64 - 1


def test_an_entry_leaves_no_object_behind() -> None:
    deletions = Deletions(2_000)
    before = sys.getallocatedblocks()
    for number in range(1_000):
        deletions.put(f"uid-{number}", 10**9 + number)
    assert sys.getallocatedblocks() - before < 100


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(-1, 9))))
def test_the_last_deletions_are_known(done: list[tuple[str, int]]) -> None:
    """-1: the object is there again."""
    deletions, wanted = Deletions(3), OrderedDict[str, int]()
    for uid, version in done:
        wanted.pop(uid, None)
        if version < 0:
            deletions.discard(uid)
            continue
        deletions.put(uid, version)
        wanted[uid] = version
        if len(wanted) > 3:
            wanted.popitem(last=False)
    assert {uid: deletions.get(uid) for uid in "abcdefgh"} == {uid: wanted.get(uid) for uid in "abcdefgh"}
