"""What people are told about a refusal, and how nodes are scored."""

from __future__ import annotations

from typing import Any

import pytest

from app.allocation.score import PrioritizedList
from app.api.decoding import convert
from app.api.resource import AllocationResult, ResourceClaim
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


def reasons(case: Json) -> Json:
    found = answer(case, reasons=True)["reasons"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    ("slices", "wanted", "in_use", "losses", "left", "rule"),
    [
        ([OTHER_DRIVER], request("r"), [], {"class": 2}, 0, "class"),
        ([sl(devices(3)), OTHER_DRIVER], request("r", 2, LAST), [], {"class": 2, "selector": 2}, 1, "selector"),
        ([sl(devices(3))], request("r", 3), ["dev-1"], {"in use": 1}, 2, "in use"),
        ([sl([TAINTED, PLAIN])], request("r", 2), [], {"taint": 1}, 1, "taint"),
        ([sl([SMALL, FULL])], request("r", 2, **MEM), [], {"capacity": 1}, 1, "capacity"),
        (
            [sl([FULL])],
            request("r", 1, **MEM),
            [{"device": "full", "shareID": "s", "consumedCapacity": {"mem": "2Gi"}}],
            {"capacity": 1},
            0,
            "capacity",
        ),
        (
            [sl([FAR, NEAR], where={"perDeviceNodeSelection": True})],
            request("r", 2),
            [],
            {"node": 1},
            1,
            "node",
        ),
        (
            [
                sl([LARGE, device("b", counters={"s": {"c": "1"}})], count=2, name="b"),
                sl(name="a", count=2, counters={"s": {"c": "2"}}),
            ],
            request("r", 2),
            [],
            {"counters": 1},
            1,
            "counters",
        ),
    ],
)  # fmt: skip
def test_each_device_is_counted_under_the_first_rule_that_takes_it(
    slices: list[Json], wanted: Json, in_use: list[Any], losses: dict[str, int], left: int, rule: str
) -> None:
    found = reasons(scenario(slices, [claim(wanted)], in_use=[allocated(*in_use)] if in_use else []))
    (counted,) = found["requests"]
    assert ({loss["rule"]: loss["count"] for loss in counted["losses"]}, counted["left"]) == (losses, left)
    assert counted["pooled"] == left + sum(losses.values())
    assert found["verdict"] == "refused"
    assert found["last_rule"] == f"not enough devices are left after: {rule}"


def test_a_constraint_takes_the_devices_without_enough_companions() -> None:
    values = ["x", "x", "y", "y", "y", "z"]
    item = claim(request("r", 4), constraints=[{"matchAttribute": f"{DRIVER}/model"}])
    found = reasons(scenario([sl(devices(6, model=values))], [item]))
    assert [(loss["rule"], loss["count"]) for loss in found["requests"][0]["losses"]] == [("constraint", 6)]
    assert found["last_rule"] == "not enough devices are left after: constraint"


def test_when_only_the_requests_together_fail_the_text_says_so() -> None:
    item = claim(request("a"), request("b", 1, f"{A}.index == 0"), request("c", 1, f"{A}.index == 0"))
    found = reasons(scenario([sl(devices(3))], [item]))
    assert found["last_rule"] == "there are not enough devices for all requests together"
    assert found["blocking"] == "claim default/claim, request a"
    assert found["text"].splitlines()[0] == "node node-1: refused: cannot allocate all claims"


def test_pools_that_cannot_be_used_are_named() -> None:
    slices = [sl(devices(1), count=2), sl([device("x"), device("x")], name="other", pool="other")]
    assert reasons(scenario(slices, [claim(request("r"))]))["pools"] == [
        "pool gpu.example.com/other is invalid: duplicate device name x in slice other",
        "pool gpu.example.com/pool is incomplete: not all of its slices are published yet",
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
def test_the_verdict_of_the_explanation_is_that_of_the_decision(case: Json, verdict: str) -> None:
    found = answer(case, reasons=True)
    assert found["reasons"]["verdict"] == verdict
    assert found["reasons"]["reason"] == found["error"]


def test_alternatives_are_explained_one_by_one() -> None:
    item = claim(first_available("r", ask(5), ask(1, "false")))
    found = reasons(scenario([sl(devices(3))], [item]))
    assert [(entry["request"], entry["wanted"], entry["left"]) for entry in found["requests"]] == [
        ("r/a", 5, 3),
        ("r/b", 1, 0),
    ]
    assert found["blocking"] == "claim default/claim, request r"


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [(["r/a"], 8), (["r/b", "r/b"], 7), (["s"], 0), (["r/a", "t/c"], 14), ([], 0)],
)
def test_earlier_alternatives_score_more(chosen: list[str], expected: int) -> None:
    item = claim(first_available("r", ask(), ask()), request("s"), first_available("t", ask(), ask(), ask()))
    results = [{"request": name, "driver": "d", "pool": "p", "device": "x"} for name in chosen]
    allocation = convert(AllocationResult, {"devices": {"results": results}})
    assert PrioritizedList().fixed([(convert(ResourceClaim, item), allocation)]) == expected
