"""ProvisioningRequests: which gangs get one, what it asks for, and when it is deleted."""

from __future__ import annotations

import asyncio
import copy
import json
import re
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest
import structlog
from aiohttp import web
from msgspec.structs import replace

from dra_extender.api import decoding
from dra_extender.api.core import PodSpec
from dra_extender.api.groups import GroupKey, group_of
from dra_extender.devices.pods import Pods
from dra_extender.insight.why.diagnosis import diagnosing
from dra_extender.kube.client import KubeClient
from dra_extender.kube.credentials import ClientSettings
from dra_extender.scheduling.turns import run_at_once
from dra_extender.service import provisioning
from dra_extender.service.provisioning import CLASS, CONSUMES, MADE_FOR, POD_SETS, ProvisioningRequests, request_name
from tests.support.diagnosis.gpupods import pod, running, waiting
from tests.support.diagnosis.hardware import device_class, gpus, node
from tests.support.diagnosis.heldcluster import GATES, GPU
from tests.support.diagnosis.scene import Scene
from tests.support.kube.scripted import Asked, ScriptedServer, serving
from tests.support.patience import LONGEST, until
from tests.support.service.world import StartService

Json = dict[str, Any]
LIST = "/apis/autoscaling.x-k8s.io/v1/provisioningrequests"
REQUESTS = "/apis/autoscaling.x-k8s.io/v1/namespaces/default/provisioningrequests"
TEMPLATES = "/api/v1/namespaces/default/podtemplates"
GPUS = [device_class("gpu", f'device.driver == "{GPU}"'), node("a"), gpus("a", "A", 2, "1Gi", "1.0.0")]
TEMPLATE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "gpu"},
    "spec": {"spec": {"devices": {"requests": [{"name": "r", "exactly": {
        "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}]}}},
}  # fmt: skip


def gang(size: int, claims: int = 1, name: str = "train", **annotations: str) -> list[Json]:
    """Pods that are placed together, with a claim for this number of devices each."""
    found = []
    for number in range(size):
        member, claim = waiting(f"w-{number}", claims)
        marks = {"dra-extender.dev/gang": name, "dra-extender.dev/gang-size": str(size)}
        member["metadata"]["annotations"] = marks | annotations
        found += [member, claim]
    return found


def templated(size: int) -> list[Json]:
    """A gang whose claims are made from a template."""
    pods = gang(size)[::2]
    for each in pods:
        each["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    return [TEMPLATE, *pods]


NOTHING: Any = (200, {"metadata": {"resourceVersion": "5"}, "items": []})


def listing(name: str = "gang-train", marks: str = "gang train") -> tuple[int, Json]:
    """A request, as the API server lists it."""
    item = {"metadata": {"name": name, "namespace": "default", "annotations": {MADE_FOR: marks}}}
    return 200, {"metadata": {"resourceVersion": "5"}, "items": [item]}


class Stage:
    """The controller on a cluster with these objects. `listed` and `posted`: what the API server answers."""

    def __init__(
        self, server: ScriptedServer, client: KubeClient, documents: list[Json], listed: Any, posted: Any = (201, {})
    ) -> None:
        self.server, self.leads = server, True
        scene = Scene([*GPUS, *documents], gates=GATES)
        self.view = scene.view()
        self.requests = ProvisioningRequests(client, self.view, lambda: self.leads)
        server.on("GET", LIST, listed)
        server.on("POST", REQUESTS, posted)
        for each in documents:
            if each["kind"] == "Pod":
                name = each["metadata"]["name"]
                server.on("GET", f"/api/v1/namespaces/default/pods/{name}", (200, each))
                server.on("PATCH", f"{TEMPLATES}/gang-train-{name.partition('-')[2]}", (200, {}))

    async def reconcile(self) -> list[Asked]:
        """What it writes after the first waiting pod was diagnosed."""
        member = next((each for each in self.view.pods if not each.spec.node_name), None)
        if member is not None:
            self.requests.diagnosed(member, run_at_once(diagnosing(self.view, member)))
        await self.requests.reconcile()
        return [asked for asked in self.server.asked if asked.method != "GET"]


Begin = Callable[..., Stage]


@pytest.fixture
async def begin() -> AsyncIterator[Begin]:
    async with serving() as server, await KubeClient.connect(ClientSettings(server=server.url, timeout=LONGEST)) as one:
        yield lambda documents, listed=NOTHING, **more: Stage(server, one, documents, listed, **more)


async def test_a_gang_that_would_fit_with_one_more_node_gets_one_request(begin: Begin) -> None:
    *templates, created = await begin(gang(2, 2)).reconcile()
    assert [(each.method, each.path, each.query) for each in templates] == [
        ("PATCH", f"{TEMPLATES}/gang-train-{number}", {"fieldManager": "dra-extender", "force": "true"})
        for number in (0, 1)
    ]
    owner = {"kind": "Pod", "name": "w-0", "uid": "uid-w-0", "apiVersion": "v1"}
    common = {
        "namespace": "default",
        "labels": {"app.kubernetes.io/managed-by": "dra-extender"},
        "ownerReferences": [owner],
    }
    assert (created.method, created.path) == ("POST", REQUESTS)
    assert created.json == {
        "apiVersion": "autoscaling.x-k8s.io/v1",
        "kind": "ProvisioningRequest",
        "metadata": common | {"name": "gang-train", "annotations": {MADE_FOR: "gang train"}},
        "spec": {
            "provisioningClassName": CLASS,
            "podSets": [{"podTemplateRef": {"name": f"gang-train-{number}"}, "count": 1} for number in (0, 1)],
        },
    }
    assert templates[1].json == {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": common | {"name": "gang-train-1"},
        "template": {
            "metadata": {"labels": {}},
            "spec": {
                "initContainers": [],
                "containers": [{"name": "c", "image": "pause", "resources": {"requests": {"cpu": "1"}}}],
                "resourceClaims": [{"name": "gpu", "resourceClaimName": "w-1"}],
            },
        },
    }


FULL = running("r", "a", "gpu-0", "gpu-1")


@pytest.mark.parametrize(
    "documents",
    [
        pytest.param(gang(2, 1), id="it fits"),
        pytest.param(gang(2, 3), id="no node has so many devices"),
        pytest.param(waiting("w", 2) + FULL, id="a pod without a gang"),
        pytest.param(gang(3, 2)[:4], id="a pod of the gang is missing"),
        pytest.param(gang(2, 2, **{CONSUMES: "other"}), id="its pods name another"),
    ],
)
async def test_other_gangs_and_pods_get_none(begin: Begin, documents: list[Json]) -> None:
    assert await begin(documents).reconcile() == []


async def test_a_gang_that_has_one_gets_no_second_one(begin: Begin) -> None:
    assert await begin(gang(2, 2), listing()).reconcile() == []


async def test_a_gang_that_lacks_only_cpu_gets_none(begin: Begin) -> None:
    """cluster-autoscaler sees itself that nodes have not enough of it."""
    busy = pod("r", "a", cpu="8") | {"spec": {"nodeName": "a", "containers": [
        {"name": "c", "resources": {"requests": {"cpu": "8"}}}]}}  # fmt: skip
    stage = begin([*gang(2), busy])
    found = run_at_once(diagnosing(stage.view, next(each for each in stage.view.pods if not each.spec.node_name)))
    assert any(change.kind == "node added" for remedy in found.remedies for change in remedy.changes)
    assert await stage.reconcile() == []


async def test_pods_that_name_the_request_of_their_gang_get_it(begin: Begin) -> None:
    assert len(await begin(gang(2, 2, **{CONSUMES: "gang-train"})).reconcile()) == 3


async def test_what_is_owned_belongs_to_the_controller_of_the_pods(begin: Begin) -> None:
    documents = gang(2, 2)
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "job"}
    for each in documents[::2]:
        each["metadata"]["ownerReferences"] = [job | {"controller": True, "blockOwnerDeletion": True}]
    for asked in await begin(documents).reconcile():
        assert asked.json["metadata"]["ownerReferences"] == [job]


@pytest.mark.parametrize(
    ("documents", "marks", "deleted"),
    [
        pytest.param(gang(2, 2), "gang train", False, id="it waits"),
        pytest.param([], "gang train", True, id="its pods are gone"),
        pytest.param(gang(2, 2), "gang other", True, id="of another gang"),
        pytest.param(gang(2, 2), "", True, id="of no gang"),
    ],
)
async def test_a_request_is_deleted_when_its_gang_no_longer_waits(
    begin: Begin, documents: list[Json], marks: str, deleted: bool
) -> None:
    stage = begin(documents, listing("old", marks))
    await stage.requests.reconcile()
    assert [asked.path for asked in stage.server.requests("DELETE")] == [f"{REQUESTS}/old"] * deleted


async def test_a_request_is_deleted_when_its_gang_runs(begin: Begin) -> None:
    documents = gang(2)
    for each in documents[::2]:
        each["spec"]["nodeName"] = "a"
    stage = begin(documents, listing())
    await stage.requests.reconcile()
    assert [asked.path for asked in stage.server.requests("DELETE")] == [f"{REQUESTS}/gang-train"]


async def test_a_template_has_what_schedulers_read_and_the_claim_of_its_pod(begin: Begin) -> None:
    documents = templated(3)
    secret = {"env": [{"name": "TOKEN", "value": "secret"}], "command": ["run"]}
    for each in documents[1:]:
        each["spec"] |= {"tolerations": [{"operator": "Exists"}], "serviceAccountName": "admin"}
        each["spec"]["containers"][0] |= secret
        each["metadata"]["labels"] = {"app": "train"}
    *templates, created = await begin(documents).reconcile()
    assert [each["count"] for each in created.json["spec"]["podSets"]] == [1, 1, 1]
    for number, asked in enumerate(templates):
        assert asked.json["template"] == {
            "metadata": {"labels": {"app": "train"}},
            "spec": {
                "tolerations": [{"operator": "Exists"}],
                "initContainers": [],
                "containers": [{"name": "c", "image": "pause", "resources": {"requests": {"cpu": "1"}}}],
                "resourceClaims": [{"name": "gpu", "resourceClaimName": f"w-{number}-gpu"}],
            },
        }


LARGE = [node("b", pods="200"), gpus("b", "A", POD_SETS, "1Gi", "1.0.0"), *templated(POD_SETS + 4)]


async def test_of_a_gang_with_more_pods_equal_ones_share_a_template(begin: Begin) -> None:
    template, created = await begin(LARGE).reconcile()
    assert created.json["spec"]["podSets"] == [{"podTemplateRef": {"name": "gang-train-0"}, "count": POD_SETS + 4}]
    claims = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    assert template.json["template"]["spec"]["resourceClaims"] == claims


async def test_nothing_is_written_for_a_gang_that_needs_more_templates_than_a_request_has(begin: Begin) -> None:
    unlike = copy.deepcopy(LARGE)
    for number, one in enumerate(unlike[3:]):
        one["spec"]["containers"][0]["resources"] = {"requests": {"memory": str(number)}}
    assert await begin(unlike).reconcile() == []


async def test_the_pods_of_a_gang_are_compared_in_turns_of_the_event_loop(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn, encoded = 0, list[int]()

    def encode(value: Any) -> bytes:
        encoded.extend([turn] if isinstance(value, PodSpec) else ())
        return decoding.encode(value)

    async def count() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(provisioning, "encode", encode)
    counting = asyncio.create_task(count())
    await begin(LARGE).reconcile()
    counting.cancel()
    await asyncio.gather(counting, return_exceptions=True)
    assert len(encoded) == len(set(encoded)) == POD_SETS + 4


async def test_a_name_that_is_taken_is_left_alone_until_the_next_diagnosis(begin: Begin) -> None:
    stage = begin(gang(2, 2), posted=(409, {"reason": "AlreadyExists", "message": "taken"}))
    with structlog.testing.capture_logs() as logs:
        written = len(await stage.reconcile())
    assert [each["event"] for each in logs] == ["ProvisioningRequest not created"]
    await stage.requests.reconcile()
    assert len([asked for asked in stage.server.asked if asked.method != "GET"]) == written


async def test_a_cluster_without_the_kind_is_told_once_and_used_when_it_has_it(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provisioning, "PERIOD", 0.0)

    async def answer(_: web.Request) -> web.Response:
        if len(stage.server.requests("GET", LIST)) > 3:
            return web.json_response({"metadata": {"resourceVersion": "5"}, "items": []})
        return web.Response(status=404, text="404 page not found")

    stage = begin(gang(2, 2), answer)
    first = next(iter(stage.view.pods))
    stage.requests.diagnosed(first, run_at_once(diagnosing(stage.view, first)))
    with structlog.testing.capture_logs() as logs:
        task = asyncio.create_task(stage.requests.run())
        await until(lambda: bool(stage.server.requests("POST")))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert [each["event"] for each in logs].count("no ProvisioningRequests are made, will retry") == 1
    assert "install their CustomResourceDefinition" in logs[0]["problem"]


async def test_a_replica_that_does_not_lead_asks_nothing(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provisioning, "PERIOD", 0.0)
    stage = begin(gang(2, 2))
    stage.leads = False
    task = asyncio.create_task(stage.requests.run())
    for _ in range(20):
        await asyncio.sleep(0)
    assert stage.server.asked == []
    stage.leads = True
    await until(lambda: bool(stage.server.asked))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_replica_that_does_not_lead_forgets_gangs_that_no_longer_wait(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provisioning, "PERIOD", 0.0)
    stage = begin(gang(2, 2))
    pods, stage.leads = cast(Pods, stage.view.pods), False
    first, second = pods
    stage.requests.diagnosed(first, run_at_once(diagnosing(stage.view, first)))
    for each in (first, second):
        pods.remove(each.metadata.uid)
    task = asyncio.create_task(stage.requests.run())
    for _ in range(20):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    for each in (first, second):
        pods.apply(replace(each, metadata=replace(each.metadata, uid=f"later-{each.metadata.uid}")))
    stage.leads = True
    await stage.requests.reconcile()
    assert not stage.server.requests("POST")


@pytest.mark.parametrize(("length", "made"), [(10, 8), (250_000, 4)])
async def test_of_gangs_with_long_names_few_are_remembered(begin: Begin, length: int, made: int) -> None:
    names = [str(number) * length for number in range(8)]
    documents = [item for number, name in enumerate(names) for item in renamed(f"w-{number}", gang(1, 2, name))]
    stage = begin([*documents, *FULL])
    members = [each for each in stage.view.pods if not each.spec.node_name]
    found = run_at_once(diagnosing(stage.view, members[0]))
    for member in members:
        stage.requests.diagnosed(member, found)
        key = group_of(member)
        assert key is not None
        stage.server.on("PATCH", f"{TEMPLATES}/{request_name(key)}-0", (200, {}))
    await stage.requests.reconcile()
    assert len(stage.server.requests("POST")) == made


@pytest.mark.parametrize("asked", [True, False])
async def test_gangs_are_remembered_only_where_the_service_makes_requests(
    start_service: StartService, asked: bool
) -> None:
    async with start_service(provisioning_requests=asked) as service:
        engine = service.replica.running
        assert (engine.diagnoses.observe == engine.provisioning.diagnosed) is asked


def renamed(name: str, documents: list[Json]) -> list[Json]:
    pod, claim = documents
    text = json.dumps([pod, claim]).replace("w-0", name)
    found: list[Json] = json.loads(text)
    return found


@pytest.mark.parametrize(
    ("source", "name", "expected"),
    [
        ("PodGroup", "train", "podgroup-train"),
        ("LeaderWorkerSet", "serve-1", "leaderworkerset-serve-1"),
        ("gang", "a.b", "gang-a.b"),
        ("gang", "Train", ""),
        ("gang", "train ", ""),
        ("gang", "x" * 300, ""),
    ],
)
def test_the_name_of_a_request_comes_from_its_gang(source: Any, name: str, expected: str) -> None:
    """Or from a digest of its name, if no object can have such a name."""
    found = request_name(GroupKey(source, "default", name))
    assert found == expected or (not expected and re.fullmatch("gang-[0-9a-f]{32}", found))


def test_two_gangs_have_no_request_in_common() -> None:
    names = ("train", "Train", "train ", "trai", "x" * 300, "x" * 301)
    keys = [GroupKey(source, "default", name) for source in ("gang", "Kueue") for name in names]
    assert len(set(map(request_name, keys))) == len(keys)
