"""Shadow mode: where the pods would be if this service had placed them by its policy."""

from __future__ import annotations

import pytest

from dra_extender.insight.shadow import Usage
from dra_extender.placement.policies import PolicyName
from tests.support.diagnosis.gpupods import running as held
from tests.support.service.shadowing import GPUS, HALF, TWO, Json, Shadowed, machine, recording, running, waiting


async def test_the_policy_packs_the_pods_that_come_and_forgets_those_that_end() -> None:
    async with recording(Shadowed(TWO, "pack")) as shadowed:
        pods = {name: running(name, name, "gpu-0") for name in "ab"}
        for name, bound in pods.items():
            shadowed.bind(waiting(name), bound)
        found = await shadowed.settled()
        assert ((found.now.devices, found.now.nodes), (found.packed.devices, found.packed.nodes)) == ((2, 2), (2, 1))
        shadowed.remove(*pods["a"])
        found = await shadowed.settled()
        assert ((found.now.devices, found.now.nodes), (found.packed.devices, found.packed.nodes)) == ((1, 1), (1, 1))


async def test_without_a_policy_the_pods_are_packed_where_their_scheduler_has_put_them() -> None:
    async with recording(Shadowed(TWO)) as shadowed:
        shadowed.bind(waiting("p"), running("p", "b", "gpu-0"))
        shadowed.bind(waiting("q"), running("q", "a", "gpu-0"))
        found = await shadowed.settled()
        assert found.now == found.packed


async def test_larger_pods_fit_where_the_policy_has_packed_the_smaller_ones() -> None:
    async with recording(Shadowed(TWO, "pack")) as shadowed:
        for name in "ab":
            shadowed.bind(waiting(name), running(name, name, "gpu-0"))
        shadowed.apply(*waiting("large", 2))
        found = await shadowed.settled()
        assert (found.now.waiting, found.packed.waiting) == (1, 0)
        shadowed.watch.now += 100
        shadowed.remove(*running("b", "b", "gpu-0"))
        shadowed.apply(*reversed(running("large", "b", "gpu-0", "gpu-1")))
        assert (await shadowed.rules())["waited"] == 1


def plain(name: str, host: str = "") -> Json:
    """A pod without devices that fills most of a node."""
    pod = held(name, host)[0]
    del pod["spec"]["resourceClaims"]
    return requesting(pod, "6")


def requesting(pod: Json, cpu: str) -> Json:
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
    return pod


async def packed_beside_a_pod_without_devices(policy: PolicyName) -> tuple[int, int]:
    """Nodes a and b have 8 CPU. p runs on a, and the policy has packed it on b. The pod without devices runs on b. For
    the last pod there is room on neither node. How many pods wait, now and packed.
    """
    async with recording(Shadowed(HALF, policy)) as shadowed:
        for pod, claim in (waiting("p"), running("p", "a", "gpu-0")):
            shadowed.apply(claim, requesting(pod, "6"))
        shadowed.apply(plain("web"), plain("web", "b"))
        pod, claim = waiting("last")
        shadowed.apply(claim, requesting(pod, "6"))
        found = await shadowed.settled()
        return found.now.waiting, found.packed.waiting


@pytest.mark.parametrize("policy", ["pack", "first-fit"])
async def test_a_pod_without_devices_takes_room_that_it_finds_where_the_policy_has_packed_the_others(
    policy: PolicyName,
) -> None:
    assert await packed_beside_a_pod_without_devices(policy) == (1, 1)


async def test_a_pod_without_devices_stays_on_its_node_while_many_events_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dra_extender.service.shadow.PORTION", 1)
    assert await packed_beside_a_pod_without_devices("pack") == (1, 0)


async def test_the_room_of_a_pod_without_devices_is_free_when_it_ends() -> None:
    async with recording(Shadowed([GPUS, *machine("a", 2)], "pack")) as shadowed:
        shadowed.apply(plain("web"), plain("web", "a"))
        pod, claim = waiting("p")
        shadowed.apply(claim, requesting(pod, "6"))
        assert (await shadowed.settled()).packed.waiting == 1
        shadowed.remove(plain("web", "a"))
        assert (await shadowed.settled()).packed == Usage(1, 1, 0)
