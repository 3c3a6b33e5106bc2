"""What devices take of a node's CPU, memory and huge pages counts against what the node has allocatable."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dra_extender.api.core import NodeAllocatableResourceClaimStatus, Pod
from dra_extender.api.decoding import convert, to_builtins
from dra_extender.api.errors import RejectedError
from dra_extender.api.features import FeatureGates, Release
from dra_extender.api.resource import ResourceClaim, ResourceSlice
from dra_extender.placement.policies import PlacementStrategy
from dra_extender.scheduling.bind.failure import NOT_ROLLED_BACK
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.feasibility import node_statuses, pre_filter
from dra_extender.scheduling.nodeallocatable import with_statuses
from dra_extender.scheduling.preemption.evaluator import PreemptionEvaluator
from dra_extender.scheduling.preemption.terms import Preemption, PreemptionTerms
from dra_extender.scheduling.view import View
from tests.support.diagnosis.scene import view_of
from tests.support.simulation.api import devices
from tests.support.simulation.nodeamounts import FEATURES, consumes, costs, maps, user
from tests.support.simulation.objects import (
    KubernetesObject,
    make_allocated,
    make_claim,
    make_class,
    make_node,
    make_pod,
    make_slice,
)
from tests.support.simulation.world import Service, World

Json = dict[str, Any]
CPU, MEMORY, PAGES = "Insufficient cpu", "Insufficient memory", "Insufficient hugepages-2Mi"


def nodes(*devices: Json, n2: list[Json] | None = None, pages: str = "4Mi") -> list[KubernetesObject]:
    """Two nodes of four CPUs with these devices, or the second one with others."""
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "10", "hugepages-2Mi": pages}
    return [
        make_class(),
        make_node("n1", **amounts),
        make_node("n2", **amounts),
        make_slice("n1", list(devices)),
        make_slice("n2", list(devices) if n2 is None else n2),
    ]


async def told(world: World, *objects: KubernetesObject, pod: str = "p", features: FeatureGates = FEATURES) -> str:
    """The nodes that fit, or the reason of each."""
    found = await world.service(*objects, features=features).filter(world.api.pod(pod))
    refused = [f"{node}: {why}" for node, why in sorted(found.FailedAndUnresolvableNodes.items())]
    return found.Error or "; ".join([*(found.NodeNames or ()), *refused])


def statuses(pod: Pod) -> list[Json]:
    found: list[Json] = to_builtins(pod.status.node_allocatable_resource_claim_statuses)
    return found


def part(amount: str) -> Json:
    capacity = {"requests": {"cores": amount}}
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, "capacity": capacity}
    return {"name": "r", "exactly": exactly}


BOTH = {
    "name": "a",
    "nodeAllocatableResources": {"cpu": {"mapping": {"deviceMultiplier": "3"}, "overhead": {"perPod": "2"}}},
}


@pytest.mark.parametrize(
    ("device", "pod", "expected"),
    [
        (maps("3"), user("p", "c", cpu="1"), "n1; n2"),
        (maps("3"), user("p", "c", cpu="1001m"), f"n1: {CPU}; n2: {CPU}"),
        (maps("5"), user("p", "c"), f"n1: {CPU}; n2: {CPU}"),
        (maps("9Gi", resource="memory"), user("p", "c"), f"n1: {MEMORY}; n2: {MEMORY}"),
        (maps("6Mi", resource="hugepages-2Mi"), user("p", "c"), f"n1: {PAGES}; n2: {PAGES}"),
        (costs(perPod="2", perContainer="1"), user("p", "c", containers=2), "n1; n2"),
        (costs(perPod="2", perContainer="1"), user("p", "c", containers=3), f"n1: {CPU}; n2: {CPU}"),
        (costs(perContainer="3"), make_pod("p", "c"), "n1; n2"),
        (BOTH, user("p", "c"), f"n1: {CPU}; n2: {CPU}"),
        ({"name": "a"}, user("p", "c", cpu="9"), "n1; n2"),
        (maps("999999999999999999E"), user("p", "c"), f"n1: {CPU}; n2: {CPU}"),
    ],
    ids=["fits", "with the request of the pod", "alone", "memory", "huge pages", "overhead", "overhead by container",
         "used by no container", "mapping and overhead", "takes nothing", "huge"],
)  # fmt: skip
async def test_the_demand_of_the_pod_and_its_devices_must_fit(
    world: World, device: Json, pod: Pod, expected: str
) -> None:
    assert await told(world, *nodes(device), make_claim("c"), pod) == expected


@pytest.mark.parametrize(("amount", "expected"), [("8", "n1; n2"), ("9", f"n1: {CPU}; n2: {CPU}")])
async def test_a_mapped_capacity_counts_with_what_the_claim_consumes_of_it(
    world: World, amount: str, expected: str
) -> None:
    claim = make_claim("c", requests=[part(amount)])
    assert await told(world, *nodes(consumes("500m")), claim, user("p", "c")) == expected


async def test_a_container_that_names_a_claim_twice_pays_once(world: World) -> None:
    pod = user("p", "c", "c")
    assert await told(world, *nodes(costs(perContainer="3")), make_claim("c"), pod) == "n1; n2"
    assert await bound(world.services[0], world, "p") == [""]
    assert [each["containers"] for each in statuses(world.api.pod("p"))] == [["part-0"]]


@pytest.mark.parametrize("release", ["1.36", "1.37"])
async def test_without_the_gate_devices_take_nothing(world: World, release: Release) -> None:
    features = FeatureGates.parse("", release)
    assert await told(world, *nodes(maps("5")), make_claim("c"), user("p", "c"), features=features) == "n1; n2"


@pytest.mark.parametrize("deleted", [True, False], ids=["deleted", "succeeded"])
async def test_the_pods_of_the_node_count_until_they_end_and_then_refused_pods_are_requeued(
    world: World, deleted: bool
) -> None:
    other = user("other", node="n1", cpu="1")
    objects = [*nodes(maps("3"), n2=[]), make_claim("c"), user("p", "c", cpu="1"), other]
    service = world.service(*objects, features=FEATURES)
    service.start()
    await world.settle()
    pod = world.api.pod("p")
    assert (await service.filter(pod)).FailedAndUnresolvableNodes["n1"] == CPU
    await world.settle(60)
    service.client.calls.clear()
    (world.api.delete_pod if deleted else world.api.finish_pod)("other")
    await world.settle()
    assert "requeue" in service.client.calls
    assert (await service.filter(pod)).NodeNames == ["n1"]


async def test_what_the_status_of_a_bound_pod_says_counts(world: World) -> None:
    other = user("other", node="n1")
    status = {"resourceClaimName": "x", "containers": ["a", "b"], "mapping": [{"name": "cpu", "quantity": "1"}]}
    status["overhead"] = [{"name": "cpu", "perContainer": "500m"}]
    raw = to_builtins(other) | {"status": {"nodeAllocatableResourceClaimStatuses": [status]}}
    bound = convert(Pod, raw)
    assert await told(world, *nodes(maps("3")), make_claim("c"), user("p", "c"), bound) == f"n2; n1: {CPU}"


# --- bind -------------------------------------------------------------------------------------------------------------


async def bound(service: Service, world: World, *pods: str) -> list[str]:
    """The errors when all pods are bound to the first node at once."""
    return list(await asyncio.gather(*(service.bind(world.api.pod(name), "n1") for name in pods)))


async def test_bind_tells_kubelet_and_kube_scheduler_before_it_binds(world: World) -> None:
    pod = user("p", "c", containers=2)
    service = world.service(*nodes(BOTH), make_claim("c"), pod, features=FEATURES)
    assert await bound(service, world, "p") == [CPU]
    world.api.put(make_node("n1", cpu="5", pods="10"))
    await world.settle()
    world.api.log.clear()
    assert await bound(service, world, "p") == [""]
    assert next(operation for operation, _ in world.api.log) == "patch_pod_status"
    assert statuses(world.api.pod("p")) == [
        {
            "resourceClaimName": "c",
            "containers": ["part-0", "part-1"],
            "mapping": [{"name": "cpu", "quantity": "3"}],
            "overhead": [{"name": "cpu", "perPod": "2"}],
        }
    ]


@pytest.mark.parametrize("lag", [0.002, 1.0], ids=["watched", "not watched yet"])
async def test_pods_in_flight_count(world: World, lag: float) -> None:
    claims = [make_claim("c"), make_claim("d"), make_claim("e")]
    pods = [user("p", "c"), user("q", "d"), user("r", "e", cpu="1")]
    devices = [maps("3", name) for name in "abc"]
    service = world.service(*nodes(*devices), *claims, *pods, features=FEATURES)
    await world.settle()
    service.watch.lag = lag
    assert await bound(service, world, "p", "q") in (["", CPU], [CPU, ""])
    assert (await service.filter(world.api.pod("r"))).NodeNames == ["n2"]


async def test_a_bind_that_fails_gives_its_room_back_and_clears_the_status(world: World) -> None:
    service = world.service(
        *nodes(maps("3"), maps("3", "b")), make_claim("c"), make_claim("d"), user("p", "c"), user("q", "d"),
        features=FEATURES,
    )  # fmt: skip
    service.client.fail("write_status", RejectedError(422, "Invalid", "no"))
    assert (await bound(service, world, "p"))[0].startswith("claim default/c cannot be allocated")
    assert statuses(world.api.pod("p")) == []
    assert await bound(service, world, "q") == [""]


async def test_a_bind_whose_rollback_was_put_off_gives_its_room_back(world: World) -> None:
    service = world.service(
        *nodes(maps("3"), maps("3", "b"), n2=[]), make_claim("c"), make_claim("d"), user("p", "c"), user("q", "d"),
        features=FEATURES,
    )  # fmt: skip
    service.start()
    minute = asyncio.get_running_loop().time() + 60
    service.client.forbidden.update({"bind_pod": 10 * minute, "deallocate": minute})
    assert NOT_ROLLED_BACK in (await bound(service, world, "p"))[0]
    await world.settle(300)
    assert (await service.filter(world.api.pod("q"))).NodeNames == ["n1"]


@pytest.mark.parametrize("answered", [False, True], ids=["sent", "answered"])
@pytest.mark.parametrize("operation", ["read_pod", "deallocate", "patch_pod_status"])
async def test_a_rollback_leaves_the_room_and_the_status_of_a_bind_that_began_during_it(
    world: World, monkeypatch: pytest.MonkeyPatch, operation: str, answered: bool
) -> None:
    """At each request of the rollback, the next bind begins and ends. The watch does not show its pod yet."""
    service = world.service(
        *nodes(maps("3"), maps("3", "b"), n2=[]), make_claim("c"), make_claim("d"), user("p", "c"), user("q", "d"),
        features=FEATURES,
    )  # fmt: skip
    minute, answers, ask = asyncio.get_running_loop().time() + 60, list[str](), getattr(service.client, operation)

    async def slow(*args: Any, **named: Any) -> Any:
        monkeypatch.setattr(service.client, operation, ask)
        answers.extend([] if answered else await bound(service, world, "p"))
        found = await ask(*args, **named)
        answers.extend(await bound(service, world, "p") if answered else [])
        return found

    service.client.forbidden.update({"bind_pod": minute, "deallocate": minute})
    assert NOT_ROLLED_BACK in (await bound(service, world, "p"))[0]
    await world.settle(60)
    monkeypatch.setattr(service.client, operation, slow)
    service.watch.lags[Pod] = 600.0
    service.start()
    await world.settle(120)
    assert len(answers) == 1
    pod = world.api.pod("p")
    assert (answers == [""]) == bool(pod.spec.node_name) == bool(statuses(pod))
    assert (await service.filter(world.api.pod("q"))).NodeNames == ([] if pod.spec.node_name else ["n1"])


# --- preemption and placement ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cpu", "expected"), [("1", ["victim"]), ("1001m", [])], ids=["the victim's end is enough", "it is not"]
)
def test_a_preemptor_gets_the_room_of_its_victims(cpu: str, expected: list[str]) -> None:
    status = {"resourceClaimName": "held", "mapping": [{"name": "cpu", "quantity": "3"}]}
    victim = with_statuses(user("victim", "held", node="n1"), (convert(NodeAllocatableResourceClaimStatus, status),))
    pod = user("p", "c", cpu=cpu, priority=10)
    held = make_allocated("held", "victim")
    objects = [*nodes(maps("3"), n2=[]), held, victim, make_claim("c"), pod]
    view = view_of(objects, FEATURES, SchedulingConfig())
    assert find_filtered(view, pod) == {"n1": "cannot allocate all claims", "n2": "cannot allocate all claims"}
    found = PreemptionEvaluator(PreemptionTerms(preemptor=pod), ["n1", "n2"]).evaluate(view)
    victims = [each.pod.metadata.name for each in found.victims] if isinstance(found, Preemption) else []
    assert victims == expected


def find_filtered(view: View, pod: Pod) -> dict[str, str]:
    return node_statuses(view, pre_filter(view, pod), ["n1", "n2"]).refused


@pytest.mark.parametrize("takes", [{}, maps("1")], ids=["nothing", "CPU"])
async def test_a_policy_does_not_choose_among_devices_that_take_something_of_the_node(
    world: World, takes: Json
) -> None:
    """Two cards of two slots, and one slot of the second card is in use: the policy does not take the first device."""
    listed = [("x0", "x", "1"), ("x1", "x", "1"), ("a", "y", "1"), ("y1", "y", "1"), ("xx", "x", "2"), ("yy", "y", "2")]
    parts = [
        {**takes, "name": name, "consumesCounters": [{"counterSet": card, "counters": {"slots": {"value": slots}}}]}
        for name, card, slots in listed
    ]
    cards = [{"name": card, "counters": {"slots": {"value": "2"}}} for card in "xy"]
    counters = make_slice("n1", [], count=2, part="-cards")
    spec = convert(
        ResourceSlice, to_builtins(counters) | {"spec": to_builtins(counters)["spec"] | {"sharedCounters": cards}}
    )
    service = world.service(
        make_class(), make_node("n1", cpu="4"), make_slice("n1", parts, count=2), spec,
        make_allocated("held", "user"), user("user", "held", node="n1"), make_claim("c"), user("p", "c"),
        features=FEATURES, strategy=PlacementStrategy(policy="pack"),
    )  # fmt: skip
    await world.settle()
    assert await service.bind(world.api.pod("p"), "n1") == ""
    (claim,) = (claim for claim in world.api.all(ResourceClaim) if claim.metadata.name == "c")
    assert ([name for _, _, name in devices(claim)] == ["x0"]) == bool(takes)


# --- claims that are allocated ----------------------------------------------------------------------------------------


async def test_a_mapped_claim_is_for_one_pod(world: World) -> None:
    objects = [*nodes(maps("1")), make_allocated("c", "first"), user("p", "c"), user("first", "c")]
    text = "node allocatable resource claim c has a mapped device and cannot be shared across pods"
    assert await told(world, *objects) == f"n1: {text}; n2: {text}"
    assert await told(world, pod="first") == "n1; n2: resourceclaim not available on the node"


async def test_a_claim_with_overhead_only_is_shared_and_each_pod_pays(world: World) -> None:
    first = user("first", "c", node="n1", cpu="2")
    objects = [*nodes(costs(perPod="2")), make_allocated("c", "first"), first]
    assert await told(world, *objects, user("p", "c")) == "n1; n2: resourceclaim not available on the node"
    assert (
        await told(world, user("q", "c", cpu="1"), pod="q") == f"n1: {CPU}; n2: resourceclaim not available on the node"
    )


# --- pods with requests of their own ----------------------------------------------------------------------------------

REQUEST = (
    "pod level request for cpu is insufficient to cover the aggregated container and node-allocatable DRA requests"
)
LIMIT = "pod level limit for cpu is insufficient to cover the limit and DRA overhead for container part-0"
PAGES_LIMIT = (
    "pod level limit for hugepages-2Mi is insufficient to cover the aggregated container and node-allocatable DRA "
    "limits"
)


@pytest.mark.parametrize(
    ("device", "own", "limits", "expected"),
    [
        (maps("2"), {"requests": {"cpu": "3"}}, {}, ""),
        (maps("2"), {"requests": {"cpu": "2"}}, {}, REQUEST),
        (maps("2"), {"requests": {"cpu": "5"}}, {}, CPU),
        (maps("2"), {"limits": {"cpu": "3"}}, {"cpu": "1"}, ""),
        (maps("2"), {"limits": {"cpu": "3"}}, {"cpu": "2"}, LIMIT),
        (costs(perPod="1", perContainer="1"), {"limits": {"cpu": "3"}}, {"cpu": "2"}, LIMIT),
        (maps("2Mi", resource="hugepages-2Mi"), {"limits": {"hugepages-2Mi": "1Mi"}}, {}, PAGES_LIMIT),
    ],
)  # fmt: skip
async def test_what_the_pod_itself_sets_covers_its_containers_and_devices(
    world: World, device: Json, own: Json, limits: Json, expected: str
) -> None:
    pod = user("p", "c", cpu="1", resources=own)
    (container,) = pod.spec.containers
    raw = to_builtins(pod)
    raw["spec"]["containers"] = [
        to_builtins(container) | {"resources": to_builtins(container.resources) | {"limits": limits}}
    ]
    objects = [*nodes(device), make_claim("c"), convert(Pod, raw)]
    assert await told(world, *objects) == (f"n1: {expected}; n2: {expected}" if expected else "n1; n2")


# --- what cannot be counted -------------------------------------------------------------------------------------------


async def test_a_mapped_capacity_that_is_not_consumed_ends_the_attempt(world: World) -> None:
    device = {**consumes("1"), "allowMultipleAllocations": False}
    assert await told(world, *nodes(device), make_claim("c"), user("p", "c")) == (
        "claim default/c, device a: ConsumedCapacity is nil, but Capacity key 'cores' is set in "
        "NodeAllocatableResources for resource cpu"
    )


@pytest.mark.parametrize(
    "wrong",
    [
        maps("1", resource="ephemeral-storage"),
        maps("-1"),
        consumes("0"),
        consumes("1", key="other"),
        costs(perPod="-1"),
        costs(),
        {"name": "a", "nodeAllocatableResources": {"cpu": {}}},
        {"name": "a", "nodeAllocatableResources": {"cpu": {"mapping": {}}}},
    ],
)
async def test_a_device_that_the_api_server_would_reject_keeps_no_pod_from_another_node(
    world: World, wrong: Json
) -> None:
    service = world.service(*nodes(wrong, n2=[maps("1")]), make_claim("c"), user("p", "c"), features=FEATURES)
    await world.settle()
    found = await service.filter(world.api.pod("p"))
    assert not found.Error
    assert "n2" in (found.NodeNames or ())


async def test_devices_of_extended_resources_take_nothing_because_the_status_has_no_place_for_it(world: World) -> None:
    gpu = "example.com/gpu"
    pod = make_pod("p", containers=[{"name": "main", "resources": {"requests": {gpu: "1"}}}])
    objects = [item for item in nodes(maps("1"), n2=[{"name": "a"}]) if item.metadata.name != "gpu"]
    text = "devices of extended resources cannot take CPU, memory or huge pages of a node"
    assert await told(world, make_class(resource=gpu), *objects, pod) == f"n2; n1: {text}"


async def test_other_pods_go_on_beside_claims_that_cannot_be_counted(world: World) -> None:
    objects = [*nodes(maps("9")), make_claim("c"), user("p", "c"), make_claim("none", requests=[]), user("q", "none")]
    assert await told(world, *objects) == f"n1: {CPU}; n2: {CPU}"
    assert await told(world, pod="q") == "n1; n2"
    assert {claim.metadata.name for claim in world.api.all(ResourceClaim)} == {"c", "none"}
