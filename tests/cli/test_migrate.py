"""`dra-extender migrate`, of a cluster and of a snapshot file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from dra_extender.cli.answers.capacity import answer_migrate
from dra_extender.cli.output import FAILED, NO, YES, status_of
from dra_extender.cli.questions import MigrateOptions, Source
from dra_extender.cli.snapshot import take
from embedded_cluster.hardware import GPU_DRIVER
from tests.cli.conftest import options
from tests.support.service.world import World

RESOURCE = "example.com/gpu"  # gpu.example.com provides it, if no other class is chosen


@pytest.fixture
def world(world: World) -> World:
    """The first node has a plugin, too. A pod of it runs, and one waits."""
    node = world.stored("nodes", world.nodes[0], "")
    node["status"]["allocatable"][RESOURCE] = "2"
    world.store.update(node, subresource="status")
    amounts = {"requests": {RESOURCE: "1"}, "limits": {RESOURCE: "1"}}
    for name, where in (("runs", {"nodeName": world.nodes[0]}), ("waits", {})):
        spec = {"containers": [{"name": "c", "image": "pause", "resources": amounts}], **where}
        meta = {"name": name, "namespace": "default"}
        world.store.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    return world


@pytest.mark.parametrize("offline", [False, True])
async def test_the_check_names_the_node_that_offers_its_hardware_twice(
    world: World, source: Source, tmp_path: Path, capsys: pytest.CaptureFixture[str], offline: bool
) -> None:
    before = world.store.list("nodes"), world.store.list("deviceclasses"), world.store.list("pods")
    if offline:
        await take(tmp_path / "cluster.json", source)
        source = Source(from_file=str(tmp_path / "cluster.json"))
    capsys.readouterr()
    assert await answer_migrate(options(MigrateOptions, source)) == NO
    first, second, third = world.nodes
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["NODE", "RESOURCE", "PLUGIN", "DEVICES", "STATE"],
        [first, RESOURCE, "2", "2", "offered", "twice"],
        [second, RESOURCE, "0", "2", "DRA"],
        [third, RESOURCE, "0", "2", "DRA"],
        [],
        ["NAMESPACE", "WORKLOAD", "CLAIM", "NOW", "AFTER"],
        ["default", "Pod/runs", "1", "x", GPU_DRIVER, first, "(1)", second, "(1)"],
        ["default", "Pod/waits", "1", "x", GPU_DRIVER, second, "(1)", second, "(1)"],
        [],
        ["NAMESPACE", "NAME", "CLAIMS", "NAME", "CHARGED"],
        ["default", f"requests.{RESOURCE}", f"{GPU_DRIVER}.deviceclass.resource.k8s.io/devices", "2"],
        [],
        ["NODE", "MOVES", "WAITS", "NEEDS"],
        [first, second, "(1)"],
        [],
        [
            "problem:",
            "1",
            "running",
            "pod",
            "without",
            "a",
            "controller:",
            "a",
            "drain",
            "deletes",
            "them",
            "for",
            "good",
        ],
    ]
    assert (world.store.list("nodes"), world.store.list("deviceclasses"), world.store.list("pods")) == before


@pytest.mark.parametrize(
    ("gates", "kinds"), [("", ["DeviceClass"]), ("DRAExtendedResource=false", ["ResourceClaimTemplate"] * 2)]
)
async def test_the_plan_can_be_applied(
    world: World, source: Source, capsys: pytest.CaptureFixture[str], gates: str, kinds: list[str]
) -> None:
    given = Source(kubeconfig=source.kubeconfig, feature_gates=gates)
    assert await answer_migrate(options(MigrateOptions, given, what="plan", output="yaml")) == NO
    text = capsys.readouterr().out
    assert [item["kind"] for item in yaml.safe_load(text)["items"]] == kinds
    assert f"# then drain {world.nodes[0]}, remove its plugin, and uncordon it" in text
    assert await answer_migrate(options(MigrateOptions, given, what="plan", output="json")) == NO
    assert json.loads(capsys.readouterr().out)["items"] == yaml.safe_load(text)["items"]


@pytest.mark.parametrize("chosen", ["example.com/gpu", "example.com/gpu=nope"])
async def test_a_class_that_does_not_exist_is_no_answer(
    world: World, source: Source, capsys: pytest.CaptureFixture[str], chosen: str
) -> None:
    given = options(MigrateOptions, source, device_class=[chosen])
    assert await status_of(answer_migrate(given)) == FAILED
    assert "give RESOURCE=CLASS with a class" in " ".join(capsys.readouterr().err.split())


async def test_a_cluster_without_classes_and_slices_has_nothing_to_migrate(
    world: World, source: Source, capsys: pytest.CaptureFixture[str]
) -> None:
    for plural in ("deviceclasses", "resourceslices"):
        for item in world.store.list(plural):
            world.store.delete(plural, item["metadata"]["name"], "")
    assert await answer_migrate(options(MigrateOptions, source)) == YES
    first, *problems = capsys.readouterr().out.splitlines()
    assert first == "No node and no pod has an extended resource that a DeviceClass provides."
    assert problems == [
        f"problem: {RESOURCE}: no DeviceClass has this extendedResourceName: add --class {RESOURCE}=CLASS"
    ]
