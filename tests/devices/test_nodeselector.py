"""v1.NodeSelector on nodes: what matches, what does not, what cannot be parsed."""

from __future__ import annotations

import pickle
import traceback
from typing import Any

import pytest

from dra_extender.api.core import Node, NodeSelector
from dra_extender.api.decoding import convert
from dra_extender.api.events import Applied
from dra_extender.api.features import FeatureGates
from dra_extender.api.resource import Device, ResourceSlice
from dra_extender.devices import nodeselection
from dra_extender.devices.cluster import Cluster
from dra_extender.devices.nodeselection import Matcher, NodeSelection, NodeSelectorError, parse

LABELS = {"zone": "a", "gpus": "8", "empty": ""}


def selector(*terms: dict[str, Any]) -> NodeSelector:
    return convert(NodeSelector, {"nodeSelectorTerms": list(terms)})


def label(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def field(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchFields": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ([], False),
        ([{}], False),
        ([label("zone", "In", "a", "b")], True),
        ([label("zone", "In", "b")], False),
        ([label("absent", "In", "a")], False),
        ([label("zone", "NotIn", "a")], False),
        ([label("absent", "NotIn", "a")], True),
        ([label("empty", "Exists")], True),
        ([label("absent", "Exists")], False),
        ([label("absent", "DoesNotExist")], True),
        ([label("zone", "DoesNotExist")], False),
        ([label("gpus", "Gt", "7")], True),
        ([label("gpus", "Gt", "8")], False),
        ([label("gpus", "Lt", "9")], True),
        ([label("zone", "Lt", "9")], False),
        ([label("absent", "Gt", "0")], False),
        ([field("metadata.name", "In", "node-1")], True),
        ([field("metadata.name", "In", "node-2")], False),
        ([field("metadata.name", "NotIn", "node-2")], True),
        ([field("spec.other", "In", "x")], False),
        ([field("spec.other", "NotIn", "x")], True),
        ([label("zone", "In", "b"), label("gpus", "Exists")], True),
        ([{}, label("zone", "In", "a")], True),
        ([{**label("zone", "In", "a"), **field("metadata.name", "In", "node-2")}], False),
        ([{**label("zone", "In", "a"), **field("metadata.name", "In", "node-1")}], True),
    ],
)
def test_terms_are_ored_and_requirements_anded(terms: list[dict[str, Any]], expected: bool) -> None:
    assert parse(selector(*terms))("node-1", LABELS) is expected


@pytest.mark.parametrize(
    ("term", "problem"),
    [
        (label("zone", "In"), "at least one value"),
        (label("zone", "Exists", "a"), "takes no values"),
        (label("gpus", "Gt", "1", "2"), "exactly one integer"),
        (label("gpus", "Lt", "many"), "exactly one integer"),
        (label("gpus", "Gt", "99999999999999999999"), "exactly one integer"),
        (label("zone", "Near", "a"), "not a valid operator"),
        (label("-zone", "Exists"), "not a valid label key"),
        (label("UP.example/zone", "Exists"), "not a valid label key"),
        (label("zone", "In", "not a value"), "not a valid label value"),
        (field("metadata.name", "Exists"), "not a valid operator"),
        (field("metadata.name", "In", "a", "b"), "exactly one value"),
    ],
)
def test_one_bad_term_is_an_error_even_when_another_matches(term: dict[str, Any], problem: str) -> None:
    with pytest.raises(NodeSelectorError, match=problem):
        parse(selector(label("zone", "In", "a"), term))


def test_the_selector_of_a_device_is_parsed_once_for_all_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[NodeSelector] = []

    def counting(selector: NodeSelector) -> Matcher:
        parsed.append(selector)
        return parse(selector)

    monkeypatch.setattr(nodeselection, "parse", counting)
    cluster = Cluster(FeatureGates())
    nodes = cluster.inventory.nodes
    devices = [{"name": f"d{i}", "nodeSelector": _for_rack(f"{i}")} for i in range(3)]
    spec = {"driver": "d", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}, "devices": devices}
    slice_ = {"metadata": {"name": "s", "uid": "s"}, "spec": {**spec, "perDeviceNodeSelection": True}}
    cluster.apply(Applied(convert(ResourceSlice, slice_)))
    for rack in range(4):
        meta = {"name": f"n{rack}", "uid": f"n{rack}", "labels": {"rack": f"{rack}"}}
        cluster.apply(Applied(convert(Node, {"metadata": meta})))
    work = [sum(nodes.refresh(seen)) for seen in nodes.seen.values()]
    assert work == [3 + 10 * (2 + 3) + 1] + [3 + (2 + 3) + 1] * 3, "three requirements, parsed once; the pool gathered"
    seen = [nodes.view(f"n{rack}") for rack in range(4)]
    assert [len(view.pools) if view is not None else 0 for view in seen] == [1, 1, 1, 0]
    assert len(parsed) == 3


def test_a_selector_that_does_not_parse_keeps_nothing_of_those_who_ask() -> None:
    selection = _selection({"nodeSelectorTerms": [label("memory", "Gt", "80Gi")]})
    errors = []
    for _ in range(3):
        with pytest.raises(NodeSelectorError) as caught:
            selection.matcher()
        errors.append(caught.value)
    assert len({id(error) for error in errors}) == 3
    assert len({len(traceback.extract_tb(error.__traceback__)) for error in errors}) == 1


def test_a_parsed_selection_can_be_sent_to_a_worker() -> None:
    selection = _selection(_for_rack("a"))
    assert selection.matches("n", {"rack": "a"})
    sent = pickle.loads(pickle.dumps(selection))
    assert (sent.matches("n", {"rack": "a"}), sent.matches("n", {"rack": "b"})) == (True, False)


def _selection(node_selector: dict[str, object]) -> NodeSelection:
    return NodeSelection(convert(Device, {"name": "d", "nodeSelector": node_selector}))


def _for_rack(rack: str) -> dict[str, object]:
    requirement = {"key": "rack", "operator": "In", "values": [rack]}
    return {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}
