"""The work of a diagnosis grows with the kinds of nodes, not with their number; and it is done in small steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, cast

import pytest

from dra_extender.api.features import FeatureGates
from dra_extender.devices.cluster import Cluster
from dra_extender.insight.why.diagnosis import diagnosing
from dra_extender.insight.why.report import Diagnosis
from dra_extender.scheduling import turns
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.turns import QueryBudget
from tests.support.counting import counted_turns
from tests.support.diagnosis.scene import view_of
from tests.support.simulation.objects import (
    Json,
    KubernetesObject,
    make_claim,
    make_class,
    make_node,
    make_pod,
    make_slice,
)

SELECTOR = 'device.attributes["gpu.example.com"].model == "H1000"'


class Done(NamedTuple):
    found: Diagnosis
    steps: int
    searches: int


def work(nodes: int, claim: Json) -> Done:
    """Diagnose a pod with this request among this number of nodes of two kinds, eight devices each."""
    view = view_of(_objects(nodes, claim), FeatureGates(), SchedulingConfig())
    for _ in cast(Cluster, view.cluster).inventory.nodes.refresh_all():
        pass
    found = counted_turns(diagnosing(view, make_pod("p", "c")))
    return Done(found.result, found.turns, view.decisions.searches)


def _objects(nodes: int, claim: Json) -> Iterator[KubernetesObject]:
    yield make_class()
    for number in range(nodes):
        name = f"n{number:05}"
        yield make_node(name, cpu="64", pods="110")
        yield make_slice(name, [_device(name, index, "A100" if number % 4 else "H100") for index in range(8)])
    yield make_claim("c", requests=[{"name": "r", "exactly": claim}])


def _device(node: str, index: int, model: str) -> Json:
    attributes = {"model": {"string": model}, "uuid": {"string": f"{node}-{index}"}}
    return {"name": f"{node}-gpu-{index}", "attributes": attributes}


def ask(count: int, *selectors: str) -> Json:
    exactly: Json = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
    return exactly | ({"selectors": [{"cel": {"expression": text}} for text in selectors]} if selectors else {})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("claim", "fits", "groups"), [(ask(9), 5000, 1), (ask(1, SELECTOR), 1250, 2)], ids=["too many", "misspelt"]
)
def test_five_thousand_nodes_take_as_many_decisions_as_a_hundred(claim: Json, fits: int, groups: int) -> None:
    few, many = work(100, claim), work(5000, claim)
    assert many.found.remedies[0].nodes == fits
    assert len(many.found.groups) == len(few.found.groups) == groups
    assert many.found.work == few.found.work <= 20
    assert many.searches == 0, "what is remembered of claims that exist stays as it is"
    portions = -(-5000 // turns.PORTION)
    assert many.steps <= few.steps + 2 * portions, "a step looks at a portion of the nodes"
    assert many.found.complete


def test_an_answer_about_twelve_nodes_is_complete_however_many_pods_run_on_them() -> None:
    pods = [make_pod(f"p{number}", node="n00000") for number in range(100)]
    view = view_of([*_objects(12, ask(9)), *pods], FeatureGates(), SchedulingConfig())
    found = counted_turns(diagnosing(view, make_pod("p", "c"))).result
    assert (found.nodes, bool(found.remedies), found.complete) == (12, True, True)


def test_a_command_charges_each_decision_once() -> None:
    view = view_of(_objects(2, ask(1)), FeatureGates(), SchedulingConfig())
    budget = QueryBudget(view)
    for _ in range(3):
        counted_turns(budget.turn(lambda view: view.decisions.budget.spend(10)))
    assert budget.work == 30
