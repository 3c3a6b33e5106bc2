"""What monitoring reads of devices and of pods that wait."""

from __future__ import annotations

import asyncio
import math
from itertools import chain
from typing import Any

import aiohttp
import pytest

from dra_extender.http.metrics import Metrics
from dra_extender.insight.why.statements import BindingRule
from dra_extender.scheduling.outcomes import UNDIAGNOSED, Reading
from dra_extender.scheduling.view import View
from dra_extender.service import devicemetrics
from dra_extender.service.devicemetrics import OTHER, DeviceMetrics, Labels
from dra_extender.service.service import Service
from tests.support.counting import calls
from tests.support.diagnosis.gpupods import running, waiting
from tests.support.diagnosis.hardware import device_class, gpus, node, shares
from tests.support.diagnosis.heldcluster import GATES, GPU, SHARE, scene
from tests.support.diagnosis.scene import Scene
from tests.support.marked import MARK, is_harmless
from tests.support.patience import until
from tests.support.questions import device_report
from tests.support.service.world import World


def counted(view: View, refused: tuple[str, ...] = (), rules: dict[str, BindingRule] | None = None) -> DeviceMetrics:
    found = DeviceMetrics(view, lambda: refused, lambda uid: (rules or {}).get(uid, ""))
    for _ in found.counting():
        pass
    return found


def values(found: DeviceMetrics, name: str) -> dict[tuple[str, ...], float]:
    return {reading.labels: reading.value for reading in found.readings if reading.name == name}


def test_devices_are_those_of_the_census() -> None:
    view = scene().view()
    found = counted(view)
    devices = values(found, "devices")
    for labels, count in devices.items():
        assert count == sum((device.driver, device.state) == labels for device in device_report(view).devices)
    assert sum(devices.values()) == device_report(view).totals.devices
    for (name, state), count in values(found, "class_devices").items():
        assert count == sum(name in device.classes and device.state == state for device in device_report(view).devices)


def test_what_is_left_of_shares_is_told_in_the_unit_of_the_capacity() -> None:
    found = counted(scene().view())
    gib = 2.0**30
    assert values(found, "share_capacity") == {("share.example.com", "memory"): 80 * gib}
    assert values(found, "share_capacity_free") == {("share.example.com", "memory"): 50 * gib}


def test_a_capacity_that_no_float_can_hold_is_infinite() -> None:
    """One device with it must not end the metrics of all others."""
    huge = shares("huge", 1)
    huge["spec"]["devices"][0]["capacity"]["memory"] = {"value": "1e400"}
    view = scene(node("huge"), huge).view()
    assert values(counted(view), "share_capacity") == {(SHARE, "memory"): math.inf}
    (device,) = [each for each in device_report(view).devices if each.node == "huge"]
    assert [(each.of, each.percent) for each in device.capacity] == [("10e399", 0.0)]


def test_a_label_is_text() -> None:
    metrics = Metrics()
    metrics.read_from(lambda: [Reading("class_devices", 1.0, (f"gpu{MARK}", "free"))])
    assert is_harmless(metrics.exposition().decode())


def test_pods_are_counted_by_the_rule_that_refuses_them() -> None:
    names = ("v", "w", "x", "y")
    busy = Scene([*chain.from_iterable(map(waiting, names)), node("a"), *running("r", "a", "gpu-0")], gates=GATES)
    refused = (*(f"uid-{name}" for name in names), "uid-r", "uid-gone")
    found = counted(busy.view(), refused, {"uid-v": "in use", "uid-w": "in use", "uid-x": "claim missing"})
    assert values(found, "pending_pods") == {("in use",): 2, ("claim missing",): 1, (UNDIAGNOSED,): 1}


def test_before_the_first_count_there_is_nothing_to_read() -> None:
    assert DeviceMetrics(scene().view(), lambda: (), lambda uid: "").readings == ()


# --- names


def test_the_largest_are_told_and_the_rest_is_summed_up() -> None:
    labels = Labels(2)
    labels.choose({"a": 1, "b": 3, "c": 2})
    assert [labels.of(name) for name in "abc"] == [OTHER, "b", "c"]


def test_a_name_that_is_told_stays_as_long_as_it_is_there() -> None:
    labels = Labels(2)
    labels.choose({"a": 1, "b": 3})
    labels.choose({"a": 1, "b": 3, "c": 9})
    assert [labels.of(name) for name in "abc"] == ["a", "b", OTHER]
    labels.choose({"b": 3, "c": 9})
    assert [labels.of(name) for name in "abc"] == [OTHER, "b", "c"]


def test_however_many_classes_there_are_few_are_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devicemetrics, "MOST_CLASSES", 3)
    classes = [device_class(f"class-{number:03}", "true") for number in range(40)]
    found = values(counted(Scene([*classes, node("a"), gpus("a", "A", 2, "1Gi", "1.0.0")]).view()), "class_devices")
    assert {labels[0] for labels in found} == {"class-000", "class-001", "class-002", OTHER}
    assert found[OTHER, "free"] == 37 * 2


# --- what it costs


def large(nodes: int) -> View:
    documents: list[Any] = [device_class("gpu", f'device.driver == "{GPU}"')]
    for number in range(nodes):
        name = f"n{number:04}"
        documents += [node(name), gpus(name, "A", 8, "1Gi", "1.0.0"), *running(f"p{number}", name, "gpu-0")]
    return Scene(documents, gates=GATES).view()


def scrape(found: DeviceMetrics) -> int:
    metrics = Metrics()
    metrics.read_from(lambda: found.readings)
    return calls(metrics.exposition)


def largest_step(view: View) -> int:
    """Functions called in the largest step of a count."""
    steps = DeviceMetrics(view, lambda: (), lambda uid: "").counting()
    largest, left = 0, True

    def step() -> None:
        nonlocal left
        left = next(steps, devicemetrics) is None

    while left:
        largest = max(largest, calls(step))
    return largest


@pytest.mark.slow
def test_neither_a_scrape_nor_a_step_costs_more_in_a_large_cluster() -> None:
    few, many = large(100), large(1_000)
    assert abs(scrape(counted(many)) - scrape(counted(few))) < 100, "the text of larger numbers is all"
    assert largest_step(many) < 2 * largest_step(few)
    assert largest_step(many) < 10_000


@pytest.mark.parametrize(
    ("cost", "seconds"), [(0.0, 1.0), (0.002, 1.0), (0.02, 4.0), (0.2, 15.0), (0.7, 15.0), (2.0, 40.0)]
)
def test_the_smaller_the_cluster_the_more_often_it_is_counted(cost: float, seconds: float) -> None:
    assert devicemetrics.pause(cost) == seconds


async def test_a_count_costs_what_its_own_steps_take() -> None:
    ticks = iter(range(1_000))
    found = DeviceMetrics(large(5), lambda: (), lambda uid: "", clock=lambda: next(ticks))
    steps = sum(1 for _ in found.counting()) + 1
    assert await found.count() == steps, "one tick from the beginning of a step to its end, none between steps"


async def test_counting_lets_others_go_on() -> None:
    view, turns = large(5), 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await DeviceMetrics(view, lambda: (), lambda uid: "").count()
    task.cancel()
    assert turns >= 5, "a turn for each pool"


# --- the service


async def scraped(service: Service) -> str:
    async with aiohttp.ClientSession() as session, session.get(f"{service.insight_url}/metrics") as reply:
        return await reply.text()


async def test_a_running_service_tells_devices_and_how_long_pods_waited(world: World, service: Service) -> None:
    world.claim("c")
    pod = world.pod("p", "c")
    engine = service.replica.running
    assert await world.bind(service, pod, world.nodes[0]) == ""
    await engine.device_metrics.count()
    text = await scraped(service)
    devices = 2 * len(world.nodes)
    assert 'dra_extender_devices{driver="gpu.example.com",state="used"} 1.0' in text
    assert f'dra_extender_devices{{driver="gpu.example.com",state="free"}} {devices - 1}.0' in text
    assert f'dra_extender_class_devices{{device_class="gpu.example.com",state="free"}} {devices - 1}.0' in text
    assert "dra_extender_device_wait_seconds_count 1.0" in text
    assert await world.bind(service, pod, world.nodes[0]) == ""
    assert "dra_extender_device_wait_seconds_count 1.0" in await scraped(service), "a repeated bind waits for nothing"


async def test_a_refused_pod_is_pending_by_its_rule(world: World, service: Service) -> None:
    world.claim("c", count=3)
    pod = world.pod("p", "c")
    engine = service.replica.running
    await until(lambda: engine.extender.view.pods.named("default", "p") is not None)
    assert not (await world.filter(service, pod))["NodeNames"]
    await until(lambda: engine.diagnoses.rule(pod["metadata"]["uid"]))
    await engine.device_metrics.count()
    assert Reading("pending_pods", 1, ("offered",)) in engine.device_metrics.readings
