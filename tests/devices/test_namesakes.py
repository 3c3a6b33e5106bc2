"""Own slices of one node say nothing about the devices of another node, even in a pool of the same name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from dra_extender.api.features import FeatureGates
from dra_extender.api.resource import ResourceClaim, ResourceSlice
from dra_extender.devices import publishedpool
from dra_extender.devices.cluster import Cluster
from dra_extender.devices.models import DeviceLists
from dra_extender.devices.nodeselection import one_node
from dra_extender.devices.pools import NodeView
from dra_extender.devices.publishedpool import PublishedPool, TaintRules
from tests.support.devices.changing import drop, put
from tests.support.devices.objects import make_claim, make_node, make_slice


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(FeatureGates())
    for node in ("n1", "n2"):
        put(cluster, make_node(node))
    return cluster


def allocate(cluster: Cluster, name: str, node: str, device: str | Mapping[str, Any]) -> ResourceClaim:
    """A stored claim with the device in pool n1, allocated for the node; for any node if it is empty."""
    claim = make_claim(name, 7, [device])
    assert claim.allocation is not None
    if node:
        allocation = msgspec.structs.replace(claim.allocation, node_selector=one_node(node))
        claim = msgspec.structs.replace(claim, status=msgspec.structs.replace(claim.status, allocation=allocation))
    put(cluster, claim)
    return claim


def share(number: int, memory: str, pool: str = "n1") -> dict[str, Any]:
    return {
        "request": "r", "driver": "gpu", "pool": pool, "device": "g0",
        "shareID": f"s{number}", "consumedCapacity": {"memory": memory},
    }  # fmt: skip


def shareable(memory: str) -> dict[str, Any]:
    return {"name": "g0", "allowMultipleAllocations": True, "capacity": {"memory": {"value": memory}}}


FOREIGN_GENERATIONS = pytest.mark.parametrize("generation", [0, 1, 99], ids=["older", "the same", "newer"])


@FOREIGN_GENERATIONS
def test_a_slice_of_another_node_makes_no_allocation_unverifiable(cluster: Cluster, generation: int) -> None:
    put(cluster, make_slice("a", "n1", ["g0", "g1"], nodeName="n1"))
    first, second = (allocate(cluster, f"c{number}", "n1", f"gpu/n1/g{number}") for number in (0, 1))
    put(cluster, make_slice("foreign", "n1", ["x"], nodeName="n2", generation=generation))
    assert not cluster.ledger.is_unverifiable(first)
    assert not cluster.ledger.is_unverifiable(second)


@FOREIGN_GENERATIONS
@pytest.mark.parametrize("foreign", ["1Gi", "100Gi"])
@pytest.mark.parametrize(("each", "overdrawn"), [("4Gi", False), ("6Gi", True)])
def test_shares_are_judged_by_the_capacity_that_their_node_sees(
    cluster: Cluster, generation: int, foreign: str, each: str, overdrawn: bool
) -> None:
    put(cluster, make_slice("a", "n1", [shareable("10Gi")], nodeName="n1"))
    first, second = (allocate(cluster, f"c{number}", "n1", share(number, each)) for number in (0, 1))
    put(cluster, make_slice("foreign", "n1", [shareable(foreign)], nodeName="n2", generation=generation))
    assert cluster.ledger.rivals(second) == ((first,) if overdrawn else ())
    assert [found.kind for found in cluster.ledger.violations()] == ["capacity"] * overdrawn


@FOREIGN_GENERATIONS
@pytest.mark.parametrize("foreign", ["1Gi", "100Gi"])
@pytest.mark.parametrize(("each", "overdrawn"), [("4Gi", False), ("6Gi", True)])
def test_devices_of_no_single_node_are_judged_by_the_slices_that_are_no_nodes_own(
    cluster: Cluster, generation: int, foreign: str, each: str, overdrawn: bool
) -> None:
    """The slice of a node took the name of the pool of network-attached devices: no claim could be bound to them."""
    put(cluster, make_slice("a", "net", [shareable("10Gi"), "g1"], allNodes=True))
    first, second = (allocate(cluster, f"c{number}", "", share(number, each, "net")) for number in (0, 1))
    put(cluster, make_slice("foreign", "net", [shareable(foreign)], nodeName="n2", generation=generation))
    assert not cluster.ledger.is_unverifiable(second)
    assert cluster.ledger.rivals(second) == ((first,) if overdrawn else ())
    assert [found.kind for found in cluster.ledger.violations()] == ["capacity"] * overdrawn


@FOREIGN_GENERATIONS
@pytest.mark.parametrize(("each", "overdrawn"), [("4", False), ("6", True)])
def test_partitions_on_several_nodes_share_the_counters_of_their_pool(
    cluster: Cluster, generation: int, each: str, overdrawn: bool
) -> None:
    """The pool has the counters in a slice for all nodes, and a partition on each node."""
    put(cluster, make_node("n3"))
    counters = [{"name": "gpu", "counters": {"slices": {"value": "10"}}}]
    put(cluster, make_slice("counters", "n1", allNodes=True, count=3, sharedCounters=counters))
    consumed = [{"counterSet": "gpu", "counters": {"slices": {"value": each}}}]
    claims = []
    for number, node in enumerate(("n1", "n2")):
        partition = {"name": f"p{number}", "consumesCounters": consumed}
        put(cluster, make_slice(f"of-{node}", "n1", [partition], count=3, nodeName=node))
        claims.append(allocate(cluster, f"c{number}", node, f"gpu/n1/p{number}"))
    if generation != 1:
        put(cluster, make_slice("foreign", "n1", ["x"], nodeName="n3", generation=generation))
    first, second = claims
    assert cluster.ledger.rivals(second) == ((first,) if overdrawn else ())
    assert not cluster.ledger.is_unverifiable(second)
    assert [found.kind for found in cluster.ledger.violations()] == ["counter"] * overdrawn


@pytest.mark.parametrize("node", ["n1", ""], ids=["for one node", "for any node"])
@pytest.mark.parametrize("where", [{"allNodes": True}, {"nodeName": "n1"}], ids=["all nodes", "one node"])
def test_a_device_that_vanished_has_no_limits(cluster: Cluster, node: str, where: dict[str, Any]) -> None:
    slices = [make_slice("a", "n1", ["g0"], count=2, **where), make_slice("b", "n1", ["g1"], count=2, **where)]
    for item in slices:
        put(cluster, item)
    first, second = (allocate(cluster, f"c{number}", node, f"gpu/n1/g{number}") for number in (0, 1))
    assert not cluster.ledger.is_unverifiable(first)
    drop(cluster, slices[0])
    assert cluster.ledger.is_unverifiable(first)
    assert not cluster.ledger.is_unverifiable(second)


@pytest.mark.parametrize("generation", [1, 99], ids=["the same", "newer"])
def test_a_slice_with_shared_counters_hides_the_devices_of_its_namesake_and_frees_none(
    cluster: Cluster, generation: int
) -> None:
    """As upstream: it belongs to the pool on every node, also when it names a node."""
    counters = [{"name": "gpu", "counters": {"slices": {"value": "10"}}}]
    put(cluster, make_slice("a", "n1", ["g0", "g1"], nodeName="n1"))
    allocate(cluster, "c", "n1", "gpu/n1/g0")
    put(cluster, make_slice("foreign", "n1", nodeName="n2", sharedCounters=counters, generation=generation))
    view = cluster.inventory.view("n1")
    assert isinstance(view, NodeView)
    assert not view.devices
    assert set(cluster.ledger.in_use(("gpu", "n1"))) == {"g0"}


def test_a_change_of_counters_that_no_other_node_sees_makes_no_other_node_stale(cluster: Cluster) -> None:
    inventory = cluster.inventory
    first, second = (
        make_slice("evil", "p", nodeName="n1", count=2, sharedCounters=[{"name": "c", "counters": {"m": {"value": m}}}])
        for m in ("1", "2")
    )
    put(cluster, first)
    for node in ("n1", "n2"):
        view = inventory.view(node)
        assert view is not None
        assert view.incomplete
    put(cluster, second)
    assert all(map(inventory.nodes.is_current, inventory.nodes.seen.values()))


def test_slices_of_a_pool_are_counted_once_until_the_pool_changes(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []

    def count(expected: int, there: int) -> bool:
        counted.append(there)
        return expected == there

    monkeypatch.setattr(publishedpool, "is_complete", count)
    put(cluster, make_slice("a", "p", ["g0"], allNodes=True, count=2))
    for _ in range(3):
        assert not cluster.inventory.pools["gpu", "p"].is_whole("n1")
    put(cluster, make_slice("b", "p", ["g1"], allNodes=True, count=2))
    for _ in range(3):
        assert cluster.inventory.pools["gpu", "p"].is_whole("n1")
    assert counted == [1, 1, 2, 2]


def test_the_slices_of_a_pool_are_sorted_once_per_change_however_many_generations_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A driver may give each node a generation of its own; the audit looks at the pool from each."""

    pool, reads = empty_pool(), Counter[str]()
    for number in range(20):
        pool.put(make_slice(f"s{number}", "p", ["d"], generation=number, nodeName=f"n{number}"))
    monkeypatch.setattr(pool, "published", counting(pool.published, reads))
    for number in range(20):
        assert [item.metadata.name for item in pool.newest(f"n{number}")] == [f"s{number}"]
    assert set(reads.values()) == {2}
    assert all(pool.device("other", f"n{number}") is None for number in range(20))
    assert set(reads.values()) == {3}
    pool.put(make_slice("s0", "p", ["d", "e"], generation=19, nodeName="n0"))
    assert [item.metadata.name for item in pool.newest("n0")] == ["s0", "s19"]


def test_the_generation_that_a_node_sees_is_found_once_per_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """The audit of 2,048 devices asked 33 slices of a node for each device."""

    pool, reads = empty_pool(), Counter[str]()
    for number in range(20):
        pool.put(make_slice(f"s{number}", "p", ["d"], generation=number, nodeName="n"))
    monkeypatch.setattr(pool, "published", counting(pool.published, reads))
    assert [pool.generation("n") for _ in range(5)] == [19] * 5
    assert set(reads.values()) == {1}
    pool.put(make_slice("open", "p", ["e"], generation=30, allNodes=True))
    assert (pool.generation("n"), pool.generation("")) == (30, 30)


def empty_pool() -> PublishedPool:
    return PublishedPool(("gpu", "p"), FeatureGates(), DeviceLists(), TaintRules())


def counting(read: Callable[[str], ResourceSlice], reads: Counter[str]) -> Callable[[str], ResourceSlice]:
    def counted(name: str) -> ResourceSlice:
        reads[name] += 1
        return read(name)

    return counted
