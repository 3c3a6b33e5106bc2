"""`dra-extender devices` and `top` against an API server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from dra_extender.cli.answers.devices import list_devices, sum_devices
from dra_extender.cli.main import app
from dra_extender.cli.output import FAILED, NO, YES, status_of
from dra_extender.cli.questions import DevicesOptions, DeviceStateName, Source, TopOptions
from dra_extender.insight.devicereport.report import STATES
from embedded_cluster.cluster import EmbeddedCluster
from embedded_cluster.hardware import GPU_DRIVER
from tests.cli.conftest import options
from tests.support.patience import until
from tests.support.service.readiness import until_ready
from tests.support.service.world import World, serve


@pytest.fixture
def world(world: World) -> World:
    """A pod has a GPU of the second node."""
    world.claim("held")
    world.pod("p", "held", node=world.nodes[1])
    world.allocate("held", "p", world.nodes[1])
    return world


async def test_devices_are_listed_with_their_holders(
    world: World, source: Source, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await list_devices(options(DevicesOptions, source)) == YES
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
        await until_ready(service)
        await until(lambda: service.replica.view.ledger.get("default", "held") is not None)
        status, told = await world.get(f"{service.insight_url}/insight/devices")
    assert status == 200
    capsys.readouterr()
    assert await list_devices(options(DevicesOptions, source, output=output)) == YES
    out = capsys.readouterr().out
    assert (json.loads(out) if output == "json" else yaml.safe_load(out)) == told
    assert told["totals"]["used"] == 1


async def test_devices_are_added_up_by_node(world: World, source: Source, capsys: pytest.CaptureFixture[str]) -> None:
    assert await sum_devices(options(TopOptions, source)) == YES
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split() == [world.nodes[1], "2", "1", "1", "50%", "1", "1"]
    assert await sum_devices(options(TopOptions, source, by="namespaces", output="json")) == YES
    (sum,) = json.loads(capsys.readouterr().out)["namespaces"]
    assert (sum["name"], sum["totals"]["used"]) == ("default", 1)


async def test_a_cluster_without_a_driver_is_told_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with EmbeddedCluster(nodes=1, installed=False) as cluster:
        kubeconfig = cluster.server.write_kubeconfig(tmp_path / "kubeconfig")
        assert await list_devices(DevicesOptions(kubeconfig=str(kubeconfig))) == NO
    captured = capsys.readouterr()
    assert captured.err == "dra-extender: there are no devices: no driver has published a ResourceSlice with devices\n"


@pytest.mark.parametrize(
    ("given", "status", "said"),
    [
        ({"node": ["nowhere"]}, FAILED, "node nowhere not found"),
        ({"device_class": ["gqu"]}, FAILED, "DeviceClass gqu not found"),
        ({"driver": ["none"]}, FAILED, "driver none not found: it has published no ResourceSlice"),
        ({"namespace": "empty"}, NO, "no device matches"),
    ],
)
async def test_an_empty_answer_says_why(
    source: Source, capsys: pytest.CaptureFixture[str], given: Any, status: int, said: str
) -> None:
    assert await status_of(list_devices(options(DevicesOptions, source, **given))) == status
    captured = capsys.readouterr()
    assert (captured.out, said in captured.err) == ("", True)


async def test_devices_that_no_claim_holds_are_in_no_namespace(
    world: World, source: Source, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await sum_devices(options(TopOptions, source, by="namespaces", node=[world.nodes[0]])) == NO
    assert "no claim holds any of these devices" in capsys.readouterr().err


def test_the_states_of_the_command_are_those_of_the_report() -> None:
    assert list(DeviceStateName) == list(STATES)


@pytest.mark.parametrize("command", [["devices", "--state", "gone"], ["top", "pods"], ["devices", "-o", "xml"]])
def test_a_word_that_is_none_is_refused_with_those_that_are(command: list[str]) -> None:
    found = CliRunner().invoke(app, command)
    assert found.exit_code == 2
    assert "is not one of" in " ".join(found.output.split())
