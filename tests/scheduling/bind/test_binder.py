"""Bind on the happy path."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec
import pytest

from dra_extender.api.meta import format_time
from dra_extender.api.resource import FINALIZER, ResourceClaim
from dra_extender.devices.ledger import Ledger
from tests.support.simulation.api import devices
from tests.support.simulation.objects import Objects, make_claim, make_pod
from tests.support.simulation.strategy import with_metadata
from tests.support.simulation.virtualtime import START
from tests.support.simulation.world import World


async def test_a_pod_without_claims_is_bound_with_one_write(world: World, small: Objects) -> None:
    service = world.service(*small, make_pod("p"))
    assert await service.bind(world.api.pod("p"), "n1") == ""
    assert world.api.pod("p").spec.node_name == "n1"
    assert service.client.calls == ["bind_pod"]


async def test_a_fresh_claim_takes_three_writes_in_order(world: World, pending: Objects) -> None:
    service = world.service(*pending)
    world.api.log.clear()
    assert await service.bind(world.api.pod("p"), "n1") == ""
    assert [operation for operation, _ in world.api.log] == ["add_finalizer", "write_status", "bind"]
    claim = world.api.claim("c")
    assert devices(claim) == {("gpu.example.com", "n1", "a")}
    assert [entry.name for entry in claim.status.reserved_for] == ["p"]
    assert ("DevicesAllocated", "claim c: allocated gpu.example.com/n1/a on node n1") in service.client.events


async def test_a_pod_that_changes_before_its_claim_is_allocated_takes_no_further_requests(
    world: World, pending: Objects
) -> None:
    """kube-scheduler writes the node of a pod that waits at Permit into its status, just before it calls bind."""
    service, pod = world.service(*pending, lag=0.0), world.api.pod("p")
    status = msgspec.structs.replace(pod.status, nominated_node_name="n1")
    world.api.hooks["add_finalizer"] = lambda: world.api.put(msgspec.structs.replace(pod, status=status))
    assert await service.bind(pod, "n1") == ""
    assert service.client.calls == ["add_finalizer", "write_status", "bind_pod"]


async def test_a_pod_that_changes_while_its_claim_is_allocated_is_bound_after_the_claim_is_marked(
    world: World, pending: Objects
) -> None:
    """Whoever changed it may be about to release the claim."""
    service, pod = world.service(*pending), world.api.pod("p")
    world.api.hooks["write_status"] = lambda: world.api.put(pod)
    assert await service.bind(pod, "n1") == ""
    assert service.client.calls[2:] == ["bind_pod", "read_pod", "annotate", "bind_pod"]


async def test_rivals_of_different_claims_are_looked_for_in_different_turns(
    world: World, small: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod may have a thousand claims."""
    service = world.service(*small, make_claim("c"), make_claim("d"), make_pod("p", "c", "d"))
    asked: list[str] = []
    rivals = Ledger.rivals

    def asked_for(ledger: Ledger, claim: ResourceClaim) -> tuple[ResourceClaim, ...]:
        asked.append(claim.metadata.name)
        asyncio.get_running_loop().call_soon(asked.append, "next turn")
        return rivals(ledger, claim)

    monkeypatch.setattr(Ledger, "rivals", asked_for)
    assert await service.bind(world.api.pod("p"), "n1") == ""
    assert asked == ["c", "next turn", "d", "next turn"]


async def test_a_finalizer_that_goes_between_filter_and_bind_is_stored_again(world: World, small: Objects) -> None:
    """The claim controller takes it away after a deallocation, and may be late with it."""
    service = world.service(*small, with_metadata(make_claim("c"), finalizers=(FINALIZER,)), make_pod("p", "c"))
    assert (await service.filter(world.api.pod("p"))).NodeNames == ["n1", "n2"]
    world.api.put(with_metadata(world.api.claim("c"), finalizers=()))
    assert await service.bind(world.api.pod("p"), "n1") == ""
    assert world.api.claim("c").metadata.finalizers == (FINALIZER,)


@pytest.mark.parametrize("seen", [True, False])
async def test_a_finalizer_that_comes_between_filter_and_bind_is_not_stored_twice(
    world: World, pending: Objects, seen: bool
) -> None:
    service = world.service(*pending)
    assert (await service.filter(world.api.pod("p"))).NodeNames == ["n1", "n2"]
    world.api.put(with_metadata(world.api.claim("c"), finalizers=("example.com/other", FINALIZER)))
    if seen:
        await world.settle()
    assert await service.bind(world.api.pod("p"), "n1") == ""
    assert world.api.claim("c").metadata.finalizers == ("example.com/other", FINALIZER)


async def test_the_finalizers_of_others_stay(world: World, pending: Objects) -> None:
    service = world.service(*pending)
    assert (await service.filter(world.api.pod("p"))).NodeNames == ["n1", "n2"]
    world.api.put(with_metadata(world.api.claim("c"), finalizers=("example.com/other",)))
    assert await service.bind(world.api.pod("p"), "n1") == ""
    assert world.api.claim("c").metadata.finalizers == ("example.com/other", FINALIZER)


async def test_a_bound_pod_with_claims_has_waited_since_it_was_created(world: World, small: Objects) -> None:
    created = format_time(START - timedelta(seconds=90))
    pods = [
        with_metadata(make_pod(name, *claims), creation_timestamp=created) for name, claims in (("p", ["c"]), ("q", []))
    ]
    service = world.service(*small, make_claim("c"), *pods)
    for name in "pq":
        assert await service.bind(world.api.pod(name), "n1") == ""
    (waited,) = service.waits
    assert 90 <= waited < 91, "q uses no devices"
    assert await service.bind(world.api.pod("p"), "n1") == ""
    assert len(service.waits) == 1, "a repeated bind has not waited once more"
