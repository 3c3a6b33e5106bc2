"""The kubelet stand-in: what lets a pod run, and how pods end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from dra_extender.api.decoding import convert
from dra_extender.api.errors import NotFoundError
from dra_extender.api.resource import ResourceClaim
from embedded_cluster.cluster import EmbeddedCluster
from embedded_cluster.kubelet import RUN_SECONDS, STAYS, obstacle, runs_for
from embedded_cluster.objects import FullPod

Make = Callable[..., dict[str, Any]]
Write = Callable[..., Awaitable[None]]

ALLOCATED: dict[str, Any] = {"allocation": {"devices": {}}}
RESERVED = ALLOCATED | {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u1"}]}
OWNED = [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u1", "controller": True}]
GROUP_API = "scheduling.k8s.io"
OF_GROUP = ALLOCATED | {"reservedFor": [{"apiGroup": GROUP_API, "resource": "podgroups", "name": "g", "uid": "g1"}]}
GROUP_OWNS = [{"apiVersion": f"{GROUP_API}/v1alpha2", "kind": "PodGroup", "name": "g", "uid": "g1", "controller": True}]


@pytest.mark.parametrize(
    ("entry", "statuses", "claim", "want"),
    [
        ({"resourceClaimName": "c"}, [], None, 'could not find ResourceClaim "ns/c"'),
        ({"resourceClaimName": "c"}, [], ({}, []), "ResourceClaim ns/c is not allocated"),
        ({"resourceClaimName": "c"}, [], (ALLOCATED, []), "ResourceClaim ns/c is not reserved for this pod"),
        ({"resourceClaimName": "c"}, [], (RESERVED, []), ""),
        ({"resourceClaimTemplateName": "t"}, [], None, 'pod "ns/p": ResourceClaim not created yet'),
        ({"resourceClaimTemplateName": "t"}, [{"name": "gpu"}], None, ""),
        (
            {"resourceClaimTemplateName": "t"},
            [{"name": "gpu", "resourceClaimName": "c"}],
            (RESERVED, []),
            "ResourceClaim ns/c was not created for Pod ns/p (Pod is not owner)",
        ),
        ({"resourceClaimTemplateName": "t"}, [{"name": "gpu", "resourceClaimName": "c"}], (RESERVED, OWNED), ""),
        ({"resourceClaimTemplateName": "t"}, [{"name": "gpu", "resourceClaimName": "c"}], (OF_GROUP, GROUP_OWNS), ""),
        (
            {"resourceClaimTemplateName": "t"},
            [{"name": "gpu", "resourceClaimName": "c"}],
            (ALLOCATED, GROUP_OWNS),
            "ResourceClaim ns/c is not reserved for this pod",
        ),
    ],
)
def test_a_pod_starts_only_with_all_its_claims(
    entry: dict[str, str], statuses: list[dict[str, str]], claim: tuple[dict[str, Any], list[Any]] | None, want: str
) -> None:
    pod = convert(
        FullPod,
        {
            "metadata": {"name": "p", "namespace": "ns", "uid": "u1"},
            "spec": {"resourceClaims": [{"name": "gpu", **entry}], "schedulingGroup": {"podGroupName": "g"}},
            "status": {"resourceClaimStatuses": statuses},
        },
    )
    stored = None
    if claim is not None:
        meta = {"name": "c", "namespace": "ns", "ownerReferences": claim[1]}
        stored = convert(ResourceClaim, {"metadata": meta, "status": claim[0]})
    assert obstacle(pod, lambda namespace, name: stored) == want


async def test_a_bound_pod_without_its_claim_says_why_and_starts_when_it_is_there(
    cluster: EmbeddedCluster, pod: Make, claim: Make, allocate: Write
) -> None:
    await cluster.apply([claim("c"), pod("p", claims={"gpu": "c"}, nodeName="node-1")])
    await cluster.wait_until(lambda: cluster.events("default", "p"))
    told = "Failed to prepare dynamic resources: ResourceClaim default/c is not allocated"
    assert cluster.events("default", "p") == [("FailedPrepareDynamicResources", told)]
    found = cluster.store.get("pods", "p", "default")
    assert found is not None
    assert found["status"]["containerStatuses"][0]["state"]["waiting"]["message"].endswith("c is not allocated")
    await allocate("default", "c", pods=("p",))
    await cluster.wait_until(lambda: cluster.running("default", "p"))


async def test_a_deleted_pod_leaves_after_its_grace_period_only_if_it_was_bound(
    cluster: EmbeddedCluster, pod: Make
) -> None:
    await cluster.apply([pod("bound", nodeName="node-1"), pod("unbound")])
    await cluster.wait_until(lambda: cluster.running("default", "bound"))
    for name in ("bound", "unbound"):
        await cluster.delete("pods", name, "default")
    assert cluster.pod("default", "unbound") is None
    assert cluster.pod("default", "bound") is not None
    await cluster.wait_until(lambda: cluster.pod("default", "bound") is None)


async def test_a_deleted_pod_that_is_told_to_stay_keeps_running_until_it_may_go(
    cluster: EmbeddedCluster, pod: Make
) -> None:
    await cluster.apply([pod("held", nodeName="node-1", annotations={STAYS: ""}), pod("other", nodeName="node-1")])
    await cluster.wait_until(lambda: cluster.running("default", "held") and cluster.running("default", "other"))
    for name in ("held", "other"):
        await cluster.delete("pods", name, "default")
    await cluster.wait_until(lambda: cluster.pod("default", "other") is None)
    held = cluster.pod("default", "held")
    assert held is not None and held.metadata.deletion_timestamp and held.status.phase == "Running"
    path = "/api/v1/namespaces/default/pods/held"
    await cluster.client.patch(path, msgspec.json.encode({"metadata": {"annotations": {STAYS: None}}}))
    await cluster.wait_until(lambda: cluster.pod("default", "held") is None)
    assert cluster.pod("default", "held") is None


async def test_a_pod_can_be_told_how_long_to_run(cluster: EmbeddedCluster, pod: Make) -> None:
    await cluster.apply([pod("p", nodeName="node-1", annotations={RUN_SECONDS: "0.1"})])
    await cluster.wait_until(lambda: _phase(cluster, "p") == "Succeeded")
    found = cluster.pod("default", "p")
    assert found is not None and found.finished


async def test_pods_end_on_request(cluster: EmbeddedCluster, pod: Make) -> None:
    await cluster.apply([pod("p", nodeName="node-1")])
    await cluster.wait_until(lambda: cluster.running("default", "p"))
    await cluster.kubelet.finish("default", "p", "Failed")
    assert _phase(cluster, "p") == "Failed"
    with pytest.raises(NotFoundError):
        await cluster.kubelet.finish("default", "absent")


def _phase(cluster: EmbeddedCluster, name: str) -> str:
    found = cluster.pod("default", name)
    return found.status.phase if found is not None else ""


@pytest.mark.parametrize(("told", "seconds"), [(None, None), ("2", 2.0), ("0.5", 0.5), ("soon", None), ("inf", None)])
def test_pods_run_for_ever_unless_an_annotation_says_how_long(told: str | None, seconds: float | None) -> None:
    annotations = {} if told is None else {RUN_SECONDS: told}
    assert runs_for(convert(FullPod, {"metadata": {"annotations": annotations}})) == seconds
