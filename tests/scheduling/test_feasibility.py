"""What it costs to decide where allocated claims can be used: counted, not timed."""

from __future__ import annotations

from contextlib import suppress
from itertools import chain
from typing import Any

import pytest

from dra_extender.allocation.budget import SEARCHING, CallState, TurnBudget, TurnSpent, WorkBudget
from dra_extender.allocation.workerrequests import WorkerReplies
from dra_extender.api.decoding import convert
from dra_extender.api.events import Applied
from dra_extender.api.resource import ResourceClaim, ResourceSlice
from dra_extender.devices.audit import PER_DEVICE, Compare
from dra_extender.devices.ledger import Ledger
from dra_extender.scheduling.feasibility import (
    NOT_AVAILABLE,
    NodeAllocation,
    allocate_pod,
    node_statuses,
    pre_filter,
)
from dra_extender.scheduling.view import View
from tests.support.counting import calls, lines
from tests.support.scheduling.preempting import Situation, Told
from tests.support.simulation.nodeamounts import FEATURES, costs, user
from tests.support.simulation.objects import make_claim, make_class, make_node, make_slice
from tests.support.simulation.world import World

NODES = 200


def with_claims(claims: int, **status: Any) -> Situation:
    """A pod whose claims have a device each of the first node; the pod has to run there, or where a selector says."""
    names = [f"c{number}" for number in range(claims)]
    told: Told = {"nodes": {f"n{number}": 0 for number in range(NODES)} | {"n0": claims}}
    situation = Situation({**told, "preemptor": {"claims": names}})
    for number, name in enumerate(names):
        result = {"request": "r", "driver": "gpu", "pool": "n0", "device": f"d{number}"}
        situation.put_claim(name, {}, {"allocation": {"devices": {"results": [result]}, **status}})
    return situation


def on(*requirements: Told, fields: bool = False) -> Told:
    return {"nodeSelector": {"nodeSelectorTerms": [{"matchFields" if fields else "matchExpressions": requirements}]}}


ONE_NODE = on({"key": "metadata.name", "operator": "In", "values": ["n0"]}, fields=True)
UNLABELLED = [{"key": f"k{number}", "operator": "DoesNotExist"} for number in range(64)]


def decided(situation: Situation, view: View) -> Any:
    return node_statuses(view, pre_filter(view, situation.preemptor), situation.nodes)


def test_a_pod_runs_where_all_its_claims_can_be_used_and_the_others_are_named() -> None:
    situation = with_claims(2, **ONE_NODE)
    found = decided(situation, situation.view)
    assert found.fits == ["n0"]
    assert found.refused == dict.fromkeys(situation.nodes[1:], NOT_AVAILABLE)
    assert [claim.metadata.name for claim in found.blocking] == ["c0", "c1"]


@pytest.mark.parametrize("selector", [ONE_NODE, on(*UNLABELLED[:1]), {}], ids=["one node", "labels", "everywhere"])
def test_a_further_claim_costs_the_same_with_any_number_of_nodes(selector: Told) -> None:
    few, many = with_claims(1, **selector), with_claims(101, **selector)
    more = calls(lambda: decided(many, many.view)) - calls(lambda: decided(few, few.view))
    assert more < 100 * NODES


def test_comparing_nodes_with_a_selector_is_charged_once_for_equal_selectors() -> None:
    def units(claims: int, *requirements: Told) -> int:
        situation, budget = with_claims(claims, **on(*requirements)), WorkBudget()
        decided(situation, situation.view.with_budget(budget))
        return budget.used

    assert units(1, *UNLABELLED) >= NODES * len(UNLABELLED) // 4
    assert units(8, *UNLABELLED) == units(1, *UNLABELLED) + 7 * PER_DEVICE


def test_what_the_last_turn_leaves_open_is_refused() -> None:
    situation = with_claims(1, **on(*UNLABELLED))

    def turn(*, last: bool) -> View:
        return situation.view.with_budget(TurnBudget(WorkerReplies(), allowance=0, ceiling=1, last=last))

    with pytest.raises(TurnSpent):
        decided(situation, turn(last=False))
    assert set(decided(situation, turn(last=True)).refused.values()) == {SEARCHING}


def test_the_claims_of_a_bind_are_put_in_order_once() -> None:
    def cost(claims: int) -> int:
        situation = with_claims(claims, **ONE_NODE)
        found = allocate_pod(situation.view, situation.preemptor, "n0")
        assert isinstance(found, NodeAllocation)
        assert [claim.metadata.name for claim in found.claims] == [f"c{number}" for number in range(claims)]
        return lines(lambda: found.claims, 100_000, "scheduling")

    assert cost(128) < 5 * cost(32)


def test_finding_out_what_nodes_see_of_a_pool_is_charged_once() -> None:
    """128 devices with 100 requirements each took 2.6 ms for each node of the cluster, in one turn."""
    situation = Situation({"nodes": {f"n{number}": 0 for number in range(NODES)}, "preemptor": {"wants": 1}})
    selector = {"nodeSelectorTerms": [{"matchExpressions": UNLABELLED}]}
    devices = [{"name": f"d{number}", "nodeSelector": selector} for number in range(8)]
    pool = {"name": "chosen", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "other", "pool": pool, "devices": devices, "perDeviceNodeSelection": True}
    situation.cluster.apply(Applied(convert(ResourceSlice, {"metadata": {"name": "chosen"}, "spec": spec})))
    first, second = WorkBudget(), WorkBudget()
    for budget in (first, second):
        decided(situation, situation.view.with_budget(budget))
    assert first.used - second.used >= NODES * len(devices) * len(UNLABELLED) // 4


def test_allocated_claims_are_looked_at_in_turns_and_again_only_when_their_pool_has_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """256 claims of 32 devices took 0.2 s in one turn."""
    situation, call = with_claims(64, **ONE_NODE), CallState()
    turns: list[list[str]] = []
    has_rivals = Ledger.has_rivals

    def counted(ledger: Ledger, claim: ResourceClaim, compare: Compare) -> bool:
        turns[-1].append(claim.metadata.name)
        return has_rivals(ledger, claim, compare)

    def decide() -> None:
        for _ in range(100):
            turns.append([])
            budget = TurnBudget(WorkerReplies(), allowance=10 * PER_DEVICE, ceiling=1, call=call)
            with suppress(TurnSpent):
                decided(situation, situation.view.with_budget(budget))
                return
        pytest.fail("no turn gets further")

    monkeypatch.setattr(Ledger, "has_rivals", counted)
    decide()
    assert sorted(chain(*turns)) == sorted(f"c{number}" for number in range(64))
    assert max(map(len, turns)) <= 10
    turns.clear()
    decide()
    assert turns == [[]]
    result = {"request": "r", "driver": "gpu", "pool": "n0", "device": "another"}
    situation.put_claim("other", {}, {"allocation": {"devices": {"results": [result]}}})
    decide()
    assert len(list(chain(*turns))) == 64


async def test_a_pod_of_many_containers_is_read_in_turns_for_the_amounts_that_devices_take(world: World) -> None:
    """900 containers and 1,500 different amounts took 2.9 s in one turn."""
    containers, nodes, call, turns = 200, 40, CallState(), 0
    pools = [make_slice(f"n{index}", [costs("a", perPod=f"{index + 1}m")]) for index in range(nodes)]
    listed = [make_node(f"n{index}", cpu="100") for index in range(nodes)]
    pod = user("p", "c", containers=containers)
    view = world.service(make_class(), *listed, *pools, make_claim("c"), pod, features=FEATURES).extender.view
    names, whole = [f"n{index}" for index in range(nodes)], WorkBudget()
    node_statuses(view.with_budget(whole), pre_filter(view, pod), names)
    assert whole.used > nodes * containers // 4
    found: list[str] = []
    while not found and turns < 20:
        turns += 1
        budget = TurnBudget(WorkerReplies(), allowance=400, ceiling=400, call=call)
        with suppress(TurnSpent):
            found = node_statuses(view.with_budget(budget), pre_filter(view, pod), names).fits
    assert (found, turns > 4) == (names, True)
