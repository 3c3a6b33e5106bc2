"""What a what-if costs: small steps whatever the cluster's size, and no more altogether than was allowed."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest

from dra_extender.api.events import Removed
from dra_extender.insight.whatif import whatif
from dra_extender.insight.whatif.whatif import Changes, NodesLike, simulating
from dra_extender.scheduling.view import View
from tests.support.counting import counted_turns
from tests.support.diagnosis.gangscenes import pod as pending
from tests.support.diagnosis.gpupods import running, waiting
from tests.support.diagnosis.hardware import device_class, gpus, node
from tests.support.diagnosis.heldcluster import GATES, GPU
from tests.support.diagnosis.scene import Scene
from tests.support.questions import what_if

DRAINED = Changes(drain=("n0000", "n0001"), add_nodes=(NodesLike("n0002", 3),))


def view(nodes: int, *more: list[dict[str, Any]]) -> View:
    """Nodes of which each has four devices, three of them in use."""
    documents = [device_class("gpu", f'device.driver == "{GPU}"')]
    for number in range(nodes):
        name = f"n{number:04}"
        documents += [node(name), gpus(name, "A", 4, "1Gi", "1.0.0")]
        documents += running(f"p{number}", name, "gpu-0", "gpu-1", "gpu-2")
    return Scene([*documents, *chain.from_iterable(more)], gates=GATES).view()


@pytest.mark.slow
def test_a_step_is_no_larger_in_a_cluster_that_is_four_times_as_large() -> None:
    pods = [waiting("w", 2), waiting("x", 4)]
    small = counted_turns(simulating(view(250, *pods), DRAINED))
    large = counted_turns(simulating(view(1_000, *pods), DRAINED))
    assert large.largest < 1.5 * small.largest
    assert large.largest < 50_000, "some ten milliseconds"
    assert large.turns > 2 * small.turns
    assert large.result.complete


def test_pods_that_ask_for_the_same_look_at_each_node_once() -> None:
    asked = view(100, *(waiting(f"w{number}", 2) for number in range(30)))
    found = what_if(asked, Changes())
    assert [outcome.verdict for outcome in found.outcomes] == ["does not fit"] * 30
    assert found.work == 2 * 100, "once as things are, and once as they would be"


def test_pods_that_ask_for_something_else_look_for_themselves() -> None:
    asked = view(100, waiting("w", 2), waiting("x", 3), waiting("y", 4))
    assert what_if(asked, Changes()).work == 3 * 2 * 100


def test_when_looking_costs_more_than_is_allowed_the_rest_is_left_out_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(whatif, "MOST_NODES", 2 * 250)
    asked = view(100, waiting("w", 2), waiting("x", 3), waiting("y", 4))
    found = what_if(asked, Changes())
    assert [outcome.pod for outcome in found.outcomes] == ["default/w", "default/x"]
    assert (found.left_out, found.complete) == (1, False)
    assert found.work <= 2 * 250
    assert [*found.lines()][-1] == "Not tried: 1 more pod."


def test_pods_that_ask_for_many_resources_are_read_a_few_in_a_turn() -> None:
    amounts = {f"example.com/r{number}": "1" for number in range(2_000)}
    pods = [pending(f"p{number}", containers=[{"name": "main", "resources": {"requests": amounts}}], resourceClaims=[])
            for number in range(40)]  # fmt: skip
    found = counted_turns(simulating(view(1, pods), Changes()))
    assert found.result.outcomes == ()
    assert found.largest < 40 * len(amounts)


def test_changes_between_two_steps_are_not_seen() -> None:
    asked = view(10, waiting("w", 1))
    expected = what_if(asked, Changes())
    steps = simulating(asked, Changes())
    next(steps)
    (slices,) = [[*asked.cluster.inventory.slices()]]
    for item in slices:
        asked.cluster.apply(Removed.of(item))  # type: ignore[attr-defined]  # the watch does this
    for number in range(10):
        asked.cluster.apply(Removed.of(asked.cluster.nodes[f"n{number:04}"]))  # type: ignore[attr-defined]
    while True:
        try:
            next(steps)
        except StopIteration as end:
            assert end.value == expected
            break
