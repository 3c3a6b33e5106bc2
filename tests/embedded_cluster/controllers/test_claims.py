"""Life cycles of claims on the embedded cluster, without a scheduler: the tests allocate and bind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from dra_extender.api.resource import FINALIZER
from embedded_cluster import RequestFault
from embedded_cluster.cluster import EmbeddedCluster

Make = Callable[..., dict[str, Any]]
Write = Callable[..., Awaitable[None]]

MANAGER = "kube-controller-manager"


@pytest.fixture
async def generated(cluster: EmbeddedCluster, pod: Make, claim: Make) -> str:
    """A pod `p` with a claim made from a template; the claim's name."""
    await cluster.apply([claim("t", template=True), pod("p", templates={"gpu": "t"})])
    await cluster.wait_until(lambda: cluster.pod("default", "p").status.resource_claim_statuses)  # type: ignore[union-attr]
    found = cluster.pod("default", "p")
    assert found is not None
    name = found.status.resource_claim_statuses[0].resource_claim_name
    assert name is not None
    return name


async def test_a_template_becomes_a_claim_that_the_pod_owns(cluster: EmbeddedCluster, generated: str) -> None:
    found, owner = cluster.claim("default", generated), cluster.pod("default", "p")
    assert found is not None and owner is not None and generated.startswith("p-gpu-")
    assert found.metadata.labels == {"made-from": "t"}
    assert found.metadata.annotations == {"resource.kubernetes.io/pod-claim-name": "gpu"}
    assert [(o.kind, o.name, o.uid, o.controller) for o in found.metadata.owner_references] == [
        ("Pod", "p", owner.metadata.uid, True)
    ]
    assert found.metadata.finalizers == () and found.allocation is None


async def test_a_missing_template_is_told_and_used_when_it_comes(
    cluster: EmbeddedCluster, pod: Make, claim: Make
) -> None:
    await cluster.apply([pod("p", templates={"gpu": "late"})])
    await cluster.wait_until(lambda: cluster.events("default", "p"))
    assert cluster.events("default", "p")[0] == (
        "FailedResourceClaimCreation",
        'PodResourceClaim gpu: resource claim template "late": resourceclaimtemplate.resource.k8s.io "late" not found',
    )
    await cluster.apply([claim("late", template=True)])
    await cluster.wait_until(lambda: len(cluster.claims()) == 1)


async def test_a_generated_claim_that_was_deleted_is_made_again(cluster: EmbeddedCluster, generated: str) -> None:
    await cluster.delete("resourceclaims", generated, "default")
    await cluster.wait_until(lambda: [c.metadata.name for c in cluster.claims()] not in ([], [generated]))

    def recorded() -> str | None:
        found = cluster.pod("default", "p")
        return found.status.resource_claim_statuses[0].resource_claim_name if found else None

    await cluster.wait_until(lambda: recorded() == cluster.claims()[0].metadata.name)
    assert len(cluster.claims()) == 1


async def test_the_claim_of_a_finished_pod_goes_with_its_devices(
    cluster: EmbeddedCluster, generated: str, allocate: Write, bind: Write
) -> None:
    await allocate("default", generated, pods=("p",))
    await bind("default", "p", "node-1")
    await cluster.wait_until(lambda: cluster.running("default", "p"))
    await cluster.kubelet.finish("default", "p")
    await cluster.wait_until(lambda: cluster.claim("default", generated) is None)
    await cluster.wait_until(cluster.settled)
    assert cluster.claims() == [], "none is made again for a pod that has ended"
    assert cluster.pod("default", "p") is not None


async def test_the_claim_of_a_deleted_pod_goes_with_it(
    cluster: EmbeddedCluster, generated: str, allocate: Write, bind: Write
) -> None:
    await allocate("default", generated, pods=("p",))
    await bind("default", "p", "node-1")
    await cluster.wait_until(lambda: cluster.running("default", "p"))
    await cluster.delete("pods", "p", "default")
    await cluster.wait_until(lambda: cluster.claim("default", generated) is None)
    assert cluster.pod("default", "p") is None


async def test_a_standalone_claim_returns_to_pending_after_its_last_consumer(
    cluster: EmbeddedCluster, pod: Make, claim: Make, allocate: Write, bind: Write
) -> None:
    await cluster.apply([claim("c"), pod("a", claims={"gpu": "c"}), pod("b", claims={"gpu": "c"})])
    await allocate("default", "c", pods=("a", "b"))
    for name in ("a", "b"):
        await bind("default", name, "node-1")
    await cluster.wait_until(lambda: cluster.running("default", "a", "b"))
    await cluster.delete("pods", "a", "default")
    await cluster.wait_until(lambda: len(_claim(cluster).status.reserved_for) == 1)
    assert _claim(cluster).allocation is not None
    await cluster.delete("pods", "b", "default")
    await cluster.wait_until(lambda: _claim(cluster).metadata.finalizers == ())
    assert _claim(cluster).allocation is None and _claim(cluster).status.reserved_for == ()


async def test_deallocation_is_two_writes(
    cluster: EmbeddedCluster, pod: Make, claim: Make, allocate: Write, bind: Write
) -> None:
    await cluster.apply([claim("c"), pod("a", claims={"gpu": "c"})])
    await allocate("default", "c", pods=("a",))
    await bind("default", "a", "node-1")
    await cluster.wait_until(lambda: cluster.running("default", "a"))
    lines = cluster.client.stream(
        "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims",
        {"watch": "1", "resourceVersion": _claim(cluster).metadata.resource_version},
    )
    await cluster.delete("pods", "a", "default")
    states = []
    async for line in lines:
        found = msgspec.json.decode(line)["object"]
        states.append(("allocation" in found["status"], bool(found["metadata"].get("finalizers"))))
        if not states[-1][1]:
            break
    await lines.aclose()
    assert states == [(False, True), (False, False)]


async def test_a_claim_deleted_in_use_serves_its_consumers_to_the_end(
    cluster: EmbeddedCluster, pod: Make, claim: Make, allocate: Write, bind: Write
) -> None:
    await cluster.apply([claim("c"), pod("a", claims={"gpu": "c"})])
    await allocate("default", "c", pods=("a",))
    await bind("default", "a", "node-1")
    await cluster.wait_until(lambda: cluster.running("default", "a"))
    await cluster.delete("resourceclaims", "c", "default")
    assert _claim(cluster).metadata.deletion_timestamp is not None
    assert cluster.running("default", "a") and _claim(cluster).allocation is not None
    await cluster.delete("pods", "a", "default")
    await cluster.wait_until(lambda: cluster.claim("default", "c") is None)


async def test_an_allocation_that_nobody_reserved_stays_until_the_claim_is_deleted(
    cluster: EmbeddedCluster, pod: Make, claim: Make, allocate: Write
) -> None:
    await cluster.apply([claim("c"), claim("other"), pod("p", claims={"gpu": "other"})])
    await allocate("default", "c")
    await cluster.delete("pods", "p", "default")
    await cluster.wait_until(cluster.controllers.claim_controller.queue.idle)
    assert _claim(cluster).allocation is not None and FINALIZER in _claim(cluster).metadata.finalizers
    await cluster.delete("resourceclaims", "c", "default")
    await cluster.wait_until(lambda: cluster.claim("default", "c") is None)


async def test_a_pre_scheduled_pod_is_reserved_but_never_allocated_for(
    cluster: EmbeddedCluster, pod: Make, claim: Make, allocate: Write
) -> None:
    await cluster.apply([claim("c"), pod("p", claims={"gpu": "c"}, nodeName="node-2")])
    await cluster.wait_until(lambda: cluster.events("default", "p"))
    assert "is not allocated" in cluster.events("default", "p")[0][1]
    await allocate("default", "c", node="node-2", pods=("p",), reserve=False)
    await cluster.wait_until(lambda: cluster.running("default", "p"))
    assert len(_claim(cluster).status.reserved_for) == 1


async def test_conflicts_and_lost_replies_only_delay_the_controller(
    cluster: EmbeddedCluster, pod: Make, claim: Make, allocate: Write, bind: Write
) -> None:
    for fault in (
        RequestFault(verb="patch", resource="resourceclaims/status", user_agent=MANAGER, status=409, times=2),
        RequestFault(verb="create", resource="resourceclaims", user_agent=MANAGER, drop=True, after=True, times=1),
        RequestFault(verb="patch", resource="pods/status", user_agent=MANAGER, status=500, times=2),
        RequestFault(verb="patch", resource="resourceclaims", user_agent=MANAGER, status=500, after=True, times=1),
    ):  # fmt: skip
        cluster.faults.add(fault)
    await cluster.apply([claim("t", template=True), pod("p", templates={"gpu": "t"})])
    await cluster.wait_until(lambda: cluster.pod("default", "p").status.resource_claim_statuses)  # type: ignore[union-attr]
    assert len(cluster.claims()) == 1, "the claim whose creation had no reply is used, not made twice"
    name = cluster.claims()[0].metadata.name
    await allocate("default", name, pods=("p",))
    await bind("default", "p", "node-1")
    await cluster.wait_until(lambda: cluster.running("default", "p"))
    await cluster.kubelet.finish("default", "p")
    await cluster.wait_until(lambda: cluster.claim("default", name) is None)


def _claim(cluster: EmbeddedCluster) -> Any:
    found = cluster.claim("default", "c")
    assert found is not None
    return found
