"""Pods that ask for devices by the name of an extended resource."""

from __future__ import annotations

import pytest

from dra_extender.api.core import Pod
from dra_extender.api.errors import ConflictError, OutcomeUnknownError, RejectedError
from dra_extender.api.events import Undecodable
from dra_extender.api.features import FeatureGates
from dra_extender.api.meta import ObjectKey
from dra_extender.api.resource import EXTENDED_RESOURCE_CLAIM_ANNOTATION, ResourceClaim
from dra_extender.scheduling import extended
from dra_extender.scheduling.bind import failure
from dra_extender.scheduling.config import SchedulingConfig
from tests.support.simulation.api import devices
from tests.support.simulation.client import When
from tests.support.simulation.objects import Objects, make_claim, make_class, make_node, make_pod, make_slice
from tests.support.simulation.workers import VirtualWorkers
from tests.support.simulation.world import Service, World

GPU = "example.com/gpu"


def asking(name: str, count: int = 1, *claims: str) -> Pod:
    return make_pod(name, *claims, containers=[{"name": "main", "resources": {"requests": {GPU: str(count)}}}])


def nodes(**allocatable: str) -> Objects:
    """Two nodes with two devices each; the second one also offers this by device plugins."""
    return [
        make_class(resource=GPU),
        make_node("n1"),
        make_node("n2", **allocatable),
        make_slice("n1", ["a", "b"]),
        make_slice("n2", ["a", "b"]),
    ]


def made(world: World) -> list[ResourceClaim]:
    claims = world.api.all(ResourceClaim)
    return [claim for claim in claims if EXTENDED_RESOURCE_CLAIM_ANNOTATION in claim.metadata.annotations]


async def test_a_claim_is_made_allocated_and_told_to_kubelet(world: World) -> None:
    service = world.service(*nodes(), asking("p", 2))
    assert (await service.filter(world.api.pod("p"))).NodeNames == ["n1", "n2"]
    world.api.log.clear()
    assert await service.bind(world.api.pod("p"), "n2") == ""
    order = ["create_claim", "patch_pod_status", "add_finalizer", "write_status", "bind"]
    assert [operation for operation, _ in world.api.log] == order
    (claim,) = made(world)
    assert len(devices(claim)) == 2
    assert claim.reserved_for("uid-p")
    told = world.api.pod("p").status.extended_resource_claim_status
    assert told is not None
    assert told.resource_claim_name == claim.metadata.name
    assert [mapping.request_name for mapping in told.request_mappings] == ["container-0-request-0"]
    assert service.extender.view.ledger.holds() == ()


async def test_a_node_with_a_device_plugin_needs_no_claim(world: World) -> None:
    service = world.service(*nodes(**{GPU: "8"}), asking("p", 3))
    answer = await service.filter(world.api.pod("p"))
    assert answer.NodeNames == ["n2"]
    assert answer.FailedAndUnresolvableNodes == {"n1": "cannot allocate all claims"}
    assert await service.bind(world.api.pod("p"), "n2") == ""
    assert made(world) == []


async def test_a_class_that_becomes_unreadable_leaves_the_resource_to_the_next(world: World) -> None:
    service = world.service(*nodes(), make_class("a", resource=GPU), asking("p"))
    assert (await service.filter(world.api.pod("p"))).NodeNames == ["n1", "n2"]
    service.extender.apply(Undecodable(ObjectKey("DeviceClass", "a"), "spec.selectors: nonsense"))
    assert await service.bind(world.api.pod("p"), "n1") == ""
    (claim,) = made(world)
    assert [request.exactly.device_class_name for request in claim.spec.devices.requests if request.exactly] == ["gpu"]


async def test_claims_and_extended_resources_go_together(world: World) -> None:
    service = world.service(*nodes(), make_claim("c"), asking("p", 1, "c"), asking("q", 2, "c"))
    assert (await service.filter(world.api.pod("q"))).NodeNames == []
    assert await service.bind(world.api.pod("p"), "n1") == ""
    (claim,) = made(world)
    assert devices(claim) != devices(world.api.claim("c"))
    assert world.api.doubles() == []


async def test_the_order_of_nodes_is_kept_when_they_differ(world: World) -> None:
    world.add(*nodes(**{GPU: "8"}), make_node("n0"), make_slice("n0", ["a"]), asking("p"))
    answer = await world.service().filter(world.api.pod("p"), "n2", "n0", "n1")
    assert answer.NodeNames == ["n2", "n0", "n1"]


@pytest.mark.parametrize("operation", ["add_finalizer", "write_status", "patch_pod_status", "bind_pod"])
async def test_a_failed_bind_leaves_no_claim(world: World, operation: str) -> None:
    service = world.service(*nodes(), asking("p"))
    service.client.fail(operation, RejectedError(403, "Forbidden"))
    assert await service.bind(world.api.pod("p"), "n1") != ""
    assert made(world) == []
    assert service.extender.view.ledger.holds() == ()
    await world.settle()
    assert await service.bind(world.api.pod("p"), "n2") == ""


async def test_a_pod_does_not_name_the_claim_of_a_failed_bind_on_a_node_with_a_device_plugin(world: World) -> None:
    service = world.service(*nodes(**{GPU: "8"}), asking("p"))
    service.client.fail("bind_pod", RejectedError(403, "Forbidden"))
    assert await service.bind(world.api.pod("p"), "n1") == failure.REFUSED_BINDING
    assert await service.bind(world.api.pod("p"), "n2") == ""
    assert world.api.pod("p").status.extended_resource_claim_status is None


@pytest.mark.parametrize("operation", ["create_claim", "patch_pod_status"])
async def test_a_replica_that_was_paused_does_not_write_to_a_pod_that_another_has_bound(
    world: World, operation: str
) -> None:
    paused, other = world.service(*nodes(**{GPU: "8"}), asking("p")), world.service()
    leads = [paused]
    paused.extender.leading = lambda: paused in leads

    def pause() -> None:
        leads[:] = [other]
        paused.pause(600)

    paused.client.before[operation] = pause
    bind = paused.spawn(paused.bind(world.api.pod("p"), "n1"))
    other.start()
    await world.settle(1)
    await other.filter(world.api.pod("p"))
    await world.settle(120)  # a claim that is in the way goes
    assert await other.bind(world.api.pod("p"), "n2") == ""
    assert await bind != ""
    await world.settle(300)
    assert world.api.pod("p").status.extended_resource_claim_status is None


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_lost_reply_to_the_creation_makes_no_second_claim(world: World, when: When) -> None:
    service = world.service(*nodes(), asking("p"))
    service.client.fail("create_claim", OutcomeUnknownError(0, "Timeout"), when)
    assert await service.bind(world.api.pod("p"), "n1") == ""
    assert len(made(world)) == 1


@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_crash_at_any_write_is_recovered_from(world: World, number: int, when: When) -> None:
    world.add(*nodes(), asking("p"))
    first = world.service()
    first.client.kill_at = (number, when)
    first.spawn(first.bind(world.api.pod("p"), "n1"))
    await world.settle(0.1)
    await first.kill()
    second = world.service()
    second.start()
    for _ in range(10):
        pod = world.api.pod("p")
        if not pod.spec.node_name:
            fits = (await second.filter(pod)).NodeNames
            if fits:
                await second.bind(pod, fits[-1])
        await world.settle(1.0)
    (claim,) = made(world)
    assert world.api.pod("p").spec.node_name in {pool for _, pool, _ in devices(claim)}
    told = world.api.pod("p").status.extended_resource_claim_status
    assert told is not None
    assert told.resource_claim_name == claim.metadata.name


async def test_a_name_that_somebody_else_has_taken_is_reported(world: World) -> None:
    pod = asking("p")
    world.add(*nodes(), pod, make_claim(extended.claim_name(pod)))
    error = await world.service().bind(world.api.pod("p"), "n1")
    assert error == "another claim has the name of the pod's claim for extended resources"


async def test_without_the_gate_the_resource_is_an_ordinary_one(world: World) -> None:
    service = world.service(*nodes(), asking("p", 5), features=FeatureGates(DRAExtendedResource=False))
    assert (await service.filter(world.api.pod("p"))).NodeNames == ["n1", "n2"]


async def test_a_class_that_gets_the_name_later_counts_at_once(world: World) -> None:
    service = world.service(make_class(), make_node("n1"), asking("p"))
    assert (await service.filter(world.api.pod("p"))).NodeNames == ["n1"]
    world.add(make_class(resource=GPU))
    await world.settle()
    assert (await service.filter(world.api.pod("p"))).NodeNames == []


async def test_a_pod_is_not_bound_without_devices_when_its_class_goes_after_filter(world: World) -> None:
    """Without the class the pod looks like one that uses no devices; kubelet would have turned it away."""
    service = world.service(*nodes(), asking("p"))
    assert (await service.filter(world.api.pod("p"))).NodeNames == ["n1", "n2"]
    world.api.drop(make_class())
    await world.settle()
    assert await service.bind(world.api.pod("p"), "n1") == failure.CLASS_UNKNOWN
    world.add(make_class(resource=GPU))
    await world.settle()
    assert await service.bind(world.api.pod("p"), "n1") == ""
    assert len(made(world)) == 1


async def test_a_pod_is_not_bound_without_devices_when_its_class_goes_while_a_worker_is_asked(world: World) -> None:
    """The decision was then made on a state without the class, and came to nothing to allocate."""
    world.add(*nodes(), asking("p"))
    workers = VirtualWorkers(lambda _: 0.5)
    service = world.service(workers=workers, config=SchedulingConfig(turn_work=20, question_work=20))
    bind = service.spawn(service.bind(world.api.pod("p"), "n1"))
    await world.settle(0.2)
    assert workers.asked
    world.api.drop(make_class())
    assert await bind == failure.CLASS_UNKNOWN
    assert not world.api.pod("p").spec.node_name


async def test_a_resource_that_no_class_was_ever_seen_for_is_left_to_others_after_a_moment(world: World) -> None:
    """The class may be new, and the watch behind the scheduler's: it was broken, for longer than we had waited."""
    other = {"name": "main", "resources": {"requests": {"other.example.com/nic": "1"}}}
    service = world.service(make_node("n1"), make_pod("p", containers=[other]))
    assert await service.bind(world.api.pod("p"), "n1") == failure.CLASS_UNKNOWN
    await world.settle(30.0)
    assert await service.bind(world.api.pod("p"), "n1") == failure.CLASS_UNKNOWN
    await world.settle(30.0)
    assert await service.bind(world.api.pod("p"), "n1") != failure.CLASS_UNKNOWN
    assert world.api.pod("p").spec.node_name == "n1"


async def test_a_claim_that_exists_and_cannot_be_read_ends_the_bind_with_a_reason(world: World) -> None:
    """The error was not foreseen there, so the bind ended as an internal one."""
    service = world.service(*nodes(), asking("p"))
    service.client.fail("create_claim", ConflictError(409, "AlreadyExists"))
    service.client.fail("read_claim", RejectedError(403, "Forbidden"))
    refused = "the API server refused the claim for extended resources"
    assert await service.bind(world.api.pod("p"), "n1") == refused
    assert service.extender.view.ledger.holds() == ()
    assert await service.bind(world.api.pod("p"), "n1") == ""


async def test_a_pod_is_not_bound_without_devices_while_its_class_cannot_be_read(world: World) -> None:
    """A process that started after the class became undecodable did not know the resource behind it. After a moment
    it took the name for another component's resource, and bound the pod without devices.
    """
    world.add(*nodes(), asking("p"))
    world.api.spoil(make_class(resource=GPU))
    service = world.service()
    for _ in range(3):
        assert await service.bind(world.api.pod("p"), "n1") == failure.CLASS_UNKNOWN
        await world.settle(10.0)
    world.add(make_class(resource=GPU))
    await world.settle()
    assert await service.bind(world.api.pod("p"), "n1") == ""
    assert len(made(world)) == 1


async def leave_a_claim(world: World) -> Service:
    """A crash has left the pod's claim, allocated on n1. The service that comes after it."""
    world.add(*nodes(), asking("p"))
    first = world.service()
    first.client.kill_on = ("bind_pod", "before")
    first.spawn(first.bind(world.api.pod("p"), "n1"))
    await world.settle(0.1)
    await first.kill()
    (claim,) = made(world)
    assert {device for _, pool, device in devices(claim) if pool == "n1"} == {"a"}
    second = world.service(config=SchedulingConfig(sweep_after=0.0))
    second.start()
    await world.settle()
    return second


async def test_the_claim_of_an_earlier_attempt_is_used_where_it_is_allocated(world: World) -> None:
    service = await leave_a_claim(world)
    answer = await service.filter(world.api.pod("p"))
    assert answer.NodeNames == ["n1"]
    assert answer.FailedAndUnresolvableNodes == {"n2": "resourceclaim not available on the node"}
    assert await service.bind(world.api.pod("p"), "n2") == "resourceclaim not available on the node"
    (claim,) = made(world)
    assert await service.bind(world.api.pod("p"), "n1") == ""
    assert [found.metadata.uid for found in made(world)] == [claim.metadata.uid]


async def test_the_claim_of_an_earlier_attempt_goes_when_only_other_nodes_are_left(world: World) -> None:
    service = await leave_a_claim(world)
    (left,) = made(world)
    world.api.drop(make_node("n1"))
    world.add(make_node("n3"))
    await world.settle()
    for name in ("n2", "n3"):
        assert await service.bind(world.api.pod("p"), name) == "resourceclaim not available on the node"
    assert (await service.filter(world.api.pod("p"))).NodeNames == []
    world.api.refuse_pod("p")
    await world.settle(90.0)
    assert [claim.allocation for claim in made(world)] == [None]
    answer = await service.filter(world.api.pod("p"))
    assert answer.FailedAndUnresolvableNodes["n2"] == "cannot schedule extended resource claim"
    await world.settle(2.0)
    assert made(world) == []
    assert (await service.filter(world.api.pod("p"))).NodeNames == ["n2"]
    assert await service.bind(world.api.pod("p"), "n2") == ""
    (claim,) = made(world)
    assert claim.metadata.uid != left.metadata.uid
    assert world.api.doubles() == []
