"""No step of a diagnosis holds up the event loop, and none of them goes on for ever: counted, whatever there is."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final, NamedTuple

import pytest
from msgspec.structs import replace

from dra_extender.api.core import PodSpec
from dra_extender.api.features import FeatureGates
from dra_extender.insight.why.candidates import LONGEST, editable_pod, near, patched
from dra_extender.insight.why.diagnosis import diagnosing
from dra_extender.insight.why.text import event_of
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.turns import TRIALS, TURN_WORK, QueryBudget
from dra_extender.scheduling.view import View
from tests.support.counting import calls, counted_turns
from tests.support.diagnosis.expensive import LARGE, SMALL, Shape, nodes
from tests.support.diagnosis.scene import view_of
from tests.support.diagnosis.stage import POD, hostile, served
from tests.support.simulation.objects import make_claim, make_class, make_node, make_pod, make_slice
from tools.hostile import drivers, searches, selectors, shapes, specs
from tools.hostile.things import Objects, Thing

CALLS_PER_STEP: Final = 200_000
"""Of Python and C; a call takes about a quarter of a microsecond, so a step takes at most some 50 ms."""
CALLS: Final = 20_000_000
"""Of one diagnosis: some 5 s, of which the service spends a twentieth of its time on it."""
SEARCHES: Final = 2
"""Of the hard ones: that they do no more than they are charged for is shown in tests/allocation/test_work.py."""


class Cost(NamedTuple):
    """Calls of the dearest step, of all steps, and of the note about what was found; and trials."""

    step: int
    steps: int
    note: int
    trials: int

    @property
    def excess(self) -> dict[str, int]:
        """What is above its bound, and how much it is."""
        return {name: count for name, count in self._asdict().items() if count > getattr(BOUNDS, name)}


BOUNDS: Final = Cost(CALLS_PER_STEP, CALLS, 2_000, TRIALS)


def cost(view: View) -> Cost:
    """Diagnose the pod, and count each step by itself."""
    pod = view.pods.named("default", POD)
    assert pod is not None
    found = counted_turns(diagnosing(view, pod))
    return Cost(found.largest, found.total, calls(lambda: event_of(found.result)), found.result.work)


@pytest.mark.parametrize("shape", SMALL, ids=lambda shape: shape.__name__)
def test_each_step_and_all_of_them_are_bounded(shape: Shape) -> None:
    assert cost(served(shape())).excess == {}


@pytest.mark.slow
@pytest.mark.parametrize("shape", LARGE, ids=lambda shape: shape.__name__)
def test_thousands_of_nodes_change_nothing_about_it(shape: Shape) -> None:
    assert cost(served(shape())).excess == {}


THINGS: Final[dict[str, Callable[[random.Random], Iterable[Thing]]]] = {
    "named selectors": lambda dice: selectors.named(),
    "claims": shapes.claims,
    "published devices": shapes.published,
    "pod specs": specs.things,
    "drivers": drivers.things,
    "searches": lambda dice: islice(searches.things(dice), SEARCHES),
}


@pytest.mark.slow
@pytest.mark.parametrize("family", THINGS)
def test_neither_is_there_a_hostile_thing_of_the_catalogue_that_changes_it(family: str) -> None:
    excess = {}
    for thing in THINGS[family](random.Random(1)):
        if isinstance(thing.act, Objects):
            view = served(hostile(thing.act.bodies))
            if view.pods.named("default", POD) is not None:
                excess[thing.name] = cost(view).excess
    assert len(excess) >= SEARCHES
    assert {name: found for name, found in excess.items() if found} == {}


def test_words_are_compared_a_few_at_a_time() -> None:
    """However many there are and however much they resemble each other."""
    budget = QueryBudget(served(nodes(1)))
    known = [f"{'ab' * (LONGEST // 2 - 3)}{index:04}" for index in range(2_000)]
    found = counted_turns(near("ab" * (LONGEST // 2 - 1), known, budget))
    assert found.largest <= CALLS_PER_STEP
    assert budget.work >= 10 * TURN_WORK and not budget.complete


def test_a_change_of_one_amount_reads_no_other() -> None:
    amounts = {f"example.com/r{number}": "1" for number in range(2_000)}
    pod = make_pod("p", containers=[{"name": "main", "resources": {"requests": amounts, "limits": amounts}}])
    path = "/containers/0/resources/requests/example.com~1r7"
    change = editable_pod(pod).change("resources", path, "3")
    found: list[PodSpec] = []
    assert calls(lambda: found.append(patched(pod.spec, change))) < 1_000
    requests = found[0].containers[0].resources.requests
    assert [(name, amount.text) for name, amount in requests.items() if amount.text != "1"] == [("example.com/r7", "3")]
    assert len(requests) == len(found[0].containers[0].resources.limits) == len(amounts)


def test_a_resource_is_not_compared_with_each_that_nodes_offer() -> None:
    compared = 0

    class Name(str):
        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str(self) == other

        __hash__ = str.__hash__

    names = [f"example.com/r{number:03}" for number in range(200)]
    pod = make_pod("p", "c", containers=[{"name": "main", "resources": {"requests": dict.fromkeys(names, "2")}}])
    node = make_node("n", **dict.fromkeys(names, "1"))
    status = replace(node.status, allocatable={Name(name): each for name, each in node.status.allocatable.items()})
    objects = [make_class(), make_claim("c"), pod, replace(node, status=status), make_slice("n", ["a"])]
    found = counted_turns(diagnosing(view_of(objects, FeatureGates(), SchedulingConfig()), pod))
    assert found.result.state == "refused"
    assert compared < 20 * len(names)
