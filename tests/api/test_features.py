"""Feature gates are read and printed in the form of kube-scheduler's flag."""

from __future__ import annotations

import pytest

from dra_extender.api.features import GATES, WITHOUT_EFFECT, FeatureGates, Release, release_of


def test_the_flag_form_is_read_and_printed() -> None:
    gates = FeatureGates.parse("DRAConsumableCapacity=false, DRAListTypeAttributes=True,")
    assert not gates.DRAConsumableCapacity
    assert gates.DRAListTypeAttributes
    assert gates.DRADeviceTaints
    assert FeatureGates.parse(str(gates)) == gates


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("DRANope=true", ("DRANope", "known are", "DRADeviceTaints")),
        ("DRADeviceTaints=on", ("DRADeviceTaints", "'on'")),
    ],
)
def test_a_gate_that_is_wrong_is_named(text: str, words: tuple[str, ...]) -> None:
    with pytest.raises(ValueError) as caught:
        FeatureGates.parse(text)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("text", "binding_conditions", "taint_rules"),
    [
        ("", True, True),
        ("DRAResourceClaimDeviceStatus=false", False, True),
        ("DRADeviceBindingConditions=false", False, True),
        ("DRADeviceTaints=false", True, False),
        ("DRADeviceTaintRules=false", True, False),
    ],
)
def test_some_features_need_two_gates(text: str, binding_conditions: bool, taint_rules: bool) -> None:
    gates = FeatureGates.parse(text)
    assert gates.binding_conditions is binding_conditions
    assert gates.taint_rules is taint_rules


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("v1.36.3", "1.36"), ("v1.37.2", "1.37"), ("v1.37.0-rc.1+k3s1", "1.37"), ("v1.34.1", "1.36"),
        ("v1.40.0", "1.37"), ("", "1.36"), ("v2.0", "1.36"),
    ],
)  # fmt: skip
def test_the_version_of_the_api_server_chooses_the_rules(version: str, release: str) -> None:
    assert release_of(version) == release


@pytest.mark.parametrize("name", WITHOUT_EFFECT)
def test_gates_of_other_parts_of_kubernetes_are_accepted_and_change_nothing(name: str) -> None:
    assert FeatureGates.parse(f"{name}=true,{name}=false") == FeatureGates()
    with pytest.raises(ValueError, match=name):
        FeatureGates.parse(f"{name}=on")


REMOVED = ("GangScheduling", "SchedulerQueueingHints", "WorkloadAwarePreemption")
ADDED = (
    *("CompositePodGroup", "DRADerivedAttributes", "DRADeviceCompatibilityGroups", "DRAFractionalCapacityRange"),
    *("DRANodeAllocatableResources", "DRAOptionalNodeOperations", "DRAPartitionableDevicesType"),
    *("InPlacePodVerticalScalingSchedulerPreemption", "PodGroupPreemptionPolicy", "SchedulerPreQueueingHints"),
)


@pytest.mark.parametrize(("release", "absent"), [("1.36", ADDED), ("1.37", REMOVED)])
def test_a_release_refuses_the_gates_that_it_does_not_have(release: Release, absent: tuple[str, ...]) -> None:
    refused = []
    for name in (*GATES, *WITHOUT_EFFECT):
        FeatureGates.parse(f"{name}=true")
        try:
            FeatureGates.parse(f"{name}=true", release)
        except ValueError as problem:
            refused.append(name)
            assert str(problem) == f"feature gate {name} is not available with the rules of Kubernetes {release}"
    assert sorted(refused) == sorted(absent)


def test_what_1_37_removed_can_be_accepted_while_kube_scheduler_is_older() -> None:
    text = ",".join(f"{name}=true" for name in REMOVED)
    assert FeatureGates.parse(text, "1.37", removed=True) == FeatureGates(release="1.37")
    with pytest.raises(ValueError, match="DRADerivedAttributes"):
        FeatureGates.parse("DRADerivedAttributes=true", "1.36", removed=True)
