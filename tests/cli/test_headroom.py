"""`dra-extender headroom` against an API server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dra_extender.cli.answers.capacity import answer_headroom
from dra_extender.cli.main import app
from dra_extender.cli.output import FAILED, NO, YES, status_of
from dra_extender.cli.questions import HeadroomOptions, Source
from embedded_cluster.hardware import GPU_DRIVER
from tests.cli.conftest import options
from tests.support.service.readiness import until_ready
from tests.support.service.world import World, serve


def about(source: Source, name: str = GPU_DRIVER, **more: Any) -> HeadroomOptions:
    return options(HeadroomOptions, source, device_class=name, **more)


async def test_the_command_says_what_the_service_says(
    world: World, source: Source, capsys: pytest.CaptureFixture[str]
) -> None:
    async with serve(world.api.url) as service:
        await until_ready(service)
        status, told = await world.get(f"{service.insight_url}/insight/headroom?class={GPU_DRIVER}&count=2")
    assert (status, told["fits"], told["nodes"]) == (200, 3, 3)
    capsys.readouterr()
    assert await answer_headroom(about(source, count=2, output="json")) == YES
    assert json.loads(capsys.readouterr().out) == told


async def test_the_answer_is_a_few_lines(world: World, source: Source, capsys: pytest.CaptureFixture[str]) -> None:
    assert await answer_headroom(about(source)) == YES
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        f"Pods with 1 device of class {GPU_DRIVER}: 6 more fit, on 3 of 3 nodes.",
        f"  2 on each of 3 nodes: {', '.join(world.nodes)}",
        "Not checked: CPU, memory and taints of nodes, affinity, quotas.",
    ]


async def test_a_claim_in_a_file_is_asked_about(
    source: Source, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "claim.yaml"
    file.write_text(
        "kind: ResourceClaim\nmetadata: {name: pair}\n"
        f"spec: {{devices: {{requests: [{{name: r, exactly: {{deviceClassName: {GPU_DRIVER}, count: 2}}}}]}}}}\n"
    )
    assert await answer_headroom(options(HeadroomOptions, source, filename=str(file))) == YES
    assert capsys.readouterr().out.startswith("Pods with claim pair: 3 more fit, on 3 of 3 nodes.")


async def test_when_nothing_fits_it_is_said(source: Source, capsys: pytest.CaptureFixture[str]) -> None:
    assert await answer_headroom(about(source, count=3)) == NO
    assert capsys.readouterr().out.startswith(f"Pods with 3 devices of class {GPU_DRIVER}: 0 more fit on 3 nodes.\n")


async def test_a_class_that_is_none_is_said(source: Source, capsys: pytest.CaptureFixture[str]) -> None:
    assert await status_of(answer_headroom(about(source, "gqu"))) == FAILED
    assert "DeviceClass gqu not found" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["headroom"], ["headroom", "gpu", "-f", "claim.yaml"]])
def test_either_a_class_or_a_file_is_named(command: list[str]) -> None:
    found = CliRunner().invoke(app, command)
    assert (found.exit_code, "name a DeviceClass, or a file with -f" in found.output) == (2, True)
