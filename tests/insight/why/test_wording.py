"""The texts of statements: amounts in the unit that was asked for, and no names that the reader may not see."""

from __future__ import annotations

from typing import Any

import pytest

from dra_extender.api.core import Node, Pod
from dra_extender.api.decoding import convert
from dra_extender.api.features import FeatureGates
from dra_extender.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from dra_extender.insight.why.redaction import redacted
from dra_extender.insight.why.statements import DevicesUnavailable, HoldingClaim, Scope, Unsatisfiable
from dra_extender.insight.why.wording import in_unit, obstacle_text, text_of
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.noderules import Obstacle
from dra_extender.scheduling.reader import Reader
from tests.support.allocation.scenarios import allocated, claim, device, request, resource_slice, scenario
from tests.support.diagnosis.misfits import MISFITS, POD
from tests.support.diagnosis.scene import view_of
from tests.support.questions import diagnose


@pytest.mark.parametrize(
    ("amount", "like", "expected"),
    [
        ("32873652Ki", "64Gi", "31.35Gi"),
        ("32Gi", "64Gi", "32Gi"),
        ("1500m", "2", "1.5"),
        ("1500m", "100m", "1500m"),
        ("0", "64Gi", "0Gi"),
        ("100Gi", "1Ti", "100Gi"),
        ("512Ki", "1Gi", "512Ki"),
        ("0 of 110", "1", "0 of 110"),
        ("1Ti", "100G", "1099.51G"),
    ],
)
def test_an_amount_is_told_in_the_unit_that_was_asked_for(amount: str, like: str, expected: str) -> None:
    assert in_unit(amount, like) == expected


def test_the_amount_of_several_nodes_is_the_largest() -> None:
    obstacle = Obstacle("memory", "memory", "64Gi", "32873652Ki")
    assert obstacle_text(obstacle, several=True) == "memory: 64Gi requested, at most 31.35Gi free"


def test_holders_of_other_namespaces_are_counted() -> None:
    misfit = next(misfit for misfit in MISFITS if misfit.name == "a pod has all of the devices")
    found = misfit.scene().diagnose(POD)
    (statement,) = found.statements
    assert isinstance(statement, DevicesUnavailable)
    (holder,) = statement.holders
    assert holder == HoldingClaim("default/of-busy", ("default/busy",), 2)
    assert text_of([statement]).endswith("2 are in use (by default/busy)")
    assert redacted(found, Reader("other")).summary.endswith("2 are in use (by 1 claim of another namespace)")


@pytest.mark.parametrize(
    ("name", "summary"),
    [
        (
            "devices of two classes that no node has both of",
            "no node has the devices of both requests: claim c, request g (1 device of class a100) "
            "matches devices of a1 and 1 other node; claim c, request n (1 device of class nic) matches devices of h1",
        ),
        (
            "every device is tainted",
            "claim c: 1 device requested, node t1 has 4 of class t4: "
            "all have the taint maintenance=firmware:NoSchedule, which the request does not tolerate",
        ),
        (
            "all devices that the selector leaves are asked for and one is in use",
            "claim c: all matching devices requested, node h1 has 4: 1 is in use (by default/busy), 3 are free",
        ),
        (
            "shares are used up to less than is asked for",
            "claim c: 1 device requested, node s1 has 2 of class share: "
            "all have at most 10Gi of memory free, less than the requested 20Gi "
            "(the rest is used by default/one, default/two)",
        ),
        (
            "a whole card while a half is in use",
            "claim c: 1 device requested, node m1 has 1 matching device: "
            "1 needs 80Gi of counter card/memory, which has 40Gi left (used by default/half)",
        ),
        (
            "four devices behind one PCIe root that has two",
            "claim c: 4 devices with the same pcieRoot requested, "
            "each of 2 nodes (a1, a2) has at most 2 such devices free",
        ),
        (
            "more different values than there are",
            "claim c: 3 devices with different values of numa requested, "
            "the free devices of each of 2 nodes (a1, a2) have only 2 different values",
        ),
        (
            "a template that does not exist",
            "claim c has not been created from template nowhere, which may not exist",
        ),
    ],
)
def test_the_reason_is_a_sentence_of_its_own(name: str, summary: str) -> None:
    misfit = next(misfit for misfit in MISFITS if misfit.name == name)
    assert misfit.scene().diagnose(POD).summary == summary


def test_two_changes_are_one_sentence() -> None:
    misfit = next(misfit for misfit in MISFITS if misfit.name == "a misspelt model and too many CPUs")
    remedy = misfit.scene().diagnose(POD).remedies[0]
    assert remedy.text == (
        'claim c: use H100 instead of H1000 in model == "H1000"; '
        "also needed: request at most 8 CPU instead of 100 in container main"
    )


def reason(case: dict[str, Any], gates: str = "") -> str:
    """Why a pod that uses the first claim of the scenario does not fit, by the rules of Kubernetes 1.37."""
    entries = [{"name": "c", "resourceClaimName": "c"}]
    pod = {"metadata": {"name": "p", "namespace": "default", "uid": "p"}, "spec": {"resourceClaims": entries}}
    kinds: dict[str, Any] = {
        "slices": ResourceSlice,
        "classes": DeviceClass,
        "allocatedClaims": ResourceClaim,
        "claims": ResourceClaim,
    }
    objects: list[Any] = [convert(Node, case["node"]), convert(Pod, pod)]
    objects += [convert(kind, item) for name, kind in kinds.items() for item in case[name]]
    view = view_of(objects, FeatureGates.parse(gates, "1.37"), SchedulingConfig())
    found = view.pods.named("default", "p")
    assert found is not None
    return diagnose(view, found).summary


def test_all_devices_are_refused_for_the_one_whose_shares_leave_too_little() -> None:
    """The text has the amount that this device has left."""
    content = [device(name, capacity={"memory": "10"}, allowMultipleAllocations=True) for name in ("a", "b")]
    share = {"device": "a", "shareID": "00000000-0000-4000-8000-000000000000", "consumedCapacity": {"memory": "8"}}
    wanted = claim(request("r", None, capacity={"requests": {"memory": "5"}}), name="c")
    assert reason(scenario([resource_slice(content)], [wanted], in_use=[allocated(share)])) == (
        "claim c: all devices of class gpu requested, node node-1 has 2: 1 has at most 2 of memory free, less "
        "than the requested 5 (the rest is used by claim default/other), 1 is free"
    )


def parts(*groups: str) -> list[dict[str, Any]]:
    """A card with a part for each of the groups."""
    content = [device(name, counters={"card": {"slots": "1"}}) for name in ("a", "b")]
    for each, group in zip(content, groups, strict=True):
        each["consumesCounters"][0]["compatibilityGroups"] = [group]
    return [
        resource_slice(name="0", count=2, counters={"card": {"slots": "8"}}),
        resource_slice(content, name="1", count=2),
    ]


def derived(expression: str) -> dict[str, Any]:
    """A claim for two devices with a derived attribute in common."""
    side = "gpu.example.com/side"
    wanted = request("r", 2, derivedAttributes=[{"name": side, "expression": expression}])
    return claim(wanted, constraints=[{"matchAttribute": side}], name="c")


def skipping() -> dict[str, Any]:
    found = resource_slice([device("a")])
    found["spec"]["skipNodeOperations"] = ["*"]
    return found


RANGE = {"default": "200m", "validRange": {"min": "200m", "max": "1", "step": "100m"}}
CORE = {
    **device("a", allowMultipleAllocations=True),
    "capacity": {"cores": {"value": "1", "requestPolicy": RANGE}},
}
SHARE = {"device": "a", "shareID": "00000000-0000-4000-8000-000000000000", "consumedCapacity": {"cores": "800m"}}
CORES = claim(request("r", capacity={"requests": {"cores": "250m"}}), name="c")


TWO = [resource_slice([device(name, {"n": number}) for number, name in enumerate("ab")])]
ONE = claim(request("r"), name="c")
NUMBER = 'device.attributes["gpu.example.com"].n'


@pytest.mark.parametrize(
    ("case", "gate", "expected"),
    [
        (
            scenario(parts("x", "y"), [ONE], in_use=[allocated("a")]),
            "DRADeviceCompatibilityGroups",
            "claim c: 1 device requested, node node-1 has 2 of class gpu: 1 is in use (by claim default/other), "
            "1 has no compatibility group in common with devices in use on its counter set",
        ),
        (
            scenario(parts("x", "y"), [ONE]),
            "",
            "claim c: no node has a device of class gpu; pool gpu.example.com/pool is incomplete: slice 1 has "
            "compatibilityGroups, and feature gate DRADeviceCompatibilityGroups is off",
        ),
        (
            scenario(TWO, [derived(NUMBER)]),
            "",
            "claim default/c, request r: cannot handle request with derived attributes, the feature is disabled",
        ),
        (
            scenario(TWO, [derived(NUMBER)]),
            "DRADerivedAttributes",
            "claim c: 2 devices with the same side requested, node node-1 has at most 1 such device free",
        ),
        (
            scenario(TWO, [derived(f"{NUMBER}umber")]),
            "DRADerivedAttributes",
            "evaluate derived attribute gpu.example.com/side on device gpu.example.com/pool/a failed: "
            "no such key: number",
        ),
        (
            scenario([skipping()], [ONE]),
            "DRAOptionalNodeOperations",
            "claim c: 1 device requested, node node-1 has 1 of class gpu: 1 skips operations of the kubelet, and the "
            "node does not declare DRAOptionalNodeOperations",
        ),
        (
            scenario([resource_slice([CORE])], [CORES], in_use=[allocated(SHARE)]),
            "DRAFractionalCapacityRange",
            "claim c: 1 device requested, node node-1 has 1 of class gpu: 1 has at most 200m of cores free, less "
            "than the requested 250m (the rest is used by claim default/other)",
        ),
    ],
)
def test_what_kubernetes_1_37_adds_is_named(case: dict[str, Any], gate: str, expected: str) -> None:
    assert reason(case, f"{gate}=true" if gate else "") == expected


@pytest.mark.parametrize(
    ("scope", "where"),
    [
        (Scope(1, 3, ("every-each-of",)), "node every-each-of"),
        (Scope(2, 3, ("each-of", "every")), "any of 2 nodes (each-of, every)"),
        (Scope(3, 3, ("every",)), "any node"),
    ],
)
def test_that_something_is_impossible_is_told_of_any_node_and_names_stay(scope: Scope, where: str) -> None:
    statement = Unsatisfiable("ns/c", "claim c", scope, "not enough devices are left")
    assert text_of([statement]) == f"claim c cannot be satisfied on {where}: not enough devices are left"
