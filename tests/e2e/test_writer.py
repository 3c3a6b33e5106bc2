"""Every write of the extender against a real API server: what it accepts, refuses, and calls the refusal."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from dra_extender.api.core import Node, Pod
from dra_extender.api.errors import ConflictError, NotFoundError, NotServedError, RejectedError
from dra_extender.api.events import Applied, ClusterEvent, Removed
from dra_extender.api.resource import (
    FINALIZER,
    GROUP,
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    OpaqueDeviceConfiguration,
    ResourceClaim,
    ResourceClaimConsumerReference,
)
from dra_extender.kube.access import (
    BINDING,
    missing_permissions,
    permissions_for_lease,
    permissions_for_reading,
)
from dra_extender.kube.client import KubeClient
from dra_extender.kube.credentials import ClientSettings
from dra_extender.kube.events import EventRecorder
from dra_extender.kube.knownobjects import KnownObjects
from dra_extender.kube.lease import LeaderElection, LeaseSettings
from dra_extender.kube.reflector import Reflector
from dra_extender.kube.resources import DEVICE_CLASSES, NODES, RULE_VERSIONS, Served, discover
from dra_extender.kube.writer import RequeueClaim, Writer
from dra_extender.scheduling.release.clear import RELEASED
from tests.e2e.controlplane import ControlPlane
from tests.support.patience import LONGEST, until

pytestmark = pytest.mark.e2e

DRIVER = "writer.example.com"
ALLOCATION = AllocationResult(
    devices=DeviceAllocationResult(
        results=(DeviceRequestAllocationResult("r", DRIVER, "pool", "device-0"),),
        config=(
            DeviceAllocationConfiguration(
                "FromClass", opaque=OpaqueDeviceConfiguration(DRIVER, msgspec.Raw(b'{"a":null,"b":{"c":null}}'))
            ),
        ),
    )
)


class Bench:
    """A namespace, a class, a node and the objects that the writes are about."""

    def __init__(self, client: KubeClient) -> None:
        self.client = client
        self.unique = uuid.uuid4().hex[:8]
        self.namespace = self.node = self.device_class = f"writer-{self.unique}"
        self.recorder = EventRecorder(client, "e2e")
        self.writer = Writer(client, self.recorder, RequeueClaim(self.namespace, "requeue"))

    async def create(self, path: str, body: dict[str, Any]) -> Any:
        return msgspec.json.decode(await self.client.create(path, msgspec.json.encode(body)))

    async def set_up(self) -> None:
        await self.create("/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        await self.create("/api/v1/nodes", {"metadata": {"name": self.node}})
        await self.create(DEVICE_CLASSES.path(), {"metadata": {"name": self.device_class}, "spec": {}})

    async def tear_down(self) -> None:
        await self.client.delete(f"/api/v1/nodes/{self.node}")
        await self.client.delete(DEVICE_CLASSES.path(name=self.device_class))
        await self.client.delete(f"/api/v1/namespaces/{self.namespace}")

    async def claim(self) -> ResourceClaim:
        spec = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": self.device_class}}]}}
        return await self.writer.create_claim(self.namespace, {"metadata": {"generateName": "c-"}, "spec": spec})

    async def pod(self) -> Pod:
        spec = {"schedulerName": "nobody", "containers": [{"name": "c", "image": "none"}]}
        made = await self.create(
            f"/api/v1/namespaces/{self.namespace}/pods",
            {"metadata": {"generateName": "p-", "namespace": self.namespace}, "spec": spec},
        )
        pod = await self.writer.read_pod(self.namespace, made["metadata"]["name"])
        assert pod is not None
        return pod


@pytest.fixture
async def client(plane: ControlPlane) -> AsyncIterator[KubeClient]:
    settings = ClientSettings(kubeconfig=str(plane.admin_kubeconfig), timeout=LONGEST)
    async with await KubeClient.connect(settings) as connected:
        yield connected


@pytest.fixture
async def bench(client: KubeClient) -> AsyncIterator[Bench]:
    made = Bench(client)
    await made.set_up()
    # Pods need the namespace's service account, which a controller makes.
    async with asyncio.timeout(LONGEST):
        while True:
            try:
                await client.get(f"/api/v1/namespaces/{made.namespace}/serviceaccounts/default")
                break
            except NotFoundError:
                await asyncio.sleep(0.05)
    yield made
    await made.tear_down()


def reference(pod: Pod) -> list[ResourceClaimConsumerReference]:
    return [ResourceClaimConsumerReference("pods", pod.metadata.name, pod.metadata.uid)]


def with_uid(claim: ResourceClaim, uid: str) -> ResourceClaim:
    return msgspec.structs.replace(claim, metadata=msgspec.structs.replace(claim.metadata, uid=uid))


async def test_a_claim_goes_from_pending_to_allocated_and_back(bench: Bench) -> None:
    writer, pod = bench.writer, await bench.pod()
    claim = await writer.add_finalizer(await bench.claim())
    assert claim.metadata.finalizers == (FINALIZER,)
    claim = await writer.write_status(claim, allocation=ALLOCATION, reserved_for=reference(pod))
    assert claim.allocation is not None
    assert claim.allocation.devices.results == ALLOCATION.devices.results
    stored = claim.allocation.devices.config[0].opaque
    assert stored is not None
    assert msgspec.json.decode(stored.parameters) == {"a": None, "b": {"c": None}}
    claim = await writer.write_status(claim, reserved_for=())
    assert (claim.status.reserved_for, claim.allocation is None) == ((), False)
    claim = await writer.write_status(claim, reserved_for=reference(pod))
    assert claim.reserved_for(pod.metadata.uid)
    claim = await writer.deallocate(claim)
    assert (claim.allocation, claim.status.reserved_for) == (None, ())
    claim = await writer.remove_finalizer(claim)
    await writer.delete_claim(claim)
    await writer.delete_claim(claim)
    assert await writer.read_claim(bench.namespace, claim.metadata.name) is None


async def test_writes_at_another_version_or_for_another_uid_are_refused(bench: Bench) -> None:
    writer, pod, old = bench.writer, await bench.pod(), await bench.claim()
    new = await writer.add_finalizer(old)
    for write in (
        writer.write_status(old, allocation=ALLOCATION, reserved_for=reference(pod)),
        writer.deallocate(old),
        writer.remove_finalizer(old),
    ):
        with pytest.raises(ConflictError):
            await write
    with pytest.raises(RejectedError, match=r"metadata\.uid"):
        await writer.write_status(with_uid(new, "other"), allocation=ALLOCATION, reserved_for=reference(pod))


async def test_an_allocation_that_is_set_cannot_be_changed(bench: Bench) -> None:
    writer, pod = bench.writer, await bench.pod()
    claim = await writer.add_finalizer(await bench.claim())
    claim = await writer.write_status(claim, allocation=ALLOCATION, reserved_for=reference(pod))
    other = AllocationResult(
        devices=DeviceAllocationResult(results=(DeviceRequestAllocationResult("r", DRIVER, "pool", "device-1"),))
    )
    with pytest.raises(RejectedError):
        await writer.write_status(claim, allocation=other, reserved_for=reference(pod))
    await writer.deallocate(claim)


async def test_a_pod_is_bound_once_and_only_under_its_uid_and_version(bench: Bench) -> None:
    writer, pod = bench.writer, await bench.pod()
    namespace, name, uid = bench.namespace, pod.metadata.name, pod.metadata.uid
    with pytest.raises(ConflictError):
        await writer.bind_pod(namespace, name, "other", "", bench.node)
    changed = await writer.patch_pod_status(pod, {"conditions": [{"type": RELEASED, "status": "True"}]})
    with pytest.raises(ConflictError):
        await writer.bind_pod(namespace, name, uid, pod.metadata.resource_version, bench.node)
    await writer.bind_pod(namespace, name, uid, changed.metadata.resource_version, bench.node)
    with pytest.raises(ConflictError, match="already assigned"):
        await writer.bind_pod(namespace, name, uid, "", bench.node)
    with pytest.raises(NotFoundError):
        await writer.bind_pod(namespace, "nobody", uid, "", bench.node)
    bound = await writer.read_pod(namespace, name)
    assert bound is not None
    assert bound.spec.node_name == bench.node


async def test_the_requeue_claim_is_made_and_annotated(bench: Bench) -> None:
    versions = []
    for _ in range(3):
        await bench.writer.requeue()
        requeue = await bench.writer.read_claim(bench.namespace, "requeue")
        assert requeue is not None
        versions.append(requeue.metadata.version)
    assert versions == sorted(set(versions))


async def test_events_are_accepted_and_counted(bench: Bench) -> None:
    pod = await bench.pod()
    sending = asyncio.create_task(bench.recorder.run())
    for _ in range(2):
        bench.writer.record_event(pod, "Normal", "Tested", "something happened")
    await until(lambda: bench.recorder.sent + bench.recorder.dropped >= 2)
    sending.cancel()
    listed = msgspec.json.decode(await bench.client.get(f"/apis/events.k8s.io/v1/namespaces/{bench.namespace}/events"))
    (event,) = [item for item in listed["items"] if item["reason"] == "Tested"]
    assert (event["series"]["count"], bench.recorder.dropped) == (2, 0)


async def test_a_lease_passes_from_hand_to_hand(client: KubeClient) -> None:
    name = f"writer-{uuid.uuid4().hex[:8]}"
    one, two = (LeaderElection(client, LeaseSettings("default", name, identity)) for identity in ("one", "two"))
    await one.step()
    await two.step()
    await one.step()
    assert (one.leading, two.leading, two.holder) == (True, False, "one")
    await one.release()
    await two.step()
    assert (one.leading, two.leading) == (False, True)
    await client.delete(f"/apis/coordination.k8s.io/v1/namespaces/default/leases/{name}")


async def test_the_administrator_has_all_permissions_and_somebody_else_has_not(
    plane: ControlPlane, client: KubeClient
) -> None:
    permissions = (
        permissions_for_reading(Served(taint_rules="v1alpha3")) + BINDING + permissions_for_lease("default", "lease")
    )
    assert await missing_permissions(client, permissions) == []
    settings = ClientSettings(kubeconfig=str(plane.user_kubeconfig("nobody-in-particular")))
    async with await KubeClient.connect(settings) as stranger:
        missing = await missing_permissions(stranger, permissions)
    assert len(missing) == len(permissions)
    assert any(
        "resourceclaims/binding.resource.k8s.io in the whole cluster" in str(permission) for permission in missing
    )


@pytest.mark.needs("DRADeviceTaintRules")
async def test_the_newest_version_that_has_taint_rules_is_found(client: KubeClient) -> None:
    served: list[str] = []
    for version in RULE_VERSIONS:
        with contextlib.suppress(NotServedError):
            await client.get(f"/apis/{GROUP}/{version}/devicetaintrules")
            served.append(version)
    assert (await discover(client)).taint_rules == served[0]


async def test_nodes_are_followed_through_bookmarks_and_cut_watches(client: KubeClient) -> None:
    name = f"writer-{uuid.uuid4().hex[:8]}"
    seen: dict[str, Node] = {}

    def apply(event: ClusterEvent) -> None:
        if isinstance(event, Applied):
            seen[event.key.name] = event.object
        else:
            assert isinstance(event, Removed), event
            del seen[event.key.name]

    reflector = Reflector(client, KnownObjects(NODES, apply))
    following = asyncio.create_task(reflector.run())

    body = {"metadata": {"name": name}}
    await client.create("/api/v1/nodes", msgspec.json.encode(body))
    await until(lambda: name in seen)
    await client.delete(f"/api/v1/nodes/{name}")
    await until(lambda: name not in seen)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    assert reflector.lists == 1
