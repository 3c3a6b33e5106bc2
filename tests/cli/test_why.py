"""`dra-extender why` against an API server: the service would say the same."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from dra_extender.api.core import Node
from dra_extender.api.decoding import DecodeError
from dra_extender.api.resource import ResourceClaim
from dra_extender.cli.answers.why import answer
from dra_extender.cli.output import FAILED, NO, YES, status_of
from dra_extender.cli.questions import Source, WhyOptions
from dra_extender.kube import resources
from dra_extender.kube.resources import NODES, RESOURCE_CLAIMS
from dra_extender.limits import CHARACTERS_OF_MANIFESTS
from dra_extender.service.service import Service
from tests.cli.conftest import options
from tests.support.patience import until
from tests.support.service.readiness import until_ready
from tests.support.service.world import Json, World, serve


@asynccontextmanager
async def serving(world: World) -> AsyncIterator[Service]:
    async with serve(world.api.url) as service:
        await until_ready(service)
        yield service


async def report(pod: str, source: Source, *nodes: str, **more: Any) -> int:
    """The exit status of the command."""
    return await answer(options(WhyOptions, source, pod=pod, node=list(nodes), **more))


async def told_by_service(world: World, pod: str, capsys: pytest.CaptureFixture[str]) -> Json:
    """What /insight/diagnosis says, once the service knows the pod. Its log is out of the way."""
    async with serving(world) as service:
        await until(lambda: service.replica.view.pods.named("default", pod) is not None)
        status, found = await world.get(f"{service.insight_url}/insight/diagnosis?pod=default/{pod}")
    assert status == 200
    capsys.readouterr()
    assert isinstance(found, dict)
    return found


def reach(world: World, pod: str, phase: str) -> None:
    """The pod gets to this phase."""
    stored = world.stored("pods", pod)
    stored["status"] = {"phase": phase}
    world.store.update(stored, subresource="status")


async def test_the_command_says_what_the_service_says(
    world: World, source: Source, capsys: pytest.CaptureFixture[str]
) -> None:
    world.claim("big", count=3)
    world.pod("p", "big")
    told = await told_by_service(world, "p", capsys)
    assert told["summary"] == "claim big: 3 devices of class gpu.example.com requested, no node has more than 2"
    assert await report("default/p", source, output="json") == NO
    assert json.loads(capsys.readouterr().out) == told
    assert await report("default/p", source, output="yaml") == NO
    assert yaml.safe_load(capsys.readouterr().out) == told
    assert await report("default/p", source) == NO
    assert capsys.readouterr().out.splitlines() == [
        "Pod default/p fits none of 3 nodes.",
        "Reason: claim big: 3 devices of class gpu.example.com requested, no node has",
        "  more than 2.",
        "Suggestion: request at most 2 devices instead of 3 in claim big (then it fits 3",
        "  nodes).",
        "        kubectl get resourceclaim big -n default -o yaml > big.yaml",
        "        # make the change in big.yaml",
        "        kubectl replace --force -f big.yaml",
    ]


@pytest.mark.parametrize(
    ("given", "more"),
    [("p", {"namespace": "default"}), ("pod/p", {}), ("pods/p", {}), ("p", {}), ("default/p", {"namespace": "other"})],
)
async def test_a_pod_is_named_in_the_ways_of_kubectl(
    world: World, source: Source, capsys: pytest.CaptureFixture[str], given: str, more: Json
) -> None:
    world.pod("p")
    assert await report(given, source, **more) == YES
    assert capsys.readouterr().out.startswith("Pod default/p fits 3 of 3 nodes: ")


def set_namespace(kubeconfig: Path, namespace: str) -> None:
    config = yaml.safe_load(kubeconfig.read_text())
    config["contexts"][0]["context"]["namespace"] = namespace
    kubeconfig.write_text(yaml.safe_dump(config))


async def test_the_namespace_is_that_of_the_context(
    world: World, source: Source, capsys: pytest.CaptureFixture[str]
) -> None:
    set_namespace(Path(source.kubeconfig), "elsewhere")
    assert await status_of(report("p", source)) == FAILED
    assert "pod elsewhere/p not found" in capsys.readouterr().err


DRAFT = """
apiVersion: v1
kind: Pod
metadata: {name: draft}
spec:
  resourceClaims: [{name: c, resourceClaimName: alone}, {name: t, resourceClaimTemplateName: made}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: alone}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: CLASS}}]}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: made}
spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: CLASS, count: COUNT}}]}}}
"""


@pytest.mark.parametrize(("count", "status"), [(1, YES), (2, NO)])
async def test_a_pod_is_asked_about_before_it_is_applied(
    world: World, source: Source, tmp_path: Path, capsys: pytest.CaptureFixture[str], count: int, status: int
) -> None:
    (device_class, *_) = (item["metadata"]["name"] for item in world.store.list("deviceclasses"))
    file = tmp_path / "pod.yaml"
    file.write_text(DRAFT.replace("CLASS", device_class).replace("COUNT", str(count)))
    assert await report("", source, filename=str(file)) == status
    assert ("request at most 1 device instead of 2 in claim t" in capsys.readouterr().out) == (status == NO)
    assert world.store.list("pods") == []


async def test_a_template_that_is_not_in_the_file_is_that_of_the_cluster(
    world: World, source: Source, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (device_class, *_) = (item["metadata"]["name"] for item in world.store.list("deviceclasses"))
    parts = DRAFT.replace("CLASS", device_class).replace("COUNT", "2").split("---")
    file = tmp_path / "pod.yaml"
    file.write_text("---".join(parts[:2]))
    assert await report("", source, filename=str(file)) == NO
    assert "claim t has not been created from template made, which may not exist" in " ".join(
        capsys.readouterr().out.split()
    )
    exactly = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": 2}
    world.store.create(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "made", "namespace": "default"},
            "spec": {"spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}},
        }
    )
    assert await report("", source, filename=str(file)) == NO
    assert "request at most 1 device instead of 2 in claim t" in capsys.readouterr().out


async def test_a_file_that_is_not_there_is_named_in_plain_words(
    source: Source, capsys: pytest.CaptureFixture[str]
) -> None:
    for given in (options(WhyOptions, source, filename="absent.yaml"), WhyOptions(pod="p", from_file="absent.yaml")):
        assert await status_of(answer(given)) == FAILED
        assert capsys.readouterr().err == "dra-extender: absent.yaml: No such file or directory\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [("kind: Service", "contains no object of kind Pod"), ("kind: Pod\nmetadata: 3", "metadata"), ("a: [", "while")],
)
async def test_a_file_without_a_pod_that_can_be_read_is_refused(
    source: Source, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, problem: str
) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(text)
    assert await status_of(report("", source, filename=str(file))) == FAILED
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize(("phase", "status"), [("Running", YES), ("Succeeded", NO)])
async def test_a_shared_claim_that_a_pod_runs_with_may_be_joined_when_its_device_is_gone(
    world: World, source: Source, capsys: pytest.CaptureFixture[str], phase: str, status: int
) -> None:
    for claim, pod in (("shared", "first"), ("other", "second")):
        world.claim(claim)
        world.pod(pod, claim, node=world.nodes[0])
    first = world.published(world.nodes[0])
    gone, left = (device["name"] for device in first["spec"]["devices"])
    world.allocate("shared", "first", world.nodes[0], gone)
    world.allocate("other", "second", world.nodes[0], left)
    reach(world, "first", phase)
    first["spec"]["devices"] = first["spec"]["devices"][1:]
    first["spec"]["pool"]["generation"] += 1
    world.store.update(first)
    world.pod("joins", "shared")
    told = await told_by_service(world, "joins", capsys)
    assert await report("default/joins", source, output="json") == status
    assert json.loads(capsys.readouterr().out) == told


async def test_an_object_that_cannot_be_read_is_named_with_what_to_do(
    world: World, source: Source, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
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
    assert await report("default/p", source, output="json") == YES
    said = capsys.readouterr()
    assert json.loads(said.out) == told
    (note,) = said.err.splitlines()
    problem = f"Node {world.nodes[2]}: cannot be read: status: nonsense"
    assert note == f"note: {problem}: pods with claims are not placed there: correct it"


async def test_a_claim_that_cannot_be_read_keeps_its_devices(
    world: World, source: Source, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def decode(data: bytes | msgspec.Raw) -> ResourceClaim:
        claim = RESOURCE_CLAIMS.decode(data)
        if claim.metadata.name == "broken":
            raise DecodeError("ResourceClaim", claim.metadata.key, "spec: nonsense")
        return claim

    for claim, pod in (("broken", "holder"), ("both", "p")):
        world.claim(claim, count=2)
        world.pod(pod, claim)
    world.allocate("broken", "holder", world.nodes[0], world.published(world.nodes[0])["spec"]["devices"][0]["name"])
    unreadable = msgspec.structs.replace(RESOURCE_CLAIMS, decode=decode)
    monkeypatch.setattr(resources, "RESOURCE_CLAIMS", unreadable)
    told = await told_by_service(world, "p", capsys)
    assert told["fits"] == 2
    assert await report("default/p", source, world.nodes[0]) == NO
    assert "1 is in use" in capsys.readouterr().out
    assert await report("default/p", source, output="json") == YES
    said = capsys.readouterr()
    assert json.loads(said.out) == told
    assert "note: ResourceClaim default/broken: cannot be read: spec: nonsense" in said.err


async def test_an_object_that_cannot_be_used_is_named_with_what_to_do(
    world: World, source: Source, capsys: pytest.CaptureFixture[str]
) -> None:
    first = world.published(world.nodes[0])
    first["spec"]["pool"]["resourceSliceCount"] = 2
    world.store.update(first)
    world.pod("p")
    assert await report("default/p", source) == YES
    (note,) = capsys.readouterr().err.splitlines()
    assert note.startswith(f"note: ResourceSlice {first['metadata']['name']}: pool ")
    assert "its devices are left out until the numbers agree" in note


@pytest.mark.parametrize(
    ("pod", "node", "problem"),
    [
        ("default/none", "", "pod default/none not found: it does not exist or has finished: name it NAME"),
        ("default/ended", "", "pod default/ended not found: it does not exist or has finished"),
        ("default/p", "none", "node none not found"),
    ],
)
async def test_a_question_about_what_does_not_exist_says_so(
    world: World, source: Source, capsys: pytest.CaptureFixture[str], pod: str, node: str, problem: str
) -> None:
    world.pod("p")
    world.pod("ended")
    reach(world, "ended", "Succeeded")
    assert await status_of(report(pod, source, *([node] if node else []))) == FAILED
    assert capsys.readouterr().err.startswith(f"dra-extender: {problem}")


NINE = [(name, ", ".join([f"*{before}"] * 9)) for before, name in pairwise("abcdefghi")]
LISTS = ["a: &a [x, x, x, x, x, x, x, x, x]", *(f"{name}: &{name} [{nine}]" for name, nine in NINE)]
"""Fewer than 500 bytes for 9^9 values."""
NO_TEXT = "a key that is not text, or a value that its tag does not allow: quote it"
MAPS = ["a: &a {x: 1}", *(f"{name}: &{name} {{<<: [{nine}]}}" for name, nine in NINE)]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("\n".join(LISTS), "the objects have more than 67,108,864 characters, which is the limit"),
        ("\n".join(MAPS), "the objects have more than 67,108,864 characters, which is the limit"),
        ("a: &a [*a]", "a value contains itself"),
        ("- " * 10_000, "the objects are nested too deeply"),
        ("kind: Pod\nmetadata: {~: 3}", NO_TEXT),
        ("kind: !!int ''", NO_TEXT),
        ("kind: !!timestamp x", NO_TEXT),
        ("a: [", "while parsing a flow node expected the node content"),
        (" " * (CHARACTERS_OF_MANIFESTS + 1), "has more than 67,108,864 characters, which is the limit"),
    ],
    ids=["lists", "maps", "circle", "depth", "key", "number", "time", "syntax", "file"],
)
async def test_manifests_that_expand_too_far_are_refused(
    text: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(text)
    assert await status_of(answer(WhyOptions(filename=str(file)))) == FAILED
    assert f"{file}{'' if problem.startswith('has') else ':'} {problem}" in capsys.readouterr().err


async def test_an_alias_stands_for_its_value(world: World, source: Source, tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text("x: &x {app: p}\nkind: Pod\nmetadata: {name: p, labels: *x, annotations: {<<: *x}}\n")
    assert await answer(options(WhyOptions, source, filename=str(file))) == YES
