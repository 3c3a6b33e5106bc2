"""Allocated state: what counts, how it adds up, and what it leaves of counters."""

from __future__ import annotations

from typing import Any

import pytest

from dra_extender.api.core import Node
from dra_extender.api.decoding import convert
from dra_extender.api.features import FeatureGates
from dra_extender.api.resource import ResourceClaim, ResourceSlice
from dra_extender.devices.holdings import NodeHoldings
from dra_extender.devices.inventory import node_view
from dra_extender.devices.pools import NodeView
from dra_extender.devices.usage import PoolHoldings, holdings_of

Json = dict[str, Any]
POOL = ("d", "p")


def share(number: int, **consumed: str) -> Json:
    device = {"request": "r", "driver": "d", "pool": "p", "device": "x"}
    return {**device, "shareID": f"s{number}", "consumedCapacity": consumed}


def claim(number: int, *results: Json | str) -> ResourceClaim:
    entries = [
        {"request": "r", "driver": "d", "pool": "p", "device": item} if isinstance(item, str) else item
        for item in results
    ]
    return convert(
        ResourceClaim,
        {
            "metadata": {"name": f"c{number}", "namespace": "default", "uid": f"u{number}"},
            "status": {"allocation": {"devices": {"results": entries}}},
        },
    )


def of(*claims: ResourceClaim, shares: bool = True) -> PoolHoldings | None:
    return holdings_of(claims, FeatureGates(DRAConsumableCapacity=shares)).get(POOL)


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        (["x"], PoolHoldings({"x"})),
        ([{"request": "r", "driver": "d", "pool": "p", "device": "x", "adminAccess": True}], None),
        ([share(1, memory="1")], PoolHoldings(shared={"x": {"memory": 10**9}})),
        ([share(1, memory="1"), share(2, memory="2")], PoolHoldings(shared={"x": {"memory": 3 * 10**9}})),
        ([share(1)], PoolHoldings(shared={"x": {}})),
        ([share(1), "x"], PoolHoldings({"x"}, {"x": {}})),
        ([{"request": "r", "driver": "d", "pool": "other", "device": "x"}], None),
    ],
)
def test_results_own_devices_or_share_them(results: list[Json | str], expected: PoolHoldings | None) -> None:
    assert of(claim(1, *results)) == expected


def test_without_consumable_capacity_every_share_owns_its_device() -> None:
    assert of(claim(1, share(1, memory="1")), shares=False) == PoolHoldings({"x"})


def test_what_several_claims_hold_adds_up() -> None:
    assert of(claim(1, "x"), claim(2, "x"), claim(3)) == PoolHoldings({"x"})
    assert of(claim(1, share(1, memory="1")), claim(2, share(2, memory="2"))) == PoolHoldings(
        shared={"x": {"memory": 3 * 10**9}}
    )


def partitions() -> NodeView:
    """x and y consume 2 of 5 here, z consumes 1 on another node."""

    def device(name: str, amount: str) -> Json:
        return {"name": name, "consumesCounters": [{"counterSet": "s", "counters": {"c": {"value": amount}}}]}

    def entry(name: str, **spec: Any) -> Json:
        pool = {"name": "p", "generation": 1, "resourceSliceCount": 3}
        return {"metadata": {"name": name}, "spec": {"driver": "d", "pool": pool, **spec}}

    slices = [
        entry("a", allNodes=True, sharedCounters=[{"name": "s", "counters": {"c": {"value": "5"}}}]),
        entry("b", nodeName="n1", devices=[device("x", "2"), device("y", "2")]),
        entry("c", nodeName="n2", devices=[device("z", "1")]),
    ]
    node = convert(Node, {"metadata": {"name": "n1"}})
    return node_view(node, [convert(ResourceSlice, item) for item in slices], (), FeatureGates())


@pytest.mark.parametrize(
    ("held", "left"),
    [
        (PoolHoldings(), 5),
        (PoolHoldings({"x"}), 3),
        (PoolHoldings({"x"}, {"x": {}}), 3),
        (PoolHoldings({"z"}), 4),
        (PoolHoldings({"x", "y", "z"}), 0),
        (PoolHoldings({"unpublished"}), 5),
        (PoolHoldings(shared={"y": {}}), 3),
    ],
)
def test_every_device_in_use_is_charged_once_wherever_it_is(held: PoolHoldings, left: int) -> None:
    holdings = NodeHoldings(partitions(), {POOL: held})
    assert holdings.counters == {0: {"s": {"c": left * 10**9}}}


def test_holdings_become_masks_of_the_view() -> None:
    holdings = NodeHoldings(partitions(), {POOL: PoolHoldings({"y", "gone"}, {"x": {"memory": 1}})})
    assert (holdings.owned, dict(holdings.shared)) == (0b10, {0: {"memory": 1}})
