"""What would be: decisions on an overlay are those on a cluster to which it has happened, and nothing has happened."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_extender.api.core import Node
from dra_extender.api.decoding import convert
from dra_extender.api.resource import ResourceClaim, ResourceSlice
from dra_extender.devices.overlay import Overlay
from tests.support.allocation.manynodes import Json, World, exactly, memory, nodes, planned, units, wanted


def ask(world: World, overlay: Overlay, *claims: ResourceClaim, names: tuple[str, ...] = ()) -> tuple[str, str]:
    """Fitting and refused nodes as text."""
    found = world.decisions.with_state(overlay).node_results(claims, names or world.names)
    assert not found.error
    return " ".join(found.fits), " ".join(found.refused)


def of_two_nodes() -> World:
    return nodes([{}, {}], [{}, {}])


# --- beside -----------------------------------------------------------------------------------------------------------


def test_a_plan_takes_its_devices_on_its_node_only() -> None:
    world = of_two_nodes()
    overlay = Overlay(world.cluster).with_plans([planned("other", "n0", "d0")])
    assert ask(world, overlay, wanted(exactly(2))) == ("n1", "n0")
    assert ask(world, overlay, wanted(exactly(1))) == ("n0 n1", "")


def test_plans_come_true_one_after_the_other_and_the_later_one_for_a_device_does_not() -> None:
    world = of_two_nodes()
    overlay = Overlay(world.cluster).with_plans([planned("first", "n0", "d0"), planned("second", "n0", "d0", "d1")])
    assert ask(world, overlay, wanted(exactly(1))) == ("n0 n1", "")


def test_a_plan_for_a_claim_that_has_devices_or_is_getting_some_changes_nothing() -> None:
    world = of_two_nodes()
    world.take("stored", "n0", "d0")
    claim, allocation = planned("held", "n1", "d0")
    world.cluster.ledger.hold(claim, allocation, owner="pod")
    overlay = Overlay(world.cluster).with_plans([planned("stored", "n0", "d1"), planned("held", "n1", "d1")])
    assert ask(world, overlay, wanted(exactly(1))) == ("n0 n1", "")
    assert overlay.differing == frozenset()


def test_shares_and_counters_are_used_up_by_plans() -> None:
    world = World()
    world.add_node({"allowMultipleAllocations": True, **memory("8")})
    world.add_node(units("2"), units("2"), counters={"u": "3"})
    share = planned("share", "n0", "d0", shareID="s", consumedCapacity={"memory": "5"})
    overlay = Overlay(world.cluster).with_plans([share, planned("part", "n1", "d0")])
    four = wanted(exactly(capacity={"requests": {"memory": "4"}}))
    assert ask(world, overlay, four, names=("n0",)) == ("", "n0")
    assert ask(world, overlay, wanted(exactly()), names=("n1",)) == ("", "n1")
    assert world.ask(four)[0] == "n0"


def test_a_share_of_a_device_that_has_an_owner_or_of_a_share_that_exists_never_comes_true() -> None:
    world = World()
    world.add_node({"allowMultipleAllocations": True, **memory("8")}, {"allowMultipleAllocations": True, **memory("8")})
    world.take("owner", "n0", "d0")
    world.take("sharer", "n0", "d1", shareID="s", consumedCapacity={"memory": "1"})
    more = {"shareID": "s", "consumedCapacity": {"memory": "7"}}
    for device in ("d0", "d1"):
        assert Overlay(world.cluster).with_plans([planned("late", "n0", device, **more)]).differing == frozenset()
    other = {**more, "shareID": "t"}
    assert Overlay(world.cluster).with_plans([planned("more", "n0", "d1", **other)]).differing == {"n0"}


# --- holding ----------------------------------------------------------------------------------------------------------


def test_of_a_plan_whose_devices_are_not_all_free_those_that_are_free_are_held() -> None:
    world = of_two_nodes()
    world.take("victim", "n0", "d0")
    plan = planned("preemptor", "n0", "d0", "d1")
    assert ask(world, Overlay(world.cluster).with_plans([plan]), wanted(exactly(1))) == ("n0 n1", "")
    assert ask(world, Overlay(world.cluster).holding([plan]), wanted(exactly(1))) == ("n1", "n0")


def test_nothing_is_held_for_a_claim_that_has_devices() -> None:
    world = of_two_nodes()
    world.take("bound", "n1", "d0")
    overlay = Overlay(world.cluster).holding([planned("bound", "n0", "d0", "d1")])
    assert ask(world, overlay, wanted(exactly(2))) == ("n0", "n1")


def test_counters_and_capacity_are_held_also_while_they_are_used_up() -> None:
    world = World()
    world.add_node({"allowMultipleAllocations": True, **memory("8")})
    world.add_node(units("2"), units("2"), units("1"), counters={"u": "3"})
    world.take("sharer", "n0", "d0", shareID="s", consumedCapacity={"memory": "6"})
    world.take("part", "n1", "d1")
    share = planned("share", "n0", "d0", shareID="t", consumedCapacity={"memory": "7"})
    overlay = Overlay(world.cluster).holding([share, planned("preemptor", "n1", "d0")])
    small = wanted(exactly(capacity={"requests": {"memory": "1"}}))
    assert ask(world, Overlay(world.cluster), small, names=("n0",)) == ("n0", "")
    assert ask(world, overlay, small, names=("n0",)) == ("", "n0")
    assert ask(world, Overlay(world.cluster), wanted(exactly()), names=("n1",)) == ("n1", "")
    assert ask(world, overlay, wanted(exactly()), names=("n1",)) == ("", "n1")


# --- without ----------------------------------------------------------------------------------------------------------


def test_without_a_claim_its_devices_are_free() -> None:
    world = of_two_nodes()
    world.take("victim", "n0", "d0", "d1")
    overlay = Overlay(world.cluster).without([wanted(name="victim")])
    assert ask(world, overlay, wanted(exactly(2))) == ("n0 n1", "")


def test_a_plan_may_take_what_a_claim_without_which_it_is_made_had() -> None:
    world = of_two_nodes()
    world.take("victim", "n0", "d0", "d1")
    victim = wanted(name="victim")
    overlay = Overlay(world.cluster).without([victim]).with_plans([planned("preemptor", "n0", "d0")])
    assert ask(world, overlay, wanted(exactly(2))) == ("n1", "n0")
    assert ask(world, overlay.without([wanted(name="preemptor")]), wanted(exactly(2))) == ("n0 n1", "")


# --- with nodes -------------------------------------------------------------------------------------------------------


def node_of(name: str, **labels: str) -> Node:
    return convert(Node, {"metadata": {"name": name, "labels": labels}})


def slice_of(node: str, *devices: Json) -> ResourceSlice:
    listed = [{"name": f"d{index}", **device} for index, device in enumerate(devices)]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu", "pool": pool, "nodeName": node, "devices": listed}
    return convert(ResourceSlice, {"metadata": {"name": f"{node}-devices"}, "spec": spec})


def test_a_node_more_has_the_devices_of_its_own_and_those_open_to_it() -> None:
    world = of_two_nodes()
    in_zone = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}
    pool = {"name": "shared", "generation": 1, "resourceSliceCount": 1}
    world.put_slice("s", {"driver": "gpu", "pool": pool, "nodeSelector": in_zone, "devices": [{"name": "far"}]})
    overlay = Overlay(world.cluster).with_nodes(
        [node_of("a", zone="a"), node_of("b", zone="b")], [slice_of("a", {}, {}), slice_of("b", {}, {})]
    )
    names = ("n0", "a", "b")
    assert ask(world, overlay, wanted(exactly(3)), names=names) == ("a", "n0 b")
    assert ask(world, overlay, wanted(exactly(2)), names=names) == ("n0 a b", "")


def test_a_hypothetical_node_that_is_there_and_a_slice_of_another_node_are_mistakes() -> None:
    world = of_two_nodes()
    with pytest.raises(ValueError, match="node n0 is there already"):
        Overlay(world.cluster).with_nodes([node_of("n0")])
    with pytest.raises(ValueError, match=r"slice n1-devices: spec\.nodeName 'n1' is not an added node"):
        Overlay(world.cluster).with_nodes([node_of("new")], [slice_of("n1", {})])


# --- cost and purity --------------------------------------------------------------------------------------------------


def test_only_nodes_that_differ_are_searched() -> None:
    world = nodes(*[[{}, {}]] * 50)
    claim = wanted(exactly(2))
    assert len(world.ask(claim)[0].split()) == 50
    searches = world.decisions.searches
    for node in ("n7", "n9"):
        fits, refused = ask(world, Overlay(world.cluster).with_plans([planned("other", node, "d1")]), claim)
        assert (len(fits.split()), refused) == (49, node)
    assert world.decisions.searches == searches + 1  # both nodes look the same then


DEVICE = st.sampled_from(("d0", "d1", "d2"))
PLACE = st.tuples(st.sampled_from(("n0", "n1", "n2")), st.sets(DEVICE, min_size=1, max_size=2))
NODES: tuple[tuple[Json, ...], ...] = (
    ({}, {}, {}),
    ({}, {"allowMultipleAllocations": True, **memory("8")}, {}),
    (units("1"), units("2"), units("2")),
)


def clusters() -> World:
    world = World()
    for devices in NODES:
        world.add_node(*devices, counters={"u": "3"} if "consumesCounters" in devices[0] else None)
    return world


@given(
    stored=st.dictionaries(st.sampled_from("abcd"), PLACE, max_size=4),
    gone=st.sets(st.sampled_from("abcd"), max_size=3),
    plans=st.dictionaries(st.sampled_from("vwxyz"), PLACE, max_size=3),
    asked_before=st.booleans(),
    count=st.integers(1, 3),
)
def test_an_overlay_decides_as_the_cluster_would_and_leaves_it_as_it_was(
    stored: dict[str, tuple[str, set[str]]],
    gone: set[str],
    plans: dict[str, tuple[str, set[str]]],
    asked_before: bool,
    count: int,
) -> None:
    world, happened = clusters(), clusters()
    for name, (node, devices) in stored.items():
        world.take(name, node, *sorted(devices))
        if name not in gone:
            happened.take(name, node, *sorted(devices))
    claim = wanted(exactly(count))
    before = world.ask(claim) if asked_before else None
    decided = [planned(name, node, *sorted(devices)) for name, (node, devices) in plans.items()]
    overlay = Overlay(world.cluster).without([wanted(name=name) for name in sorted(gone)]).with_plans(decided)
    for one, allocation in decided:
        free = not any(
            result.device in happened.cluster.ledger.in_use((result.driver, result.pool))
            for result in allocation.devices.results
        )
        if free:
            happened.cluster.ledger.hold(one, allocation, owner="pod")
    assert ask(world, overlay, claim) == happened.ask(claim)
    unchanged = clusters()
    for name, (node, devices) in stored.items():
        unchanged.take(name, node, *sorted(devices))
    assert world.ask(claim) == unchanged.ask(claim) == (before or world.ask(claim))
    assert world.cluster.ledger.holds() == ()
