"""Nobody gets the devices of a claim that cannot be read, if the claim still shows which devices it has."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest

from dra_extender.api.core import Node
from dra_extender.api.decoding import convert
from dra_extender.api.events import PartialAllocation, Removed
from dra_extender.api.features import FeatureGates
from dra_extender.api.meta import ObjectKey
from dra_extender.devices.cluster import Cluster
from dra_extender.devices.holdings import NodeHoldings, PoolStates
from dra_extender.devices.ledger import HeldError
from tests.support.counting import calls
from tests.support.devices.changing import drop, put, spoil
from tests.support.devices.objects import make_allocation, make_claim, make_slice


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(FeatureGates())


def owned(cluster: Cluster, node: str) -> set[str]:
    """The devices of the node that nobody is given."""
    view = cluster.inventory.view(node)
    assert view is not None
    held = {pool.id: found for pool in view.pools if (found := cluster.ledger.holdings(pool.id)) is not None}
    states = PoolStates()
    masks = [states.of(pool, held.get(pool.id)).owned << view.offsets[index] for index, pool in enumerate(view.pools)]
    mask = NodeHoldings(view, held).owned
    assert mask == sum(masks)
    return {device.id[2] for index, device in enumerate(view.devices) if mask >> index & 1}


@pytest.mark.parametrize(
    ("partial", "said"),
    [
        (PartialAllocation("u", complete=False, pools=(("gpu", "p"),)), "nothing is offered of pool gpu/p"),
        (PartialAllocation("u", complete=False, nodes=("n",)), "nothing is offered of the pools of node n"),
    ],
    ids=["pool", "node"],
)
@pytest.mark.parametrize("published_first", [True, False])
def test_nothing_is_offered_where_a_device_that_cannot_be_told_may_be(
    cluster: Cluster, partial: PartialAllocation, said: str, published_first: bool
) -> None:
    for name in ("n", "m"):
        put(cluster, convert(Node, {"metadata": {"name": name, "uid": name}}))
    slices = [make_slice("s", "p", ["d0", "d1"], nodeName="n"), make_slice("t", "q", ["d0"], nodeName="m")]
    for item in slices if published_first else ():
        put(cluster, item)
    spoil(cluster, "ResourceClaim", "default/c", "too deep", partial)
    for item in slices if not published_first else ():
        put(cluster, item)
    free = make_claim("free", 1)
    put(cluster, free)
    for device in ("d0", "d1"):
        with pytest.raises(HeldError):
            cluster.ledger.hold(free, make_allocation(f"gpu/p/{device}"), owner="pod")
    assert owned(cluster, "n") == {"d0", "d1"}
    assert owned(cluster, "m") == set()
    written, elsewhere = make_claim("ours", 2, ["gpu/p/d0"]), make_claim("elsewhere", 2, ["gpu/q/d0"])
    for ours in (written, elsewhere):
        put(cluster, ours)
    assert cluster.ledger.is_unverifiable(written)
    assert not cluster.ledger.is_unverifiable(elsewhere)
    for ours in (written, elsewhere):
        drop(cluster, ours)
    spoil(cluster, "ResourceClaim", "default/e", "too deep", msgspec.structs.replace(partial, uid="v"))
    assert cluster.ledger.violations() == (), "two claims that may have any device are no conflict"
    assert said in next(iter(cluster.problems)).what
    assert cluster.undecodable.incomplete == 2
    cluster.apply(Removed(ObjectKey("ResourceClaim", "default/e")))
    assert cluster.apply(Removed(ObjectKey("ResourceClaim", "default/c"))).requeue
    assert owned(cluster, "n") == set()
    cluster.ledger.hold(free, make_allocation("gpu/p/d0"), owner="pod")


def test_the_event_of_a_slice_costs_the_same_however_many_claims_cannot_be_read(cluster: Cluster) -> None:
    """30,000 of them made each event 20 ms long."""
    put(cluster, convert(Node, {"metadata": {"name": "n", "uid": "n"}}))
    put(cluster, make_slice("s", "p", ["d0"], nodeName="n"))
    counted: list[int] = []
    for number in range(501):
        if number in (0, 500):
            counted.append(calls(partial(put, cluster, make_slice("t", "p", ["d1"], nodeName="n"))))
            drop(cluster, make_slice("t", "p"))
        spoil(cluster, "ResourceClaim", f"default/c{number}", "too deep", PartialAllocation(f"u{number}"))
    assert counted[1] < counted[0] + 100
