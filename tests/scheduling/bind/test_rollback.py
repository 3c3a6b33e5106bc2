"""Whatever the API server does, a bind ends; what it could not take back is held, reported, and taken back later."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import pytest

from dra_extender.api.errors import (
    ApiError,
    ConflictError,
    GoneError,
    OutcomeUnknownError,
    RejectedError,
    ThrottledError,
    UndecodableError,
    UnreachableError,
)
from dra_extender.api.resource import ResourceClaim
from dra_extender.devices.validity import ObjectProblem
from dra_extender.scheduling.bind import failure
from dra_extender.scheduling.bind.failure import Unresolved
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.outcomes import BIND_RESULTS, UNDOS_PUT_OFF
from tests.support.scheduling.leftovers import NO_SWEEP
from tests.support.simulation.api import devices
from tests.support.simulation.client import When
from tests.support.simulation.objects import Objects, make_claim, make_class, make_node, make_pod, make_slice
from tests.support.simulation.world import Service, World

FOREVER = 10**6
ENDS = NO_SWEEP.bind_timeout + NO_SWEEP.doubt_seconds + 30.0
"""Seconds within which every bind ends: its time, that of requests under way, and the last time-outs and pauses."""
WHILE = 1200.0
"""Seconds in which a bind is looked at that cannot take back what it wrote."""
FORBIDDEN = RejectedError(403, "Forbidden")
LASTING: list[ApiError] = [
    FORBIDDEN,
    GoneError(410, "Gone"),
    UndecodableError(0, "Malformed"),
    UnreachableError(0, "Unreachable"),
    OutcomeUnknownError(0, "Timeout"),
]
LOST = OutcomeUnknownError(0, "Timeout")
REASONS = {"Forbidden": "refused", "Gone": "refused", "Malformed": "undecodable"}


class Block(msgspec.Struct, frozen=True):
    """A bind that fails because of `fault`, and an operation without which it cannot take back what it wrote. `blind`:
    its watch of claims is broken. `passes`: after some time what is stored is a leftover that anybody may clear.
    """

    fault: tuple[str, ApiError, When]
    operation: str
    blind: bool = False
    passes: bool = False


BLOCKS = {
    "is the pod bound after all": Block(("bind_pod", FORBIDDEN, "before"), "read_pod"),
    "taking the allocation back": Block(("bind_pod", FORBIDDEN, "before"), "deallocate", passes=True),
    "what became of a write that was stored": Block(("write_status", LOST, "after"), "read_claim", blind=True),
    "what became of a write that was not": Block(("write_status", LOST, "before"), "read_claim"),
    "making a late write fail": Block(("write_status", LOST, "before"), "remove_finalizer"),
    "what an undecodable reply hides": Block(("write_status", LASTING[2], "after"), "read_claim", blind=True),
    "what became of the binding": Block(("bind_pod", LOST, "before"), "read_pod"),
}
CASES = [
    pytest.param(block, error, id=f"{name} - {error.reason}") for name, block in BLOCKS.items() for error in LASTING
]


def one_device() -> Objects:
    """A device that must not be given twice."""
    return [make_class(), make_node("n1"), make_slice("n1", ["a"])]


async def blocked(world: World, block: Block, error: ApiError) -> Service:
    """A bind has failed and could not take back what it wrote."""
    world.add(*one_device(), make_claim("c"), make_claim("d"), make_pod("p", "c"), make_pod("q", "d"))
    service = world.service(config=NO_SWEEP)
    service.start()
    if block.operation == "remove_finalizer":  # the bind has no time to write again
        service.client.fail("read_claim", LOST, times=12)
    if block.blind:
        service.watch.disconnect((ResourceClaim,))
    service.client.fail(*block.fault)
    service.client.fail(block.operation, error, times=FOREVER)
    task = service.spawn(service.bind(world.api.pod("p"), "n1"))
    await world.settle(ENDS)
    assert task.done()
    assert len(service.extender.view.binding) == 0
    return service


def problem(service: Service) -> ObjectProblem:
    (found,) = service.extender.problems
    return found


@pytest.mark.parametrize(("block", "error"), CASES)
async def test_a_bind_that_cannot_take_back_what_it_wrote_ends_keeps_its_devices_and_tries_about_once_a_minute(
    world: World, block: Block, error: ApiError
) -> None:
    """Each try is a read of the pod, a read of the claim and a write, at most."""
    service = await blocked(world, block, error)
    counted = {reason: service.counted(UNDOS_PUT_OFF, reason) for reason in UNDOS_PUT_OFF.values}
    assert counted == dict.fromkeys(counted, 0) | {REASONS.get(error.reason, "unanswered"): 1}
    assert [reason for reason, _ in service.client.events].count("DevicesHeld") == 1
    before = len(service.client.calls)
    await world.settle(WHILE)
    if not block.passes:
        assert WHILE / 60 - 10 <= len(service.client.calls) - before <= 3 * WHILE / 60 + 20
    assert await service.bind(world.api.pod("q"), "n1") != "", "the device was given twice"
    assert (await service.filter(world.api.pod("q"))).NodeNames == []
    if not block.passes:
        assert str(problem(service).object) == "Pod default/p"
        assert "default/c" in problem(service).what


@pytest.mark.parametrize(("block", "error"), CASES)
async def test_what_could_not_be_taken_back_is_when_the_server_lets_it(
    world: World, block: Block, error: ApiError
) -> None:
    service = await blocked(world, block, error)
    service.client.faults.clear()
    service.watch.reconnect()
    await world.settle(2 * SchedulingConfig().max_backoff_seconds + 5.0)
    assert service.extender.problems == []
    assert service.extender.view.ledger.holds() == ()
    if world.api.claim("c").allocation is not None:  # so late it may be somebody else's: a leftover
        assert await service.bind(world.api.pod("p"), "n1") == ""
    else:
        assert await service.bind(world.api.pod("q"), "n1") == ""


@pytest.mark.parametrize("error", LASTING[:3], ids=lambda error: error.reason)
async def test_what_is_refused_is_answered_at_once(world: World, error: ApiError) -> None:
    """Asking a server that refuses for as long as a bind may take keeps the scheduler for nothing."""
    service = world.service(*one_device(), make_claim("c"), make_pod("p", "c"), config=NO_SWEEP)
    service.client.fail("bind_pod", FORBIDDEN)
    service.client.fail("deallocate", error, times=FOREVER)
    started = world.clock.monotonic()
    answer = await service.bind(world.api.pod("p"), "n1")
    assert answer == f"{failure.REFUSED_BINDING}; {failure.NOT_ROLLED_BACK}"
    assert world.clock.monotonic() - started < 2.0
    assert service.counted(BIND_RESULTS, "unfinished") == 1


async def test_conflicts_without_end_end_the_undo_as_well(world: World) -> None:
    service = world.service(*one_device(), make_claim("c"), make_pod("p", "c"), config=NO_SWEEP)
    service.client.fail("bind_pod", FORBIDDEN)
    service.client.fail("deallocate", ConflictError(409, "Conflict"), times=FOREVER)
    service.spawn(service.bind(world.api.pod("p"), "n1"))
    await world.settle(ENDS)
    assert len(service.extender.view.binding) == 0
    assert len(service.extender.pending_rollbacks) == 1


# --- what the watch shows in between --------------------------------------------------------------------------------

UNTOLD = BLOCKS["what became of a write that was stored"]


async def test_what_was_stored_counts_once_the_watch_has_shown_it(world: World) -> None:
    """Nobody may read the claim. The watch shows the allocation, of which nobody knows who wrote it: it stays for the
    pod's next bind, or as a leftover, and nothing more needs to be held for it.
    """
    world.add(*one_device(), make_claim("c"), make_claim("d"), make_pod("p", "c"), make_pod("q", "d"))
    service = world.service(config=SchedulingConfig(watch_seconds=10.0, sweep_after=0.0), lag=5.0)
    service.start()
    service.client.fail("write_status", LOST, "after")
    service.client.fail("read_claim", FORBIDDEN, times=FOREVER)
    assert failure.NOT_ROLLED_BACK in await service.bind(world.api.pod("p"), "n1")
    await world.settle(10.0)
    assert service.extender.problems == []
    assert service.extender.view.ledger.holds() == ()
    assert await service.bind(world.api.pod("q"), "n1") != ""
    assert await service.bind(world.api.pod("p"), "n1") == ""


@pytest.mark.parametrize("stored", [True, False])
async def test_a_claim_that_is_deleted_holds_nothing_any_more(world: World, stored: bool) -> None:
    name = "what became of a write that was stored" if stored else "what became of a write that was not"
    service = await blocked(world, BLOCKS[name], UndecodableError(0, "Malformed"))
    world.api.drop(world.api.claim("c"))
    service.watch.reconnect()
    await world.settle(2.0)
    assert service.extender.problems == []
    assert await service.bind(world.api.pod("q"), "n1") == ""


async def test_a_pod_that_turns_out_to_be_bound_keeps_its_devices(world: World) -> None:
    """The reply to the binding was lost and pods cannot be read: the binding comes late, and the watch shows it."""
    service = world.service(*one_device(), make_claim("c"), make_claim("d"), make_pod("p", "c"), make_pod("q", "d"))
    service.start()
    service.client.fail("bind_pod", LOST, "late", delay=40.0)
    service.client.fail("read_pod", FORBIDDEN, times=FOREVER)
    assert await service.bind(world.api.pod("p"), "n1") == f"{failure.UNKNOWN}; {failure.NOT_ROLLED_BACK}"
    await world.settle(30.0)
    assert len(service.extender.pending_rollbacks) == 1
    await world.settle(20.0)
    assert len(service.extender.pending_rollbacks) == 0
    assert world.api.pod("p").spec.node_name == "n1"
    await world.settle(WHILE)
    assert world.api.claim("c").reserved_for("uid-p")
    assert await service.bind(world.api.pod("q"), "n1") != ""


async def test_nothing_is_taken_back_while_a_binding_may_still_arrive_and_pods_cannot_be_read(world: World) -> None:
    service = world.service(*one_device(), make_claim("c"), make_pod("p", "c"), config=NO_SWEEP)
    service.start()
    service.client.fail("bind_pod", LOST, "late", delay=50.0)
    service.client.fail("read_pod", FORBIDDEN, times=5)
    assert await service.bind(world.api.pod("p"), "n1") == f"{failure.UNKNOWN}; {failure.NOT_ROLLED_BACK}"
    await world.settle(40.0)  # reading is allowed again, and shows no binding
    assert world.api.claim("c").reserved_for("uid-p")
    await world.settle(30.0)
    assert world.api.pod("p").spec.node_name == "n1"
    assert service.extender.problems == []


async def test_the_pods_next_bind_takes_over_what_could_not_be_taken_back(world: World) -> None:
    service = await blocked(world, BLOCKS["taking the allocation back"], FORBIDDEN)
    assert (await service.filter(world.api.pod("p"))).NodeNames == ["n1"]
    assert await service.bind(world.api.pod("p"), "n1") == ""
    service.client.faults.clear()
    await world.settle(WHILE)
    assert service.extender.problems == []
    assert devices(world.api.claim("c")) == {("gpu.example.com", "n1", "a")}


async def test_one_claim_that_cannot_be_given_back_keeps_no_other(world: World) -> None:
    world.add(make_class(), make_node("n1"), make_slice("n1", ["a", "b"]))
    service = world.service(make_claim("c"), make_claim("d"), make_pod("p", "c", "d"), config=NO_SWEEP)
    service.client.fail("bind_pod", FORBIDDEN)
    service.client.fail("deallocate", FORBIDDEN, times=SchedulingConfig().write_attempts)
    assert await service.bind(world.api.pod("p"), "n1") != ""
    left = [claim.metadata.name for claim in world.api.all(ResourceClaim) if claim.allocation is not None]
    assert left == ["d"]
    assert "to default/d are" in problem(service).what


async def test_others_are_not_asked_for_while_the_server_is_silent(world: World, small: Objects) -> None:
    """Each question may take as long as a time-out."""
    service = world.service(*small, config=NO_SWEEP)
    service.start()
    for index in range(4):
        world.add(make_claim(f"c{index}"), make_pod(f"p{index}", f"c{index}"))
    await world.settle()
    service.client.fail("bind_pod", FORBIDDEN, times=4)
    service.client.fail("read_pod", UnreachableError(0, "Unreachable"), times=FOREVER)
    for index in range(4):
        service.spawn(service.bind(world.api.pod(f"p{index}"), "n1" if index < 2 else "n2"))
    await world.settle(ENDS)
    assert len(service.extender.pending_rollbacks) == 4
    service.client.calls.clear()
    await world.settle(0.9)
    assert service.client.calls.count("read_pod") <= 1
    service.client.faults.clear()
    await world.settle(120.0)
    assert len(service.extender.pending_rollbacks) == 0


class _Pod(NamedTuple):
    key: str
    uid: str


class _Rollback(NamedTuple):
    """A rollback that succeeds, or fails with this error."""

    pod: _Pod
    error: ApiError | None
    claims: tuple[str, ...] = ()
    state: int = 0
    may_run: bool = True

    async def run(self, policy: object) -> bool:
        if self.error is not None:
            raise Unresolved("pod", self.error)
        return False


@pytest.mark.parametrize(
    ("error", "left"),
    [(OutcomeUnknownError(500, "", "etcdserver: request is too large"), 1), (OutcomeUnknownError(0, "Timeout"), 2)],
    ids=["about one object", "about all"],
)
async def test_one_pod_about_which_the_server_fails_keeps_no_other(world: World, error: ApiError, left: int) -> None:
    """500 is also what the API server says about an object that is too large for etcd."""
    service = world.service(config=NO_SWEEP)
    pending: Any = service.extender.pending_rollbacks
    for name, failure_of in (("p", error), ("q", None)):
        pending.put(_Rollback(_Pod(f"default/{name}", f"uid-{name}"), failure_of), Unresolved("pod", error))
    await world.settle(10.0)
    await pending.work()
    assert len(pending) == left


# --- a claim that becomes unreadable ---------------------------------------------------------------------------------


async def test_a_pod_is_not_bound_while_its_claim_cannot_be_read(world: World) -> None:
    service = world.service(*one_device(), make_claim("c"), make_pod("p", "c"), config=NO_SWEEP)
    service.start()
    await world.settle(1.0)
    world.api.spoil(world.api.claim("c"))
    await world.settle(1.0)
    service.client.requeues = 0
    answer = await service.filter(world.api.pod("p"))
    assert set(answer.FailedAndUnresolvableNodes.values()) == {"resource claim default/c cannot be read"}
    assert await service.bind(world.api.pod("p"), "n1") == "resource claim default/c cannot be read"
    world.api.mend(world.api.claim("c"))
    await world.settle(2.0)
    assert service.client.requeues == 1
    assert await service.bind(world.api.pod("p"), "n1") == ""


async def test_a_claim_that_becomes_unreadable_during_its_bind_is_not_relied_upon(world: World) -> None:
    """Between the status write and the binding somebody makes the claim unreadable; later it is corrected."""
    world.add(*one_device(), make_claim("c"), make_claim("d"), make_pod("p", "c"), make_pod("q", "d"))
    service = world.service(config=NO_SWEEP)
    service.start()
    await world.settle(1.0)
    service.watch.pause()
    bind = service.spawn(service.bind(world.api.pod("p"), "n1"))
    await world.settle(0.5)
    world.api.spoil(world.api.claim("c"))
    await world.settle(0.5)
    service.watch.resume()
    assert failure.NOT_ROLLED_BACK in await bind
    assert not world.api.pod("p").spec.node_name
    assert await service.bind(world.api.pod("q"), "n1") != ""
    world.api.mend(world.api.claim("c"))
    await world.settle(10.0)
    assert service.extender.problems == []
    assert world.api.claim("c").allocation is None
    assert await service.bind(world.api.pod("q"), "n1") == ""


async def test_a_user_who_removes_the_mark_of_another_replica_frees_no_device_of_a_bound_pod(world: World) -> None:
    """The first replica writes the claim and loses the lease. Its rollback comes after the bind of the second."""
    world.add(make_class(), make_node("n1"), make_slice("n1", ["a"]), make_claim("c"), make_pod("p", "c"))
    one, two = world.service(), world.service()
    one.extender.leading = lambda: not world.api.claim("c").allocation
    one.client.fail("deallocate", ThrottledError(429, "TooManyRequests"), times=3)
    late = one.spawn(one.bind(world.api.pod("p"), "n1"))
    await world.settle(0.1)
    assert await two.bind(world.api.pod("p"), "n1") == ""
    claim = world.api.claim("c")
    world.api.put(
        msgspec.structs.replace(claim, metadata=msgspec.structs.replace(claim.metadata, annotations={})), "user"
    )
    await late
    await world.settle(ENDS)
    assert devices(world.api.claim("c")) and world.api.pod("p").spec.node_name == "n1"
    assert world.api.violations == []
