"""Allocations that are left behind are cleared, all others never."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from dra_extender.api.core import Pod
from dra_extender.api.errors import ConflictError, OutcomeUnknownError
from dra_extender.api.resource import FINALIZER, AllocationResult, ResourceClaim, ResourceClaimStatus
from dra_extender.devices.ledger import Ledger
from dra_extender.devices.pods import Pods
from dra_extender.scheduling.claims import ADOPTED
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.outcomes import CLEAR_ERRORS
from tests.support.scheduling.leftovers import NO_SWEEP, OURS, allocated, consumer, report
from tests.support.simulation.objects import Objects, make_claim, make_pod
from tests.support.simulation.strategy import with_metadata
from tests.support.simulation.world import World


async def test_an_idle_allocation_is_swept(world: World, small: Objects) -> None:
    await allocated(world, small, config=SchedulingConfig())
    await world.settle(20.0)
    assert world.api.claim("c").allocation is not None
    await world.settle(20.0)
    assert world.api.claim("c").allocation is None


async def test_an_idle_allocation_that_a_pod_fits_with_is_kept(world: World, small: Objects) -> None:
    service = await allocated(world, small, config=SchedulingConfig())
    for _ in range(20):
        assert (await service.filter(world.api.pod("p"))).NodeNames == ["n1"]
        await world.settle(10.0)
    assert world.api.claim("c").allocation is not None


@pytest.mark.parametrize(("config", "seconds"), [(OURS, 95.0), (SchedulingConfig(), 675.0)])
async def test_an_allocation_of_a_pod_that_is_never_bound_is_swept(
    world: World, small: Objects, config: SchedulingConfig, seconds: float
) -> None:
    await allocated(world, small, "p", config=config)
    await world.settle(seconds - 20.0)
    assert world.api.claim("c").allocation is not None
    await world.settle(20.0)
    assert world.api.claim("c").allocation is None


@pytest.mark.parametrize("annotation", [ADOPTED, "example.com/any"])
@pytest.mark.parametrize("refused", [False, True], ids=["swept", "in the way"])
async def test_annotations_that_users_write_again_and_again_keep_no_allocation(
    world: World, small: Objects, annotation: str, refused: bool
) -> None:
    service = await allocated(world, small, "p", config=OURS)
    for number in range(15):
        if refused:
            await service.filter(world.api.pod("p"), "n2")
            report(world, "p")
        if world.api.claim("c").allocation is not None:
            world.api.put(with_metadata(world.api.claim("c"), annotations={annotation: str(number)}))
        await world.settle(7.0)
    assert world.api.claim("c").allocation is None


@pytest.mark.parametrize("config", [OURS, SchedulingConfig()])
async def test_allocations_of_bound_pods_and_of_several_pods_stay(
    world: World, small: Objects, config: SchedulingConfig
) -> None:
    service = await allocated(world, small, config=config)
    assert await service.bind(world.api.pod("p"), "n1") == ""
    world.add(make_claim("d"), make_pod("q", "d"), make_pod("r", "d"))
    assert await service.bind(world.api.pod("q"), "n2") == ""
    world.api.set_status("d", reserved_for=(consumer("q"), consumer("r")))
    await world.settle(2000.0)
    assert world.api.claim("c").allocation is not None
    assert world.api.claim("d").allocation is not None


OTHER = {"schedulerName": "default-scheduler"}


@pytest.mark.parametrize("reserved", [("s",), ()], ids=["reserved", "idle"])
@pytest.mark.parametrize(
    ("config", "kept"), [(OURS, True), (SchedulingConfig(), False)], ids=["ours known", "ours not known"]
)
async def test_claims_of_pods_of_other_schedulers_are_left_to_them_when_ours_are_known(
    world: World, small: Objects, config: SchedulingConfig, kept: bool, reserved: tuple[str, ...]
) -> None:
    await allocated(world, small, *reserved, config=config)
    world.add(make_pod("s", "c", **OTHER))
    await world.settle(2000.0)
    assert (world.api.claim("c").allocation is not None) == kept


async def test_an_idle_allocation_is_swept_when_the_last_pod_of_another_scheduler_is_gone(
    world: World, small: Objects
) -> None:
    await allocated(world, small, config=OURS)
    world.add(make_pod("s", "c", **OTHER))
    await world.settle(500.0)
    assert world.api.claim("c").allocation is not None
    world.api.drop(world.api.pod("s"))
    await world.settle(70.0)
    assert world.api.claim("c").allocation is None


def idle(count: int) -> list[ResourceClaim]:
    """Claims c0, c1, … that are allocated and that no pod has reserved."""
    status = ResourceClaimStatus(allocation=AllocationResult())
    made = (replace(make_claim(f"c{number}"), status=status) for number in range(count))
    return [with_metadata(claim, finalizers=(FINALIZER,)) for claim in made]


async def test_all_pods_are_looked_at_once_for_all_claims_that_a_round_releases(
    world: World, small: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = idle(100)
    world.add(*small, make_pod("s", **OTHER), *claims)
    world.service(config=OURS).start()
    await world.settle(20.0)
    passes: list[Pods] = []

    def iterate(pods: Pods) -> Iterator[Pod]:
        passes.append(pods)
        return iter_pods(pods)

    iter_pods = Pods.__iter__
    monkeypatch.setattr(Pods, "__iter__", iterate)
    await world.settle(18.0)
    assert len(passes) == 1
    assert all(world.api.claim(each.metadata.name).allocation is None for each in claims)


async def test_a_round_that_releases_claims_keeps_those_of_a_pod_of_another_scheduler_that_appears_meanwhile(
    world: World, small: Objects
) -> None:
    claims = idle(20)
    service = world.service(*small, *claims, config=OURS)
    service.start()
    service.client.latency = 0.2

    def kept() -> list[str]:
        names = [each.metadata.name for each in claims]
        return [name for name in names if world.api.claim(name).allocation is not None]

    while len(kept()) > 15:
        await world.settle(0.1)
    used = kept()[5:]
    assert len(used) == 10
    world.add(make_pod("s", *used, **OTHER))
    await world.settle(100.0)
    assert kept() == used


async def test_all_pods_are_looked_at_once_for_all_idle_claims_and_few_claims_in_one_turn(
    world: World, small: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = idle(100)
    names = [claim.metadata.name for claim in claims]
    world.add(*small, make_pod("s", *names, **OTHER), *claims)
    world.service(config=OURS).start()
    await world.settle(20.0)
    passes: list[Pods] = []
    per_turn: Counter[int] = Counter()
    turns: list[str] = []

    def iterate(pods: Pods) -> Iterator[Pod]:
        passes.append(pods)
        return iter_pods(pods)

    def by_uid(ledger: Ledger, uid: str) -> ResourceClaim | None:
        per_turn[len(turns)] += 1
        asyncio.get_running_loop().call_soon(turns.append, uid)
        return claim_by_uid(ledger, uid)

    iter_pods, claim_by_uid = Pods.__iter__, Ledger.by_uid
    monkeypatch.setattr(Pods, "__iter__", iterate)
    monkeypatch.setattr(Ledger, "by_uid", by_uid)
    await world.settle(18.0)
    assert len(passes) == 1
    assert sum(per_turn.values()) >= 100
    assert max(per_turn.values()) <= 3
    assert all(world.api.claim(name).allocation is not None for name in names)


async def test_sweeping_goes_on_after_a_conflict(world: World, small: Objects) -> None:
    service = await allocated(world, small, config=SchedulingConfig())
    service.client.fail("deallocate", ConflictError(409, "Conflict"), times=2)
    await world.settle(100.0)
    assert world.api.claim("c").allocation is None
    assert service.counted(CLEAR_ERRORS, "idle") == 2


async def test_a_new_leader_hears_the_schedulers_for_a_while_before_it_sweeps(world: World, small: Objects) -> None:
    world.add(*small, make_claim("c"), make_pod("first", "c"))
    leader, standby = world.service(config=NO_SWEEP), world.service(config=OURS)
    assert await leader.bind(world.api.pod("first"), "n1") == ""
    world.api.set_status("c", reserved_for=())
    world.api.drop(world.api.pod("first"))
    await world.settle(100.0)
    await leader.kill()
    standby.start()
    await world.settle(25.0)
    assert world.api.claim("c").allocation is not None
    await world.settle(15.0)
    assert world.api.claim("c").allocation is None


async def test_a_claim_that_no_watch_has_shown_is_looked_up_until_the_api_server_answers(
    world: World, small: Objects, capfd: pytest.CaptureFixture[str]
) -> None:
    service = world.service(*small, lag=1000.0)
    service.start()
    world.add(make_claim("c"))
    await service.filter(make_pod("p", "c"))
    service.client.fail("read_claim", OutcomeUnknownError(0, "Timeout"))
    await world.settle(60.0)
    assert service.client.calls.count("read_claim") > 2
    captured = capfd.readouterr()
    assert (captured.out + captured.err).count("default/c") == 1
