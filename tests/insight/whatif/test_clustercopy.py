"""Copies of the cluster: what a question leaves behind."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pytest

from dra_extender.devices.cluster import Cluster
from dra_extender.insight.migration import migrating
from dra_extender.insight.whatif.clustercopy import copied
from dra_extender.insight.whatif.whatif import Changes, NodesLike
from dra_extender.scheduling.turns import run_at_once
from dra_extender.scheduling.view import View
from tests.support.counting import counted_turns
from tests.support.diagnosis.gpupods import running, waiting
from tests.support.diagnosis.hardware import device_class, gpus, node
from tests.support.diagnosis.heldcluster import GATES, GPU
from tests.support.diagnosis.scene import Scene
from tests.support.questions import simulate, what_if


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


QUESTIONS: dict[str, Callable[[View], object]] = {
    "simulate": lambda view: simulate(view, pod="default/w", count=3, newNodes=[{"like": "a", "count": 2}]),
    "simulate a gang": lambda view: simulate(view, gang=["default/w", "default/x"], count=3),
    "what if": lambda view: what_if(view, Changes(drain=("a",), add_nodes=(NodesLike("b", 2),))),
    "migration": lambda view: run_at_once(migrating(view, {})),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_copy_is_freed_without_the_garbage_collector(question: str, no_collector: None) -> None:
    """The collector does not look at what a long collection left: a copy that only it can free stays for good."""
    documents = [device_class("gpu", f'device.driver == "{GPU}"'), *waiting("w", 2), *waiting("x", 3)]
    documents += [item for name in "ab" for item in (node(name), gpus(name, "A", 4, "1Gi", "1.0.0"))]
    view = Scene([*documents, *running("p", "a", "gpu-0")], gates=GATES).view()

    def clusters() -> int:
        return sum(isinstance(each, Cluster) for each in gc.get_objects())

    before = clusters()
    QUESTIONS[question](view)
    assert clusters() == before


def test_what_pods_request_and_slices_select_is_copied_in_turns() -> None:
    """190 pods with 6,000 resources each took 0.67 s in one turn, and 100 nodes with 6,400 selectors 4.6 s."""
    requests = {f"example.com/r{number}": "1" for number in range(1_000)}
    containers = [{"name": "c", "resources": {"requests": requests}}]
    pods = [
        {"kind": "Pod", "metadata": {"name": f"p{n}"}, "spec": {"nodeName": "a", "containers": containers}}
        for n in range(100)
    ]
    large = counted_turns(copied(Scene([node("a"), *pods], gates=GATES).view()))
    assert large.largest < 0.2 * large.total
    racks = [
        {
            "name": f"d{n}",
            "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": f"rack-{n}", "operator": "Exists"}]}]},
        }
        for n in range(100)
    ]
    fabric = {
        "kind": "ResourceSlice",
        "metadata": {"name": "fabric"},
        "spec": {
            "driver": GPU,
            "pool": {"name": "fabric", "generation": 1, "resourceSliceCount": 1},
            "perDeviceNodeSelection": True,
            "devices": racks,
        },
    }
    nodes = [node(f"n{n}", labels={f"rack-{n}": "here"}) for n in range(500)]
    large = counted_turns(copied(Scene([fabric, *nodes], gates=GATES).view()))
    assert large.largest < 0.2 * large.total
