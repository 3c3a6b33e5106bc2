"""The tutorial of Kubernetes, "Install Drivers and Allocate Devices with DRA", from its first command to its last.

The commands are those of the tutorial, in its order, with a folder in place of the address of its examples; only the
namespace is created by `kubectl apply`, because the embedded cluster does not read protobuf. The
manifests in `tutorial/` have the same fields. Where the tutorial takes for granted that time passes, the
test waits.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from embedded_cluster.cluster import EmbeddedCluster
from tests.support.embedded.kubectl import Kubectl, needs_kubectl, rows
from tests.support.flows.flow import Flow, flowing

EXAMPLES = Path(__file__).with_name("tutorial")
NODES = ("node-1", "node-2")


@pytest.fixture
async def flow() -> AsyncIterator[Flow]:
    """Two nodes on which no driver is installed."""
    async with (
        EmbeddedCluster(nodes=len(NODES), installed=False) as cluster,
        flowing(cluster) as running,
    ):
        cluster.controllers.driver_pods.linger = 0.1
        yield running


@pytest.fixture
def kubectl(flow: Flow, tmp_path: Path) -> Kubectl:
    return Kubectl(flow.cluster.kubeconfig, tmp_path)


async def applied(kubectl: Kubectl, name: str) -> str:
    """The output; a warning about fields that the embedded cluster does not validate is not part of it."""
    return await kubectl("apply", "--server-side", "-f", f"{EXAMPLES}/{name}.yaml")


async def install(kubectl: Kubectl) -> None:
    """The part of the tutorial that leads to a driver on every node."""
    create = "kubectl create namespace dra-tutorial --dry-run=client -o yaml | kubectl apply -f -"
    assert await kubectl.shell(create) == "namespace/dra-tutorial created\n"
    for name, told in {
        "deviceclass": "deviceclass.resource.k8s.io/gpu.example.com",
        "serviceaccount": "serviceaccount/dra-example-driver-service-account",
        "clusterrole": "clusterrole.rbac.authorization.k8s.io/dra-example-driver-role",
        "clusterrolebinding": "clusterrolebinding.rbac.authorization.k8s.io/dra-example-driver-role-binding",
        "priorityclass": "priorityclass.scheduling.k8s.io/dra-driver-high-priority",
        "daemonset": "daemonset.apps/dra-example-driver-kubeletplugin",
    }.items():
        assert await applied(kubectl, name) == f"{told} serverside-applied\n"
    rolled = await kubectl("rollout", "status", "daemonset/dra-example-driver-kubeletplugin", "-n", "dra-tutorial")
    assert rolled.endswith('daemon set "dra-example-driver-kubeletplugin" successfully rolled out\n')


@needs_kubectl
async def test_the_tutorial_of_kubernetes_goes_as_it_says(flow: Flow, kubectl: Kubectl) -> None:
    shell = kubectl.shell
    for plural in ("deviceclasses", "resourceslices", "resourceclaimtemplates -A"):
        assert await shell(f"kubectl get {plural}") == "No resources found\n"
    own = rows(await shell("kubectl get resourceclaims -A"))[1:]
    assert [row[:2] for row in own] == [["dra-system", "dra-extender-requeue"]], "that of the service itself"

    await install(kubectl)
    title, *pods = rows(await shell("kubectl get pod -l app.kubernetes.io/name=dra-example-driver -n dra-tutorial"))
    assert title == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert [row[1:4] for row in pods] == [["1/1", "Running", "0"]] * len(NODES)
    assert all(row[0].startswith("dra-example-driver-kubeletplugin-") for row in pods)
    await flow.cluster.wait_until(lambda: len(flow.cluster.slices()) == len(NODES), what="the drivers publish")
    title, *slices = rows(await shell("kubectl get resourceslices"))
    assert title == ["NAME", "NODE", "DRIVER", "POOL", "AGE"]
    assert [row[1:4] for row in slices] == [[node, "gpu.example.com", node] for node in NODES]

    assert await applied(kubectl, "resourceclaim") == "resourceclaim.resource.k8s.io/some-gpu serverside-applied\n"
    assert await applied(kubectl, "pod") == "pod/pod0 serverside-applied\n"
    await shell("kubectl wait --for=condition=Ready pod/pod0 -n dra-tutorial --timeout=90s")
    assert rows(await shell("kubectl get pod pod0 -n dra-tutorial"))[1][:4] == ["pod0", "1/1", "Running", "0"]
    (result,) = flow.results("dra-tutorial", "some-gpu")
    number = result.device.removeprefix("gpu-")
    searched = 'grep -E "GPU_DEVICE_[0-9]+=" | grep -v "RESOURCE_CLAIM"'
    logged = await shell(f"kubectl logs pod0 -c ctr0 -n dra-tutorial | {searched}")
    assert logged == f'declare -x GPU_DEVICE_{number}="gpu-{number}"\n'
    listed = rows(await shell("kubectl get resourceclaims -n dra-tutorial"))
    assert [listed[0], listed[1][:2]] == [["NAME", "STATE", "AGE"], ["some-gpu", "allocated,reserved"]]

    claim = yaml.safe_load(await shell("kubectl get resourceclaim some-gpu -n dra-tutorial -o yaml"))
    pod = yaml.safe_load(await shell("kubectl get pod pod0 -n dra-tutorial -o yaml"))
    assert claim["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    asked = claim["spec"]["devices"]["requests"][0]["exactly"]
    assert (asked["allocationMode"], asked["count"]) == ("ExactCount", 1), "what the server adds"
    node = pod["spec"]["nodeName"]
    assert claim["status"]["reservedFor"] == [{"name": "pod0", "resource": "pods", "uid": pod["metadata"]["uid"]}]
    allocation = claim["status"]["allocation"]
    assert allocation["devices"]["results"] == [
        {"device": result.device, "driver": "gpu.example.com", "pool": node, "request": "some-gpu"}
    ]
    (term,) = allocation["nodeSelector"]["nodeSelectorTerms"]
    assert term == {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}

    told = "kubectl logs -l app.kubernetes.io/name=dra-example-driver -n dra-tutorial"
    prepared = f"prepared devices of claim dra-tutorial/some-gpu ({claim['metadata']['uid']}): {result.device}"
    lines = (await shell(told)).splitlines()
    assert lines.count("published devices: 9") == len(NODES)
    assert (prepared in lines, lines.count("prepared claims: 1"), lines.count("prepared claims: 0")) == (True, 1, 1)

    gone = await shell("kubectl delete pod pod0 -n dra-tutorial")
    assert gone.startswith('pod "pod0" deleted')
    await flow.cluster.wait_until(lambda: not flow.results("dra-tutorial", "some-gpu"), what="the GPU is free")
    assert rows(await shell("kubectl get resourceclaims -n dra-tutorial"))[1][:2] == ["some-gpu", "pending"]
    assert (await shell(told)).splitlines().count("prepared claims: 0") == len(NODES)

    for line in (
        "kubectl delete namespace dra-tutorial",
        "kubectl delete deviceclass gpu.example.com",
        "kubectl delete clusterrole dra-example-driver-role",
        "kubectl delete clusterrolebinding dra-example-driver-role-binding",
        "kubectl delete priorityclass dra-driver-high-priority",
    ):
        assert "deleted" in await shell(line)
    await flow.cluster.wait_until(lambda: not flow.cluster.slices(), what="the slices go with their driver")
    left = await shell("kubectl get resourceclaims,pods,daemonsets -n dra-tutorial")
    assert left == "No resources found in dra-tutorial namespace.\n"
    assert flow.cluster.audit() == []


@needs_kubectl
async def test_a_driver_without_its_priority_class_is_told_what_is_missing(flow: Flow, kubectl: Kubectl) -> None:
    await kubectl.shell("kubectl create namespace dra-tutorial --dry-run=client -o yaml | kubectl apply -f -")
    await applied(kubectl, "daemonset")
    missing = "no PriorityClass with name dra-driver-high-priority was found"
    await flow.cluster.wait_until(lambda: missing in str(flow.cluster.store.list("events", "dra-tutorial")))
    await applied(kubectl, "priorityclass")
    await kubectl("rollout", "status", "daemonset/dra-example-driver-kubeletplugin", "-n", "dra-tutorial")
    await flow.cluster.wait_until(lambda: len(flow.cluster.slices()) == len(NODES))
    assert {part.spec.node_name for part in flow.cluster.slices()} == set(NODES)
