"""One call does a counted amount of work at a time, and defers to workers what is larger than that."""

from __future__ import annotations

from gc import collect
from weakref import ref

import pytest

from dra_extender.allocation.allocator import reply_to
from dra_extender.allocation.budget import EVALUATING, SEARCHING, Deferred, TurnBudget, TurnSpent
from dra_extender.allocation.cache.results import NodeResults
from dra_extender.allocation.plan import Failure, Plan, Unfit
from dra_extender.allocation.signatures import BYTES_PER_UNIT
from dra_extender.allocation.workerrequests import (
    CompileRequest,
    EvaluateReply,
    Overrun,
    WorkerReplies,
    WorkerReply,
    kind_of,
)
from dra_extender.api.resource import ResourceClaim
from dra_extender.cel import CelGates
from dra_extender.devices.overlay import Overlay
from tests.support.allocation.heavy import LOOPS, REPLACED, knapsack, long_selector, selecting
from tests.support.allocation.manynodes import World, all_of, exactly, planned, selector, wanted
from tests.support.counting import garbage

ALLOWANCE = 3_000
CEILING = 20_000
MOST_TURNS = 1_500
SERIAL = "device.attributes['gpu'].serial"


class Caller:
    """Asks about all nodes of a world, turn by turn."""

    def __init__(self, world: World, *, allowance: int = ALLOWANCE, ceiling: int = CEILING) -> None:
        self.world = world
        self.replies = WorkerReplies()
        self.turns: list[int] = []
        self.allowance = allowance
        self.ceiling = ceiling
        self.budget = self.new_budget()

    def new_budget(self) -> TurnBudget:
        return TurnBudget(self.replies, allowance=self.allowance, ceiling=self.ceiling)

    def ask(self, *claims: ResourceClaim) -> NodeResults:
        """What is known at once, and what workers are needed for."""
        while True:
            assert len(self.turns) < MOST_TURNS, "no end in sight"
            self.budget = self.new_budget()
            try:
                return self.world.decisions.with_budget(self.budget).node_results(claims, self.world.names)
            except TurnSpent:
                pass
            finally:
                self.turns.append(self.budget.used)

    def work(self, reply: WorkerReply | None = None) -> list[str]:
        """Reply to all deferred requests, with this or as a worker does. The kinds of the requests."""
        for key, request in self.budget.call.requests.items():
            self.replies.learn(key, request, reply or reply_to(request, 100_000))
        return [kind_of(request) for request in self.budget.call.requests.values()]

    def settle(self, *claims: ResourceClaim) -> tuple[NodeResults, list[str]]:
        """The verdicts when workers have answered, and what they were asked."""
        kinds: list[str] = []
        while True:
            found = self.ask(*claims)
            if not self.budget.call.requests:
                return found, kinds
            kinds += self.work()


def models(world: World, nodes: int, devices: int = 2) -> World:
    """Nodes whose devices are all different."""
    for node in range(nodes):
        world.add_node(*({"attributes": {"serial": {"string": f"{node}-{i}"}}} for i in range(devices)))
    world.put_class("gpu")
    return world


SMALL = 1_500
"""A ceiling that the searches of this module do not fit under."""


def sharing(nodes: int) -> World:
    """Nodes with devices of 100 units of memory for any number of shares, and one that has none."""
    world = World()
    for node in range(nodes):
        devices = [
            {"allowMultipleAllocations": True, "capacity": {"memory": {"value": str(100 + (node if i == 0 else 0))}}}
            for i in range(6)
        ]
        world.add_node(*devices, {})
    world.put_class("gpu")
    return world


HEAVY = {
    "loops": (selecting("c", LOOPS), "evaluate"),
    "text": (selecting("c", f"{REPLACED} && {LOOPS}"), "evaluate"),
    "length": (selecting("c", long_selector("family")), "compile"),
    "search": (knapsack(), "search"),
}


def heavy_world(name: str) -> World:
    return sharing(2) if name == "search" else models(World(), 2)


@pytest.mark.parametrize("name", HEAVY)
def test_what_is_too_large_for_a_turn_is_left_to_workers_and_decided_with_their_answers(name: str) -> None:
    claim, kind = HEAVY[name]
    caller = Caller(heavy_world(name), ceiling=SMALL if name == "search" else CEILING)
    first = caller.ask(claim)
    reason = SEARCHING if kind == "search" else EVALUATING
    assert (first.fits, set(first.refused.values()), caller.budget.call.waits) == ([], {reason}, True)
    found, kinds = caller.settle(claim)
    assert kinds[0] == kind
    assert found == heavy_world(name).decisions.node_results([claim], caller.world.names)
    assert max(caller.turns) <= ALLOWANCE + CEILING


def test_a_call_in_turns_comes_to_the_same_as_one_in_one_go() -> None:
    claim = wanted(exactly(2, selectors=[{"cel": {"expression": "device.attributes['gpu'].serial.endsWith('-0')"}}]))
    caller = Caller(models(World(), 300, 8), allowance=2_000)
    found = caller.ask(claim)
    assert found == models(World(), 300, 8).decisions.node_results([claim], caller.world.names)
    assert len(caller.turns) > 3
    assert max(caller.turns) <= 2_000 + CEILING


def test_a_call_that_has_been_answered_costs_next_to_nothing_again() -> None:
    caller = Caller(models(World(), 300))
    caller.ask(wanted(exactly()))
    caller.turns.clear()
    caller.ask(wanted(exactly()))
    assert caller.turns == [0]


def test_large_claims_are_told_apart_in_turns_and_once() -> None:
    """By all that they say: here what they say to a driver."""
    parameters = {"opaque": {"driver": "gpu", "parameters": {"text": "a" * 200_000}}}
    claims = [wanted(exactly(), name=f"c{index}", config=[parameters]) for index in range(30)]
    caller = Caller(models(World(), 1, 30))
    assert caller.ask(*claims).fits == ["n0"]
    one = 200_000 // BYTES_PER_UNIT
    assert sum(caller.turns) >= 30 * one
    assert max(caller.turns) < ALLOWANCE + 2 * one
    caller.turns.clear()
    caller.ask(*claims)
    assert caller.turns == [0]


def crowded(claims: int, requests: int, selectors: int, size: int) -> list[ResourceClaim]:
    """Claims with different selectors in each request, by number and length. The first device wins."""

    def expressions(*place: int) -> list[dict[str, dict[str, str]]]:
        texts = [f"{SERIAL} != '{'-'.join(map(str, (*place, i)))}{'x' * size}'" for i in range(selectors)]
        return [{"cel": {"expression": text}} for text in texts]

    return [
        wanted(*(exactly(name=f"r{r}", selectors=expressions(c, r)) for r in range(requests)), name=f"c{c}")
        for c in range(claims)
    ]


@pytest.mark.parametrize(
    ("claims", "requests", "selectors", "size", "allowance", "most"),
    [(2, 4, 32, 1_500, 10_000, 400), (20, 32, 1, 10, 1_000, 400)],
    ids=["more than programs are remembered of", "more filters than a device remembers"],
)
def test_claims_with_very_many_selectors_are_decided_in_so_many_turns(
    claims: int, requests: int, selectors: int, size: int, allowance: int, most: int
) -> None:
    asked = crowded(claims, requests, selectors, size)
    caller = Caller(models(World(), 1, 8), allowance=allowance)
    found, _ = caller.settle(*asked)
    assert found == models(World(), 1, 8).decisions.node_results(asked, ["n0"])
    assert len(caller.turns) < most


def test_what_is_remembered_of_claims_does_not_keep_them() -> None:
    """They may be as large as a megabyte each, and deleted."""
    caller = Caller(models(World(), 1))
    claim = wanted(exactly())
    spec = ref(claim.spec)
    assert caller.ask(claim).fits == ["n0"]
    del claim
    collect()
    assert spec() is None


def test_the_last_turn_refuses_what_is_not_decided_yet() -> None:
    world = models(World(), 300)
    budget = TurnBudget(WorkerReplies(), allowance=500, ceiling=CEILING, last=True)
    found = world.decisions.with_budget(budget).node_results([wanted(exactly())], world.names)
    assert found.fits
    assert set(found.refused.values()) == {SEARCHING}
    assert budget.unfinished
    assert world.decisions.node_results([wanted(exactly())], world.names).refused == {}


def test_a_selector_that_was_too_large_once_is_not_tried_on_the_spot_again() -> None:
    caller = Caller(models(World(), 40), allowance=10**9)
    expression = f"{LOOPS} && device.attributes['gpu'].serial != ''"
    caller.ask(selecting("c", expression))
    assert caller.budget.used < 2 * CEILING
    assert len(caller.budget.call.requests) == 64


def test_nodes_with_devices_that_look_the_same_are_one_question() -> None:
    caller = Caller(models(World(), 40), allowance=10**9)
    caller.ask(selecting("c", LOOPS))
    assert len(caller.budget.call.requests) == 1


def test_a_question_that_is_open_is_not_asked_again() -> None:
    caller = Caller(models(World(), 4))
    caller.ask(selecting("c", LOOPS))
    caller.replies.open.update(caller.budget.call.requests)
    again = caller.ask(selecting("d", LOOPS))
    assert (caller.budget.call.requests, caller.budget.call.waits) == ({}, True)
    assert set(again.refused.values()) == {EVALUATING}


TOO_LONG = Overrun("time", "needs more than 2 s")


@pytest.mark.parametrize(
    ("claim", "found"),
    [
        (selecting("c", LOOPS), "claim default/c: selector #0: needs more than 2 s on a device"),
        (selecting("c", long_selector("overrun")), "claim default/c: selector #0: needs more than 2 s to compile"),
    ],
    ids=["evaluate", "compile"],
)
def test_a_selector_that_workers_do_not_finish_fails_on_its_devices(claim: ResourceClaim, found: str) -> None:
    caller = Caller(models(World(), 1))
    caller.ask(claim)
    caller.work(TOO_LONG)
    assert caller.ask(claim).error == found


def test_a_search_that_workers_do_not_finish_refuses_its_node() -> None:
    caller = Caller(sharing(1), ceiling=SMALL)
    caller.ask(knapsack())
    caller.work(TOO_LONG)
    assert caller.ask(knapsack()).refused == {"n0": "search needs more than 2 s"}


def test_an_error_that_workers_have_found_names_the_claim_of_the_pod() -> None:
    caller = Caller(models(World(), 1))
    caller.ask(selecting("first", LOOPS))
    caller.work(EvaluateReply(False, "CEL runtime error: no"))
    for name in ("first", "second"):
        assert caller.ask(selecting(name, LOOPS)).error == f"claim default/{name}: selector #0: CEL runtime error: no"


def test_an_error_in_a_search_of_workers_names_the_claim_it_is_about_and_no_other() -> None:
    """Of claims with names that begin alike, and when the answer was found for another pod's."""

    def claims(one: str, other: str) -> tuple[ResourceClaim, ResourceClaim]:
        alike = {"constraints": [{"matchAttribute": "gpu/serial"}]}
        return (
            wanted(exactly(**selector(f"{SERIAL} == '0-0'")), name=one),
            wanted(all_of(**selector(f"{SERIAL} != '0-0'")), name=other, **alike),
        )

    caller = Caller(models(World(), 1, 3), ceiling=1)
    _, kinds = caller.settle(*claims("a", "ab"))
    assert "search" in kinds
    for one, other in (("a", "ab"), ("b", "c"), ("ab", "a")):
        problem = "request r: cannot add device gpu/n0/d2 because a claim constraint would not be satisfied"
        assert caller.ask(*claims(one, other)).error == f"claim ns/{other}, {problem}"
    assert not caller.budget.call.requests


def test_a_plan_waits_for_workers_and_is_the_one_that_they_have_found() -> None:
    claim = knapsack()
    world = sharing(1)
    caller = Caller(world, ceiling=SMALL)
    decisions = world.decisions.with_budget(caller.budget)
    with pytest.raises(Deferred, match=SEARCHING):
        decisions.plan([claim], "n0")
    assert caller.work() == ["search"]
    found = decisions.plan([claim], "n0")
    expected = sharing(1).decisions.plan([claim], "n0")
    assert type(found) is type(expected)
    if isinstance(found, Plan) and isinstance(expected, Plan):
        assert found.allocations == expected.allocations
    assert isinstance(found, Plan | Unfit | Failure)


def test_a_plan_for_another_state_is_asked_anew() -> None:
    claim = knapsack()
    world = sharing(1)
    caller = Caller(world, ceiling=SMALL)
    with pytest.raises(Deferred):
        world.decisions.with_budget(caller.budget).plan([claim], "n0")
    caller.work()
    world.take("other", "n0", "d6")
    caller.budget = caller.new_budget()
    with pytest.raises(Deferred):
        world.decisions.with_budget(caller.budget).plan([claim], "n0")
    assert len(caller.budget.call.requests) == 1


def test_a_plan_beside_others_is_asked_once_however_often_the_others_are_put_beside() -> None:
    world = sharing(1)
    caller = Caller(world, ceiling=SMALL)

    def plan(*devices: str, name: str = "hard") -> Plan | Unfit | Failure:
        caller.budget = caller.new_budget()
        beside = Overlay(world.cluster).with_plans([planned("other", "n0", *devices)])
        return world.decisions.with_state(beside).with_budget(caller.budget).plan([knapsack(name)], "n0")

    with pytest.raises(Deferred, match=SEARCHING):
        plan("d6")
    assert caller.work() == ["search"]
    for name in ("hard", "alike"):
        assert isinstance(plan("d6", name=name), Plan)
        assert not caller.budget.call.requests
    assert isinstance(plan("d5"), Unfit)


def test_answers_are_forgotten_by_the_size_of_their_questions() -> None:
    """However few they are: of a deleted claim of a megabyte, only a few bytes are kept."""
    answers = WorkerReplies(most=1_000_000)
    for index in range(50):
        expression = f"'{index}' != '{'a' * 100_000}'"
        answers.learn(index, CompileRequest(expression, CelGates()), TOO_LONG)
    assert 1 <= len(answers) < 10
    huge = CompileRequest("a" * 2_000_000, CelGates())
    answers.learn("huge", huge, TOO_LONG)
    assert answers.get("huge") is not None


def test_selectors_that_wait_for_workers_leave_no_garbage_for_the_collector() -> None:
    """A selector waits on every device: collecting an exception for each would stop the event loop."""
    world = sharing(4)
    caller, claim = Caller(world), selecting("c", LOOPS)
    caller.ask(claim)
    with garbage() as left:
        for _ in range(100):
            caller.turns.clear()
            assert caller.ask(claim).waiting
        assert left() < 100


def test_what_is_owed_ends_the_turn_when_it_is_settled() -> None:
    budget = TurnBudget(WorkerReplies(), allowance=100, ceiling=1_000)
    budget.spend(1, owed=500)
    budget.settle()
    assert budget.used == 501
    with pytest.raises(TurnSpent):
        budget.spend(1)


def test_a_node_is_charged_for_the_pools_that_it_sees() -> None:
    def units(pools: int) -> int:
        world = World()
        for _ in range(5):
            world.add_node({})
        for number in range(pools):
            pool = {"name": f"p{number}", "generation": 1, "resourceSliceCount": 2}
            counters = [{"name": "c", "counters": {"m": {"value": "1"}}}]
            world.put_slice(f"s{number}", {"driver": "x", "pool": pool, "nodeName": "n0", "sharedCounters": counters})
        caller = Caller(world, allowance=100_000)
        caller.ask(wanted(exactly()))
        return sum(caller.turns)

    assert units(100) - units(0) >= 5 * 100


@pytest.mark.parametrize(("once", "searches"), [(True, 1), (False, 2)])
def test_a_call_searches_once_for_a_plan_only_if_that_is_asked_for(once: bool, searches: int) -> None:
    world = sharing(1)
    caller = Caller(world)
    decisions = world.decisions.with_budget(caller.budget)
    found = [decisions.plan([wanted(exactly())], "n0", once=once) for _ in range(2)]
    assert len({id(plan) for plan in found}) == searches and all(isinstance(plan, Plan) for plan in found)
