"""The kinds that are read: the versions a server offers, their paths, and objects of every version."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from dra_extender.api import resource as v1
from dra_extender.api.decoding import encode
from dra_extender.api.errors import ApiError, NotFoundError, RejectedError
from dra_extender.api.scheduling import CoschedulingPodGroup, PodGroup
from dra_extender.kube.client import KubeClient
from dra_extender.kube.resources import (
    DEVICE_CLASSES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    RULE_VERSIONS,
    Resource,
    Served,
    device_taint_rules,
    discover,
    pod_groups,
    segment,
    watched_kinds,
)
from tests.support.kube.scripted import ScriptedServer
from tests.support.specimens import specimen


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (PODS.path(), "/api/v1/pods"),
        (PODS.path("default", "p", "binding"), "/api/v1/namespaces/default/pods/p/binding"),
        (RESOURCE_CLAIMS.path("n", "c"), "/apis/resource.k8s.io/v1/namespaces/n/resourceclaims/c"),
        (PODS.path("default", "../../nodes/n1"), "/api/v1/namespaces/default/pods/..%2F..%2Fnodes%2Fn1"),
        (PODS.path("a/b?watch=1", "p q"), "/api/v1/namespaces/a%2Fb%3Fwatch%3D1/pods/p%20q"),
        (PODS.path("default", "%2e%2e"), "/api/v1/namespaces/default/pods/%252e%252e"),
        (PODS.path("default", "..."), "/api/v1/namespaces/default/pods/..."),
        (PODS.path("default", "a..b"), "/api/v1/namespaces/default/pods/a..b"),
    ],
)
def test_a_name_stays_a_name_whatever_stands_in_it(path: str, expected: str) -> None:
    assert path == expected


@pytest.mark.parametrize("name", [".", ".."])
@pytest.mark.parametrize("build", [lambda x: (x, "p", "binding"), lambda x: ("default", x), lambda x: (x,)])
def test_a_name_that_would_lead_to_another_path_has_no_path(name: str, build: Callable[[str], tuple[str, ...]]) -> None:
    with pytest.raises(NotFoundError, match=rf'no object can have the name "{re.escape(name)}"'):
        PODS.path(*build(name))


@given(st.text(min_size=1) | st.text("./%2eE\\;?#", min_size=1))
def test_a_name_leads_to_itself_or_nowhere(name: str) -> None:
    """As the client takes the URL apart: the name is one segment of the path, and the segments beside it stay."""
    try:
        path = URL(f"https://api/pods/{segment(name)}/status").raw_path
    except NotFoundError:
        assert name in (".", "..")
    else:
        assert [unquote(part) for part in path.split("/")] == ["", "pods", name, "status"]


@pytest.mark.parametrize(
    ("served", "plurals"),
    [
        (Served(), ["nodes", "pods", "deviceclasses", "resourceslices", "resourceclaims"]),
        (
            Served("v1alpha3"),
            ["nodes", "pods", "deviceclasses", "resourceslices", "resourceclaims", "devicetaintrules"],
        ),
        (
            Served(pod_groups=(("scheduling.k8s.io", "v1alpha2"), ("scheduling.x-k8s.io", "v1alpha1"))),
            ["nodes", "pods", "deviceclasses", "resourceslices", "resourceclaims", "podgroups", "podgroups"],
        ),
    ],
)
def test_what_not_every_server_has_is_followed_where_it_is_served_and_each_kind_in_its_version(
    served: Served, plurals: list[str]
) -> None:
    kinds = watched_kinds(served)
    assert [kind.plural for kind in kinds] == plurals
    assert [kind.plural for kind in kinds if kind.optional] == [name for name in plurals if name == "podgroups"]
    versions = {"": "v1", "resource.k8s.io": "v1", **dict(served.pod_groups)}
    for kind in kinds:
        assert kind.version == (served.taint_rules if kind.plural == "devicetaintrules" else versions[kind.group])


FOUR = ("deviceclasses", "resourceclaims", "resourceslices", "resourceclaimtemplates")


def serve(server: ScriptedServer, versions: dict[str, tuple[str, ...]], group: str = "resource.k8s.io") -> None:
    offered = {"kind": "APIGroup", "versions": [{"groupVersion": f"{group}/{v}", "version": v} for v in versions]}
    server.on("GET", f"/apis/{group}", (200, offered))
    server.on("GET", "/version", (200, {"gitVersion": "v1.36.2"}))
    for version, names in versions.items():
        resources = [{"name": name} for name in names]
        server.on("GET", f"/apis/{group}/{version}", (200, {"resources": resources}))


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        ({"v1": FOUR}, ""),
        ({"v1beta1": FOUR, "v1beta2": FOUR, "v1": FOUR}, ""),
        ({"v1": FOUR, "v1beta2": (*FOUR, "devicetaintrules")}, "v1beta2"),
        ({"v1": FOUR, "v1alpha3": ("devicetaintrules",)}, "v1alpha3"),
        ({"v1": (*FOUR, "devicetaintrules"), "v1beta2": (*FOUR, "devicetaintrules")}, "v1"),
    ],
)
async def test_the_newest_served_version_of_taint_rules_is_chosen(
    server: ScriptedServer, client: KubeClient, versions: dict[str, tuple[str, ...]], expected: str
) -> None:
    serve(server, versions)
    assert await discover(client) == Served(expected, server_version="v1.36.2")


CORE, EXTRA = "scheduling.k8s.io", "scheduling.x-k8s.io"
GROUPS = ("workloads", "podgroups", "podgroups/status")


@pytest.mark.parametrize(
    ("offered", "expected"),
    [
        ({}, ()),
        ({CORE: {"v1": ("priorityclasses",)}}, ()),
        ({CORE: {"v1": ("priorityclasses",), "v1alpha1": ("workloads",)}}, ()),
        ({CORE: {"v1": (), "v1alpha2": GROUPS}}, ((CORE, "v1alpha2"),)),
        ({CORE: {"v1alpha2": GROUPS, "v1alpha3": GROUPS, "v1beta1": GROUPS}}, ((CORE, "v1beta1"),)),
        ({CORE: {"v1alpha3": GROUPS, "v1beta1": ("workloads",)}}, ((CORE, "v1alpha3"),)),
        ({EXTRA: {"v1alpha1": ("podgroups", "elasticquotas")}}, ((EXTRA, "v1alpha1"),)),
        ({EXTRA: {"v1alpha1": ("elasticquotas",)}}, ()),
        (
            {EXTRA: {"v1alpha1": ("podgroups",)}, CORE: {"v1beta1": GROUPS}},
            ((CORE, "v1beta1"), (EXTRA, "v1alpha1")),
        ),
    ],
)
async def test_pod_groups_are_found_in_both_api_groups(
    server: ScriptedServer,
    client: KubeClient,
    offered: dict[str, dict[str, tuple[str, ...]]],
    expected: tuple[tuple[str, str], ...],
) -> None:
    serve(server, {"v1": FOUR})
    for group, versions in offered.items():
        serve(server, versions, group)
    assert (await discover(client)).pod_groups == expected


@pytest.mark.parametrize(
    ("versions", "told"),
    [
        ({}, "none"),
        ({"v1beta1": FOUR, "v1beta2": (*FOUR, "devicetaintrules")}, "v1beta1, v1beta2"),
        ({"v1": ("devicetaintrules",)}, "v1"),
    ],
)
async def test_where_claims_are_not_served_in_v1_the_error_says_what_is_and_what_to_do(
    server: ScriptedServer, client: KubeClient, versions: dict[str, tuple[str, ...]], told: str
) -> None:
    if versions:
        serve(server, versions)
    with pytest.raises(RejectedError) as caught:
        await discover(client)
    assert caught.value.message == (
        f"the API server does not serve claims in resource.k8s.io/v1 (versions served: {told}): "
        "upgrade it to Kubernetes 1.34 or newer, or turn the version on with its --runtime-config"
    )


@pytest.mark.parametrize("path", ["/apis/resource.k8s.io", "/apis/resource.k8s.io/v1"])
async def test_an_answer_that_makes_no_sense_is_one_to_ask_for_again(
    server: ScriptedServer, client: KubeClient, path: str
) -> None:
    """A proxy shows a page while the API server behind it is away."""
    server.on("GET", path, (200, ["<html>"]))
    serve(server, {"v1": FOUR})
    with pytest.raises(ApiError, match=path):
        await discover(client)


Json = dict[str, Any]


def unfilled(value: Any, path: str = "") -> list[str]:
    """Fields at their defaults, in all structs of a struct."""
    found: list[str] = []
    if isinstance(value, msgspec.Struct):
        fresh = {field.name: field.default for field in msgspec.structs.fields(value)}
        for name in value.__struct_fields__:
            item = getattr(value, name)
            found += [f"{path}.{name}"] if item == fresh[name] or item in ((), {}) else unfilled(item, f"{path}.{name}")
    elif isinstance(value, tuple):
        found += [name for item in value for name in unfilled(item, path)]
    elif isinstance(value, dict):
        found += [name for item in value.values() for name in unfilled(item, path)]
    return found


@pytest.mark.parametrize("kind", [v1.ResourceSlice, v1.ResourceClaim, v1.DeviceClass, v1.DeviceTaintRule, PodGroup])
def test_the_objects_of_these_tests_have_every_field(kind: type[Any]) -> None:
    assert unfilled(specimen(kind)) == []


@pytest.mark.parametrize(
    ("kind", "resource"),
    [
        (v1.ResourceSlice, RESOURCE_SLICES),
        (v1.ResourceClaim, RESOURCE_CLAIMS),
        (v1.DeviceClass, DEVICE_CLASSES),
        *((v1.DeviceTaintRule, device_taint_rules(version)) for version in RULE_VERSIONS),
    ],
)
def test_slices_claims_classes_and_taint_rules_keep_every_field(kind: type[Any], resource: Resource[Any]) -> None:
    item = specimen(kind)
    assert resource.decode(encode(item)) == item


@pytest.mark.parametrize("kind", [PodGroup, CoschedulingPodGroup])
def test_pod_groups_keep_every_field(kind: type[PodGroup]) -> None:
    item = specimen(kind)
    assert pod_groups(kind.api_group, "v1alpha1").decode(encode(item)) == item
