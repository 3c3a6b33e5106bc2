"""`dra-extender workload` writes what `serve --placement-workload` reads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from app.cli.workload import EMPTY, FAILED, WRITTEN, report
from app.embedded import EmbeddedAPIServer
from app.service.settings import load
from tests.support.service.world import World


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with EmbeddedAPIServer(seed=1) as api, aiohttp.ClientSession() as session:
        made = World(api, session)
        made.populate()
        yield made


@pytest.fixture
def kubeconfig(world: World, tmp_path: Path) -> str:
    return str(world.api.write_kubeconfig(tmp_path / "kubeconfig"))


async def test_kinds_of_pods_are_written_the_most_frequent_first(
    world: World, kubeconfig: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, count in (("pair", 2), ("a", 1), ("b", 1)):
        world.claim(name, count=count)
        world.pod(name, name)
    world.pod("no-devices")
    assert await report("", kubeconfig, "") == WRITTEN
    file = tmp_path / "workload.yaml"
    file.write_text(capsys.readouterr().out)
    found = [
        (kind.count, [request.exactly and request.exactly.count for request in kind.claims[0].spec.devices.requests])
        for kind in load({"placement_workload": str(file)}).expected.pods
    ]
    assert found == [(2, [1]), (1, [2])]


async def test_without_pods_that_use_devices_there_is_no_file(
    world: World, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    world.pod("no-devices")
    assert await report("", kubeconfig, "") == EMPTY
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "dra-extender: no pod uses devices: there is nothing to write\n")


@pytest.mark.parametrize(("gates", "file"), [("", "nowhere"), ("Nonsense=true", "")])
async def test_a_cluster_that_cannot_be_asked_has_a_status_of_its_own(kubeconfig: str, gates: str, file: str) -> None:
    assert await report(gates, file or kubeconfig, "") == FAILED
