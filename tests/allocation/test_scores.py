"""Scorers: nodes that look the same to one share a score, and a search, however alike they are to the allocator."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from dra_extender.allocation.cache import results
from dra_extender.allocation.decisions import Decisions
from dra_extender.allocation.scoring import Allocated, Scorer
from dra_extender.api.resource import ResourceClaim
from dra_extender.devices.holdings import NodeHoldings
from dra_extender.devices.pools import NodeView
from tests.support.allocation.manynodes import World, attributes, exactly, memory, nodes, selector, units, wanted


class Scored(World):
    """A world whose decisions use this scorer."""

    def __init__(self, *scorers: tuple[Scorer, int]) -> None:
        super().__init__()
        self.decisions = Decisions(self.cluster, share_ids=lambda: "share", scorers=scorers)

    def scores(self, *claims: ResourceClaim) -> list[int]:
        return list(self.decisions.scores(claims, self.names).values())


class Toy:
    """A scorer to which all claims are alike until they are allocated."""

    name = "toy"

    def __init__(self, *attributes: str, reads_use: bool = False) -> None:
        self.attributes: Sequence[str] = attributes
        self.reads_use = reads_use

    def concerns(self, pending: Iterable[ResourceClaim]) -> bool:
        return True

    def fixed(self, allocated: Allocated) -> int:
        return 0


class FreeDevices(Toy):
    """Counts the devices of the node that are not allocated."""

    def score(self, planned: Allocated, view: NodeView, holdings: NodeHoldings) -> int:
        return (view.all & ~holdings.owned).bit_count()


class FreeMemory(Toy):
    """Adds up the memory that shares have left."""

    def score(self, planned: Allocated, view: NodeView, holdings: NodeHoldings) -> int:
        left = 0
        for bit, device in enumerate(view.devices):
            value = device.model.traits.capacity["memory"].value.nano
            left += value - holdings.shared.get(bit, {}).get("memory", 0)
        return left // 10**9


class FreeCounters(Toy):
    """Adds up what is left of all counters."""

    def score(self, planned: Allocated, view: NodeView, holdings: NodeHoldings) -> int:
        pools = holdings.counters.values()
        return sum(left for sets in pools for counters in sets.values() for left in counters.values()) // 10**9


class Speed(Toy):
    """Reads an attribute of the devices in the plan."""

    def score(self, planned: Allocated, view: NodeView, holdings: NodeHoldings) -> int:
        total = 0
        for _, allocation in planned:
            for result in allocation.devices.results:
                found = view.devices[view.bits[result.id]].model.traits.attribute("gpu/speed")
                total += found.int_ or 0 if found is not None else 0
        return total


def test_nodes_that_differ_in_devices_in_use_get_scores_of_their_own() -> None:
    world = Scored((FreeDevices(reads_use=True), 1))
    for _ in range(4):
        world.add_node({}, {}, {})
    world.take("c", "n1", "d2")
    world.take("d", "n2", "d1", "d2")
    world.take("e", "n3", "d1", "d2")
    assert world.ask(wanted(exactly()))[0] == "n0 n1 n2 n3"
    before = world.decisions.searches
    assert world.scores(wanted(exactly())) == [3, 2, 1, 1]
    assert world.decisions.searches == before + 3, "two nodes look the same to the scorer as well"


def test_devices_that_the_claim_cannot_have_count_for_a_scorer_that_reads_them() -> None:
    world = Scored((FreeDevices(reads_use=True), 1))
    for _ in range(2):
        world.add_node(attributes(model="x"), attributes(model="y"))
    world.take("c", "n1", "d1")
    assert world.scores(wanted(exactly(**selector('device.attributes["gpu"].model == "x"')))) == [2, 1]


def test_scores_follow_what_shares_and_counters_leave() -> None:
    shares = Scored((FreeMemory(reads_use=True), 1))
    for _ in range(2):
        shares.add_node({}, {})
    shared = {"allowMultipleAllocations": True, **memory("10")}
    for name in shares.names:
        shares.publish(name, memory("1"), shared)
    shares.take("c", "n1", "d1", shareID="s", consumedCapacity={"memory": "4"})
    assert shares.scores(wanted(exactly())) == [11, 7]

    counters = Scored((FreeCounters(reads_use=True), 1))
    for _ in range(2):
        counters.add_node({}, attributes(part=True) | units("2"), counters={"u": "4"})
    counters.take("c", "n1", "d1")
    assert counters.scores(wanted(exactly(**selector('!("part" in device.attributes["gpu"])')))) == [4, 2]


def test_an_attribute_that_only_the_scorer_reads_tells_nodes_apart() -> None:
    world = Scored((Speed("gpu/speed"), 1))
    for speed in (5, 7, 5):
        world.add_node(attributes(speed=speed))
    assert world.scores(wanted(exactly())) == [5, 7, 5]
    assert world.decisions.searches == 2


def test_a_scorer_that_reads_nothing_more_shares_the_searches_of_filter() -> None:
    world = nodes(*[[{}, {}, {}]] * 4)
    world.take("c", "n1", "d2")
    world.take("d", "n2", "d1", "d2")
    claim = wanted(exactly())
    world.ask(claim)
    searches = world.decisions.searches
    assert world.decisions.scores([claim], world.names) == dict.fromkeys(world.names, 0)
    assert world.decisions.searches == searches == 3


def test_scores_stay_right_when_there_are_more_than_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "REMEMBERED_RESULTS", 5)
    world = Scored((Speed("gpu/speed"), 1))
    for speed in range(1, 9):
        world.add_node(attributes(speed=speed))
    for speed in range(10, 20):
        world.publish("n3", attributes(speed=speed))
        assert world.scores(wanted(exactly())) == [1, 2, 3, speed, 5, 6, 7, 8]


def test_scorers_add_up_by_their_weights_beside_prioritized_list() -> None:
    world = Scored((FreeDevices(reads_use=True), 10), (Speed("gpu/speed"), 1))
    for speed in (5, 7):
        world.add_node(attributes(speed=speed), attributes(speed=speed))
    world.take("c", "n1", "d1")
    asks = [{"name": name, "deviceClassName": "any", "allocationMode": "ExactCount", "count": 1} for name in "ab"]
    assert world.scores(wanted({"name": "r", "firstAvailable": asks})) == [8 + 20 + 5, 8 + 10 + 7]
