"""What is true of every preemption, seen on clusters to which it has happened."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st
from msgspec.structs import replace

from dra_extender.allocation.budget import TurnBudget, TurnSpent
from dra_extender.allocation.workerrequests import WorkerReplies
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.feasibility import node_statuses, pre_filter
from dra_extender.scheduling.preemption.evaluator import PreemptionEvaluator
from dra_extender.scheduling.preemption.terms import UNKNOWN, NoPreemption, Preemption
from dra_extender.scheduling.preemption.victims import cost
from tests.support.scheduling.preempting import Situation, Told

PREEMPTOR = 5
ALLOWANCE = 120
SLOTS = {"counterSet": "c", "counters": {"slots": {"value": "1"}}}
CAPACITY = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "4"}}}


@st.composite
def devices(draw: st.DrawFn) -> list[Told]:
    """A few, of two roots; some can be shared, some use up counters."""
    found: list[Told] = []
    for _ in range(draw(st.integers(1, 3))):
        device: Told = {"attributes": {"root": {"string": draw(st.sampled_from("ab"))}}}
        if draw(st.integers(0, 3)) == 0:
            device |= CAPACITY
        elif draw(st.integers(0, 3)) == 0:
            device["consumesCounters"] = [SLOTS]
        found.append(device)
    return found


@st.composite
def pods(draw: st.DrawFn, nodes: Collection[str]) -> Told:
    pod: Told = {"priority": draw(st.sampled_from((1, 1, 2, 3, 4, 4, 9))), "node": draw(st.sampled_from(sorted(nodes)))}
    if draw(st.booleans()):
        pod["labels"] = {"app": draw(st.sampled_from("ab"))}
    if draw(st.integers(0, 3)) == 0:
        pod["started"] = draw(st.integers(0, 9))
    if draw(st.integers(0, 9)) == 0:
        pod["deleted"] = True
    if draw(st.integers(0, 9)) == 0:
        pod["scheduler"] = "theirs"
    return pod


@st.composite
def situations(draw: st.DrawFn) -> Told:
    """Up to three nodes and a pool for all; most devices are had by pods, some by several together."""
    nodes = {f"n{index}": draw(devices()) for index in range(draw(st.integers(1, 3)))}
    told: Told = {"nodes": nodes, "counters": {}, "pods": {}, "claims": {}, "budgets": {}}
    for name in nodes:
        if draw(st.booleans()):
            told["counters"][name] = {"slots": draw(st.integers(1, 2))}
    if draw(st.integers(0, 3)) == 0:
        told["network"] = draw(devices())
    names = [f"p{index}" for index in range(draw(st.integers(1, 6)))]
    told["pods"] = {name: draw(pods(nodes)) for name in names}
    pools = {**nodes, **({"net": told["network"]} if "network" in told else {})}
    for pool, listed in pools.items():
        for index, device in enumerate(listed):
            if draw(st.integers(0, 9)):
                of = draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))
                claim: Told = {"of": of, "pool": pool}
                shared = "capacity" in device and draw(st.booleans())
                claim |= {"shares": {f"d{index}": draw(st.integers(1, 4))}} if shared else {"has": [f"d{index}"]}
                told["claims"][f"{pool}-{index}"] = claim
    for app in "ab":
        if draw(st.integers(0, 2)) == 0:
            told["budgets"][app] = {"allowed": draw(st.integers(0, 2)), "selects": {"app": app}}
    told["preemptor"] = {
        "priority": PREEMPTOR,
        "wants": [draw(wishes()) for _ in range(draw(st.sampled_from((1, 1, 1, 2))))],
    }
    return told


@st.composite
def wishes(draw: st.DrawFn) -> Told:
    def ask(count: int) -> Told:
        exactly: Told = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": count}
        if draw(st.integers(0, 7)) == 0:
            exactly["capacity"] = {"requests": {"memory": str(draw(st.integers(1, 4)))}}
        return exactly

    if draw(st.integers(0, 3)) == 0:
        return {"requests": [{"name": "r", "firstAvailable": [{"name": f"c{n}", **ask(n)} for n in (3, 1)]}]}
    wish: Told = {"requests": [{"name": "r", "exactly": ask(draw(st.sampled_from((1, 1, 2, 2, 3))))}]}
    if draw(st.integers(0, 2)) == 0:
        wish["constraints"] = [{"matchAttribute": "gpu/root"}]
    return wish


# --- what happens then ------------------------------------------------------------------------------------------------


def going(told: Told) -> set[str]:
    return {name for name, pod in told["pods"].items() if pod.get("deleted")}


def evictable(told: Told) -> set[str]:
    """By the simplest reading of the rules."""
    pods = told["pods"].items()
    return {name for name, pod in pods if pod["priority"] < PREEMPTOR and "scheduler" not in pod} - going(told)


def without(told: Told, gone: Collection[str]) -> Told:
    """The cluster without these pods and without the allocations of claims that no pod uses then."""
    claims = {
        name: {**claim, "of": left}
        for name, claim in told["claims"].items()
        if (left := [pod for pod in claim["of"] if pod not in gone])
    }
    return {**told, "claims": claims, "pods": {name: pod for name, pod in told["pods"].items() if name not in gone}}


def fits(told: Told) -> set[str]:
    """The nodes where the preemptor fits in this cluster."""
    situation = Situation(told)
    return set(node_statuses(situation.view, pre_filter(situation.view, situation.preemptor), situation.nodes).fits)


def victims(found: Preemption) -> set[str]:
    return {victim.pod.metadata.name for victim in found.victims}


@given(situations())
def test_victims_may_be_evicted_free_the_planned_devices_and_none_of_them_can_be_left_out(told: Told) -> None:
    found = Situation(told).found()
    event(found.why if isinstance(found, NoPreemption) else f"{len(found.victims)} victims")
    if isinstance(found, NoPreemption):
        return
    names = victims(found)
    assert names and names <= evictable(told)
    assert found.node in fits(without(told, names | going(told)))
    for name in names:
        assert found.node not in fits(without(told, names - {name} | going(told)))
    ledger = Situation(without(told, names | going(told))).cluster.ledger
    for claim, allocation in found.plans:
        ledger.hold(claim, allocation, owner="preemptor")


@given(situations())
def test_nobody_goes_when_nobody_has_to_or_when_it_is_in_vain(told: Told) -> None:
    found = Situation(told).found()
    now, soon = fits(told), fits(without(told, going(told)))
    if isinstance(found, Preemption):
        assert not soon
    elif found.why == "fits":
        assert found.node in now
    elif found.why == "waits":
        assert not now and found.node in soon
    elif found.why == "hopeless":
        assert not now
        assert not fits(without(told, evictable(told) | going(told)))
    else:
        assert found.why == "never"
        assert all(pod["priority"] >= PREEMPTOR for pod in told["pods"].values())


@given(situations())
def test_no_other_node_would_have_been_better(told: Told) -> None:
    """Though of most nodes only a bound is worked out."""
    found = Situation(told).found()
    if isinstance(found, Preemption):
        alone = (Situation({**told, "candidates": [node]}).found() for node in told["nodes"])
        losses = [cost(one.node, one.victims) for one in alone if isinstance(one, Preemption)]
        assert cost(found.node, found.victims) == min(losses)


@given(situations(), st.randoms(use_true_random=False))
def test_the_order_in_which_things_become_known_makes_no_difference(told: Told, random: Any) -> None:
    def shuffled(items: Told) -> Told:
        listed = list(items.items())
        random.shuffle(listed)
        return dict(listed)

    other = {
        key: shuffled(value) if key in ("nodes", "pods", "claims", "budgets") else value for key, value in told.items()
    }
    answers = Situation(told).text(), Situation({**other, "candidates": list(told["nodes"])}).text()
    assert answers[0] == answers[1]


@given(situations(), st.integers(1, 8))
def test_in_many_turns_and_calls_the_answer_is_the_same(told: Told, turns_of_a_call: int) -> None:
    situation = Situation(told)
    expected = situation.text()
    search, answers = PreemptionEvaluator(situation.terms, situation.nodes), WorkerReplies()
    view = replace(situation.view, config=SchedulingConfig(turn_work=ALLOWANCE))
    for turn in range(300):
        last = turn % turns_of_a_call == turns_of_a_call - 1
        budget = TurnBudget(answers, allowance=ALLOWANCE, ceiling=100_000, last=last)
        try:
            found = search.evaluate(view.with_budget(budget))
        except TurnSpent:
            continue
        if search.unfinished:
            assert found == UNKNOWN
            search.terms = situation.terms
            continue
        event(f"{min(turn, 5)} turns more, {min(turn // turns_of_a_call, 3)} calls more")
        assert situation.told(found) == expected
        return
    raise AssertionError("there is no end to it")
