"""`dra-extender explain` against an API server: the service would say the same."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec
import pytest

from app.api.core import Node
from app.api.decoding import DecodeError
from app.api.resource import FINALIZER, ResourceClaim
from app.cli.explain import FAILED, PLACEABLE, REFUSED, report
from app.embedded import EmbeddedAPIServer
from app.kube import resources
from app.kube.resources import NODES, resource_claims
from app.service.service import Service
from tests.support.patience import LONGEST, until
from tests.support.service.world import Json, World, serve


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with EmbeddedAPIServer(seed=1) as api, aiohttp.ClientSession() as session:
        made = World(api, session)
        made.populate()
        yield made


@pytest.fixture
def kubeconfig(world: World, tmp_path: Path) -> str:
    return str(world.api.write_kubeconfig(tmp_path / "kubeconfig"))


@asynccontextmanager
async def serving(world: World) -> AsyncIterator[Service]:
    async with serve(world.api.url) as service:
        await service.until_ready(LONGEST)
        yield service


async def told_by_service(world: World, pod: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What /insight/explain says, once the service knows the pod. Its log is out of the way."""
    async with serving(world) as service:
        await until(lambda: service.insight.view.pods.named("default", pod) is not None)
        status, text = await world.get(f"{service.insight_url}/insight/explain?pod=default/{pod}")
    assert status == 200
    capsys.readouterr()
    return str(text)


def first_slice(world: World) -> Json:
    """What the first node publishes; store it again to change it."""
    (first, *_) = (item for item in world.store.list("resourceslices") if item["spec"]["nodeName"] == world.nodes[0])
    return world.stored("resourceslices", first["metadata"]["name"], "")


def allocate(world: World, claim: str, device: str, pod: str) -> None:
    """The claim as another allocator left it: it has this device of the first node, reserved for the pod."""
    stored = world.stored("resourceclaims", claim)
    stored["metadata"]["finalizers"] = [FINALIZER]
    world.store.update(stored)
    stored = world.stored("resourceclaims", claim)
    spec = first_slice(world)["spec"]
    result = {"request": "gpu", "driver": spec["driver"], "pool": spec["pool"]["name"], "device": device}
    here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [world.nodes[0]]}]}
    stored["status"] = {
        "allocation": {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [here]}},
        "reservedFor": [{"resource": "pods", "name": pod, "uid": world.stored("pods", pod)["metadata"]["uid"]}],
    }
    world.store.update(stored, subresource="status")


def reach(world: World, pod: str, phase: str) -> None:
    """The pod gets to this phase."""
    stored = world.stored("pods", pod)
    stored["status"] = {"phase": phase}
    world.store.update(stored, subresource="status")


async def test_the_command_says_what_the_service_says(
    world: World, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    world.claim("big", count=3)
    world.pod("p", "big")
    told = await told_by_service(world, "p", capsys)
    assert "3 nodes: cannot allocate all claims" in told
    assert await report("default/p", [], "", kubeconfig, "") == REFUSED
    assert capsys.readouterr().out == told


@pytest.mark.parametrize(("phase", "status"), [("Running", PLACEABLE), ("Succeeded", REFUSED)])
async def test_a_shared_claim_that_a_pod_runs_with_may_be_joined_when_its_device_is_gone(
    world: World, kubeconfig: str, capsys: pytest.CaptureFixture[str], phase: str, status: int
) -> None:
    for claim, pod in (("shared", "first"), ("other", "second")):
        world.claim(claim)
        world.pod(pod, claim, node=world.nodes[0])
    first = first_slice(world)
    gone, left = (device["name"] for device in first["spec"]["devices"])
    allocate(world, "shared", gone, "first")
    allocate(world, "other", left, "second")
    reach(world, "first", phase)
    first["spec"]["devices"] = first["spec"]["devices"][1:]
    first["spec"]["pool"]["generation"] += 1
    world.store.update(first)
    world.pod("joins", "shared")
    told = await told_by_service(world, "joins", capsys)
    assert await report("default/joins", [], "", kubeconfig, "") == status
    assert capsys.readouterr().out == told


async def test_an_object_that_cannot_be_read_is_named_with_what_to_do(
    world: World, kubeconfig: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def decode(data: bytes | msgspec.Raw) -> Node:
        node = NODES.decode(data)
        if node.name == world.nodes[2]:
            raise DecodeError("Node", node.name, "status: nonsense")
        return node

    nodes = msgspec.structs.replace(NODES, decode=decode)
    monkeypatch.setattr(resources, "NODES", nodes)
    world.claim("c")
    world.pod("p", "c")
    told = await told_by_service(world, "p", capsys)
    assert await report("default/p", [], "", kubeconfig, "") == PLACEABLE
    said = capsys.readouterr()
    assert said.out == told
    (note,) = said.err.splitlines()
    problem = f"Node {world.nodes[2]}: cannot be read: status: nonsense"
    assert note == f"note: {problem}: pods with claims are not placed there: correct it"


async def test_a_claim_that_cannot_be_read_keeps_its_devices(
    world: World, kubeconfig: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def decode(data: bytes | msgspec.Raw) -> ResourceClaim:
        claim = resource_claims("v1").decode(data)
        if claim.metadata.name == "broken":
            raise DecodeError("ResourceClaim", claim.metadata.key, "spec: nonsense")
        return claim

    for claim, pod in (("broken", "holder"), ("both", "p")):
        world.claim(claim, count=2)
        world.pod(pod, claim)
    allocate(world, "broken", first_slice(world)["spec"]["devices"][0]["name"], "holder")
    unreadable = msgspec.structs.replace(resource_claims("v1"), decode=decode)
    monkeypatch.setattr(resources, "resource_claims", lambda version: unreadable)
    told = await told_by_service(world, "p", capsys)
    assert "1 is in use" in told
    assert await report("default/p", [world.nodes[0]], "", kubeconfig, "") == REFUSED
    assert await report("default/p", [], "", kubeconfig, "") == PLACEABLE
    said = capsys.readouterr()
    assert said.out.endswith(told)
    assert "note: ResourceClaim default/broken: cannot be read: spec: nonsense" in said.err


async def test_an_object_that_cannot_be_used_is_named_with_what_to_do(
    world: World, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first = first_slice(world)
    first["spec"]["pool"]["resourceSliceCount"] = 2
    world.store.update(first)
    world.pod("p")
    assert await report("default/p", [], "", kubeconfig, "") == PLACEABLE
    (note,) = capsys.readouterr().err.splitlines()
    assert note.startswith(f"note: ResourceSlice {first['metadata']['name']}: pool ")
    assert "its devices are left out until the numbers agree" in note


@pytest.mark.parametrize(
    ("pod", "node", "problem"),
    [
        ("default/none", "", "pod default/none is not known: it does not exist, or has finished; the argument is NAME"),
        ("default/ended", "", "pod default/ended is not known: it does not exist, or has finished"),
        ("default/p", "none", "node none is not known"),
    ],
)
async def test_a_question_about_what_does_not_exist_says_so(
    world: World, kubeconfig: str, capsys: pytest.CaptureFixture[str], pod: str, node: str, problem: str
) -> None:
    world.pod("p")
    world.pod("ended")
    reach(world, "ended", "Succeeded")
    assert await report(pod, [node] if node else [], "", kubeconfig, "") == FAILED
    assert capsys.readouterr().err.startswith(f"dra-extender: {problem}")


@pytest.mark.parametrize(("gates", "file"), [("", "nowhere"), ("Nonsense=true", "")])
async def test_a_question_that_cannot_be_answered_has_a_status_of_its_own(
    kubeconfig: str, capsys: pytest.CaptureFixture[str], gates: str, file: str
) -> None:
    assert await report("default/p", [], gates, file or kubeconfig, "") == FAILED
    assert capsys.readouterr().err.startswith("dra-extender: ")
