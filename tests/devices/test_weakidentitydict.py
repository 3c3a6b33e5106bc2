"""What was found out about objects goes with them."""

from __future__ import annotations

from weakref import ref

from dra_extender.devices.content import WeakIdentityDict


class Thing:
    """Has an identity, and may go."""


def test_a_value_is_there_for_as_long_as_its_owner() -> None:
    kept: WeakIdentityDict[Thing, str] = WeakIdentityDict()
    first, second = Thing(), Thing()
    assert (kept.put(first, "a"), kept.put(second, "b")) == ("a", "b")
    number = id(first)
    assert [entry.value for thing in (first, second) if (entry := kept.get(id(thing)))] == ["a", "b"]
    del first
    assert number not in kept
    assert [entry.value for entry in kept.values()] == ["b"]


def test_an_owner_has_the_value_that_it_was_given_last() -> None:
    kept: WeakIdentityDict[Thing, str] = WeakIdentityDict()
    owner = Thing()
    kept.put(owner, "a")
    kept.put(owner, "b")
    assert [entry.value for entry in kept.values()] == ["b"]


def test_an_owner_may_go_after_its_values_were_forgotten() -> None:
    kept: WeakIdentityDict[Thing, str] = WeakIdentityDict()
    owner = Thing()
    kept.put(owner, "a")
    kept.clear()
    del owner
    assert not kept


def test_values_go_when_nobody_looks_at_them_any_more() -> None:
    kept: WeakIdentityDict[Thing, Thing] = WeakIdentityDict()
    owner, value = Thing(), Thing()
    kept.put(owner, value)
    left = ref(value)
    del kept, value
    assert left() is None
    del owner
