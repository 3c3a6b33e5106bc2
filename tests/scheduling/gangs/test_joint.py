"""The joint decision against a reference that tries everything."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence

import pytest

from dra_extender.allocation.decisions import Decisions
from dra_extender.api.decoding import convert
from dra_extender.api.events import Applied
from dra_extender.api.features import FeatureGates
from dra_extender.api.groups import GroupKey
from dra_extender.api.resource import ResourceSlice
from dra_extender.devices.cluster import Cluster
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.feasibility import PreFilterState, pre_filter
from dra_extender.scheduling.gangs.decision import GangDecision, GangState, decide
from dra_extender.scheduling.gangs.gang import Gang
from dra_extender.scheduling.noderules import NOTHING_USED
from dra_extender.scheduling.view import View
from tests.support.scheduling.jointreference import ALL, Claim, Item, JointScenario, generate, most_placed
from tests.support.simulation.objects import (
    DRIVER,
    Json,
    KubernetesObject,
    make_claim,
    make_class,
    make_node,
    make_pod,
)
from tests.support.simulation.world import World

CASES = int(os.environ.get("GANG_CASES", "400"))
PARTS = max(4, CASES // 500)


def claim_of(claim: Claim) -> KubernetesObject:
    def wish(kind: str, count: int) -> Json:
        expression = f"device.attributes['{DRIVER}'].kind == '{kind}'"
        selectors = [{"cel": {"expression": expression}}]
        mode: Json = {"allocationMode": "ExactCount", "count": count} if count != ALL else {"allocationMode": "All"}
        return {"deviceClassName": "gpu", "selectors": selectors, **mode}

    requests: list[Json] = []
    for number, wishes in enumerate(claim.requests):
        named = {"name": f"r{number}"}
        if len(wishes) == 1:
            requests.append({**named, "exactly": wish(*wishes[0])})
        else:
            alternatives = [{"name": f"w{index}", **wish(*each)} for index, each in enumerate(wishes)]
            requests.append({**named, "firstAvailable": alternatives})
    return make_claim(claim.name, requests=requests)


def attributes(device: Item) -> Json:
    clique = {"clique": {"string": device.clique}} if device.clique else {}
    return {"kind": {"string": device.kind}, **clique}


def slices_of(scenario: JointScenario) -> list[KubernetesObject]:
    found: list[KubernetesObject] = []
    for node in sorted({device.node for device in scenario.devices}):
        pool = node or "network"
        devices = [device for device in scenario.devices if device.node == node]
        bodies: list[Json] = [
            {
                "devices": [
                    {"name": each.name, "attributes": attributes(each)}
                    | (
                        {"consumesCounters": [{"counterSet": "s", "counters": {"u": {"value": str(each.units)}}}]}
                        if each.units
                        else {}
                    )
                    for each in devices
                ]
            }
        ]
        if node in scenario.units:
            counters = {"u": {"value": str(scenario.units[node])}}
            bodies.append({"sharedCounters": [{"name": "s", "counters": counters}]})
        where: Json = {"nodeName": node} if node else {"allNodes": True}
        for number, body in enumerate(bodies):
            spec = {
                "driver": DRIVER,
                "pool": {"name": pool, "generation": 1, "resourceSliceCount": len(bodies)},
                **where,
                **body,
            }
            found.append(convert(ResourceSlice, {"metadata": {"name": f"{pool}-{number}"}, "spec": spec}))
    return found


def view_of(scenario: JointScenario) -> View:
    cluster = Cluster(FeatureGates())
    objects: list[KubernetesObject] = [make_class(), *map(make_node, scenario.nodes), *slices_of(scenario)]
    objects += map(claim_of, scenario.claims)
    for each in objects:
        cluster.apply(Applied(each))
    world = World()
    decisions = Decisions(cluster, share_ids=lambda: "share")
    return View(
        cluster=cluster,
        decisions=decisions,
        pods=cluster.pods,
        clock=world.clock,
        config=SchedulingConfig(),
        resources=world.service().extender.view.resources,
    )


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
