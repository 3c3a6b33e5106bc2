"""Nodes share a result only where the features of Kubernetes 1.37 make no difference between them."""

from __future__ import annotations

from typing import Any

from tests.support.allocation.manynodes import World, attributes, exactly, wanted
from tests.support.allocation.newgates import NEW

Json = dict[str, Any]


def world() -> World:
    return World(",".join(f"{gate}=true" for gate in (*NEW, "DRANodeAllocatableResources")), "1.37")


def part(*groups: str) -> Json:
    part: Json = {"counterSet": "c", "counters": {"u": {"value": "1"}}, "compatibilityGroups": list(groups)}
    return {"consumesCounters": [part]}


def test_what_an_expression_reads_distinguishes_nodes() -> None:
    there = world()
    for numa in (0, 1, 0):
        there.add_node(attributes(numa=0), attributes(numa=numa))
    derived = [{"name": "gpu/side", "expression": 'device.attributes["gpu"].numa == 0 ? "left" : "right"'}]
    apart = wanted(exactly(2, derivedAttributes=derived), constraints=[{"distinctAttribute": "gpu/side"}])
    assert there.ask(apart) == ("n1", "n0 n2")
    together = wanted(exactly(2, derivedAttributes=derived), constraints=[{"matchAttribute": "gpu/side"}])
    assert there.ask(together) == ("n0 n2", "n1")
    assert there.decisions.searches == 4


def test_the_groups_of_devices_in_use_distinguish_nodes() -> None:
    there = world()
    for _ in range(3):
        there.add_node(part("x"), part("y"), part("x"), counters={"u": "8"})
    there.take("first", "n0", "d0")
    there.take("second", "n1", "d0")
    there.take("third", "n1", "d1")
    assert there.ask(wanted(exactly(2))) == ("n2", "n0 n1")
    assert there.ask(wanted(exactly())) == ("n0 n2", "n1")
    there.take("third", "n1")
    assert there.ask(wanted(exactly())) == ("n0 n1 n2", "")


def test_what_a_node_declares_distinguishes_nodes() -> None:
    there = world()
    there.add_node({}, declaredFeatures=["DRAOptionalNodeOperations"])
    there.add_node({})
    for name in there.names:
        pool = {"name": name, "generation": 2, "resourceSliceCount": 1}
        spec = {"driver": "gpu", "pool": pool, "nodeName": name, "skipNodeOperations": ["*"]}
        there.put_slice(f"{name}-devices", {**spec, "devices": [{"name": "d0"}]})
    assert there.ask(wanted(exactly())) == ("n0", "n1")


def test_what_devices_take_of_a_node_distinguishes_nodes_and_is_remembered_with_their_result() -> None:
    there = world()
    for cpus in ("1", "2", "1"):
        there.add_node({"nodeAllocatableResources": {"cpu": {"mapping": {"deviceMultiplier": cpus}}}})
    there.add_node({})
    for _ in range(2):
        found = there.decisions.node_results([wanted(exactly())], there.names)
        taken = {name: str(each.mapping[0].quantity) for name, (each,) in found.amounts.items() if each is not None}
        assert (found.fits, taken) == (there.names, {"n0": "1", "n1": "2", "n2": "1"})
    assert there.decisions.searches == 3
