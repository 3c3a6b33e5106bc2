"""Stock clients on the embedded server: kubectl, kubernetes-asyncio, and a server in a process of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes_asyncio import client as kubernetes
from kubernetes_asyncio import config, watch

from embedded_cluster.apiserver import EmbeddedAPIServer
from tests.support.embedded.client import ALLOCATION
from tests.support.embedded.kubectl import Kubectl, needs_kubectl, rows

MANIFEST = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.example.com}
spec:
  selectors: [{cel: {expression: "device.driver == 'gpu.example.com'"}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: some-gpu}
spec:
  devices:
    requests:
    - name: gpu
      exactly: {deviceClassName: gpu.example.com}
---
apiVersion: v1
kind: Pod
metadata: {name: pod, labels: {app: demo}}
spec:
  containers:
  - name: main
    image: busybox:1
    resources: {claims: [{name: gpu}]}
  resourceClaims: [{name: gpu, resourceClaimName: some-gpu}]
"""


@pytest.fixture
async def kubectl(server: EmbeddedAPIServer, tmp_path: Path) -> Kubectl:
    return Kubectl(server.write_kubeconfig(tmp_path / "kubeconfig"), tmp_path)


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """Where MANIFEST stands."""
    path = tmp_path / "manifest.yaml"
    path.write_text(MANIFEST)
    return path


def write(path: Path, text: str) -> None:
    path.write_text(text)


@needs_kubectl
async def test_kubectl_applies_and_gets(kubectl: Kubectl, manifest: Path) -> None:
    assert await kubectl("apply", "-f", str(manifest)) == (
        "deviceclass.resource.k8s.io/gpu.example.com created\n"
        "resourceclaim.resource.k8s.io/some-gpu created\n"
        "pod/pod created\n"
    )
    listed = rows(await kubectl("get", "resourceclaims,pods", "-A"))
    assert [row[:3] for row in listed if row][1] == ["default", "resourceclaim.resource.k8s.io/some-gpu", "pending"]
    assert ["default", "pod/pod", "0/1", "Pending", "0"] in [row[:5] for row in listed]


@needs_kubectl
async def test_kubectl_applies_changes_without_flags(kubectl: Kubectl, manifest: Path) -> None:
    await kubectl("apply", "-f", str(manifest))
    write(manifest, MANIFEST.replace("app: demo", "app: changed"))
    assert "pod/pod configured" in await kubectl("apply", "-f", str(manifest))
    assert await kubectl("get", "pod", "pod", "-o", "jsonpath={.metadata.labels.app}") == "changed"


@needs_kubectl
async def test_kubectl_applies_on_the_server_and_again(kubectl: Kubectl, manifest: Path) -> None:
    expected = (
        "deviceclass.resource.k8s.io/gpu.example.com serverside-applied\n"
        "resourceclaim.resource.k8s.io/some-gpu serverside-applied\n"
        "pod/pod serverside-applied\n"
    )
    assert await kubectl("apply", "--server-side", "-f", str(manifest)) == expected
    assert await kubectl("apply", "--server-side", "-f", str(manifest)) == expected


@needs_kubectl
async def test_kubectl_names_unknown_fields(kubectl: Kubectl, manifest: Path) -> None:
    write(manifest, MANIFEST.replace("image: busybox:1", "image: busybox:1\n    colour: red"))
    problems = await kubectl("apply", "-f", str(manifest), code=1)
    assert 'unknown field "spec.containers[0].colour"' in problems


@needs_kubectl
async def test_kubectl_shows_an_allocated_claim_and_describes_it(
    server: EmbeddedAPIServer, kubectl: Kubectl, manifest: Path
) -> None:
    await kubectl("create", "-f", str(manifest))
    claim = server.store.get("resourceclaims", "some-gpu", "default")
    assert claim is not None
    claim["status"] = {"allocation": ALLOCATION, "reservedFor": [{"resource": "pods", "name": "pod", "uid": "u"}]}
    server.store.update(claim, subresource="status")
    assert rows(await kubectl("get", "resourceclaims"))[1][:2] == ["some-gpu", "allocated,reserved"]
    assert "gpu-0" in await kubectl("describe", "resourceclaim", "some-gpu")
    assert "Pending" in await kubectl("describe", "pod", "pod")


@needs_kubectl
async def test_kubectl_deletes_and_waits(kubectl: Kubectl, manifest: Path) -> None:
    await kubectl("apply", "-f", str(manifest))
    assert await kubectl("delete", "pod", "pod", "--timeout=90s") == 'pod "pod" deleted\n'
    assert "NotFound" in await kubectl("get", "pod", "pod", code=1)


@needs_kubectl
async def test_kubectl_lists_what_is_served(kubectl: Kubectl) -> None:
    names = {row[0] for row in rows(await kubectl("api-resources", "--no-headers"))}
    assert {"pods", "resourceclaims", "resourceslices", "deviceclasses", "devicetaintrules", "leases"} <= names
    assert "Server Version: v1.37" in await kubectl("version")


@needs_kubectl
async def test_kubectl_says_how_to_create_without_files(kubectl: Kubectl) -> None:
    refused = await kubectl("create", "namespace", "team", code=1)
    remedy = "--dry-run=client -o yaml | kubectl apply -f -"
    assert "not protobuf" in refused and remedy in refused
    assert await kubectl.shell(f"kubectl create namespace team {remedy}") == "namespace/team created\n"
    assert await kubectl("delete", "namespace", "team", "--timeout=90s") == 'namespace "team" deleted\n'


@needs_kubectl
async def test_kubectl_edits_in_small_ways(kubectl: Kubectl, manifest: Path) -> None:
    await kubectl("apply", "-f", str(manifest))
    assert await kubectl("label", "pod", "pod", "tier=gold") == "pod/pod labeled\n"
    assert await kubectl("annotate", "pod", "pod", "note=x") == "pod/pod annotated\n"
    assert "patched" in await kubectl("patch", "pod", "pod", "-p", '{"metadata":{"labels":{"tier":null}}}')
    assert await kubectl("get", "pod", "-l", "tier=gold", "-o", "name") == ""


@pytest.fixture
async def api(server: EmbeddedAPIServer, tmp_path: Path) -> AsyncIterator[Any]:
    await config.load_kube_config(str(server.write_kubeconfig(tmp_path / "kubeconfig")))
    async with kubernetes.ApiClient() as connection:
        yield connection


async def test_kubernetes_asyncio_reads_and_writes(api: Any) -> None:
    core = kubernetes.CoreV1Api(api)
    body = kubernetes.V1ConfigMap(metadata=kubernetes.V1ObjectMeta(name="a"), data={"x": "1"})
    created = await core.create_namespaced_config_map("default", body)
    assert created.metadata.uid
    await core.patch_namespaced_config_map("a", "default", {"data": {"y": "2"}})
    assert (await core.read_namespaced_config_map("a", "default")).data == {"x": "1", "y": "2"}
    assert [item.metadata.name for item in (await core.list_namespaced_config_map("default")).items] == ["a"]
    await core.delete_namespaced_config_map("a", "default")
    with pytest.raises(kubernetes.ApiException) as missing:
        await core.read_namespaced_config_map("a", "default")
    assert missing.value.status == 404


async def test_kubernetes_asyncio_watches(api: Any) -> None:
    core = kubernetes.CoreV1Api(api)
    body = kubernetes.V1ConfigMap(metadata=kubernetes.V1ObjectMeta(name="a"))
    await core.create_namespaced_config_map("default", body)
    async with watch.Watch().stream(core.list_namespaced_config_map, "default", timeout_seconds=90) as stream:
        async for event in stream:
            assert (event["type"], event["object"].metadata.name) == ("ADDED", "a")
            break


async def test_kubernetes_asyncio_reads_claims_slices_pods_and_nodes(server: EmbeddedAPIServer, api: Any) -> None:
    server.store.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    server.store.create(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": "s"},
            "spec": {
                "driver": "d.example.com",
                "nodeName": "n1",
                "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": "a", "capacity": {"memory": {"value": "1Gi"}}}],
            },
        }
    )
    slices = (await kubernetes.ResourceV1Api(api).list_resource_slice()).items
    assert slices[0].spec.devices[0].capacity["memory"].value == "1Gi"
    assert (await kubernetes.CoreV1Api(api).list_node()).items[0].metadata.name == "n1"
