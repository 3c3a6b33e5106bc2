"""The questions that pods will ask first are asked before: the work of the first filter is that of the second."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import suppress
from itertools import chain

import pytest

from dra_extender.allocation.cache.results import ResultCache
from dra_extender.allocation.signatures import AttributeSignatures
from dra_extender.devices.models import DeviceModel
from dra_extender.devices.nodes import Nodes
from dra_extender.scheduling import warmup
from dra_extender.scheduling.config import SchedulingConfig
from tests.support.allocation.heavy import LOOPS, selecting
from tests.support.counting import calls
from tests.support.simulation.objects import make_claim, make_class, make_node, make_pod, make_slice
from tests.support.simulation.workers import VirtualWorkers
from tests.support.simulation.world import Service, World

NODES = [f"n{index}" for index in range(150)]


class Work:
    """What is really done for nodes: looks at their pools, and results that no cache had."""

    def __init__(self) -> None:
        self.refreshes = self.results = 0

    def take(self) -> tuple[int, int]:
        done = self.refreshes, self.results
        self.refreshes = self.results = 0
        return done


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Iterator[Work]:
    counted, sort, key = Work(), Nodes._sort, ResultCache._key

    def counting_sort(nodes: Nodes, *given: object) -> None:
        counted.refreshes += 1
        sort(nodes, *given)  # type: ignore[arg-type]

    def counting_key(results: ResultCache, *given: object) -> object:
        counted.results += 1
        return key(results, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Nodes, "_sort", counting_sort)
    monkeypatch.setattr(ResultCache, "_key", counting_key)
    yield counted


async def started(world: World, turn_work: int = 10_000) -> Service:
    """On nodes with devices that all differ; pods called like their claims wait or run."""
    world.add(make_class(), *map(make_node, NODES))
    for name in NODES:
        world.add(make_slice(name, [{"name": "d", "attributes": {"serial": {"string": name}}}]))
    service = world.service(workers=VirtualWorkers(), config=SchedulingConfig(turn_work=turn_work))
    await world.settle()
    return service


async def test_the_first_filter_does_no_more_than_the_second(world: World, work: Work) -> None:
    world.add(make_claim("waits"), make_pod("waits", "waits"))
    service = await started(world)
    for _ in warmup.warm_up(service.extender.view):
        pass
    assert work.take() == (len(NODES), len(NODES)), "each node once, by the one content of pods and class"
    for _ in range(2):
        answer = await service.filter(world.api.pod("waits"), *NODES)
        assert (len(answer.NodeNames), work.take()) == (len(NODES), (0, 0))


async def test_without_it_the_first_filter_looks_at_every_node(world: World, work: Work) -> None:
    world.add(make_claim("waits"), make_pod("waits", "waits"))
    service = await started(world)
    await service.filter(world.api.pod("waits"), *NODES)
    assert work.take() == (len(NODES), len(NODES))


async def test_a_first_question_about_an_attribute_with_few_values_looks_at_no_device(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A serial number makes every device different, unless the question reads it."""
    world.add(make_class(), *map(make_node, NODES))
    for name in NODES:
        attributes = {"serial": {"string": name}, "model": {"string": f"m{len(name)}"}}
        world.add(make_slice(name, [{"name": "d", "attributes": attributes}]))
    service = world.service(workers=VirtualWorkers())
    await world.settle()
    view = service.extender.view
    for _ in chain(service.cluster.inventory.nodes.refresh_all(), warmup.warm_up(view)):
        pass
    looked, of = Counter[str](), AttributeSignatures.of

    def counting(signatures: AttributeSignatures, model: DeviceModel) -> Hashable:
        looked["devices"] += 1
        return of(signatures, model)

    monkeypatch.setattr(AttributeSignatures, "of", counting)
    for attribute, most in (("model", 10), ("serial", 2 * len(NODES))):
        claim = selecting(attribute, f"device.attributes['gpu.example.com'].{attribute} != ''")
        assert len(view.decisions.node_results([claim], NODES).fits) == len(NODES)
        assert 0 < looked.pop("devices") <= most


async def test_what_running_pods_ask_for_is_asked_as_if_they_had_nothing(world: World, work: Work) -> None:
    serial = "device.attributes['gpu.example.com'].serial.startsWith('n1')"
    world.add(selecting("runs", serial), make_pod("runs", "runs"))
    service = await started(world)
    service.start()
    assert await service.bind(world.api.pod("runs"), "n1") == ""
    await world.settle()
    for _ in warmup.warm_up(service.extender.view):
        pass
    work.take()
    world.add(selecting("next", serial), make_pod("next", "next"))
    await world.settle()
    assert len((await service.filter(world.api.pod("next"), *NODES)).NodeNames) == 60  # n1…, but n1
    assert work.take() == (0, 0)


async def test_asked_again_it_costs_what_has_changed(world: World, work: Work) -> None:
    service = await started(world)
    for _ in warmup.warm_up(service.extender.view):
        pass
    work.take()
    for _ in warmup.warm_up(service.extender.view):
        pass
    assert work.take() == (0, 0)
    world.add(make_slice("n7", [{"name": "d", "attributes": {"serial": {"string": "new"}}}], generation=2))
    await world.settle()
    for _ in warmup.warm_up(service.extender.view):
        pass
    assert work.take() == (1, 1)


async def test_learning_about_attributes_looks_at_one_node_or_pool_in_a_step_and_once(world: World) -> None:
    world.add(make_class(), *map(make_node, NODES))
    for number in range(50):
        world.add(make_slice("", [{"name": "d"}], pool=f"p{number}"))
    service = world.service(workers=VirtualWorkers())
    await world.settle()
    for _ in service.cluster.inventory.nodes.refresh_all():
        pass
    learning = service.extender.view.decisions.learn_attributes()
    costs: list[int] = []
    with suppress(StopIteration):
        while True:
            costs.append(calls(lambda: next(learning)))
    assert len(costs) == len(NODES) + 2 * 50
    assert max(costs) < 6 * 50
    assert len(list(service.extender.view.decisions.learn_attributes())) == len(NODES)


async def test_a_step_is_no_longer_than_a_turn_and_nothing_is_asked_of_workers(world: World) -> None:
    workers = VirtualWorkers()
    world.add(selecting("hard", LOOPS), make_pod("hard", "hard"))
    service = await started(world, turn_work=200)
    assert sum(1 for _ in warmup.warm_up(service.extender.view)) > 3
    assert workers.asked == []


async def test_so_many_contents_are_asked_about_and_no_more(
    world: World, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warmup, "CONTENTS", 3)
    for count in range(1, 6):
        world.add(make_claim(f"c{count}", count=count), make_pod(f"c{count}", f"c{count}"))
    service = await started(world)
    for _ in warmup.warm_up(service.extender.view):
        pass
    assert work.take() == (len(NODES), 3 * len(NODES))


async def test_it_ends_after_a_number_of_turns_and_the_first_pod_does_the_rest(
    world: World, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warmup, "TURNS", 1)
    for count in range(1, 6):
        world.add(make_claim(f"c{count}", count=count), make_pod(f"c{count}", f"c{count}"))
    service = await started(world, turn_work=200)
    for _ in warmup.warm_up(service.extender.view):
        pass
    assert work.take()[1] < 5 * len(NODES)
    assert len((await service.filter(world.api.pod("c1"), *NODES)).NodeNames) == len(NODES)
