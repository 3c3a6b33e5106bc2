"""Filter calls with whole Node objects: cluster-autoscaler asks about nodes that do not exist."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dra_extender.api.decoding import convert, to_builtins
from dra_extender.api.extender import NEEDS_NAMES, ExtenderArgs, ExtenderFilterResult
from dra_extender.api.resource import ResourceSlice
from tests.support.simulation.objects import (
    DRIVER,
    Objects,
    make_claim,
    make_class,
    make_node,
    make_pod,
    make_slice,
)
from tests.support.simulation.world import Service, World

NO_ROOM = "cannot allocate all claims"
Json = dict[str, Any]


def new(name: str, labels: Json | None = None, taints: list[Json] | None = None, **allocatable: str) -> Json:
    """A node that may be added, with a field that the service does not read."""
    return {
        "metadata": {"name": name, "labels": labels or {}, "resourceVersion": "7"},
        "spec": {"taints": taints or [], "providerID": f"cloud://{name}"},
        "status": {"allocatable": allocatable},
    }


def selective(**labels: str) -> ResourceSlice:
    """One device that all nodes with these labels see."""
    expressions = [{"key": key, "operator": "In", "values": [value]} for key, value in labels.items()]
    spec = {
        "driver": DRIVER,
        "pool": {"name": "network", "generation": 1, "resourceSliceCount": 1},
        "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": expressions}]},
        "devices": [{"name": "a"}],
    }
    return convert(ResourceSlice, {"metadata": {"name": "network", "uid": "network"}, "spec": spec})


async def ask(service: Service, pod: str, *nodes: Json) -> ExtenderFilterResult:
    body = {"Pod": to_builtins(service.client.api.pod(pod)), "Nodes": {"items": list(nodes)}, "NodeNames": None}
    return await service.extender.filter(convert(ExtenderArgs, body))


def kept(service: Service) -> tuple[object, ...]:
    """All that a call of filter may leave behind."""
    extender = service.extender
    return (
        len(extender.tentative_plans.all()),
        len(extender.nominations),
        extender.view.ledger.holds(),
        len(extender.view.binding),
        len(extender.deferred),
        dict(service.counts),
        list(service.client.calls),
        dict(extender.requeue.pods),
        sorted(extender.view.cluster.nodes),
    )


@pytest.mark.parametrize(
    ("published", "nodes", "refused"),
    [
        ([make_slice("", ["a"], pool="all")], [new("x")], {}),
        ([], [new("x")], {"x": NO_ROOM}),
        ([make_slice("n1", ["a"])], [new("x")], {"x": NO_ROOM}),
        ([selective(rack="r")], [new("x", {"rack": "r"}), new("y", {"rack": "s"})], {"y": NO_ROOM}),
        (
            [make_slice("", ["a"], pool="all")],
            [new("x", taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}]), new("y")],
            {"x": "the node does not suit the pod: node taint k=v:NoSchedule"},
        ),
        (
            [make_slice("", ["a"], pool="all")],
            [new("x", cpu="1"), new("y", cpu="4")],
            {"x": "the node does not suit the pod: cpu"},
        ),
    ],
)
async def test_a_node_that_does_not_exist_is_decided_on_by_its_object(
    world: World, published: Objects, nodes: list[Json], refused: dict[str, str]
) -> None:
    containers = [{"name": "c", "resources": {"requests": {"cpu": "2"} if "cpu" in str(nodes) else {}}}]
    asked = make_pod("p", "c", containers=containers)
    service = world.service(make_class(), make_node("n1"), *published, make_claim("c"), asked)
    before = kept(service)
    answer = await ask(service, "p", *nodes)
    fits = [node for node in nodes if node["metadata"]["name"] not in refused]
    assert answer.Error == ""
    assert answer.NodeNames == [node["metadata"]["name"] for node in fits]
    assert answer.FailedAndUnresolvableNodes == refused
    assert msgspec.json.decode(msgspec.json.encode(answer))["Nodes"] == {"items": fits}, "as they came"
    assert kept(service) == before
    await world.settle(60)
    assert kept(service) == before, "nothing happens later either"


async def test_existing_nodes_count_as_the_cluster_has_them(world: World, small: Objects) -> None:
    taint = [{"key": "k", "value": "v", "effect": "NoSchedule"}]
    service = world.service(*small, make_claim("c", count=2), make_claim("d"), make_pod("p", "c"), make_pod("q", "d"))
    assert await service.bind(world.api.pod("q"), "n2") == ""
    answer = await ask(service, "p", new("n1", taints=taint), new("n2"), new("x"))
    names = await service.filter(world.api.pod("p"), "n1", "n2")
    assert answer.NodeNames == names.NodeNames == ["n1"]
    assert answer.FailedAndUnresolvableNodes == names.FailedAndUnresolvableNodes | {"x": NO_ROOM}


async def test_a_call_about_existing_nodes_only_blames_the_configuration(world: World, small: Objects) -> None:
    service = world.service(*small, make_claim("c"), make_pod("p", "c"))
    assert (await ask(service, "p", new("n1"), new("n2"))).Error == NEEDS_NAMES
    assert (await ask(service, "p")).Error == NEEDS_NAMES


@pytest.mark.parametrize("nodes", [[new("")], [new("x"), new("x", {"rack": "r"})]])
async def test_a_node_needs_a_name_of_its_own(world: World, small: Objects, nodes: list[Json]) -> None:
    service = world.service(*small, make_claim("c"), make_pod("p", "c"))
    name = nodes[0]["metadata"]["name"]
    wrong = f"dra-extender: filter request: Node {name!r} needs a name of its own"
    assert (await ask(service, "p", *nodes)).Error == wrong


async def test_a_node_that_cannot_be_decoded_is_named(world: World, small: Objects) -> None:
    service = world.service(*small, make_claim("c"), make_pod("p", "c"))
    answer = await ask(service, "p", new("x"), {"metadata": {"name": "y"}, "status": {"allocatable": {"cpu": "much"}}})
    assert answer.Error.startswith("dra-extender: filter request: Node y: ")
