"""`dra-extender audit` against an API server."""

from __future__ import annotations

import pytest

from dra_extender.cli.answers.devices import audit
from dra_extender.cli.output import NO, YES
from dra_extender.cli.questions import AuditOptions, Source
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
