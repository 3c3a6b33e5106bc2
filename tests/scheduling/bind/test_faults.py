"""Bind when the API server, other writers or the pod's end get in the way."""

from __future__ import annotations

from typing import Any

import pytest

from dra_extender.api.errors import (
    ApiError,
    ConflictError,
    NotFoundError,
    OutcomeUnknownError,
    RejectedError,
    ThrottledError,
    UnreachableError,
)
from dra_extender.api.resource import ResourceClaimConsumerReference
from dra_extender.scheduling.bind import failure
from dra_extender.scheduling.bind.rollback import FENCED
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.outcomes import BIND_RESULTS, CONFLICTS
from tests.support.simulation.api import devices
from tests.support.simulation.client import When
from tests.support.simulation.objects import Objects, make_allocated, make_claim, make_pod
from tests.support.simulation.world import World

WRITES = ("add_finalizer", "write_status", "bind_pod")
PASSING: list[ApiError] = [
    OutcomeUnknownError(0, "Timeout"),
    OutcomeUnknownError(500, "InternalError"),
    ThrottledError(429, "TooManyRequests"),
    UnreachableError(0, "Unreachable"),
]


ERRORS_AND_TIMES = [
    pytest.param(operation, error, when, id=f"{operation}-{error.reason}-{when}")
    for operation in WRITES
    for error in PASSING
    for when in (("before", "after", "late") if isinstance(error, OutcomeUnknownError) else ("before",))
]
"""Only an unknown outcome can come after the commit."""


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize(("operation", "error", "when"), ERRORS_AND_TIMES)
async def test_a_failure_that_passes_costs_nothing(
    world: World, pending: Objects, operation: str, error: ApiError, when: When, times: int
) -> None:
    service = world.service(*pending)
    service.client.fail(operation, error, when, times=times)
    assert await service.bind(world.api.pod("p"), "n1") == ""
    await world.settle(10.0)
    assert world.api.pod("p").spec.node_name == "n1"
    assert len(devices(world.api.claim("c"))) == 1
    assert [entry.name for entry in world.api.claim("c").status.reserved_for] == ["p"]
    assert service.extender.view.ledger.holds() == ()


@pytest.mark.parametrize("operation", WRITES)
@pytest.mark.parametrize("error", [RejectedError(403, "Forbidden"), RejectedError(422, "Invalid")])
async def test_a_refused_write_leaves_nothing_behind(
    world: World, pending: Objects, operation: str, error: ApiError
) -> None:
    service = world.service(*pending)
    service.client.fail(operation, error)
    first = await service.bind(world.api.pod("p"), "n1")
    assert first
    assert error.message not in (first, "") or operation == "bind_pod"
    assert world.api.claim("c").allocation is None
    assert world.api.claim("c").status.reserved_for == ()
    assert service.extender.view.ledger.holds() == ()
    assert await service.bind(world.api.pod("p"), "n2") == ""


@pytest.mark.parametrize("operation", WRITES[:2])
@pytest.mark.parametrize(("conflicts", "bound"), [(1, True), (4, True), (5, False)])
async def test_conflicts_are_retried_a_few_times(
    world: World, pending: Objects, operation: str, conflicts: int, bound: bool
) -> None:
    service = world.service(*pending)
    service.client.fail(operation, ConflictError(409, "Conflict"), times=conflicts)
    error = await service.bind(world.api.pod("p"), "n1")
    assert (error == "") is bound
    assert (world.api.claim("c").allocation is not None) is bound


@pytest.mark.parametrize("operation", WRITES[:2])
async def test_a_change_by_others_in_between_is_read_and_respected(
    world: World, pending: Objects, operation: str
) -> None:
    service = world.service(*pending, lag=5.0, config=SchedulingConfig(watch_seconds=20.0))
    world.api.hooks[operation] = lambda: world.api.touch("c")
    assert await service.bind(world.api.pod("p"), "n1") == ""
    assert service.counted(CONFLICTS, "claim_changed") == 1


# --- the pod --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", WRITES)
async def test_a_pod_deleted_during_the_bind_leaves_its_devices_free(
    world: World, pending: Objects, operation: str
) -> None:
    service = world.service(*pending)
    pod = world.api.pod("p")
    world.api.hooks[operation] = lambda: world.api.delete_pod("p")
    assert await service.bind(pod, "n1") in (failure.DELETED, failure.REPLACED)
    await world.settle(5.0)
    assert world.api.claim("c").allocation is None
    assert service.extender.view.ledger.holds() == ()


async def test_waiting_ends_when_the_pod_is_deleted(world: World, pending: Objects) -> None:
    service = world.service(*pending, config=SchedulingConfig(watch_seconds=1000.0, bind_timeout=1000.0))
    bind = service.spawn(service.bind(world.api.pod("p"), "n1"))
    world.api.hooks["write_status"] = service.watch.pause
    await world.settle(1.0)
    assert not bind.done()
    world.api.delete_pod("p")
    service.watch.resume()
    assert await bind in (failure.DELETED, failure.REPLACED)


async def test_a_pod_of_another_uid_is_not_touched(world: World, pending: Objects) -> None:
    service = world.service(*pending)
    assert await service.bind(make_pod("p", "c", uid="older"), "n1") == failure.REPLACED
    assert world.api.claim("c").allocation is None


OURS = SchedulingConfig(scheduler_names=frozenset({"dra-scheduler", "second"}))


@pytest.mark.parametrize("on_the_watch", [True, False])
async def test_a_pod_of_a_scheduler_that_is_not_served_is_neither_bound_nor_given_devices(
    world: World, small: Objects, on_the_watch: bool
) -> None:
    service = world.service(*small, make_claim("c"), config=OURS)
    world.add(make_pod("p", "c", schedulerName="default-scheduler"))
    if on_the_watch:
        await world.settle()
    service.client.calls.clear()
    world.api.log.clear()
    assert await service.bind(world.api.pod("p"), "n1") == failure.OTHER_SCHEDULER
    assert world.api.log == []
    assert service.client.calls == ([] if on_the_watch else ["read_pod"])
    assert service.counted(BIND_RESULTS, "refused") == 1


@pytest.mark.parametrize(("config", "name"), [(OURS, "second"), (SchedulingConfig(), "default-scheduler")])
async def test_a_pod_of_a_scheduler_that_is_served_is_bound(
    world: World, small: Objects, config: SchedulingConfig, name: str
) -> None:
    service = world.service(*small, make_claim("c"), make_pod("p", "c", schedulerName=name), config=config)
    assert await service.bind(world.api.pod("p"), "n1") == ""


@pytest.mark.parametrize(("node", "error"), [("n1", ""), ("n2", failure.BOUND_ELSEWHERE)])
async def test_a_pod_bound_by_somebody_else_is_a_success_only_on_our_node(
    world: World, small: Objects, node: str, error: str
) -> None:
    service = world.service(*small, make_pod("p", node="n1"))
    assert await service.bind(world.api.pod("p"), node) == error
    assert service.client.calls == []


async def test_a_claim_the_pod_list_does_not_show_yet_is_read(world: World, small: Objects) -> None:
    service = world.service(*small, lag=2.0)
    world.add(make_claim("c"), make_pod("p", "c"))
    assert await service.bind(world.api.pod("p"), "n1") == ""


# --- foreign writers ------------------------------------------------------------------------------------------------


async def test_a_claim_allocated_by_somebody_else_is_left_alone(world: World, small: Objects) -> None:
    service = world.service(*small, make_claim("c"), make_claim("model"), make_pod("p", "c"), make_pod("m", "model"))
    assert await service.bind(world.api.pod("m"), "n2") == ""
    foreign = world.api.claim("model").status
    world.api.delete_pod("m")
    await world.settle()

    def allocate() -> None:
        world.api.set_status("c", allocation=foreign.allocation)

    world.api.hooks["write_status"] = allocate
    error = await service.bind(world.api.pod("p"), "n1")
    assert error == "claim default/c got allocated elsewhere in the meantime"
    assert world.api.claim("c").allocation == foreign.allocation
    assert await service.bind(world.api.pod("p"), "n2") == ""


@pytest.mark.parametrize("reserved", [False, True])
async def test_a_device_taken_by_somebody_else_before_our_write_is_given_up(
    world: World, small: Objects, reserved: bool
) -> None:
    world.add(*small, make_claim("c"), make_claim("theirs"), make_pod("p", "c"), make_pod("x", "theirs"))
    theirs = world.service(lag=0.0)
    ours = world.service(lag=1.0)

    assert await theirs.bind(world.api.pod("x"), "n1") == ""
    if not reserved:
        world.api.set_status("theirs", reserved_for=())
    assert devices(world.api.claim("theirs")) == {("gpu.example.com", "n1", "a")}
    assert await ours.bind(world.api.pod("p"), "n1") == failure.RIVAL
    assert world.api.claim("c").allocation is None
    assert ours.counted(CONFLICTS, "device_taken") == 1
    await world.settle(5.0)
    assert await ours.bind(world.api.pod("p"), "n1") == ""
    assert world.api.doubles() == []


async def test_going_back_never_takes_what_others_reserved(world: World, pending: Objects) -> None:
    service = world.service(*pending, make_pod("q", "c"))
    service.client.fail("bind_pod", RejectedError(403, "Forbidden"))
    first = service.spawn(service.bind(world.api.pod("p"), "n1"))
    while world.api.claim("c").allocation is None:
        await world.settle(0.0001)
    await world.settle(0.0002)
    world.api.hooks["bind_pod"] = lambda: world.api.set_status(
        "c", reserved_for=(*world.api.claim("c").status.reserved_for, _consumer("q"))
    )
    assert await first == failure.REFUSED_BINDING
    claim = world.api.claim("c")
    assert claim.allocation is not None
    assert [entry.name for entry in claim.status.reserved_for] == ["q"]
    assert await service.bind(world.api.pod("q"), "n1") == ""


def _consumer(name: str) -> Any:
    return ResourceClaimConsumerReference(resource="pods", name=name, uid=f"uid-{name}")


async def test_a_claim_deleted_in_between_ends_the_bind(world: World, pending: Objects) -> None:
    service = world.service(*pending)
    world.api.hooks["write_status"] = lambda: world.api.drop(world.api.claim("c"))
    assert await service.bind(world.api.pod("p"), "n1") == "claim default/c got deleted in the meantime"
    assert service.extender.view.ledger.holds() == ()


async def test_a_second_claim_that_fails_takes_the_first_back(world: World, small: Objects) -> None:
    service = world.service(*small, make_claim("c"), make_claim("d"), make_pod("p", "c", "d"))
    service.client.fail("write_status", RejectedError(422, "Invalid"), skip=1)
    error = await service.bind(world.api.pod("p"), "n1")
    assert error == "claim default/d cannot be allocated or reserved: refused with 422 Invalid"
    assert world.api.claim("c").allocation is None
    assert world.api.claim("d").allocation is None
    assert ("DevicesReleased", f"not bound: {error}") in service.client.events


# --- time -----------------------------------------------------------------------------------------------------------


async def test_an_own_write_that_does_not_come_back_ends_the_bind(world: World, pending: Objects) -> None:
    service = world.service(*pending, lag=60.0)
    assert await service.bind(world.api.pod("p"), "n1") == failure.OWN_WRITE_UNSEEN
    assert world.api.claim("c").allocation is None


async def test_a_bind_that_cannot_reach_the_server_answers_in_time(world: World, pending: Objects) -> None:
    service = world.service(*pending)
    service.client.fail("*", UnreachableError(0, "Unreachable"), times=1000)
    started = world.clock.monotonic()
    assert await service.bind(world.api.pod("p"), "n1") in (failure.LATE, failure.STILL_RUNNING)
    assert world.clock.monotonic() - started <= SchedulingConfig().bind_timeout + 0.1
    assert service.extender.view.ledger.holds() == ()


async def test_nothing_is_taken_back_while_the_binding_may_exist(world: World, pending: Objects) -> None:
    service = world.service(*pending)
    service.client.fail("bind_pod", OutcomeUnknownError(0, "Timeout"), "late", delay=50.0)
    service.client.fail("read_pod", OutcomeUnknownError(0, "Timeout"), times=1000)
    assert await service.bind(world.api.pod("p"), "n1") == failure.STILL_RUNNING
    assert world.api.claim("c").allocation is not None
    service.client.faults.clear()
    assert await service.bind(world.api.pod("p"), "n1") == failure.STILL_RUNNING
    await world.settle(10.0)
    assert await service.bind(world.api.pod("p"), "n1") == ""
    await world.settle(200.0)
    assert world.api.claim("c").reserved_for("uid-p")


async def test_a_binding_in_doubt_is_not_sent_again_after_the_deadline(world: World, pending: Objects) -> None:
    """It was sent until the API server answered, minutes later perhaps. By then another replica could have taken the
    claim for left behind and cleared it, and the pod ran without its devices.
    """
    service = world.service(*pending)
    service.client.fail("bind_pod", OutcomeUnknownError(0, "Timeout"), times=1000)
    assert await service.bind(world.api.pod("p"), "n1") == failure.STILL_RUNNING
    sent = service.client.calls.count("bind_pod")
    service.client.faults.clear()
    await world.settle(40.0)
    assert world.api.claim("c").allocation is not None
    await world.settle(40.0)
    assert service.client.calls.count("bind_pod") == sent
    assert world.api.claim("c").allocation is None
    assert not world.api.pod("p").spec.node_name


async def test_a_status_write_that_comes_late_finds_the_claim_moved_on(world: World, small: Objects) -> None:
    service = world.service(*small, make_claim("c"), make_claim("d"), make_pod("p", "c"), make_pod("q", "d"))
    service.client.fail("write_status", OutcomeUnknownError(0, "Timeout"), "late", times=1, delay=50.0)
    service.client.fail("read_claim", OutcomeUnknownError(0, "Timeout"), times=12)
    assert await service.bind(world.api.pod("p"), "n1") != ""
    await world.settle(15.0)
    assert service.client.calls.count("remove_finalizer") == 1
    assert await service.bind(world.api.pod("q"), "n1") == ""
    await world.settle(100.0)
    assert world.api.claim("c").allocation is None
    assert world.api.doubles() == []


@pytest.mark.parametrize("delay", [1.0, 6.0, 28.0])
async def test_a_reservation_that_comes_late_finds_the_claim_moved_on(
    world: World, small: Objects, delay: float
) -> None:
    """The claim is allocated, and the pod of another user has it."""
    user = make_pod("user", "c", node="n1")
    service = world.service(*small, make_allocated("c", "user"), user, make_pod("p", "c"))
    service.client.fail("write_status", OutcomeUnknownError(0, "Timeout"), "late", delay=delay)
    service.client.fail("write_status", RejectedError(403, "Forbidden"))
    assert await service.bind(world.api.pod("p"), "n1") != ""
    await world.settle(40.0)
    assert [entry.name for entry in world.api.claim("c").status.reserved_for] == ["user"]
    assert FENCED in world.api.claim("c").metadata.annotations


async def test_a_pod_that_is_gone_ends_a_lost_binding(world: World, pending: Objects) -> None:
    service = world.service(*pending)
    pod = world.api.pod("p")
    service.client.fail("bind_pod", NotFoundError(404, "NotFound"))
    world.api.hooks["bind_pod"] = lambda: world.api.delete_pod("p")
    assert await service.bind(pod, "n1") == failure.REPLACED
