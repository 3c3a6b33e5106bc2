"""However long selectors are, however many values devices have and however large a number is, few changes are tried."""

from __future__ import annotations

from dra_extender.allocation.selectors import cel_gates
from dra_extender.api.features import FeatureGates
from dra_extender.insight.why.selectorchanges import KNOWN, LONGEST, Vocabulary
from dra_extender.limits import PARTS_OF_POD
from tests.support.cel.devices import view_of
from tests.support.diagnosis.hardware import cluster
from tests.support.diagnosis.scene import Scene


def test_few_words_and_short_ones_are_known() -> None:
    attributes = {f"gpu.example.com/n{i}": f"value-{i}" for i in range(3 * KNOWN)}
    attributes["gpu.example.com/long"] = "x" * (LONGEST + 1)
    view = view_of("gpu.example.com", attributes, gates=cel_gates(FeatureGates()))
    known = Vocabulary()
    known.add(view)
    assert len(known.words) <= KNOWN + 1
    assert known.values["gpu.example.com/long"] == {}
    assert len(known.of("")) == KNOWN


def test_a_count_of_any_size_is_tried_from_what_a_claim_can_get() -> None:
    request = {"name": "r", "exactly": {"deviceClassName": "a100", "count": 2**62}}
    claim = {"kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}}
    pod = {
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"resourceClaims": [{"name": "c", "resourceClaimName": "c"}]},
    }
    found = Scene([*cluster(), claim, pod]).diagnose("p")
    assert found.remedies[0].short == "count <= 8"
    assert found.work <= 50


def test_a_pod_with_too_many_amounts_gets_no_changes_of_itself() -> None:
    """Each would be compared with the names of all resources, and would copy all amounts."""
    amounts = {f"example.com/gpx{number}": "1" for number in range(PARTS_OF_POD + 1)}
    container = {"name": "c", "resources": {"requests": amounts, "limits": amounts}}
    pod = {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container]}}
    node = {"kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"example.com/gpu": "1"}}}
    found = Scene([node, pod]).diagnose("p")
    assert (found.state, found.work, found.remedies, found.complete) == ("refused", 0, (), False)
