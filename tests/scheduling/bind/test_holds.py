"""Holds of binds, and who may go on when they end."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from dra_extender.api.features import FeatureGates
from dra_extender.api.resource import ResourceClaimStatus
from dra_extender.devices.ledger import HeldError
from tests.support.devices.objects import make_allocation
from tests.support.simulation.api import devices
from tests.support.simulation.objects import DRIVER, Objects, make_claim, make_class, make_node, make_pod, make_slice
from tests.support.simulation.world import World


async def test_refused_pods_are_requeued_when_the_hold_of_a_placeholder_is_lost(world: World) -> None:
    """Another allocator takes one of two devices while the claim is created: the other one is free again."""
    service = world.service(make_class(), make_node("n1"), make_slice("n1", ["a", "b"]))
    ledger, requeue = service.cluster.ledger, service.extender.requeue
    both = make_allocation(f"{DRIVER}/n1/a", f"{DRIVER}/n1/b")
    hold = ledger.hold(make_claim("placeholder", count=2), both, owner="uid-p")
    taken = ResourceClaimStatus(allocation=make_allocation(f"{DRIVER}/n1/a"))
    ledger.observe(replace(make_claim("other"), status=taken), watched=True)
    before = requeue.revision
    with pytest.raises(HeldError):
        service.extender.binder._context.exchange(hold, make_claim("created", count=2))
    assert requeue.revision > before
    assert ledger.holds() == ()


@pytest.mark.parametrize("name", ["", "vram", "memory"])
async def test_a_device_with_shares_that_is_not_shareable_any_more_is_not_offered(name: str, world: World) -> None:
    """It is published again without its capacity, or with another one; the pod gets the other device at once."""
    shared = {"value": "4", "requestPolicy": {"default": "1"}}
    before = {"name": "a", "allowMultipleAllocations": True, "capacity": {"memory": shared}}
    after = {"name": "a", "capacity": {name: {"value": "4"}} if name else {}}
    pods = [make_pod(each, f"of-{each}") for each in ("p", "q", "r")]
    claims = [make_claim(f"of-{each}") for each in ("p", "q", "r")]
    objects: Objects = [make_class(), make_node("n1"), make_slice("n1", [before, "b"]), *claims, *pods]
    service = world.service(*objects, features=FeatureGates(DRAConsumableCapacity=True))
    assert await service.bind(world.api.pod("p"), "n1") == ""
    world.add(make_slice("n1", [after, "b"], generation=2))
    await world.settle(1.0)
    assert await service.bind(world.api.pod("q"), "n1") == ""
    assert devices(world.api.claim("of-q")) == {(DRIVER, "n1", "b")}
    assert (await service.filter(world.api.pod("r"))).NodeNames == []
