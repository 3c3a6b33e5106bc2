"""`dra-extender workload` writes what `serve --placement-workload` reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from dra_extender.cli.answers.audit import workload
from dra_extender.cli.output import FAILED, NO, YES
from dra_extender.cli.source import Source
from dra_extender.service.settings import load
from tests.support.service.world import World


async def test_kinds_of_pods_are_written_the_most_frequent_first(
    world: World, source: Source, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, count in (("pair", 2), ("a", 1), ("b", 1)):
        world.claim(name, count=count)
        world.pod(name, name)
    world.pod("no-devices")
    assert await workload(source) == YES
    file = tmp_path / "workload.yaml"
    file.write_text(capsys.readouterr().out)
    found = [
        (kind.count, [request.exactly and request.exactly.count for request in kind.claims[0].spec.devices.requests])
        for kind in load({"placement_workload": str(file)}).expected.pods
    ]
    assert found == [(2, [1]), (1, [2])]


async def test_without_pods_that_use_devices_there_is_no_file(
    world: World, source: Source, capsys: pytest.CaptureFixture[str]
) -> None:
    world.pod("no-devices")
    assert await workload(source) == NO
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "dra-extender: no pod uses devices: there is nothing to write\n")


@pytest.mark.parametrize(("gates", "file"), [("", "nowhere"), ("Nonsense=true", "")])
async def test_a_cluster_that_cannot_be_asked_has_a_status_of_its_own(source: Source, gates: str, file: str) -> None:
    assert await workload(Source(feature_gates=gates, kubeconfig=file or source.kubeconfig)) == FAILED
