"""Jobs whose pods take turns with the devices."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from embedded_cluster.cluster import EmbeddedCluster
from embedded_cluster.demo.language import selector_problem
from tests.support.flows.flow import Flow, flowing

Json = dict[str, Any]
DEVICES: Json = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}}


@pytest.fixture
async def flow() -> AsyncIterator[Flow]:
    """Two nodes with one GPU each; pods of Jobs run for a tenth of a second."""
    async with (
        EmbeddedCluster(nodes=2, devices=1, check_cel=selector_problem) as cluster,
        flowing(cluster) as running,
    ):
        cluster.kubelet.job_seconds = 0.1
        yield running


def resource(kind: str, name: str, spec: Json) -> Json:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec}


def job(*claims: Json, **spec: Any) -> Json:
    containers = [
        {"name": "main", "image": "a", "resources": {"claims": [{"name": entry["name"]} for entry in claims]}}
    ]
    pod = {"restartPolicy": "Never", "containers": containers, "resourceClaims": list(claims)}
    body = {"template": {"spec": pod}, **spec}
    return {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "default"}, "spec": body,
    }  # fmt: skip


def complete(flow: Flow) -> bool:
    status = (flow.cluster.store.get("jobs", "j", "default") or {}).get("status", {})
    return any(found["type"] == "Complete" for found in status.get("conditions") or ())


async def test_pods_that_have_ended_give_their_devices_to_the_next(flow: Flow) -> None:
    own = {"name": "own", "resourceClaimTemplateName": "t"}
    template = resource("ResourceClaimTemplate", "t", {"spec": DEVICES})
    await flow.cluster.apply([template, job(own, completions=6, parallelism=6)])
    await flow.cluster.wait_until(lambda: complete(flow), what="six pods take turns with two GPUs")
    await flow.cluster.wait_until(lambda: not flow.cluster.claims("default"), what="claims go with their pods")
    await flow.cluster.wait_until(flow.cluster.settled)
    assert flow.cluster.claims("default") == []
    assert [pod.status.phase for pod in flow.cluster.pods("default")] == ["Succeeded"] * 6
    assert flow.wrong() == []


async def test_a_claim_that_is_shared_is_kept_until_its_last_pod_has_ended(flow: Flow) -> None:
    shared = {"name": "shared", "resourceClaimName": "c"}
    await flow.cluster.apply([resource("ResourceClaim", "c", DEVICES), job(shared, completions=4, parallelism=2)])
    await flow.cluster.wait_until(lambda: complete(flow))
    await flow.cluster.wait_until(lambda: not flow.results("default", "c"), what="the GPU is free")
    assert flow.claim("default", "c").status.reserved_for == ()
    assert len({pod.metadata.uid for pod in flow.cluster.pods("default")}) == 4
