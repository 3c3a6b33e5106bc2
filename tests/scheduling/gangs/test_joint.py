"""The joint decision against a reference that tries everything."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence

import pytest

from dra_extender.api.groups import GroupKey
from dra_extender.scheduling.feasibility import PreFilterState, pre_filter
from dra_extender.scheduling.gangs.decision import GangDecision, GangState, decide
from dra_extender.scheduling.gangs.gang import Gang
from dra_extender.scheduling.noderules import NOTHING_USED
from tests.support.scheduling.jointreference import ALL, Claim, Item, JointScenario, generate, most_placed
from tests.support.scheduling.jointworld import view_of
from tests.support.simulation.objects import DRIVER, make_pod

CASES = int(os.environ.get("GANG_CASES", "400"))
PARTS = max(4, CASES // 500)


def decided(scenario: JointScenario) -> GangDecision:
    view = view_of(scenario)
    pods = [make_pod(f"p{number}", *claims) for number, claims in enumerate(scenario.members)]
    prefiltered = pre_filter(view, pods[0])
    assert isinstance(prefiltered, PreFilterState)
    attributes = (f"{DRIVER}/clique",) if scenario.one_clique else ()
    gang = Gang(GroupKey("gang", "default", "g"), scenario.needed, waiting=pods, attributes=attributes)
    return decide(view, gang, prefiltered, scenario.nodes, GangState(free=view, used=lambda *_: NOTHING_USED))


def check(seed: int) -> str:
    scenario = generate(seed)
    expected, found = most_placed(scenario), decided(scenario)
    assert not found.error, (seed, scenario, found)
    if expected < scenario.needed:
        assert found.places is None, (seed, scenario, found)
        return "does not fit"
    assert len(found.places or ()) == expected, (seed, scenario, found)
    return "fits in one clique" if scenario.one_clique else "fits"


@pytest.mark.parametrize("part", range(PARTS))
async def test_the_joint_decision_agrees_with_the_reference(part: int) -> None:
    outcomes = Counter([check(seed) for seed in range(part * CASES // PARTS, (part + 1) * CASES // PARTS)])
    assert min(outcomes["fits"], outcomes["does not fit"], outcomes["fits in one clique"]) > CASES // PARTS // 15


@pytest.mark.parametrize(
    ("local", "devices"),
    [((), ["x"]), (("n1",), ["x"]), (("n2",), ["x"]), (("n1", "n2"), None)],
    ids=["no node sees more", "n1 sees more", "n2 sees more", "both nodes see more"],
)
async def test_mode_all_of_a_shared_claim_means_what_one_of_its_nodes_sees(
    local: Sequence[str], devices: list[str] | None
) -> None:
    """As in the in-tree plugin, which allocates the claim for one pod and then checks the node of the other."""
    own = [Item(f"own-{node}", node, "b") for node in ("n1", "n2")]
    more = [Item(f"more-{node}", node, "a") for node in local]
    claims = [Claim("c0", ((("b", 1),),)), Claim("c1", ((("b", 1),),)), Claim("shared", ((("a", ALL),),))]
    scenario = JointScenario(
        nodes=("n1", "n2"),
        devices=(Item("x", "", "a"), *own, *more),
        units={},
        claims=tuple(claims),
        members=(("c0", "shared"), ("c1", "shared")),
        needed=2,
    )
    found = decided(scenario)
    assert most_placed(scenario) == (2 if devices else 1)
    assert (found.places is not None) == (devices is not None)
    planned = [planned for place in (found.places or {}).values() for planned in place.planned]
    shared = [allocation for claim, allocation in planned if claim.metadata.name == "shared"]
    assert all([result.device for result in each.devices.results] == devices for each in shared)
