"""Each write: the request that leaves, its preconditions, and what becomes of the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest
from aiohttp import web

from dra_extender.api.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod
from dra_extender.api.errors import (
    ConflictError,
    DisruptionBudgetError,
    NotFoundError,
    NotServedError,
    OutcomeUnknownError,
    ThrottledError,
    UndecodableError,
    is_passing,
)
from dra_extender.api.meta import ObjectMeta
from dra_extender.api.resource import (
    FINALIZER,
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ExactDeviceRequest,
    OpaqueDeviceConfiguration,
    ResourceClaim,
    ResourceClaimConsumerReference,
)
from dra_extender.kube.client import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, KubeClient
from dra_extender.kube.events import EventRecorder
from dra_extender.kube.writer import NOMINATOR, REQUEUE_ANNOTATION, RequeueClaim, Writer
from dra_extender.scheduling.ports import Ports
from tests.support.kube.scripted import ScriptedServer
from tests.support.patience import until

PODS = "/api/v1/namespaces/default/pods"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
CLAIM = ResourceClaim(
    metadata=ObjectMeta(name="c", namespace="default", uid="cu", resource_version="7", finalizers=("other",))
)
STORED = {"metadata": {"name": "c", "namespace": "default", "uid": "cu", "resourceVersion": "8"}}
AT = {"uid": "cu", "resourceVersion": "7"}
ALLOCATION = AllocationResult(
    devices=DeviceAllocationResult(
        results=(DeviceRequestAllocationResult("gpu", "gpu.example.com", "n1", "gpu-0"),),
        config=(
            DeviceAllocationConfiguration(
                "FromClass", opaque=OpaqueDeviceConfiguration("gpu.example.com", msgspec.Raw(b'{"keep": null}'))
            ),
        ),
    ),
    node_selector=NodeSelector(
        (NodeSelectorTerm(match_fields=(NodeSelectorRequirement("metadata.name", "In", ("n1",)),)),)
    ),
)


@pytest.fixture
def writer(client: KubeClient) -> Writer:
    return Writer(client, EventRecorder(client, "i"), RequeueClaim("dra-system", "requeue"))


POD = Pod(metadata=ObjectMeta(name="p", namespace="default", uid="pu", resource_version="7"))
POD_AT = {"uid": "pu", "resourceVersion": "7"}


async def nominate(writer: Writer, node: str | None) -> None:
    await writer.patch_pod_status(POD, {"nominatedNodeName": node}, version="7", ahead=True)


WITH_FINALIZER = msgspec.structs.replace(
    CLAIM, metadata=msgspec.structs.replace(CLAIM.metadata, finalizers=("other", FINALIZER))
)

WRITES: dict[str, tuple[Callable[[Writer], Awaitable[object]], str, object]] = {
    "the finalizer is added to the others": (
        lambda writer: writer.add_finalizer(CLAIM), "c", {"metadata": AT | {"finalizers": ["other", FINALIZER]}},
    ),
    "the finalizer alone is removed": (
        lambda writer: writer.remove_finalizer(WITH_FINALIZER), "c", {"metadata": AT | {"finalizers": ["other"]}},
    ),
    "an allocation is cleared": (
        lambda writer: writer.write_status(CLAIM, allocation=None, reserved_for=[]), "c/status",
        {"metadata": AT, "status": {"reservedFor": [], "allocation": None}},
    ),
    "a reservation leaves the allocation alone": (
        lambda writer: writer.write_status(CLAIM, reserved_for=[]), "c/status",
        {"metadata": AT, "status": {"reservedFor": []}},
    ),
    "deallocation clears three fields": (
        lambda writer: writer.deallocate(CLAIM), "c/status",
        {"metadata": AT, "status": {"allocation": None, "reservedFor": None, "devices": None}},
    ),
    "a pod's status is for its UID": (
        lambda writer: writer.patch_pod_status(POD, {"extendedResourceClaimStatus": None}), "p/status",
        {"metadata": {"uid": "pu"}, "status": {"extendedResourceClaimStatus": None}},
    ),
    "a pod's status can be for one version": (
        lambda writer: writer.patch_pod_status(POD, {"conditions": []}, version="7"), "p/status",
        {"metadata": {"uid": "pu", "resourceVersion": "7"}, "status": {"conditions": []}},
    ),
    "a nomination is for one version": (
        lambda writer: nominate(writer, "n1"), "p/status",
        {"metadata": POD_AT, "status": {"nominatedNodeName": "n1"}},
    ),
    "a nomination is removed": (
        lambda writer: nominate(writer, None), "p/status",
        {"metadata": POD_AT, "status": {"nominatedNodeName": None}},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("write", "path", "body"), WRITES.values(), ids=WRITES)
async def test_a_write_is_one_patch_of_its_fields_with_its_preconditions(
    server: ScriptedServer, writer: Writer, write: Callable[[Writer], Awaitable[object]], path: str, body: object
) -> None:
    server.on("PATCH", f"{CLAIMS if path[0] == 'c' else PODS}/{path}", (200, STORED))
    await write(writer)
    (asked,) = server.asked
    assert asked.json == body
    assert asked.headers["Content-Type"] == (MERGE_PATCH if path[0] == "c" else STRATEGIC_PATCH)
    assert asked.query == ({"fieldManager": NOMINATOR} if "nominatedNodeName" in asked.json.get("status", {}) else {})


async def test_allocation_and_reservation_are_one_write(server: ScriptedServer, writer: Writer) -> None:
    server.on("PATCH", f"{CLAIMS}/c/status", (200, STORED))
    consumer = ResourceClaimConsumerReference(resource="pods", name="p", uid="pu")
    await writer.write_status(CLAIM, allocation=ALLOCATION, reserved_for=[consumer])
    (asked,) = server.asked
    assert asked.headers["Content-Type"] == JSON_PATCH
    assert asked.json == [
        {"op": "replace", "path": "/metadata/uid", "value": "cu"},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"},
        {
            "op": "add",
            "path": "/status/allocation",
            "value": {
                "devices": {
                    "results": [{"request": "gpu", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}],
                    "config": [
                        {
                            "source": "FromClass",
                            "opaque": {"driver": "gpu.example.com", "parameters": {"keep": None}},
                        }
                    ],
                },
                "nodeSelector": {
                    "nodeSelectorTerms": [
                        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
                    ]
                },
            },
        },
        {"op": "add", "path": "/status/reservedFor", "value": [{"resource": "pods", "name": "p", "uid": "pu"}]},
    ]


async def test_a_binding_carries_the_pods_uid_and_version_and_the_node(server: ScriptedServer, writer: Writer) -> None:
    path = "/api/v1/namespaces/default/pods/p/binding"
    server.on("POST", path, (201, {"status": "Success"}), (409, {"message": "already assigned"}))
    await writer.bind_pod("default", "p", "pu", "7", "n1")
    assert server.asked[0].json == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"namespace": "default", "name": "p", "uid": "pu", "resourceVersion": "7"},
        "target": {"kind": "Node", "name": "n1"},
    }
    with pytest.raises(ConflictError, match="already assigned"):
        await writer.bind_pod("default", "p", "pu", "7", "n1")


async def test_a_reply_that_cannot_be_read_leaves_the_outcome_unknown(server: ScriptedServer, writer: Writer) -> None:
    server.on("PATCH", f"{CLAIMS}/c", (200, {"metadata": 7}))
    with pytest.raises(UndecodableError) as raised:
        await writer.add_finalizer(CLAIM)
    assert isinstance(raised.value, OutcomeUnknownError)
    assert not is_passing(raised.value)


async def test_deleting_a_claim_needs_its_uid_and_forgives_its_absence(server: ScriptedServer, writer: Writer) -> None:
    await writer.delete_claim(CLAIM)
    assert server.asked[0].json["preconditions"] == AT


async def test_what_does_not_exist_reads_as_none(writer: Writer) -> None:
    assert await writer.read_claim("default", "c") is None
    assert await writer.read_pod("default", "p") is None
    assert await writer.nominated_ahead(POD) == ""


async def test_what_a_path_without_its_resource_answers_is_not_taken_for_absence(
    server: ScriptedServer, writer: Writer
) -> None:
    """A pod that does not exist loses its claim, so a proxy that answers 404 to everything must not look like that."""

    async def page(_: web.Request) -> web.Response:
        return web.Response(status=404, text="404 page not found")

    claim = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/c"
    server.on("GET", "/api/v1/namespaces/default/pods/p", page)
    server.on("GET", claim, page)
    server.on("DELETE", claim, page)
    for call in (writer.read_pod("default", "p"), writer.read_claim("default", "c"), writer.delete_claim(CLAIM)):
        with pytest.raises(NotServedError):
            await call


@pytest.mark.parametrize("name", [".", ".."])
async def test_what_cannot_exist_reads_as_none_and_nothing_is_asked(
    server: ScriptedServer, writer: Writer, name: str
) -> None:
    assert await writer.read_claim("default", name) is None
    assert await writer.read_claim(name, "c") is None
    assert await writer.read_pod(name, "p") is None
    with pytest.raises(NotFoundError, match="nothing was asked for"):
        await writer.bind_pod("default", name, "pu", "", "n1")
    assert server.requests() == []


async def test_reads_give_typed_objects(server: ScriptedServer, writer: Writer) -> None:
    stored = STORED | {"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}}
    server.on("GET", "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/c", (200, stored))
    server.on("GET", f"{PODS}/p", (200, {"metadata": {"name": "p"}, "spec": {"nodeName": "n"}}))
    claim, pod = await writer.read_claim("default", "c"), await writer.read_pod("default", "p")
    assert claim is not None and claim.metadata.uid == "cu"
    assert claim.spec.devices.requests[0].exactly == ExactDeviceRequest(device_class_name="gpu")
    assert pod is not None and pod.spec.node_name == "n"


async def test_a_requeue_annotates_the_requeue_claim(server: ScriptedServer, writer: Writer) -> None:
    path = "/apis/resource.k8s.io/v1/namespaces/dra-system/resourceclaims/requeue"
    server.on("PATCH", path, (200, STORED))
    await writer.requeue()
    await writer.requeue()
    stamps = [asked.json["metadata"]["annotations"][REQUEUE_ANNOTATION] for asked in server.asked]
    assert len(set(stamps)) == 2


async def test_a_missing_requeue_claim_is_created(server: ScriptedServer, writer: Writer) -> None:
    server.on("POST", "/apis/resource.k8s.io/v1/namespaces/dra-system/resourceclaims", (201, STORED))
    await writer.requeue()
    made = server.asked[-1].json
    assert (made["kind"], made["apiVersion"], made["metadata"]["name"]) == (
        "ResourceClaim",
        "resource.k8s.io/v1",
        "requeue",
    )


@pytest.mark.parametrize(
    ("uid", "manager", "field", "found"),
    [
        ("pu", NOMINATOR, "f:nominatedNodeName", "n1"),
        ("pu", "kube-scheduler", "f:nominatedNodeName", ""),
        ("pu", NOMINATOR, "f:conditions", ""),
        ("another", NOMINATOR, "f:nominatedNodeName", ""),
    ],
)
async def test_a_nomination_ahead_of_the_queue_is_known_by_who_manages_the_field(
    server: ScriptedServer, writer: Writer, uid: str, manager: str, field: str, found: str
) -> None:
    managed = {
        "manager": manager,
        "operation": "Update",
        "subresource": "status",
        "fieldsV1": {"f:status": {field: {}}},
    }
    meta = {"name": "p", "namespace": "default", "uid": uid, "managedFields": [managed]}
    server.on("GET", f"{PODS}/p", (200, {"metadata": meta, "status": {"nominatedNodeName": "n1"}}))
    assert await writer.nominated_ahead(POD) == found


async def test_an_eviction_is_for_the_pod_with_its_uid_and_what_a_budget_forbids_is_not_repeated(
    server: ScriptedServer, writer: Writer
) -> None:
    causes = [{"reason": "DisruptionBudget", "message": "The disruption budget b needs 1 healthy pods and has 1"}]
    refused = {"kind": "Status", "reason": "TooManyRequests", "details": {"causes": causes}}
    busy = {"kind": "Status", "reason": "TooManyRequests"}
    server.on("POST", f"{PODS}/p/eviction", (429, refused), (201, {}), (429, busy))
    with pytest.raises(DisruptionBudgetError):
        await writer.evict_pod(POD, dry_run=True)
    await writer.evict_pod(POD)
    with pytest.raises(ThrottledError) as caught:
        await writer.evict_pod(POD)
    assert not isinstance(caught.value, DisruptionBudgetError), "a busy server puts it off"
    first, second, _ = server.asked
    assert (first.query, second.query) == ({"dryRun": "All"}, {})
    assert second.json["deleteOptions"] == {"preconditions": {"uid": "pu"}}
    assert (second.json["kind"], second.json["metadata"]) == ("Eviction", {"name": "p", "namespace": "default"})


async def test_an_event_about_a_claim_refers_to_it_in_v1(server: ScriptedServer, client: KubeClient) -> None:
    recorder = EventRecorder(client, "i")
    writer = Writer(client, recorder, RequeueClaim("dra-system", "requeue"))
    server.on("POST", "/apis/events.k8s.io/v1/namespaces/default/events", (201, {}))
    writer.record_event(CLAIM, "Warning", "Conflict", "device taken", action="Bind")
    sending = asyncio.create_task(recorder.run())
    await until(lambda: recorder.sent)
    sending.cancel()
    body = server.asked[0].json
    assert body["regarding"] == {
        "kind": "ResourceClaim",
        "namespace": "default",
        "name": "c",
        "uid": "cu",
        "apiVersion": "resource.k8s.io/v1",
    }
    assert (body["type"], body["reason"], body["action"], body["note"]) == (
        "Warning",
        "Conflict",
        "Bind",
        "device taken",
    )


async def test_the_writer_fulfils_what_scheduling_asks_for(client: KubeClient) -> None:
    writer = Writer(client, EventRecorder(client, "i"), RequeueClaim("dra-system", "requeue"))
    ports: Ports = writer
    assert ports is writer
