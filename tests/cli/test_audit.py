"""`dra-extender audit` and `workload` against an API server."""

from __future__ import annotations

from pathlib import Path

import pytest

from dra_extender.cli.answers.devices import audit, workload
from dra_extender.cli.output import NO, YES
from dra_extender.cli.questions import AuditOptions
from dra_extender.cli.source import Source
from dra_extender.service.settings import load
from tests.cli.conftest import options
from tests.support.service.world import World


@pytest.mark.parametrize(("devices", "status"), [((0, 1), YES), ((0, 0), NO)])
async def test_a_device_in_two_claims_is_listed_with_both(
    world: World, source: Source, capsys: pytest.CaptureFixture[str], devices: tuple[int, int], status: int
) -> None:
    names = [device["name"] for device in world.published(world.nodes[0])["spec"]["devices"]]
    for name, device in zip(("one", "two"), devices, strict=True):
        world.claim(name)
        world.pod(name, name, node=world.nodes[0])
        world.allocate(name, name, world.nodes[0], names[device])
    assert await audit(options(AuditOptions, source)) == status
    *found, last = capsys.readouterr().out.splitlines()
    assert last == f"2 allocated claims, {'0 violations' if status == YES else '1 violation'}"
    for line in found:
        assert line.startswith("device gpu.example.com/")
        assert line.endswith("allocated to 2 claims; claims: default/one, default/two")
    assert len(found) == (status == NO)


async def test_the_workload_has_kinds_of_pods_the_most_frequent_first(
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


async def test_without_pods_that_use_devices_there_is_no_workload(
    world: World, source: Source, capsys: pytest.CaptureFixture[str]
) -> None:
    world.pod("no-devices")
    assert await workload(source) == NO
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "dra-extender: no pod uses devices: there is nothing to write\n")
