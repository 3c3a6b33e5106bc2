"""`dra-extender simulate`, of a cluster and of a snapshot file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dra_extender.cli.answers.capacity import answer_simulate
from dra_extender.cli.output import FAILED, NO, YES, status_of
from dra_extender.cli.questions import SimulateOptions, Source
from dra_extender.cli.snapshot import take
from tests.cli.conftest import options
from tests.support.service.world import World

REQUEST = """
pod: {kind: Pod, metadata: {name: p}, spec: {resourceClaims: [{name: gpu, resourceClaimTemplateName: two}]}}
objects:
- apiVersion: resource.k8s.io/v1
  kind: ResourceClaimTemplate
  metadata: {name: two, creationTimestamp: 2026-01-01T00:00:00Z}
  spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu.example.com, count: 2}}]}}}
nodes: [%s]
newNodes: [{like: %s, count: 2}]
count: %d
"""


@pytest.mark.parametrize("offline", [False, True])
@pytest.mark.parametrize(("count", "fits", "status"), [(3, 3, YES), (4, 3, NO)])
async def test_the_request_of_a_file_is_answered(
    world: World,
    source: Source,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    offline: bool,
    count: int,
    fits: int,
    status: int,
) -> None:
    before = world.store.list("nodes"), world.store.list("resourceclaims")
    file, stored = tmp_path / "request.yaml", tmp_path / "cluster.json"
    file.write_text(REQUEST % (world.nodes[0], world.nodes[0], count))
    if offline:
        await take(stored, source)
        capsys.readouterr()
        source = Source(from_file=str(stored))
    assert await answer_simulate(options(SimulateOptions, source, filename=str(file), output="json")) == status
    found = json.loads(capsys.readouterr().out)
    assert found["fits_on"] == [1, 2, fits]
    assert found["least"] == (2 if status == YES else None)
    names = [world.nodes[0], f"{world.nodes[0]}-like-1", f"{world.nodes[0]}-like-2"]
    assert {name: len(devices) for name, devices in found["fit"].items()} == dict.fromkeys(names, 2)
    assert (world.store.list("nodes"), world.store.list("resourceclaims")) == before


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "request.yaml has 0 objects: give one request"),
        ("pod: default/a\n---\npod: default/b", "request.yaml has 2 objects: give one request"),
        ("count: 2", "request.yaml: pod: needs one of pod and gang: give a Pod"),
        ("pod: default/nobody", "request.yaml: pod: pod default/nobody not found"),
        ("pod: [", "request.yaml: while parsing"),
    ],
)
async def test_an_invalid_request_says_why(
    source: Source, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, told: str
) -> None:
    file = tmp_path / "request.yaml"
    file.write_text(text)
    assert await status_of(answer_simulate(options(SimulateOptions, source, filename=str(file)))) == FAILED
    assert told in capsys.readouterr().err
