"""`dra-extender audit` against a cluster in which somebody has given a device away twice."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from dra_extender.api.decoding import encode
from dra_extender.api.resource import FINALIZER
from dra_extender.cli.answers.audit import answer
from dra_extender.cli.options import AuditOptions
from dra_extender.cli.output import FAILED, NO, YES
from embedded_cluster.cluster import EmbeddedCluster


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(nodes=1, devices=2) as made:
        yield made


async def allocate(cluster: EmbeddedCluster, name: str, device: int) -> None:
    """A claim as any allocator would have left it."""
    part = cluster.slices()[0]
    names = {"driver": part.spec.driver, "pool": part.spec.pool.name, "device": part.spec.devices[device].name}
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": [request]}},
    }
    await cluster.apply([claim])
    path = f"/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/{name}"
    await cluster.client.patch(path, encode({"metadata": {"finalizers": [FINALIZER]}}))
    status = {"allocation": {"devices": {"results": [{"request": "gpu", **names}]}}}
    await cluster.client.patch(f"{path}/status", encode({"status": status}))


async def test_a_clean_cluster_is_told_to_be_clean(
    cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    await allocate(cluster, "one", 0)
    await allocate(cluster, "two", 1)
    assert await answer(AuditOptions(kubeconfig=str(cluster.kubeconfig))) == YES
    assert capsys.readouterr().out == "2 allocated claims, 0 violations\n"


async def test_a_device_in_two_claims_is_listed_with_both(
    cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    await allocate(cluster, "one", 0)
    await allocate(cluster, "two", 0)
    assert await answer(AuditOptions(kubeconfig=str(cluster.kubeconfig))) == NO
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("device gpu.example.com/")
    assert first.endswith("allocated to 2 claims; claims: default/one, default/two")
    assert last == "2 allocated claims, 1 violation"


@pytest.mark.parametrize(("gates", "file"), [("", "nowhere"), ("Nonsense=true", "")])
async def test_a_question_that_cannot_be_answered_has_a_status_of_its_own(
    cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str], gates: str, file: str
) -> None:
    assert await answer(AuditOptions(feature_gates=gates, kubeconfig=file or str(cluster.kubeconfig))) == FAILED
    assert capsys.readouterr().err.startswith("dra-extender: ")
