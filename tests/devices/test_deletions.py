"""Deleted objects are remembered for a while, and keep nothing else."""

from __future__ import annotations

import sys
from collections import OrderedDict

from hypothesis import given
from hypothesis import strategies as st

from dra_extender.devices.pods import Deletions


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
