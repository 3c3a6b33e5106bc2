"""The tally of a refused node, its text, and the scores of nodes."""

from __future__ import annotations

from typing import Any

import pytest

from dra_extender.allocation.budget import WorkBudget
from dra_extender.allocation.plan import RULES, STEP_BUDGET, Rule, rule_text, score_of
from dra_extender.allocation.requests import PreparedClaims, prepare
from dra_extender.allocation.scenario import Scenario
from dra_extender.allocation.tally import NodeTally, clause_tallies
from dra_extender.allocation.tallying import tally
from dra_extender.api.decoding import convert, to_builtins
from dra_extender.api.resource import AllocationResult, ResourceClaim
from dra_extender.devices.holdings import NodeHoldings
from dra_extender.devices.inventory import node_view
from dra_extender.devices.usage import holdings_of
from dra_extender.insight.why.report import DiagnosedRequest, NodeGroup
from dra_extender.insight.why.text import group_lines
from tests.support.allocation.scenarios import (
    DRIVER,
    A,
    allocated,
    answer,
    ask,
    claim,
    device,
    devices,
    first_available,
    request,
    scenario,
)
from tests.support.allocation.scenarios import resource_slice as sl

Json = dict[str, Any]

OTHER_DRIVER = sl(devices(2), name="nic", driver="nic.example.com")
PLAIN = device("plain")
TAINTED = device("tainted", taints=[{"key": "k", "effect": "NoSchedule"}])
SMALL = device("small", capacity={"mem": "1Gi"})
FULL = device("full", capacity={"mem": "4Gi"}, allowMultipleAllocations=True)
FAR, NEAR = device("far", nodeName="node-2"), device("near", nodeName="node-1")
LARGE = device("a", counters={"s": {"c": "3"}})
LAST = f"{A}.index > 1"
MEM = {"capacity": {"requests": {"mem": "3Gi"}}}


def counted(case: Json, step_budget: int = STEP_BUDGET) -> NodeTally:
    made = Scenario(case)
    view = node_view(made.node, made.slices, made.rules, made.features)
    holdings = NodeHoldings(view, holdings_of(made.allocated, made.features))
    return tally(prepare(made.claims, made.classes, made.features), view, holdings, step_budget)


def reasons(case: Json) -> Json:
    found: Json = to_builtins(counted(case))
    return found


def text(case: Json) -> list[str]:
    found = counted(case)
    requests = tuple(map(DiagnosedRequest, found.requests))
    group = NodeGroup(1, (found.node,), found.verdict, found.reason, requests=requests, pools=found.pools)
    return list(group_lines(group))


@pytest.mark.parametrize(
    ("slices", "wanted", "in_use", "losses", "others", "left"),
    [
        ([OTHER_DRIVER], request("r"), [], {}, 2, 0),
        ([sl(devices(3)), OTHER_DRIVER], request("r", 2, LAST), [], {"selector": 2}, 2, 1),
        ([sl(devices(3))], request("r", 3), ["dev-1"], {"in use": 1}, 0, 2),
        ([sl([TAINTED, PLAIN])], request("r", 2), [], {"taint": 1}, 0, 1),
        ([sl([SMALL, FULL])], request("r", 2, **MEM), [], {"capacity": 1}, 0, 1),
        (
            [sl([FULL])],
            request("r", 1, **MEM),
            [{"device": "full", "shareID": "s", "consumedCapacity": {"mem": "2Gi"}}],
            {"capacity": 1},
            0,
            0,
        ),
        (
            [sl([FAR, NEAR], where={"perDeviceNodeSelection": True})],
            request("r", 2),
            [],
            {"node": 1},
            0,
            1,
        ),
        (
            [
                sl([LARGE, device("b", counters={"s": {"c": "1"}})], count=2, name="b"),
                sl(name="a", count=2, counters={"s": {"c": "2"}}),
            ],
            request("r", 2),
            [],
            {"counters": 1},
            0,
            1,
        ),
    ],
)  # fmt: skip
def test_each_device_is_counted_under_the_first_rule_that_takes_it(
    slices: list[Json], wanted: Json, in_use: list[Any], losses: dict[str, int], others: int, left: int
) -> None:
    found = reasons(scenario(slices, [claim(wanted)], in_use=[allocated(*in_use)] if in_use else []))
    (counted,) = found["requests"]
    assert ({loss["rule"]: loss["count"] for loss in counted["losses"]}, counted["left"]) == (losses, left)
    assert (counted["offered"], counted["others"]) == (left + sum(losses.values()), others)
    assert (found["verdict"], found["cause"]) == ("refused", "")


def test_a_constraint_takes_the_devices_without_enough_companions() -> None:
    values = ["x", "x", "y", "y", "y", "z"]
    item = claim(request("r", 4), constraints=[{"matchAttribute": f"{DRIVER}/model"}])
    found = reasons(scenario([sl(devices(6, model=values))], [item]))
    assert [(loss["rule"], loss["count"]) for loss in found["requests"][0]["losses"]] == [("constraint", 6)]
    assert found["cause"] == ""


def test_when_only_the_requests_together_fail_the_text_says_so() -> None:
    item = claim(request("a"), request("b", 1, f"{A}.index == 0"), request("c", 1, f"{A}.index == 0"))
    found = reasons(scenario([sl(devices(3))], [item]))
    assert found["cause"] == "there are not enough devices for all requests together"
    assert (found["verdict"], found["reason"]) == ("refused", "cannot allocate all claims")


def test_of_a_search_that_ran_out_of_steps_nothing_is_said_about_all_combinations() -> None:
    case = scenario([sl(devices(4))], [claim(request("r", 4))])
    found = counted(case, step_budget=3)
    assert (found.verdict, found.cause) == ("undecided", "")


def test_the_text_says_what_a_colleague_would() -> None:
    taints = [{"key": "k", "effect": "NoSchedule"}]
    published = [device("free"), device("busy"), *(device(f"tainted-{index}", taints=taints) for index in range(4))]
    case = scenario([sl(published)], [claim(request("gpu", 9))], in_use=[allocated("busy")])
    assert text(case) == [
        "1 node (node-1): devices do not fit.",
        "  claim default/claim, request gpu: 9 devices of class gpu requested, the node has 6, 1 left",
        "    1 is in use",
        "    4 have a taint that is not tolerated",
        "      4 × k:NoSchedule",
    ]


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_words_for_one_device_and_for_several(rule: Rule) -> None:
    one, two = rule_text(rule, 1), rule_text(rule, 2)
    assert one.startswith("1 ") and two.startswith("2 ")
    assert one.removeprefix("1 ").split() != two.removeprefix("2 ").split()


def test_pools_that_cannot_be_used_are_named() -> None:
    slices = [sl(devices(1), count=2), sl([device("x"), device("x")], name="other", pool="other")]
    found = reasons(scenario(slices, [claim(request("r"))]))
    assert [(pool["driver"], pool["pool"], pool["incomplete"]) for pool in found["pools"]] == [
        (DRIVER, "other", False),
        (DRIVER, "pool", True),
    ]
    assert text(scenario(slices, [claim(request("r"))]))[1:] == [
        "  pool gpu.example.com/other is invalid: duplicate device name x in slice other",
        "  pool gpu.example.com/pool is incomplete: not all of its slices are published yet",
        "  claim default/claim, request r: 1 device of class gpu requested, the node has 0, 0 left",
    ]


@pytest.mark.parametrize(
    ("case", "verdict"),
    [
        (scenario([sl(devices(1))], [claim(request("r", cls="gone"))]), "error"),
        (scenario([sl(devices(1))], [claim(request("r", 1, f"{A}.gone == 1"))]), "error"),
        (scenario([sl(devices(1), count=2)], [claim(request("r", None))]), "error"),
        (scenario([sl(devices(1))], [claim(request("r", 2))]), "refused"),
    ],
)
def test_the_verdict_of_the_tally_is_that_of_the_decision(case: Json, verdict: str) -> None:
    found = counted(case)
    assert (found.verdict, found.reason) == (verdict, answer(case)["error"])


def test_alternatives_are_counted_one_by_one() -> None:
    item = claim(first_available("r", ask(5), ask(1, "false")))
    found = reasons(scenario([sl(devices(3))], [item]))
    assert [(entry["request"], entry["wanted"], entry["left"]) for entry in found["requests"]] == [
        ("r/a", 5, 3),
        ("r/b", 1, 0),
    ]


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [(["r/a"], 8), (["r/b", "r/b"], 7), (["s"], 0), (["r/a", "t/c"], 14), ([], 0)],
)
def test_earlier_alternatives_score_more(chosen: list[str], expected: int) -> None:
    item = claim(first_available("r", ask(), ask()), request("s"), first_available("t", ask(), ask(), ask()))
    results = [{"request": name, "driver": "d", "pool": "p", "device": "x"} for name in chosen]
    allocation = convert(AllocationResult, {"devices": {"results": results}})
    assert score_of([(convert(ResourceClaim, item), allocation)]) == expected


def test_splitting_a_selector_into_clauses_is_charged() -> None:
    """32 selectors of 3,400 characters took 0.3 s in one turn, for each request."""
    selector = " && ".join(["device.driver != 'x'"] * 100 + ["false"])
    case = Scenario(scenario([sl(devices(1))], [claim(request("r", 1, selector))]))
    prepared = prepare(case.claims, case.classes, case.features)
    assert isinstance(prepared, PreparedClaims)
    view = node_view(case.node, case.slices, case.rules, case.features)
    budget = WorkBudget()
    found = list(clause_tallies(prepared.requests[0].asks[0], view, {}, budget))
    assert [each.text for each in found] == ["false"]
    assert budget.used >= 2 * len(selector)
