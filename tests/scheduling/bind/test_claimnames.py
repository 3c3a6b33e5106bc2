"""kube-controller-manager creates a claim twice when it loses the reply, and may let the pod name the second one later:
while the pod is being bound, or after that.
"""

from __future__ import annotations

import msgspec
import pytest

from dra_extender.api.core import Pod, PodResourceClaimStatus, PodStatus
from dra_extender.api.errors import OutcomeUnknownError, RejectedError
from dra_extender.scheduling.bind import failure
from dra_extender.scheduling.config import SchedulingConfig
from tests.support.scheduling.leftovers import NO_SWEEP
from tests.support.simulation.api import devices
from tests.support.simulation.objects import Objects, make_claim, make_class, make_pod
from tests.support.simulation.world import World

RESOURCE = "example.com/gpu"
WRITES = ("create_claim", "patch_pod_status", "add_finalizer", "write_status", "bind_pod")
FORBIDDEN = RejectedError(403, "Forbidden")
LOST = OutcomeUnknownError(0, "Timeout")
FOREVER = 10**6
WHILE = 1200.0
"""Seconds in which everything that is put off has been done."""


def naming(claim: str, *, extended: bool = False) -> Pod:
    """Pod p, which names this claim. `extended`: it asks for an extended resource as well."""
    template = {"name": "t", "resourceClaimTemplateName": "template"}
    container = {"name": "main", "resources": {"requests": {RESOURCE: "1"} if extended else {}}}
    pod = make_pod("p", resourceClaims=[template], containers=[container])
    status = PodStatus(resource_claim_statuses=(PodResourceClaimStatus("t", claim),))
    return msgspec.structs.replace(pod, status=status)


TWO_CLAIMS = [make_claim("first", pod="p"), make_claim("second", pod="p")]


@pytest.mark.parametrize("disconnected", [False, True])
@pytest.mark.parametrize("operation", WRITES)
async def test_a_pod_that_names_another_claim_meanwhile_is_not_bound_without_it(
    world: World, small: Objects, operation: str, disconnected: bool
) -> None:
    service = world.service(*small, make_class("other", resource=RESOURCE), *TWO_CLAIMS, naming("first", extended=True))
    if disconnected:
        service.watch.disconnect([Pod])
    world.api.hooks[operation] = lambda: world.api.put(naming("second", extended=True))
    assert await service.bind(world.api.pod("p"), "n1") == failure.STATUS_CHANGED
    assert world.api.claim("first").allocation is None
    service.watch.reconnect()
    await world.settle(5.0)
    assert await service.bind(world.api.pod("p"), "n1") == ""
    assert len(devices(world.api.claim("second"))) == 1


async def test_a_claim_that_the_pod_does_not_name_when_a_later_bind_succeeds_is_given_back(
    world: World, small: Objects
) -> None:
    service = world.service(*small, *TWO_CLAIMS, naming("first"), config=NO_SWEEP)
    service.start()
    await world.settle()
    world.api.hooks["bind_pod"] = lambda: world.api.put(naming("second"))
    service.client.fail("deallocate", FORBIDDEN, times=SchedulingConfig().write_attempts)
    assert failure.STATUS_CHANGED in await service.bind(world.api.pod("p"), "n1")
    assert await service.bind(world.api.pod("p"), "n1") == ""
    await world.settle(WHILE)
    assert devices(world.api.claim("first")) == set()
    assert len(devices(world.api.claim("second"))) == 1


@pytest.mark.parametrize("seconds", [5, 60])
async def test_a_replica_that_was_paused_gives_back_a_claim_that_the_bound_pod_does_not_name(
    world: World, small: Objects, seconds: float
) -> None:
    paused, other = world.service(*small, *TWO_CLAIMS, naming("first"), config=NO_SWEEP), world.service(config=NO_SWEEP)
    paused.client.before["write_status"] = lambda: paused.pause(seconds)
    bind = paused.spawn(paused.bind(world.api.pod("p"), "n1"))
    await world.settle(1)
    world.api.put(naming("second"))
    await world.settle(1)
    assert await other.bind(world.api.pod("p"), "n1") == ""
    await bind
    await world.settle(WHILE)
    assert devices(world.api.claim("first")) == set()
    assert len(devices(world.api.claim("second"))) == 1


async def test_a_claim_stays_when_the_pod_is_named_anew_after_a_binding_whose_reply_was_lost(
    world: World, small: Objects
) -> None:
    service = world.service(*small, *TWO_CLAIMS, naming("first"), config=NO_SWEEP)
    service.start()
    service.client.fail("bind_pod", LOST, "late", delay=40.0)
    service.client.fail("read_pod", FORBIDDEN, times=FOREVER)
    assert failure.NOT_ROLLED_BACK in await service.bind(world.api.pod("p"), "n1")
    await world.settle(40.0)
    bound = world.api.pod("p")
    assert bound.spec.node_name == "n1"
    world.api.put(msgspec.structs.replace(bound, status=naming("second").status))
    await world.settle(WHILE)
    assert len(devices(world.api.claim("first"))) == 1
