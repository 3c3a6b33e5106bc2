"""The prioritize verb."""

from __future__ import annotations

from dra_extender.api.core import Pod
from dra_extender.api.extender import ExtenderArgs
from tests.support.simulation.objects import make_claim, make_class, make_node, make_pod, make_slice, make_wishes
from tests.support.simulation.world import Service, World


async def scores(service: Service, pod: Pod, *names: str, advise: bool = False) -> dict[str, int]:
    args = ExtenderArgs(Pod=pod, NodeNames=names)
    answer = await (service.extender.advise(args) if advise else service.extender.prioritize(args))
    return {priority.Host: priority.Score for priority in answer}


def uneven(world: World) -> None:
    world.add(make_class())
    for name, count in (("n1", 1), ("n2", 2), ("n3", 3)):
        world.add(make_node(name), make_slice(name, [f"d{index}" for index in range(count)]))


async def test_better_alternatives_score_higher(world: World) -> None:
    uneven(world)
    service = world.service(make_wishes("c", 3, 2, 1), make_pod("p", "c"))
    expected = {"n1": 7, "n2": 8, "n3": 10}
    assert await scores(service, world.api.pod("p"), "n1", "n2", "n3") == expected
    assert await scores(service, world.api.pod("p"), "n1", "n2", "n3", advise=True) == expected


async def test_without_alternatives_all_nodes_are_equal(world: World) -> None:
    uneven(world)
    service = world.service(make_claim("c"), make_pod("p", "c"))
    assert await scores(service, world.api.pod("p"), "n3", "n1") == {"n3": 0, "n1": 0}
    assert await scores(service, make_pod("plain"), "n3", "n1") == {"n3": 0, "n1": 0}
    assert await scores(service, make_pod("lost", "none"), "n3", "unknown") == {"n3": 0, "unknown": 0}


async def test_a_node_that_another_pod_is_about_to_fill_is_avoided(world: World) -> None:
    uneven(world)
    world.add(make_claim("c", count=2), make_claim("d"), make_claim("e"))
    service = world.service(make_pod("p", "c"), make_pod("q", "d"), make_pod("r", "e"))
    assert (await service.filter(world.api.pod("q"), "n2")).NodeNames == ["n2"]
    assert await scores(service, world.api.pod("p"), "n2", "n3") == {"n2": 0, "n3": 1}
    assert await scores(service, world.api.pod("r"), "n2", "n3") == {"n2": 0, "n3": 0}
    assert (await service.filter(world.api.pod("p"), "n2")).NodeNames == ["n2"]
    await world.settle(10.0)
    assert await scores(service, world.api.pod("p"), "n2", "n3") == {"n2": 0, "n3": 0}


async def test_a_guess_ends_with_the_bind(world: World) -> None:
    uneven(world)
    service = world.service(make_claim("d"), make_pod("q", "d"))
    await service.filter(world.api.pod("q"), "n2")
    assert len(service.extender.tentative_plans.all()) == 1
    assert await service.bind(world.api.pod("q"), "n3") == ""
    assert len(service.extender.tentative_plans.all()) == 0


async def test_guessing_changes_nothing_that_is_held(world: World) -> None:
    uneven(world)
    service = world.service(make_claim("c", count=2), make_claim("d"), make_pod("p", "c"), make_pod("q", "d"))
    await service.filter(world.api.pod("q"), "n2")
    generation = service.extender.requeue.revision
    await scores(service, world.api.pod("p"), "n2", "n3")
    assert service.extender.view.ledger.holds() == ()
    assert service.extender.requeue.revision == generation
