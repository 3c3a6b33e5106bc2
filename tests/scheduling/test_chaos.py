"""The short version of `make chaos`: `tools.chaos.chaos` lists the rules that it checks."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable

import pytest

from dra_extender.allocation.workerrequests import CompileRequest
from dra_extender.api.core import Pod
from dra_extender.api.errors import UnreachableError
from dra_extender.api.features import FeatureGates
from dra_extender.api.meta import ObjectMeta, OwnerReference
from dra_extender.api.resource import ResourceClaim
from dra_extender.api.scheduling import PodGroup
from dra_extender.cel.device import CelGates
from dra_extender.scheduling.deferred import MILLISECONDS, WorkItem
from tests.support.simulation.api import Api
from tests.support.simulation.objects import Objects, make_claim, make_pod
from tests.support.simulation.strategy import with_metadata
from tests.support.simulation.world import World, replay
from tools.chaos.chaos import Chaos, run
from tools.chaos.fairturns import CountedQueue
from tools.chaos.preempting import Preempting


def bindings(chaos: Chaos) -> int:
    """How many pods were bound: a run in which nothing happens shows nothing."""
    return sum(operation == "bind" for operation, _ in chaos.world.api.log)


@pytest.mark.parametrize("block", range(5))
def test_nothing_is_doubled_lost_or_left_behind(block: int) -> None:
    seeds = range(5 * block, 5 * block + 5)
    assert sum(bindings(run(seed, 60)) for seed in seeds) >= len(seeds)


def test_a_run_is_its_seed() -> None:
    for seed in range(3):
        first, second = run(seed, 60), run(seed, 60)
        assert first.trace == second.trace
        assert first.seconds == second.seconds


def test_a_replica_that_ends_before_peace_is_replaced_by_one_that_schedules() -> None:
    async def story(world: World) -> None:
        chaos = Chaos(world, next(seed for seed in range(100) if Preempting(Api(), seed).on))
        chaos.workload.add_pod()
        for service in chaos.services:
            service.client.die()
        await chaos.end()
        await chaos.check()
        assert bindings(chaos) == 1

    replay(story)


def test_a_restored_object_is_as_readable_as_in_the_backup() -> None:
    api = Api()
    spoilt, later = api.put(make_claim("spoilt")), api.put(make_claim("later"))
    api.spoil(spoilt)
    backup = api.backup()
    api.mend(spoilt)
    api.spoil(later)
    api.set_back(backup, ResourceClaim)
    assert api.unreadable == {(ResourceClaim, "default/spoilt")}


class Unfair(CountedQueue):
    """Serves namespace a first."""

    def _next(self) -> tuple[str, Hashable, deque[WorkItem]]:
        namespace = min(self._namespaces)
        content = next(iter(self._namespaces[namespace]))
        return namespace, content, self._namespaces[namespace].pop(content)


@pytest.mark.parametrize(("queue", "wrong"), [(CountedQueue, 0), (Unfair, 3)])
def test_a_namespace_that_gets_more_than_its_turn_is_found(queue: type[CountedQueue], wrong: int) -> None:
    violations: list[str] = []
    counted = queue(1, violations, Counter())
    for number in range(5):
        counted.put("a", number, WorkItem(number, CompileRequest("true", CelGates()), "a", number))
    counted.put("b", 0, WorkItem(5, CompileRequest("true", CelGates()), "b", 0))
    while counted:
        counted.charge(counted.take().namespace, 2 * MILLISECONDS)
    assert len(violations) == wrong


async def test_a_claim_that_is_reserved_for_a_group_stays_allocated_for_its_pods(world: World, small: Objects) -> None:
    world.api.put(PodGroup(ObjectMeta(name="g", namespace="default", uid="uid-g")))
    owner = OwnerReference("PodGroup", "g", "uid-g", "scheduling.k8s.io/v1alpha1", controller=True)
    claim = with_metadata(make_claim("c"), owner_references=(owner,))
    pod = make_pod("p", "c", schedulingGroup={"podGroupName": "g"})
    service = world.service(*small, claim, pod, features=FeatureGates(DRAWorkloadResourceClaims=True))
    assert await service.bind(world.api.pod("p"), "n1") == ""
    world.api.clean_up()
    assert world.api.claim("c").reserved_for("uid-g")
    assert world.api.running(world.api.claim("c")) == {"uid-g"}
    assert world.api.violations == []


async def test_a_binding_that_is_under_way_when_the_server_is_set_back_is_lost(world: World) -> None:
    client, pod = world.service().client, world.api.put(make_pod("p"))
    backup = world.api.backup()
    world.api.hooks["bind_pod"] = lambda: world.api.set_back(backup, Pod)
    with pytest.raises(UnreachableError):
        await client.bind_pod("default", "p", pod.metadata.uid, "", "n1")
    assert not world.api.pod("p").spec.node_name


@pytest.mark.slow
@pytest.mark.parametrize("block", range(5))
def test_nothing_is_doubled_lost_or_left_behind_in_many_runs(block: int) -> None:
    seeds = range(1000 + 20 * block, 1020 + 20 * block)
    assert sum(bindings(run(seed, 100)) for seed in seeds) >= len(seeds)
