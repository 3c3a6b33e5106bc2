"""The filter verb."""

from __future__ import annotations

import msgspec
import pytest

from dra_extender.api.decoding import convert
from dra_extender.api.errors import ApiError, OutcomeUnknownError
from dra_extender.api.extender import NEEDS_NAMES, ExtenderArgs
from dra_extender.api.features import FeatureGates
from dra_extender.api.resource import ResourceClaimConsumerReference
from dra_extender.scheduling.config import SchedulingConfig
from tests.support.counting import garbage
from tests.support.marked import MARK, is_harmless
from tests.support.simulation.objects import DRIVER, Objects, make_claim, make_class, make_node, make_pod, make_slice
from tests.support.simulation.workers import VirtualWorkers
from tests.support.simulation.world import World

NO_ROOM = "cannot allocate all claims"
NOT_HERE = "resourceclaim not available on the node"


async def test_a_pod_without_claims_passes_untouched(world: World, small: Objects) -> None:
    service = world.service(*small)
    answer = await service.filter(make_pod("p"), "n2", "unheard-of", "n1")
    assert answer.NodeNames == ["n2", "unheard-of", "n1"]
    assert answer.FailedAndUnresolvableNodes == {}
    assert service.client.calls == []
    assert len(service.extender.tentative_plans.all()) == 0


async def test_without_node_names_the_configuration_is_blamed(world: World) -> None:
    answer = await world.service().extender.filter(ExtenderArgs(Pod=make_pod("p")))
    assert answer.Error == NEEDS_NAMES


async def test_every_node_is_in_the_answer_once(world: World, small: Objects) -> None:
    service = world.service(*small, make_node("bare"), make_claim("c", count=2))
    answer = await service.filter(make_pod("p", "c"), "bare", "n2", "n2", "unknown", "n1")
    assert answer.NodeNames == ["n2", "n1"]
    assert answer.FailedAndUnresolvableNodes == {"bare": NO_ROOM, "unknown": "node not synced yet"}
    assert answer.FailedNodes == {}


async def test_an_allocated_claim_can_be_used_only_where_it_is(world: World, small: Objects) -> None:
    service = world.service(*small, make_claim("c"), make_pod("first", "c"), make_pod("second", "c"))
    assert await service.bind(world.api.pod("first"), "n2") == ""
    answer = await service.filter(world.api.pod("second"))
    assert answer.NodeNames == ["n2"]
    assert answer.FailedAndUnresolvableNodes == {"n1": NOT_HERE}


async def test_a_bound_pod_is_asked_about_again_without_effect(world: World, small: Objects) -> None:
    """As kube-scheduler 1.37 does for pods whose resize is deferred."""
    service = world.service(*small, make_claim("c", count=2), make_pod("p", "c"))
    assert await service.bind(world.api.pod("p"), "n2") == ""
    await world.settle()
    before = len(service.client.calls)
    pod = world.api.pod("p")
    assert (pod.spec.node_name, (await service.filter(pod, "n2")).NodeNames) == ("n2", ["n2"])
    assert service.client.calls[before:] == []
    assert len(service.extender.tentative_plans.all()) == 0


async def test_two_claims_on_two_nodes_fit_nowhere(world: World, small: Objects) -> None:
    service = world.service(*small, make_claim("c"), make_claim("d"), make_pod("p", "c"), make_pod("q", "d"))
    assert await service.bind(world.api.pod("p"), "n1") == ""
    assert await service.bind(world.api.pod("q"), "n2") == ""
    answer = await service.filter(make_pod("both", "c", "d"))
    assert answer.NodeNames == []
    assert answer.FailedAndUnresolvableNodes == {"n1": NOT_HERE, "n2": NOT_HERE}


async def test_a_claim_we_have_not_seen_is_read_before_the_pod_is_refused(world: World, small: Objects) -> None:
    service = world.service(*small, lag=60.0)
    world.add(make_claim("c"))
    assert (await service.filter(make_pod("p", "c"))).NodeNames == ["n1", "n2"]
    assert service.client.calls == ["read_claim"]


async def test_a_claim_that_does_not_exist_is_not_read_at_every_call(world: World, small: Objects) -> None:
    service = world.service(*small)
    for _ in range(5):
        answer = await service.filter(make_pod("p", "c"))
        assert answer.FailedAndUnresolvableNodes["n1"] == 'could not find ResourceClaim "default/c"'
    assert service.client.calls == ["read_claim"]
    await world.settle(6.0)
    await service.filter(make_pod("p", "c"))
    assert service.client.calls == ["read_claim", "read_claim"]


async def test_what_kube_scheduler_writes_to_the_pod_is_text(world: World, small: Objects) -> None:
    pod = make_pod("p", f"c{MARK}")
    service = world.service(*small, pod)
    answer = await service.filter(pod)
    assert all(is_harmless(reason) for reason in answer.FailedAndUnresolvableNodes.values())
    assert is_harmless(await service.bind(world.api.pod("p"), "n1"))


async def test_a_failed_read_refuses_the_pod_and_nothing_else(world: World, small: Objects) -> None:
    service = world.service(*small)
    service.client.fail("read_claim", OutcomeUnknownError(0, "Timeout"))
    answer = await service.filter(make_pod("p", "c"))
    assert answer.Error == ""
    assert answer.NodeNames == []


@pytest.mark.parametrize(
    ("latency", "error"), [(0.0, OutcomeUnknownError(0, "Timeout")), (8.0, None)], ids=["an error", "no answer in time"]
)
async def test_a_claim_that_could_not_be_read_is_logged(
    world: World, small: Objects, capfd: pytest.CaptureFixture[str], latency: float, error: ApiError | None
) -> None:
    service = world.service(*small, lag=100.0)
    world.add(make_claim("c"))
    service.client.latency = latency
    if error is not None:
        service.client.fail("read_claim", error)
    await service.filter(make_pod("p", "c"))
    captured = capfd.readouterr()
    assert (captured.out + captured.err).count("default/c") == 1


async def test_a_pod_that_is_refused_again_costs_no_search(world: World, small: Objects) -> None:
    service = world.service(*small, make_claim("c", count=3), make_claim("other"))
    pod = make_pod("p", "c")
    first = await service.filter(pod, "n1", "n2")
    assert first.FailedAndUnresolvableNodes == {"n1": NO_ROOM, "n2": NO_ROOM}
    searches = service.decisions.searches
    world.api.set_status("other")
    again = await service.filter(pod, "n2", "n1")
    assert again.FailedAndUnresolvableNodes == first.FailedAndUnresolvableNodes
    assert service.decisions.searches == searches
    world.add(make_slice("n2", ["a", "b", "c"], generation=2))
    await world.settle()
    assert (await service.filter(pod, "n1", "n2")).NodeNames == ["n2"]


async def test_a_refusal_says_nothing_about_other_nodes(world: World, small: Objects) -> None:
    service = world.service(*small, make_node("big"), make_slice("big", ["a", "b", "c"]), make_claim("c", count=3))
    pod = make_pod("p", "c")
    assert (await service.filter(pod, "n1")).NodeNames == []
    assert (await service.filter(pod, "n1", "big")).NodeNames == ["big"]


async def test_a_missing_class_refuses_all_nodes(world: World, small: Objects) -> None:
    request = {"name": "r", "exactly": {"deviceClassName": "none", "allocationMode": "ExactCount", "count": 1}}
    world.add(*small, make_claim("c", requests=[request]))
    answer = await world.service().filter(make_pod("p", "c"))
    assert set(answer.FailedAndUnresolvableNodes.values()) == {"request r: device class none does not exist"}


async def test_what_waiting_does_not_help_is_an_error(world: World, small: Objects) -> None:
    request = {"name": "r", "exactly": {"deviceClassName": "", "allocationMode": "ExactCount", "count": 1}}
    world.add(*small, make_claim("c", requests=[request]))
    answer = await world.service().filter(make_pod("p", "c"))
    assert answer.Error == "request r: unsupported request type"
    assert (answer.NodeNames, answer.FailedAndUnresolvableNodes) == ([], {})


async def test_an_unreadable_node_selector_of_an_allocation_is_an_error(world: World, small: Objects) -> None:
    claim = make_claim("c")
    bad = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "Near"}]}]}
    allocation = {"nodeSelector": bad}
    meta = msgspec.structs.replace(claim.metadata, finalizers=("resource.kubernetes.io/delete-protection",))
    status = convert(type(claim), {"metadata": {}, "status": {"allocation": allocation}}).status
    world.add(*small, msgspec.structs.replace(claim, metadata=meta, status=status))
    answer = await world.service().filter(make_pod("p", "c"))
    assert "Near" in answer.Error


async def test_while_a_bind_is_under_way_only_its_node_is_offered(world: World, pending: Objects) -> None:
    service = world.service(*pending)
    service.client.latency = 1.0
    bind = service.spawn(service.bind(world.api.pod("p"), "n2"))
    await world.settle(0.1)
    answer = await service.filter(world.api.pod("p"))
    assert answer.NodeNames == ["n2"]
    assert list(answer.FailedAndUnresolvableNodes) == ["n1"]
    assert await bind == ""


async def test_others_wait_for_a_shared_claim_in_flight(world: World, pending: Objects) -> None:
    service = world.service(*pending, make_pod("q", "c"))
    service.start()
    await world.settle(3.0)
    requeues = service.client.requeues
    service.client.latency = 0.1
    bind = service.spawn(service.bind(world.api.pod("p"), "n2"))
    await world.settle(0.01)
    answer = await service.filter(world.api.pod("q"))
    text = "resource claim default/c is in the process of being allocated"
    assert set(answer.FailedAndUnresolvableNodes.values()) == {text}
    assert await bind == ""
    await world.settle(3.0)
    assert service.client.requeues > requeues
    assert (await service.filter(world.api.pod("q"))).NodeNames == ["n2"]


@pytest.mark.parametrize("consumers", [255, 256])
async def test_the_257th_consumer_is_refused(world: World, small: Objects, consumers: int) -> None:
    service = world.service(*small, make_claim("c"), make_pod("first", "c"))
    assert await service.bind(world.api.pod("first"), "n1") == ""
    more = [
        ResourceClaimConsumerReference(resource="pods", name=f"u{index}", uid=f"u{index}")
        for index in range(consumers - 1)
    ]
    world.api.set_status("c", reserved_for=(*world.api.claim("c").status.reserved_for, *more))
    await world.settle()
    answer = await service.filter(make_pod("next", "c"), "n1")
    assert answer.NodeNames == (["n1"] if consumers < 256 else [])


async def test_a_slow_api_server_does_not_hold_up_the_scheduler(world: World, small: Objects) -> None:
    service = world.service(*small, lag=100.0)
    world.add(make_claim("c"), make_claim("d"), make_pod("p", "c", "d"))
    service.client.latency = 8.0
    started = world.clock.monotonic()
    answer = await service.filter(world.api.pod("p"))
    assert set(answer.FailedAndUnresolvableNodes.values()) == {'could not find ResourceClaim "default/c"'}
    assert world.clock.monotonic() - started == 1.0


async def test_a_call_reads_a_few_claims_and_waits_for_the_watch_to_show_the_others(
    world: World, small: Objects
) -> None:
    service = world.service(*small)
    for name in ("p", "q"):
        await service.filter(make_pod(name, *[f"c{number}" for number in range(100)]))
    assert service.client.calls == ["read_claim"] * 8


async def test_a_namespace_that_has_had_calls_wait_long_is_not_waited_for(world: World, small: Objects) -> None:
    service = world.service(*small, config=SchedulingConfig(worker_claim_seconds=1.0))
    service.client.latency = 8.0
    started = world.clock.monotonic()
    for number in range(10):
        await service.filter(make_pod(f"p{number}", f"c{number}", namespace="evil"))
    assert world.clock.monotonic() - started == 4.0  # three seconds, of which some are forgiven
    await service.filter(make_pod("p", "c"))
    assert world.clock.monotonic() - started == 5.0


@pytest.mark.parametrize("order", [("n1", "n2"), ("n2", "n1")])
async def test_a_selector_that_fails_on_one_node_fails_the_attempt(world: World, order: tuple[str, str]) -> None:
    """In whichever order the nodes are asked for: the pod is not put on the other one as if nothing were wrong."""
    selector = {"cel": {"expression": f'device.attributes["{DRIVER}"].model == "x"'}}
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, "selectors": [selector]}
    world.add(make_class(), make_node("n1"), make_node("n2"))
    world.add(make_slice("n1", [{"name": "a", "attributes": {"model": {"string": "x"}}}]), make_slice("n2", ["a"]))
    service = world.service(make_claim("c", requests=[{"name": "r", "exactly": exactly}]), make_pod("p", "c"))
    answer = await service.filter(world.api.pod("p"), *order)
    assert "no such key" in answer.Error
    assert not answer.NodeNames
    assert (await service.filter(world.api.pod("p"), "n1")).NodeNames == ["n1"]


@pytest.mark.parametrize(("gate", "fits"), [("DRADeviceTaints=true", []), ("DRADeviceTaints=false", ["n1"])])
async def test_taints_of_devices_count_where_their_gate_is_on(world: World, gate: str, fits: list[str]) -> None:
    taint = {"key": "example.com/broken", "effect": "NoSchedule"}
    world.add(make_class(), make_node("n1"), make_slice("n1", [{"name": "a", "taints": [taint]}]))
    service = world.service(make_claim("c"), make_pod("p", "c"), features=FeatureGates.parse(gate))
    assert (await service.filter(world.api.pod("p"))).NodeNames == fits


async def test_a_decision_leaves_no_garbage_for_the_collector(world: World, small: Objects) -> None:
    """Collecting it would stop the event loop."""
    service = world.service(*small, make_claim("c"), make_pod("p", "c"), workers=VirtualWorkers())
    pod, calls = world.api.pod("p"), 100
    assert (await service.filter(pod)).NodeNames == ["n1", "n2"]
    with garbage() as left:
        for _ in range(calls):
            await service.filter(pod)
        assert left() < calls
