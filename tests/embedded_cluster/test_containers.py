"""What people ask of containers and of nodes that are not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from dra_extender.api.errors import ApiError
from embedded_cluster.cluster import EmbeddedCluster
from tests.support.embedded.kubectl import Kubectl, needs_kubectl

POD = "/api/v1/namespaces/default/pods/p"


def pod(**spec: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": "a", "resources": {"claims": [{"name": "gpu"}]}}]
    entries = [{"name": "gpu", "resourceClaimName": "c"}]
    spec = {"containers": containers, "resourceClaims": entries, "schedulerName": "nobody"} | spec
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"}, "spec": spec}


async def refused(cluster: EmbeddedCluster, path: str, method: str = "GET") -> tuple[int, str]:
    with pytest.raises(ApiError) as caught:
        await cluster.client.request(method, path)
    return caught.value.status, caught.value.message


async def test_the_log_has_the_variables_that_tutorials_look_for(cluster: EmbeddedCluster) -> None:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}
    claim: dict[str, Any] = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
    claim |= {"metadata": {"name": "c", "namespace": "default"}, "spec": {"devices": {"requests": [request]}}}
    await cluster.apply([claim, pod(nodeName="node-1")])
    made = cluster.pod("default", "p")
    assert made is not None
    result = {"request": "gpu", "driver": "gpu.example.com", "pool": "node-1", "device": "gpu-1"}
    user = {"resource": "pods", "name": "p", "uid": made.metadata.uid}
    status = {"status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": [user]}}
    path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/c/status"
    assert "ContainerCreating" in (await refused(cluster, f"{POD}/log"))[1]
    await cluster.client.patch(path, msgspec.json.encode(status))
    await cluster.wait_until(lambda: cluster.running("default", "p"))
    stored = cluster.claim("default", "c")
    assert stored is not None
    note, *variables = (await cluster.client.get(f"{POD}/log")).decode().splitlines()
    assert note.startswith("# no containers run in this cluster")
    assert variables == [
        'declare -x GPU_DEVICE_1="gpu-1"',
        f'declare -x GPU_DEVICE_1_RESOURCE_CLAIM="{stored.metadata.uid}"',
    ]


async def test_a_log_is_of_one_container_that_was_started(cluster: EmbeddedCluster) -> None:
    two = [{"name": "main", "image": "a"}, {"name": "side", "image": "b"}]
    await cluster.apply([pod(containers=two, resourceClaims=[])])
    told = "a container name must be specified for pod p, choose one of: [main side]"
    assert await refused(cluster, f"{POD}/log") == (400, told)
    assert await refused(cluster, f"{POD}/log?container=x") == (400, "container x is not valid for pod p")
    assert await cluster.client.get(f"{POD}/log?container=side") == b"", "it is on no node yet"
    assert (await refused(cluster, "/api/v1/namespaces/default/pods/none/log"))[0] == 404


@pytest.mark.parametrize("what", ["exec", "attach", "portforward"])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_nobody_is_connected_to_containers_that_do_not_run(
    cluster: EmbeddedCluster, what: str, method: str
) -> None:
    await cluster.apply([pod(resourceClaims=[], containers=[{"name": "main", "image": "a"}])])
    status, message = await refused(cluster, f"{POD}/{what}", method)
    assert status == 501 and message.startswith("no containers run here")


async def test_a_deleted_node_takes_its_pods_along(cluster: EmbeddedCluster) -> None:
    bare = {"containers": [{"name": "main", "image": "a"}], "resourceClaims": []}
    stays = pod(**bare, nodeName="node-2")
    stays["metadata"]["name"] = "stays"
    await cluster.apply([pod(**bare, nodeName="node-1"), stays])
    await cluster.wait_until(lambda: cluster.running("default", "p", "stays"))
    await cluster.delete("nodes", "node-1")
    await cluster.wait_until(lambda: cluster.pod("default", "p") is None)
    await cluster.wait_until(cluster.settled)
    assert [(found.metadata.name, found.spec.node_name) for found in cluster.pods()] == [("stays", "node-2")]
    assert cluster.running("default", "stays")


@needs_kubectl
@pytest.mark.parametrize(
    "command",
    [
        "exec p -- ls",
        "exec -it p -- sh",
        "exec p -c main -- env",
        "attach p",
        "cp p:/etc/hosts hosts",
        "cp kubeconfig p:/tmp/there",
        "port-forward pod/p 8080:80",
        pytest.param(
            'run one --image=busybox --restart=Never -it --rm --overrides={"spec":{"nodeName":"node-1"}} -- sh',
            marks=pytest.mark.slow,  # kubectl waits a minute for the container before it asks for its logs
        ),
    ],
)
async def test_kubectl_says_that_no_containers_run(cluster: EmbeddedCluster, tmp_path: Path, command: str) -> None:
    kubectl = Kubectl(cluster.kubeconfig, tmp_path)
    (tmp_path / "kubeconfig").touch()
    bare = {"containers": [{"name": "main", "image": "a"}], "resourceClaims": []}
    await cluster.apply([pod(**bare, nodeName="node-1")])
    await cluster.wait_until(lambda: cluster.running("default", "p"))
    told = await kubectl(*command.split(), code=1)
    assert "no containers run here: this cluster only shows what is scheduled" in told


async def test_the_log_of_the_example_driver_tells_what_is_done_for_it(cluster: EmbeddedCluster) -> None:
    bare = {"containers": [{"name": "main", "image": "dra-example-driver:v1"}], "resourceClaims": []}
    await cluster.apply([pod(**bare, nodeName="node-1")])
    await cluster.wait_until(lambda: cluster.running("default", "p"))
    note, *lines = (await cluster.client.get(f"{POD}/log")).decode().splitlines()
    assert note == "# no containers run in this cluster; what it does for this driver on node-1:"
    assert lines == ["published devices: 2", "prepared claims: 0"]
