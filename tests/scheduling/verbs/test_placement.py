"""What a placement policy changes in the verbs: which node is scored, offered and expected."""

from __future__ import annotations

from dra_extender.api.core import Pod
from dra_extender.api.extender import ExtenderArgs
from dra_extender.placement.policies import PlacementStrategy
from tests.support.simulation.objects import make_claim, make_class, make_node, make_pod, make_slice, make_wishes
from tests.support.simulation.world import Service, World

PACK = PlacementStrategy(policy="pack")


async def scores(service: Service, pod: Pod, *names: str, advise: bool = False) -> dict[str, int]:
    args = ExtenderArgs(Pod=pod, NodeNames=names)
    answer = await (service.extender.advise(args) if advise else service.extender.prioritize(args))
    return {priority.Host: priority.Score for priority in answer}


async def half_used(world: World, strategy: PlacementStrategy = PACK) -> Service:
    """Two devices on each of n1, n2 and n3; one of n2 is in use."""
    world.add(make_class(), *(make_node(name) for name in ("n1", "n2", "n3")))
    world.add(*(make_slice(name, ["a", "b"]) for name in ("n1", "n2", "n3")))
    service = world.service(make_claim("used"), make_pod("user", "used"), strategy=strategy)
    assert await service.bind(world.api.pod("user"), "n2") == ""
    return service


async def test_the_chosen_node_gets_ten_and_all_others_nothing(world: World) -> None:
    service = await half_used(world)
    world.add(make_claim("c"), make_pod("p", "c"))
    await world.settle()
    expected = {"n1": 0, "n2": 10, "n3": 0}
    assert await scores(service, world.api.pod("p"), "n1", "n2", "n3") == expected
    assert await scores(service, world.api.pod("p"), "n1", "n2", "n3", advise=True) == expected
    assert await scores(service, world.api.pod("p"), "n3", "n1", "unknown") == {"n3": 0, "n1": 10, "unknown": 0}


async def test_pods_without_devices_are_placed_as_well(world: World) -> None:
    service = await half_used(world)
    assert await scores(service, make_pod("plain"), "n1", "n2", "n3") == {"n1": 0, "n2": 10, "n3": 0}


async def test_a_better_alternative_counts_more_than_the_policy(world: World) -> None:
    service = await half_used(world)
    world.add(make_wishes("c", 2, 1), make_pod("p", "c"))
    await world.settle()
    assert await scores(service, world.api.pod("p"), "n1", "n2") == {"n1": 10, "n2": 0}


async def test_a_node_that_another_pod_is_about_to_fill_is_not_chosen(world: World) -> None:
    service = await half_used(world)
    world.add(make_claim("c"), make_claim("d"), make_pod("p", "c"), make_pod("q", "d"))
    await world.settle()
    assert await scores(service, world.api.pod("q"), "n1", "n2") == {"n1": 0, "n2": 10}
    assert await scores(service, world.api.pod("p"), "n1", "n2") == {"n1": 10, "n2": 0}


async def test_filter_offers_the_chosen_node_alone_where_the_settings_say_so(world: World) -> None:
    service = await half_used(world, PlacementStrategy(policy="pack", only_chosen=True))
    world.add(make_claim("c"), make_claim("d"), make_pod("p", "c"), make_pod("q", "d"))
    await world.settle()
    assert (await service.filter(world.api.pod("p"))).NodeNames == ["n2"]
    # The first pod is expected on n2, where nothing is left then.
    assert (await service.filter(world.api.pod("q"))).NodeNames == ["n1"]


async def test_filter_offers_all_nodes_otherwise(world: World) -> None:
    service = await half_used(world)
    world.add(make_claim("c"), make_pod("p", "c"))
    await world.settle()
    assert (await service.filter(world.api.pod("p"))).NodeNames == ["n1", "n2", "n3"]


async def test_the_workload_is_learned_from_pods_that_come_and_once_more_from_those_that_run(world: World) -> None:
    fragmentation = PlacementStrategy(policy="fragmentation")
    service = await half_used(world, fragmentation)
    world.add(make_claim("c"), make_pod("p", "c"))
    await world.settle()
    for _ in range(3):
        await service.filter(world.api.pod("p"))
    assert service.placement.workload.pods == 1
    assert await service.bind(world.api.pod("p"), "n2") == ""
    await world.settle()
    again = world.service(strategy=fragmentation)
    await world.settle()
    assert again.placement.workload.pods == 0
    steps = sum(1 for _ in again.extender.learn_running_pods())
    assert steps == again.placement.workload.pods == 2
    await again.filter(world.api.pod("p"))
    assert again.placement.workload.pods == 2


async def test_first_fit_learns_nothing(world: World) -> None:
    service = await half_used(world, PlacementStrategy())
    world.add(make_claim("c"), make_pod("p", "c"))
    await world.settle()
    await service.filter(world.api.pod("p"))
    assert service.placement.workload.pods == 0
    assert list(service.extender.learn_running_pods()) == []


async def test_the_event_says_who_chose_the_devices(world: World) -> None:
    service = await half_used(world)
    event = "claim used: allocated gpu.example.com/n2/a on node n2, chosen by pack at a cost of -0.5"
    assert ("DevicesAllocated", event) in service.client.events
