"""Bind is idempotent by the pod's UID."""

from __future__ import annotations

import asyncio

import pytest

from dra_extender.api.core import Pod
from dra_extender.api.errors import RejectedError
from dra_extender.api.resource import ResourceClaim
from dra_extender.scheduling.bind import failure
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.outcomes import CONFLICTS
from tests.support.simulation.api import Backup, devices
from tests.support.simulation.objects import Objects, make_claim, make_pod
from tests.support.simulation.world import World


@pytest.mark.parametrize(("node", "error"), [("n1", ""), ("n2", failure.BOUND_ELSEWHERE)])
async def test_a_finished_bind_is_answered_from_memory(world: World, pending: Objects, node: str, error: str) -> None:
    service = world.service(*pending)
    assert await service.bind(world.api.pod("p"), "n1") == ""
    calls = len(service.client.calls)
    assert await service.bind(world.api.pod("p"), node) == error
    assert len(service.client.calls) == calls


async def test_a_binding_that_a_restore_has_lost_is_made_again(world: World, pending: Objects) -> None:
    """Nothing shows this restore: no watch had brought the binding, and later writes have its version."""
    service = world.service(*pending)
    backups: list[Backup] = []
    world.api.hooks["bind_pod"] = lambda: backups.append(world.api.backup())
    service.watch.disconnect([Pod])
    assert await service.bind(world.api.pod("p"), "n1") == ""
    world.api.set_back(backups[0], Pod, ResourceClaim)
    service.watch.reconnect()
    await world.settle(SchedulingConfig().replay_seconds)
    assert service.watch.alive
    assert world.api.pod("p").spec.node_name == ""
    assert await service.bind(world.api.pod("p"), "n1") == ""
    assert world.api.pod("p").spec.node_name == "n1"


async def test_a_repeated_call_joins_the_bind_under_way(world: World, pending: Objects) -> None:
    service = world.service(*pending)
    pod = world.api.pod("p")
    answers = await asyncio.gather(*(service.bind(pod, "n1") for _ in range(5)))
    assert answers == [""] * 5
    assert service.client.calls == ["add_finalizer", "write_status", "bind_pod"]


@pytest.mark.parametrize("seed", range(5))
async def test_a_call_for_another_node_waits_for_the_first(world: World, pending: Objects, seed: int) -> None:
    service = world.service(*pending)
    pod = world.api.pod("p")
    answers = await asyncio.gather(service.bind(pod, "n1"), service.bind(pod, "n2"))
    assert sorted(answers) == ["", failure.BOUND_ELSEWHERE]
    node = world.api.pod("p").spec.node_name
    assert {pool for _, pool, _ in devices(world.api.claim("c"))} == {node}


async def test_a_call_for_another_node_succeeds_when_the_first_failed(world: World, pending: Objects) -> None:
    service = world.service(*pending)
    service.client.fail("bind_pod", RejectedError(403, "Forbidden"))
    pod = world.api.pod("p")
    answers = await asyncio.gather(service.bind(pod, "n1"), service.bind(pod, "n2"))
    assert list(answers) == [failure.REFUSED_BINDING, ""]
    assert world.api.pod("p").spec.node_name == "n2"


async def test_a_failed_bind_is_tried_anew(world: World, pending: Objects) -> None:
    service = world.service(*pending)
    service.client.fail("write_status", RejectedError(422, "Invalid"))
    assert await service.bind(world.api.pod("p"), "n1") != ""
    assert await service.bind(world.api.pod("p"), "n1") == ""


async def test_a_caller_that_hangs_up_changes_nothing(world: World, pending: Objects) -> None:
    service = world.service(*pending)
    call = service.spawn(service.bind(world.api.pod("p"), "n1"))
    await world.settle(0.0015)
    call.cancel()
    await world.settle()
    assert world.api.pod("p").spec.node_name == "n1"
    assert world.api.claim("c").reserved_for("uid-p")


async def test_two_pods_share_a_claim_on_one_node(world: World, small: Objects) -> None:
    pods = [make_pod(f"p{index}", "c") for index in range(20)]
    service = world.service(*small, make_claim("c"), *pods)
    assert await service.bind(world.api.pod("p0"), "n1") == ""
    answers = await asyncio.gather(*(service.bind(world.api.pod(f"p{index}"), "n1") for index in range(1, 20)))
    assert answers == [""] * 19
    assert len(world.api.claim("c").status.reserved_for) == 20
    assert service.counted(CONFLICTS, "claim_changed") == 0


async def test_one_device_is_given_to_one_of_many(world: World, small: Objects) -> None:
    names = [f"{index}" for index in range(10)]
    service = world.service(*small, *(make_claim(f"c{n}") for n in names), *(make_pod(f"p{n}", f"c{n}") for n in names))
    answers = await asyncio.gather(*(service.bind(world.api.pod(f"p{n}"), "n1") for n in names))
    assert sorted(answers) == ["", "", *["cannot allocate all claims"] * 8]
    assert world.api.doubles() == []


async def test_a_bind_slower_than_its_caller_goes_on_and_is_joined(world: World, pending: Objects) -> None:
    service = world.service(*pending, config=SchedulingConfig(bind_timeout=1.0))
    service.client.latency = 0.7
    assert await service.bind(world.api.pod("p"), "n1") == failure.STILL_RUNNING
    assert len(service.extender.view.binding) == 1
    error = await service.bind(world.api.pod("p"), "n1")
    assert error in ("", failure.LATE, failure.STILL_RUNNING)
    for _ in range(5):
        error = error and await service.bind(world.api.pod("p"), "n1")
    await world.settle(10.0)
    assert (world.api.pod("p").spec.node_name == "n1") is (error == "")
