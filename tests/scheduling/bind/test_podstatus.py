"""The pod's status is written at the version of the pod that it was made for."""

from __future__ import annotations

import msgspec

from dra_extender.api.core import NodeAllocatableResourceClaimStatus, Pod
from dra_extender.api.errors import ConflictError
from dra_extender.api.resource import ResourceClaim
from dra_extender.scheduling.bind import failure
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.nodeallocatable import with_statuses
from tests.support.simulation.objects import Objects, make_class, make_pod
from tests.support.simulation.world import World

GPU = "example.com/gpu"


def asking() -> Pod:
    return make_pod("p", containers=[{"name": "main", "resources": {"requests": {GPU: "1"}}}])


async def test_amounts_of_another_bind_are_removed_after_a_conflict(world: World, small: Objects) -> None:
    service = world.service(*small, make_class("other", resource=GPU), asking())
    amounts = msgspec.convert({"resourceClaimName": "c"}, NodeAllocatableResourceClaimStatus)
    world.api.hooks["patch_pod_status"] = lambda: world.api.put(with_statuses(world.api.pod("p"), (amounts,)))
    assert await service.bind(world.api.pod("p"), "n1") == ""
    assert world.api.log.count(("patch_pod_status", "default/p")) == 1
    status = world.api.pod("p").status
    assert status.extended_resource_claim_status is not None
    assert status.node_allocatable_resource_claim_statuses == ()


async def test_conflicts_without_end_are_told_and_leave_nothing_behind(world: World, small: Objects) -> None:
    service = world.service(*small, make_class("other", resource=GPU), asking())
    attempts = SchedulingConfig().write_attempts
    service.client.fail("patch_pod_status", ConflictError(409, "Conflict"), times=attempts)
    assert await service.bind(world.api.pod("p"), "n1") == failure.STATUS_CHANGED
    assert service.client.calls.count("patch_pod_status") == attempts
    assert world.api.all(ResourceClaim) == []
    assert await service.bind(world.api.pod("p"), "n1") == ""
