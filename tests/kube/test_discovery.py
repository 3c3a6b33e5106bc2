"""Which version of the resource API is spoken."""

from __future__ import annotations

import pytest

from dra_extender.api.errors import ApiError, RejectedError
from dra_extender.kube.client import KubeClient
from dra_extender.kube.resources import Served, discover
from tests.support.kube.scripted import ScriptedServer

FOUR = ("deviceclasses", "resourceclaims", "resourceslices", "resourceclaimtemplates")


def serve(server: ScriptedServer, versions: dict[str, tuple[str, ...]]) -> None:
    group = {"kind": "APIGroup", "versions": [{"groupVersion": f"resource.k8s.io/{v}", "version": v} for v in versions]}
    server.on("GET", "/apis/resource.k8s.io", (200, group))
    server.on("GET", "/version", (200, {"gitVersion": "v1.36.2"}))
    for version, names in versions.items():
        resources = [{"name": name} for name in names]
        server.on("GET", f"/apis/resource.k8s.io/{version}", (200, {"resources": resources}))


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        ({"v1": FOUR}, ("v1", "")),
        ({"v1beta1": FOUR, "v1beta2": FOUR, "v1": FOUR}, ("v1", "")),
        ({"v1beta1": FOUR, "v1beta2": FOUR}, ("v1beta2", "")),
        ({"v1beta1": FOUR}, ("v1beta1", "")),
        ({"v1": FOUR, "v1beta2": (*FOUR, "devicetaintrules")}, ("v1", "v1beta2")),
        ({"v1": FOUR, "v1alpha3": ("devicetaintrules",)}, ("v1", "v1alpha3")),
        ({"v1": (*FOUR, "devicetaintrules"), "v1beta2": (*FOUR, "devicetaintrules")}, ("v1", "v1")),
    ],
)
async def test_the_best_served_version_is_chosen(
    server: ScriptedServer, client: KubeClient, versions: dict[str, tuple[str, ...]], expected: tuple[str, str]
) -> None:
    serve(server, versions)
    assert await discover(client) == Served(*expected, server_version="v1.36.2")


@pytest.mark.parametrize("versions", [None, {"v1alpha3": ("resourceclaims",)}])
async def test_a_server_without_the_resource_api_is_named_as_such(
    server: ScriptedServer, client: KubeClient, versions: dict[str, tuple[str, ...]] | None
) -> None:
    if versions is not None:
        serve(server, versions)
    with pytest.raises(RejectedError, match=r"serves no usable version of resource\.k8s\.io"):
        await discover(client)


@pytest.mark.parametrize("path", ["/apis/resource.k8s.io", "/apis/resource.k8s.io/v1"])
async def test_an_answer_that_makes_no_sense_is_one_to_ask_for_again(
    server: ScriptedServer, client: KubeClient, path: str
) -> None:
    """A proxy shows a page while the API server behind it is away."""
    server.on("GET", path, (200, ["<html>"]))
    serve(server, {"v1": FOUR})
    with pytest.raises(ApiError, match=path):
        await discover(client)
