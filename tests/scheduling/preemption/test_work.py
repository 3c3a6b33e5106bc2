"""How much work it is to find whom to preempt: counted, not timed."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from itertools import count
from math import log2
from typing import Any

import pytest
from msgspec.structs import replace

from dra_extender.allocation.budget import TurnBudget, TurnSpent, WorkBudget
from dra_extender.allocation.workerrequests import WorkerReplies
from dra_extender.api.core import Pod
from dra_extender.api.resource import ResourceClaim
from dra_extender.limits import PODS_OF_GANG, SHARES_OF_DEVICE
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.feasibility import NodeStatuses, node_statuses
from dra_extender.scheduling.preemption import evaluator, preemptible
from dra_extender.scheduling.preemption.candidates import without_claims
from dra_extender.scheduling.preemption.evaluator import PreemptionEvaluator
from dra_extender.scheduling.preemption.preemptible import preemptible_claims
from dra_extender.scheduling.preemption.terms import Preemption, PreemptionTerms, Victim
from dra_extender.scheduling.preemption.victims import Trials, as_victims, fewest
from tests.support.allocation.costs import LINES_PER_UNIT
from tests.support.counting import lines
from tests.support.scheduling.preempting import Situation, Told, pod_of, sharing

PER_NODE = 4


def full(nodes: int, *, alike: bool, small: int = 0) -> Situation:
    """Nodes with four devices, one pod each; the pods are alike, or of eight priorities, another order on each node.
    Of these nodes the `small` ones have too few devices for the preemptor.
    """
    told: dict[str, Any] = {"nodes": {}, "pods": {}, "preemptor": {"priority": 100, "wants": 2}}
    for node in range(nodes):
        name = f"n{node:04}"
        size = 1 if node < small else PER_NODE
        told["nodes"][name] = size
        for device in range(size):
            priority = 1 if alike else (node * 5 + device * 3) % 8
            told["pods"][f"{name}-{device}"] = {"priority": priority, "node": name, "has": [f"d{device}"]}
    return Situation(told)


def work(situation: Situation, turn: int = 10_000) -> tuple[int, int]:
    """Units of work until there is a preemption, and in how many turns."""
    search, answers, units = PreemptionEvaluator(situation.terms, situation.nodes), WorkerReplies(), 0
    view = replace(situation.view, config=SchedulingConfig(turn_work=turn))
    for turns in count(1):
        budget = TurnBudget(answers, allowance=turn, ceiling=20_000)
        try:
            found = search.evaluate(view.with_budget(budget))
        except TurnSpent:
            units += budget.used
            continue
        assert isinstance(found, Preemption)
        return units + budget.used, turns
    raise AssertionError


@pytest.mark.parametrize("alike", [True, False], ids=["pods alike", "eight priorities"])
def test_at_a_thousand_nodes_work_is_linear_and_searches_are_those_of_a_hundred(alike: bool) -> None:
    few, many = full(100, alike=alike), full(1000, alike=alike)
    units, _ = work(few)
    more, turns = work(many)
    assert more <= 10 * units
    assert turns <= 10
    assert many.decisions.searches == few.decisions.searches <= 8


def test_nodes_where_evictions_do_not_help_cost_a_third() -> None:
    whole, _ = work(full(1000, alike=False))
    mostly_small, _ = work(full(1000, alike=False, small=900))
    assert mostly_small * 2.5 < whole


def test_of_nodes_that_are_equal_only_so_many_are_looked_at_closely(monkeypatch: pytest.MonkeyPatch) -> None:
    situation = full(400, alike=True)
    units, _ = work(situation)
    monkeypatch.setattr(evaluator, "CANDIDATES", 400)
    assert work(situation)[0] > 1.5 * units


@pytest.mark.parametrize("pods", [16, 256])
def test_a_node_takes_as_many_questions_as_the_logarithm_of_its_pods(pods: int) -> None:
    asked = 0

    def fits(gone: Collection[ResourceClaim]) -> bool:
        nonlocal asked
        asked += 1
        return "needed-claim" in {claim.metadata.name for claim in gone}

    told: dict[str, Any] = {"nodes": {"n1": pods}, "pods": {}}
    for device in range(pods):
        name = "needed" if device == pods // 3 else f"pod-{device}"
        told["pods"][name] = {"node": "n1", "has": [f"d{device}"]}
    situation = Situation(told)
    found = preemptible_claims(situation.view, situation.terms, situation.view.cluster.inventory.pools_seen("n1"))
    victims = fewest(found, situation.terms, fits, Trials())
    assert [victim.pod.metadata.name for victim in victims or ()] == ["needed"]
    assert asked <= 4 * log2(pods)


def test_the_victims_of_a_gang_are_listed_in_linear_work() -> None:
    def listed(pods: int) -> int:
        members = {f"pod-{n}": {"node": "n1", "has": [f"d{n}"], "gang": ["g", pods]} for n in range(pods)}
        situation = Situation({"nodes": {"n1": pods}, "pods": members})
        pools = situation.view.cluster.inventory.pools_seen("n1")
        found = preemptible_claims(situation.view, situation.terms, pools)
        victims: list[Victim] = []
        count = lines(lambda: victims.extend(as_victims(found, situation.terms.budgets, found.pods)), 1_000_000, "app")
        assert [len(victim.claims) for victim in victims] == [1] * pods
        return count

    assert listed(128) < 5 * listed(32)


def test_the_pods_of_a_group_that_is_too_large_for_a_gang_are_listed_in_linear_work() -> None:
    def listed(pods: int) -> int:
        members = {f"pod-{n}": {"node": "n1", "has": [f"d{n}"], "gang": ["g", pods]} for n in range(pods)}
        situation = Situation({"nodes": {"n1": pods}, "pods": members})
        pools = situation.view.cluster.inventory.pools_seen("n1")
        return lines(lambda: preemptible_claims(situation.view, situation.terms, pools), 10_000_000, "app")

    assert listed(4 * PODS_OF_GANG) < 5 * listed(PODS_OF_GANG + 1)


def many_victims(pods: int) -> Told:
    """A pod that needs the devices of all others."""
    wants = [min(32, pods - first) for first in range(0, pods, 32)]
    told: Told = {"nodes": {"n1": pods}, "pods": {}, "preemptor": {"priority": 100, "wants": wants}}
    for device in range(pods):
        told["pods"][f"pod-{device}"] = {"node": "n1", "has": [f"d{device}"], "priority": device % 8}
    return told


def shared_claims(claims: int, pods: int) -> Told:
    """Every pod uses every claim."""
    names = [f"pod-{number}" for number in range(pods)]
    told: Told = {"nodes": {"n1": claims}, "preemptor": {"priority": 100, "wants": min(32, claims)}}
    told["pods"] = {name: {"node": "n1", "priority": number % 8} for number, name in enumerate(names)}
    told["claims"] = {f"c{device}": {"of": names, "has": [f"n1/d{device}"]} for device in range(claims)}
    return told


def many_budgets(budgets: int, pods: int) -> Told:
    """Every budget selects every pod."""
    told: Told = {"nodes": {"n1": pods}, "pods": {}, "preemptor": {"priority": 100, "wants": 2}}
    told["budgets"] = {f"b{number}": {"allowed": 1, "selects": {}} for number in range(budgets)}
    for device in range(pods):
        told["pods"][f"pod-{device}"] = {"node": "n1", "has": [f"d{device}"], "priority": device % 8}
    return told


@pytest.mark.parametrize(
    ("told", "victims"),
    [(many_victims(160), 160), (shared_claims(32, 128), 128), (many_budgets(600, 16), 2)],
    ids=["victims", "shared claims", "budgets"],
)
def test_no_turn_does_more_than_it_is_charged_for(told: Told, victims: int) -> None:
    situation, turn = Situation(told), 4_000
    search, answers = PreemptionEvaluator(situation.terms, situation.nodes), WorkerReplies()
    view = replace(situation.view, config=SchedulingConfig(turn_work=turn))
    found: list[object] = []
    while not found:
        budget = TurnBudget(answers, allowance=turn, ceiling=20_000)

        def evaluate(budget: TurnBudget = budget) -> None:
            with suppress(TurnSpent):
                found.append(search.evaluate(view.with_budget(budget)))

        lines(evaluate, 2 * LINES_PER_UNIT * turn, "preemption")  # a step that has begun exceeds the turn
    assert isinstance(found[0], Preemption)
    assert len(found[0].victims) == victims


@pytest.mark.parametrize(
    ("told", "victims"), [(shared_claims(32, 128), 128), (many_victims(160), 160)], ids=["shared claims", "victims"]
)
def test_a_node_whose_pods_cost_more_than_a_turn_is_decided_on_in_many_turns(told: Told, victims: int) -> None:
    situation, turn = Situation(told), 200
    search, answers = PreemptionEvaluator(situation.terms, situation.nodes), WorkerReplies()
    view = replace(situation.view, config=SchedulingConfig(turn_work=turn))
    for _ in range(1_000):
        with suppress(TurnSpent):
            found = search.evaluate(view.with_budget(TurnBudget(answers, allowance=turn, ceiling=20_000)))
            assert isinstance(found, Preemption)
            assert len(found.victims) == victims
            return
    raise AssertionError("there is no end to it")


def test_a_turn_ends_with_the_decision_that_costs_more_than_the_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims of a pool that all nodes see: each decision without them is linear in their number."""
    told = many_victims(200) | {"preemptor": {"priority": 100, "wants": 1}}
    situation, turn = Situation(told), 500
    search, answers, decisions = PreemptionEvaluator(situation.terms, situation.nodes), WorkerReplies(), [0]

    def statuses(*args: Any) -> NodeStatuses:
        found = node_statuses(*args)
        decisions[-1] += 1
        return found

    monkeypatch.setattr(evaluator, "node_statuses", statuses)
    view = replace(situation.view, config=SchedulingConfig(turn_work=turn))
    while len(decisions) < 100:
        with suppress(TurnSpent):
            found = search.evaluate(view.with_budget(TurnBudget(answers, allowance=turn, ceiling=20_000)))
            assert isinstance(found, Preemption)
            break
        decisions.append(0)
    assert sum(decisions) > 3
    assert max(decisions) == 1


def test_pods_are_examined_once_however_many_turns_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    situation, asked = Situation(many_victims(160)), []
    may_evict = PreemptionTerms.may_evict

    def asking(terms: PreemptionTerms, pod: Pod) -> bool:
        asked.append(pod.metadata.name)
        return may_evict(terms, pod)

    monkeypatch.setattr(PreemptionTerms, "may_evict", asking)
    _, turns = work(situation, turn=1_000)
    assert turns > 3
    assert len(asked) == 160


def work_on_budgets(priority: int, parts: int, pods: int = 8) -> int:
    """Units of work for finding the claims of a node, whose pods of this priority a budget with these parts selects."""
    told: dict[str, Any] = {"nodes": {"n1": pods}, "pods": {}, "preemptor": {"priority": 10}}
    labels = {f"k{part}": "v" for part in range(parts)}
    for device in range(pods):
        told["pods"][f"pod-{device}"] = {"node": "n1", "has": [f"d{device}"], "priority": priority, "labels": labels}
    told |= {"budgets": {"b": {"allowed": 1, "selects": labels}}, "rules": {"violate_budgets": False}}
    situation, counted = Situation(told), WorkBudget()
    pools = situation.view.cluster.inventory.pools_seen("n1")
    for _ in range(2):
        preemptible_claims(situation.view.with_budget(counted), situation.terms, pools)
    return counted.used


def test_each_part_of_a_budget_is_charged_once_for_each_pod_that_may_be_a_victim() -> None:
    assert work_on_budgets(0, parts=2_001) - work_on_budgets(0, parts=1) == 8 * 2_000 // 2
    assert work_on_budgets(10, parts=2_001) == work_on_budgets(10, parts=1), "no victim: of the same priority"


def test_the_claims_of_pods_that_are_being_bound_are_charged() -> None:
    def units(claims: int) -> int:
        situation, counted = Situation({"nodes": {"n1": 1}}), WorkBudget()
        situation.pods.apply(pod_of("joining", {"claims": [f"c{number}" for number in range(claims)]}))
        situation.binding["uid-joining"] = "n1"
        preemptible_claims(situation.view.with_budget(counted), situation.terms, ())
        return counted.used

    assert units(200) - units(1) == 199


def test_pods_of_a_device_with_so_many_shares_are_evicted_and_of_no_more() -> None:
    assert Situation(sharing(1, SHARES_OF_DEVICE, wants=1001 - SHARES_OF_DEVICE)).text().startswith("n0: n0-p")
    assert Situation(sharing(1, SHARES_OF_DEVICE + 1, wants=1000 - SHARES_OF_DEVICE)).text() == "hopeless"


def test_a_turn_examines_no_more_shares_than_it_is_charged_for(monkeypatch: pytest.MonkeyPatch) -> None:
    situation, examined, turn = Situation(sharing(16, 256, wants=1000)), [0], 10_000
    evictable = preemptible._Consumers.evictable

    def counted(self: preemptible._Consumers, claim: ResourceClaim) -> tuple[Pod, ...] | None:
        examined[-1] += 1
        return evictable(self, claim)

    monkeypatch.setattr(preemptible._Consumers, "evictable", counted)
    search, answers = PreemptionEvaluator(situation.terms, situation.nodes), WorkerReplies()
    for _ in range(20):
        with suppress(TurnSpent):
            search.evaluate(situation.view.with_budget(TurnBudget(answers, allowance=turn, ceiling=20_000)))
        examined.append(0)
    assert sum(examined) > 16 * 256
    assert max(examined) <= turn // preemptible.PER_CLAIM


def test_a_claim_less_on_a_shared_device_is_charged_with_its_shares() -> None:
    situation, budget = Situation(sharing(1, 400, wants=1000)), WorkBudget()
    claim = situation.cluster.ledger.by_uid("n0-p0-claim")
    assert claim is not None
    without_claims(situation.view.with_budget(budget), situation.terms, [claim])
    assert 400 <= budget.used < 500
