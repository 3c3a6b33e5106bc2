"""Clearing is one conditional step: who counts on the claim in between keeps it, and who is refused does not insist."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from dra_extender.api.core import Pod
from dra_extender.api.errors import ApiError, ConflictError, RejectedError, UndecodableError
from dra_extender.api.resource import ResourceClaim
from dra_extender.scheduling.claims import ADOPTED
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.outcomes import ALLOCATIONS_CLEARED, CLEAR_ERRORS
from tests.support.scheduling.leftovers import OURS, allocated, consumer, report
from tests.support.simulation.objects import Objects, make_claim, make_pod
from tests.support.simulation.world import World

FOREVER = 10**6
HOUR = 3600.0
LASTING: list[ApiError] = [RejectedError(403, "Forbidden"), UndecodableError(0, "Malformed")]


def run(world: World, name: str) -> None:
    """Somebody else binds the pod to n1."""
    pod = world.api.pod(name)
    world.api.put(msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name="n1")))


def join(world: World) -> None:
    """A pod of another scheduler shares the claim and runs."""
    world.add(make_pod("q", "c", schedulerName="default-scheduler"))
    reserved = world.api.claim("c").status.reserved_for
    world.api.set_status("c", reserved_for=(*reserved, consumer("q")))
    run(world, "q")


def adopt(world: World) -> None:
    """Another replica takes over the reservation of p and binds it."""
    if not world.api.claim("c").reserved_for("uid-p"):
        world.api.set_status("c", reserved_for=(consumer("p"),))
    claim = world.api.claim("c")
    meta = msgspec.structs.replace(claim.metadata, annotations={ADOPTED: "theirs"})
    world.api.put(msgspec.structs.replace(claim, metadata=meta))
    run(world, "p")


@pytest.mark.parametrize("meanwhile", [join, adopt], ids=lambda step: step.__name__)
@pytest.mark.parametrize(
    ("operation", "reserved", "seconds"),
    [("deallocate", (), 45.0), ("deallocate", ("p",), 105.0), ("read_pod", ("p",), 105.0)],
)
@pytest.mark.parametrize("blind", [False, True], ids=["seen", "unseen"])
async def test_a_pod_that_is_bound_in_between_keeps_its_claim(
    world: World,
    small: Objects,
    meanwhile: Callable[[World], None],
    operation: str,
    reserved: tuple[str, ...],
    seconds: float,
    blind: bool,
) -> None:
    """In the moment before the pod is read, or before the write is looked at. `unseen`: the watches have broken."""
    service = await allocated(world, small, *reserved, config=OURS)

    def step() -> None:
        if blind:
            service.watch.disconnect()
        meanwhile(world)

    world.api.hooks[operation] = step
    await world.settle(seconds)
    assert operation not in world.api.hooks, "nobody has tried to clear the claim"
    await world.settle(HOUR)
    assert world.api.claim("c").allocation is not None
    assert service.counted(ALLOCATIONS_CLEARED, "idle") + service.counted(ALLOCATIONS_CLEARED, "abandoned") == 0


async def test_what_the_watch_brings_while_the_pod_is_read_is_looked_at_once_more(world: World, small: Objects) -> None:
    """The answer that the pod is not bound is on its way when another client binds it without a write to the claim."""
    service = await allocated(world, small, "p", config=OURS)
    service.watch.lag = 0.0
    world.api.hooks["read_pod"] = lambda: asyncio.get_running_loop().call_later(0.0001, run, world, "p")
    await world.settle(105.0)
    assert "read_pod" not in world.api.hooks
    assert "deallocate" not in service.client.calls
    assert world.api.claim("c").allocation is not None


async def test_a_version_that_came_while_the_pod_was_read_is_judged_anew(world: World, small: Objects) -> None:
    service = await allocated(world, small, "p", config=OURS)
    service.watch.lag = 0.0
    world.api.hooks["read_pod"] = lambda: asyncio.get_running_loop().call_later(0.0001, world.api.touch, "c")
    await world.settle(95.0)
    assert "read_pod" not in world.api.hooks
    assert service.counted(CLEAR_ERRORS, "abandoned") == 0
    await world.settle(10.0)
    assert world.api.claim("c").allocation is None


async def test_after_a_conflict_the_claim_is_read_and_judged_anew(world: World, small: Objects) -> None:
    """The watch of claims is broken: without a look the same version would be sent again and again."""
    service = await allocated(world, small, config=OURS)

    def step() -> None:
        service.watch.disconnect((ResourceClaim,))
        world.api.touch("c")

    world.api.hooks["deallocate"] = step
    await world.settle(60.0)
    assert service.client.calls.count("deallocate") == 2
    assert service.counted(CLEAR_ERRORS, "idle") == 1
    assert world.api.claim("c").allocation is None


async def test_conflicts_without_end_are_met_after_growing_pauses(world: World, small: Objects) -> None:
    service = await allocated(world, small, config=OURS)
    service.client.fail("deallocate", ConflictError(409, "Conflict"), times=FOREVER)
    await world.settle(HOUR)
    assert HOUR / 75 < service.client.calls.count("deallocate") < HOUR / 55
    assert service.client.calls.count("read_claim") == service.client.calls.count("deallocate")


# --- a permission that was taken away --------------------------------------------------------------------------------


@pytest.mark.parametrize("error", LASTING, ids=lambda error: error.reason)
@pytest.mark.parametrize("operation", ["deallocate", "read_pod"])
async def test_a_claim_that_cannot_be_cleared_is_left_alone_for_growing_pauses_and_reported(
    world: World, small: Objects, operation: str, error: ApiError, capfd: pytest.CaptureFixture[str]
) -> None:
    service = await allocated(world, small, "p", config=OURS)
    service.client.fail(operation, error, times=FOREVER)
    await world.settle(HOUR)
    assert HOUR / 75 < service.client.calls.count(operation) < HOUR / 55
    assert service.counted(CLEAR_ERRORS, "abandoned") == service.client.calls.count(operation)
    (found,) = service.extender.problems
    assert str(found.object) == "ResourceClaim default/c"
    captured = capfd.readouterr()
    assert (captured.out + captured.err).count("did not clear an unused claim") == 1
    service.client.faults.clear()
    await world.settle(65.0)
    assert world.api.claim("c").allocation is None
    assert service.extender.problems == []


async def test_a_new_version_of_the_claim_is_tried_at_once(world: World, small: Objects) -> None:
    service = await allocated(world, small, config=OURS)
    service.client.fail("deallocate", LASTING[0], times=FOREVER)
    await world.settle(300.0)
    service.client.faults.clear()
    before = len(service.client.calls)
    world.api.touch("c")
    await world.settle(6.0)
    assert "deallocate" in service.client.calls[before:]
    assert world.api.claim("c").allocation is None


async def test_a_claim_in_the_way_that_cannot_be_cleared_does_not_ring_without_end(
    world: World, small: Objects
) -> None:
    """The pod is filtered with each ring, as kube-scheduler would."""
    service = await allocated(world, small, "p", config=SchedulingConfig(sweep_after=0.0))
    world.add(make_claim("d", count=2), make_pod("r", "d"))
    assert await service.bind(world.api.pod("r"), "n1") != ""
    service.client.fail("deallocate", LASTING[0], times=FOREVER)
    for _ in range(int(HOUR / 2)):
        report(world, "p")
        await service.filter(world.api.pod("p"), "n2")
        await world.settle(2.0)
    assert 20 < service.client.calls.count("deallocate") < 80
    assert service.client.requeues < 100


async def test_a_claim_that_cannot_be_read_keeps_no_other_from_being_looked_up(world: World, small: Objects) -> None:
    """Two claims that no watch has shown: the first cannot be decoded, the second is gone."""
    service = world.service(*small, lag=1000.0)
    service.start()
    for name in ("bad", "gone"):
        world.add(make_claim(name), make_pod(f"p-{name}", name))
        await service.filter(make_pod(f"p-{name}", name))
    world.api.spoil(world.api.claim("bad"))
    world.api.drop(world.api.claim("gone"))
    await world.settle(30.0)
    assert service.extender.view.ledger.get("default", "gone") is None
    assert service.extender.view.ledger.get("default", "bad") is not None
    assert service.client.calls.count("read_claim") <= 6
    assert world.api.all(Pod)
