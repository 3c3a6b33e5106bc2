"""PodGroups: sizes, topology and disruption mode in every version, and of coscheduling."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dra_extender.api.decoding import DecodeError, convert
from dra_extender.api.scheduling import CoschedulingPodGroup, PodGroup
from dra_extender.kube.resources import POD_GROUP_VERSIONS, pod_groups

META = {"name": "g", "namespace": "ns", "annotations": {"dra-extender.dev/topology-preferred": "rack"}}
GANG = {"schedulingPolicy": {"gang": {"minCount": 4}}}
RACK = {"schedulingConstraints": {"topology": [{"key": "example.com/rack"}]}}


@pytest.mark.parametrize("version", POD_GROUP_VERSIONS[PodGroup.api_group])
@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (GANG, (4, "")),
        ({"schedulingPolicy": {"gang": {"minCount": 4}, "basic": None}}, (4, "")),
        ({"schedulingPolicy": {"basic": {}}}, (None, "")),
        ({"schedulingPolicy": {"invented": {"minCount": 2}}}, (None, "")),
        ({"schedulingPolicy": {"gang": {"minCount": 0}}}, (None, "")),
        ({}, (None, "")),
        (GANG | RACK, (4, "example.com/rack")),
        (GANG | {"schedulingConstraints": {"topology": []}}, (4, "")),
        (GANG | {"disruptionMode": {"single": {}}}, (4, "")),
        (GANG | {"disruptionMode": {"all": {}}}, (4, "")),
        (GANG | {"disruptionMode": "Pod"}, (4, "")),
        (GANG | {"disruptionMode": "PodGroup"}, (4, "")),
        (GANG | {"workloadRef": {"workloadName": "w", "templateName": "t"}, "priority": 7}, (4, "")),
    ],
)
def test_every_version_tells_size_and_topology(version: str, spec: Any, expected: tuple[Any, ...]) -> None:
    body = msgspec.json.encode({"metadata": META, "spec": spec, "status": {"conditions": [{"type": "x"}]}})
    group = pod_groups(PodGroup.api_group, version).decode(body)
    assert (group.min_count, group.topology_key) == expected
    assert (group.metadata.key, group.metadata.annotations, group.api_group) == (
        "ns/g",
        META["annotations"],
        "scheduling.k8s.io",
    )


@pytest.mark.parametrize(
    ("mode", "together"),
    [
        ({"all": {}}, True),
        ("PodGroup", True),
        ({"single": {}}, False),
        ({"all": None}, False),
        ("Pod", False),
    ],
)
def test_the_disruption_mode_tells_whether_all_pods_are_disrupted_together(mode: Any, together: bool) -> None:
    assert convert(PodGroup, {"metadata": META, "spec": {"disruptionMode": mode}}).disrupts_all is together


@pytest.mark.parametrize(("spec", "size"), [({"minMember": 3, "minResources": {"cpu": "3"}}, 3), ({}, None)])
def test_the_size_of_a_coscheduling_group_is_its_min_member(spec: Any, size: int | None) -> None:
    resource = pod_groups("scheduling.x-k8s.io", "v1alpha1")
    group = resource.decode(msgspec.json.encode({"metadata": META, "spec": spec}))
    assert (group.min_count, group.topology_key) == (size, "")
    assert (type(group).__name__, group.api_group) == (resource.kind, resource.group)


@pytest.mark.parametrize("kind", [PodGroup, CoschedulingPodGroup])
@pytest.mark.parametrize("spec", [{"schedulingPolicy": {"gang": {"minCount": "four"}}}, {"minMember": "four"}])
def test_a_size_that_is_no_number_is_named(kind: type[PodGroup], spec: Any) -> None:
    with pytest.raises(DecodeError, match=rf"{kind.__name__} ns/g: Expected `int`, got `str` - at `\$\.spec\."):
        convert(kind, {"metadata": META, "spec": spec})
