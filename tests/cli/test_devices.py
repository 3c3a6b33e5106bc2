"""`dra-extender devices` and `top` against an API server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from typer.testing import CliRunner

from app.cli.counts import EMPTY, FAILED, LISTED, Question, add_up, list_devices
from app.cli.devices import DeviceState
from app.cli.main import app
from app.cli.source import Source
from app.embedded import EmbeddedAPIServer
from app.embedded.hardware import GPU_DRIVER
from app.scheduling.census.report import STATES
from tests.support.patience import LONGEST, until
from tests.support.service.world import World, serve


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """Three nodes with two GPUs each; a pod has one of them."""
    async with EmbeddedAPIServer(seed=1) as api, aiohttp.ClientSession() as session:
        made = World(api, session)
        made.populate()
        made.claim("held")
        made.pod("p", "held", node=made.nodes[1])
        hold(made)
        yield made


def hold(world: World) -> None:
    """The claim has the first device of the second node."""
    published = next(item for item in world.store.list("resourceslices") if item["spec"]["nodeName"] == world.nodes[1])
    spec, pod, claim = published["spec"], world.stored("pods", "p"), world.stored("resourceclaims", "held")
    result = {
        "request": "gpu", "driver": spec["driver"], "pool": spec["pool"]["name"], "device": spec["devices"][0]["name"]
    }  # fmt: skip
    claim["status"] = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": "p", "uid": pod["metadata"]["uid"]}],
    }
    world.store.update(claim, subresource="status")


@pytest.fixture
def source(world: World, tmp_path: Path) -> Source:
    return Source(kubeconfig=str(world.api.write_kubeconfig(tmp_path / "kubeconfig")))


async def test_devices_are_listed_with_their_holders(
    world: World, source: Source, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await list_devices(Question(source=source)) == LISTED
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 6 + 1
    assert lines[0].split() == ["NODE", "DRIVER", "DEVICE", "STATE", "DETAILS"]
    assert lines[3].split() == [world.nodes[1], GPU_DRIVER, "gpu-0", "used", "default/held", "(p)"]
    assert lines[-1] == "6 devices: 5 free, 1 used; 17% taken"


@pytest.mark.parametrize("output", ["json", "yaml"])
async def test_the_command_lists_what_the_service_tells(
    world: World, source: Source, capsys: pytest.CaptureFixture[str], output: Any
) -> None:
    async with serve(world.api.url) as service:
        await service.until_ready(LONGEST)
        await until(lambda: service.insight.view.ledger.get("default", "held") is not None)
        status, told = await world.get(f"{service.insight_url}/insight/devices")
    assert status == 200
    capsys.readouterr()
    assert await list_devices(Question(source=source, output=output)) == LISTED
    out = capsys.readouterr().out
    assert (json.loads(out) if output == "json" else yaml.safe_load(out)) == told
    assert told["totals"]["used"] == 1


async def test_devices_are_added_up_by_node(world: World, source: Source, capsys: pytest.CaptureFixture[str]) -> None:
    assert await add_up(Question(source=source), "nodes") == LISTED
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split() == [world.nodes[1], "2", "1", "1", "50%", "1", "1"]
    assert await add_up(Question(source=source, output="json"), "namespaces") == LISTED
    (sum,) = json.loads(capsys.readouterr().out)["namespaces"]
    assert (sum["name"], sum["totals"]["used"]) == ("default", 1)


@pytest.mark.parametrize(
    ("question", "status", "said"),
    [
        (Question(nodes=("nowhere",)), FAILED, "node nowhere is not known"),
        (Question(classes=("gqu",)), FAILED, "DeviceClass gqu is not known"),
        (Question(drivers=("none",)), FAILED, "driver none is not known: it has published no ResourceSlice"),
        (Question(namespace="empty"), EMPTY, "there are no such devices"),
        (Question(source=Source(gates="Nonsense")), FAILED, "Nonsense"),
    ],
)
async def test_an_answer_that_is_none_says_so(
    source: Source, capsys: pytest.CaptureFixture[str], question: Question, status: int, said: str
) -> None:
    gates = question.source.gates
    asked = Question(
        nodes=question.nodes, drivers=question.drivers, classes=question.classes, namespace=question.namespace,
        source=Source(gates=gates, kubeconfig=source.kubeconfig),
    )  # fmt: skip
    assert await list_devices(asked) == status
    captured = capsys.readouterr()
    assert (captured.out, said in captured.err) == ("", True)


async def test_devices_that_nobody_holds_are_in_no_namespace(
    source: Source, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = Question(states=("free",), source=source)
    assert await add_up(asked, "namespaces") == EMPTY
    assert "no claim holds any of these devices" in capsys.readouterr().err


def test_the_states_of_the_command_are_those_of_the_census() -> None:
    assert tuple(DeviceState) == STATES


@pytest.mark.parametrize("command", [["devices", "--state", "gone"], ["top", "pods"], ["devices", "-o", "xml"]])
def test_a_word_that_is_none_is_refused_with_those_that_are(command: list[str]) -> None:
    found = CliRunner().invoke(app, command)
    assert found.exit_code == 2
    assert "is not one of" in " ".join(found.output.split())
