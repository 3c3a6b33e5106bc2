"""The cluster of a scenario of `jointreference`."""

from __future__ import annotations

import msgspec

from dra_extender.allocation.decisions import Decisions
from dra_extender.api.core import Pod
from dra_extender.api.decoding import convert
from dra_extender.api.events import Applied
from dra_extender.api.features import FeatureGates
from dra_extender.api.resource import (
    AllocationResult,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
    ResourceSlice,
)
from dra_extender.devices.cluster import Cluster
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.gangs.attributes import SAME
from dra_extender.scheduling.view import View
from tests.support.scheduling.gangs import member
from tests.support.scheduling.jointreference import ALL, PREEMPTOR, Claim, Item, JointScenario
from tests.support.simulation.objects import (
    DRIVER,
    Json,
    KubernetesObject,
    make_claim,
    make_class,
    make_node,
    make_pod,
)
from tests.support.simulation.strategy import with_metadata
from tests.support.simulation.world import World


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


def holders_of(scenario: JointScenario) -> list[KubernetesObject]:
    """The pods that have devices, with their claims."""
    found: list[KubernetesObject] = []
    pools = {device.name: device.node or "network" for device in scenario.devices}
    for each in scenario.holders:
        results = [{"request": "r", "driver": DRIVER, "pool": pools[name], "device": name} for name in each.devices]
        user = ResourceClaimConsumerReference(resource="pods", name=each.name, uid=f"uid-{each.name}")
        allocation = convert(AllocationResult, {"devices": {"results": results}})
        claim = make_claim(f"of-{each.name}")
        found.append(msgspec.structs.replace(claim, status=ResourceClaimStatus(allocation, (user,))))
        more: Json = {"priority": each.priority, "node": each.node}
        labels = {"app": "protected"} if each.protected else {}
        pod = (
            member(each.name, f"of-{each.name}", gang=each.gang, size=2, **more)
            if each.gang
            else make_pod(each.name, f"of-{each.name}", **more)
        )
        found.append(with_metadata(pod, labels=labels))
    return found


def preemptors_of(scenario: JointScenario) -> list[Pod]:
    """The members, as pods of a gang."""
    found = []
    for number, claims in enumerate(scenario.members):
        pod = member(f"p{number}", *claims, gang="wanting", size=scenario.needed, priority=PREEMPTOR)
        same = {SAME: f"{DRIVER}/clique"} if scenario.one_clique else {}
        found.append(with_metadata(pod, annotations={**pod.metadata.annotations, **same}))
    return found


def view_of(scenario: JointScenario) -> View:
    cluster = Cluster(FeatureGates())
    objects: list[KubernetesObject] = [make_class(), *map(make_node, scenario.nodes), *slices_of(scenario)]
    objects += map(claim_of, scenario.claims)
    objects += holders_of(scenario)
    objects += [*preemptors_of(scenario), make_pod("idle", node=scenario.nodes[0])]
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
