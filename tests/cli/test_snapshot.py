"""`dra-extender snapshot`: the same answers from a file as from the cluster it was made of."""

from __future__ import annotations

import gzip
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from dra_extender.api.decoding import DecodeError
from dra_extender.api.resource import ResourceClaim
from dra_extender.cli.answers import capacity, why
from dra_extender.cli.answers.devices import list_devices, sum_devices, try_selector_on_devices
from dra_extender.cli.cluster import read
from dra_extender.cli.output import FAILED, YES, status_of
from dra_extender.cli.questions import (
    CompactOptions,
    DevicesOptions,
    HeadroomOptions,
    SelectorOptions,
    Source,
    TopOptions,
    WhyOptions,
)
from dra_extender.cli.snapshot import take
from dra_extender.insight import snapshotfile
from dra_extender.insight.snapshotfile import FORMAT, KIND, load
from dra_extender.kube import resources
from dra_extender.kube.resources import RESOURCE_CLAIMS
from embedded_cluster.apiserver.discovery import VERSION
from embedded_cluster.hardware import GPU_DRIVER
from tests.cli.conftest import options
from tests.support.service.world import Json, World

SECRET = "hunter2"
PARAMETERS = {"sharing": "MPS"}


@pytest.fixture
def world(world: World) -> World:
    """A pod has a GPU of the second node, and another waits."""
    opaque = {"driver": GPU_DRIVER, "parameters": PARAMETERS}
    world.store.create(
        {
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "tuned"},
            "spec": {"config": [{"opaque": opaque}]},
        }
    )  # fmt: skip
    world.claim("held")
    world.claim("big", count=3)
    world.store.create(secretive("p", "held", node=world.nodes[1]))
    world.store.create(secretive("waits", "big"))
    world.allocate("held", "p", world.nodes[1])
    return world


def secretive(name: str, claim: str, node: str = "") -> Json:
    container = {"name": "c", "image": "pause", "env": [{"name": "PASSWORD", "value": SECRET}], "args": [SECRET]}
    copy = {"kubectl.kubernetes.io/last-applied-configuration": SECRET, "vault.example.com/token": SECRET}
    kept = {"dra-extender.dev/placement": "pack"}
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": {**copy, **kept}},
        "spec": {"containers": [container], "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}]}
        | ({"nodeName": node} if node else {}),
    }  # fmt: skip


Ask = Callable[[Source], Awaitable[int]]


def diagnosis(source: Source) -> Awaitable[int]:
    return why.answer(options(WhyOptions, source, pod="waits", everything=True, namespace="default"))


def moves(source: Source) -> Awaitable[int]:
    return capacity.answer_compact(options(CompactOptions, source, pod="default/waits"))


async def tried(source: Source, expression: str) -> int:
    return await status_of(try_selector_on_devices(options(SelectorOptions, source, expression=expression)))


COMMANDS: dict[str, Ask] = {
    "why": diagnosis,
    "compact": moves,
    "devices": lambda source: list_devices(options(DevicesOptions, source, output="json")),
    "top": lambda source: sum_devices(options(TopOptions, source)),
    "headroom": lambda source: capacity.answer_headroom(options(HeadroomOptions, source, device_class=GPU_DRIVER)),
}


@pytest.mark.parametrize("name", ["cluster.json", "cluster.json.gz"])
async def test_every_command_says_the_same_of_the_file_as_of_the_cluster(
    source: Source, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    file = tmp_path / name
    assert await take(file, source) == YES
    assert capsys.readouterr().out.startswith(f"{file}: ")
    for command, ask in COMMANDS.items():
        status = await ask(source)
        live = capsys.readouterr()
        assert live.out, command
        assert (await ask(Source(from_file=str(file))), capsys.readouterr()) == (status, live), command


async def test_the_file_is_read_by_the_rules_of_its_cluster(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "cluster.json"
    for release, status in ("1.36", FAILED), ("1.37", YES):
        monkeypatch.setitem(VERSION, "gitVersion", f"v{release}.2")
        assert await take(file, source) == YES
        for where in (source, Source(from_file=str(file))):
            assert (await read(where)).features.release == release
            assert await tried(where, "device.`driver` != ''") == status


async def test_secrets_of_pods_and_parameters_of_drivers_are_not_in_the_file(source: Source, tmp_path: Path) -> None:
    file = tmp_path / "cluster.json.gz"
    assert await take(file, source) == YES
    text = gzip.decompress(file.read_bytes()).decode()
    assert SECRET not in text
    assert "dra-extender.dev/placement" in text
    assert PARAMETERS["sharing"] not in text
    found = load(file.read_bytes())
    assert {plural: len(items) for plural, items in found.objects.items()} == {
        "nodes": 3, "pods": 2, "deviceclasses": 2, "resourceslices": 3, "resourceclaims": 2
    }  # fmt: skip


async def test_what_cannot_be_read_cannot_be_read_from_the_file_either(
    source: Source, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def decode(data: bytes | msgspec.Raw) -> ResourceClaim:
        claim = RESOURCE_CLAIMS.decode(data)
        if claim.metadata.name == "held":
            raise DecodeError("ResourceClaim", claim.metadata.key, "spec: nonsense")
        return claim

    unreadable = msgspec.structs.replace(RESOURCE_CLAIMS, decode=decode)
    file = tmp_path / "cluster.json"
    with monkeypatch.context() as patch:
        patch.setattr(resources, "RESOURCE_CLAIMS", unreadable)
        assert await take(file, source) == YES
        capsys.readouterr()
        status = await list_devices(options(DevicesOptions, source))
    live = capsys.readouterr()
    assert "note: ResourceClaim default/held: cannot be read: spec: nonsense" in live.err
    assert "default/held (unreadable)" in live.out
    assert (await list_devices(DevicesOptions(from_file=str(file))), capsys.readouterr()) == (status, live)


async def test_an_unreadable_object_of_an_unknown_kind_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, unreadable = tmp_path / "cluster.json", [{"kind": "Foo", "name": "a/b", "problem": "nonsense"}]
    content = {"kind": KIND, "format": FORMAT, "madeBy": "x", "taken": "t", "kubernetes": "v1.37.0", "objects": {}}
    file.write_text(json.dumps({**content, "unreadable": unreadable}))
    await list_devices(DevicesOptions(from_file=str(file)))
    assert "note: Foo a/b: cannot be read: nonsense" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "it is not a snapshot"),
        (b"[]", "it is not a snapshot"),
        (b"\x1f\x8bnonsense", "it is not a snapshot"),
        (json.dumps({"kind": "Pod"}).encode(), "its kind is Pod, not DeviceSnapshot"),
        (json.dumps({"kind": KIND, "format": FORMAT + 1}).encode(), "its format is 2; this version of"),
        (None, "No such file"),
    ],
)
async def test_a_file_that_is_no_snapshot_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, problem: str
) -> None:
    file = tmp_path / "file"
    if content is not None:
        file.write_bytes(content)
    for ask in COMMANDS.values():
        assert await status_of(ask(Source(from_file=str(file)))) == FAILED
        said = capsys.readouterr()
        assert (said.out, problem in said.err) == ("", True), said.err


async def test_a_file_and_a_cluster_are_two_sources(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert await status_of(list_devices(DevicesOptions(from_file="x", context="y"))) == FAILED
    assert "give one of them" in capsys.readouterr().err


async def test_a_file_that_cannot_be_written_is_said(
    source: Source, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await status_of(take(tmp_path / "missing" / "file", source)) == FAILED
    assert "No such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (gzip.compress(b" " * 2**20), "it has more than 65,536 bytes when it is decompressed, which is the limit"),
        (gzip.compress(b"{}")[:-9], "it is not a snapshot: its end is missing"),
    ],
    ids=["size", "end"],
)
async def test_a_snapshot_that_inflates_too_far_is_refused(
    data: bytes, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshotfile, "BYTES_OF_SNAPSHOT", 2**16)
    file = tmp_path / "snapshot.gz"
    file.write_bytes(data)
    assert await status_of(why.answer(WhyOptions(from_file=str(file), pod="p", namespace="default"))) == FAILED
    assert capsys.readouterr().err == f"dra-extender: {file}: {problem}\n"
