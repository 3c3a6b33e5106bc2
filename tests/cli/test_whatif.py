"""`dra-extender whatif` against an API server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dra_extender.cli.answers.capacity import added_node, answer_what_if
from dra_extender.cli.output import FAILED, NO, YES, status_of
from dra_extender.cli.questions import Source, WhatIfOptions
from dra_extender.insight.whatif.whatif import NodesLike
from tests.cli.conftest import options
from tests.support.service.world import World


@pytest.fixture
def world(world: World) -> World:
    """A pod waits for two GPUs and another for three."""
    for name, count in (("two", 2), ("three", 3)):
        world.claim(name, count)
        world.pod(name, name)
    return world


async def test_all_that_wait_are_asked_about_and_nothing_is_written(
    world: World, source: Source, capsys: pytest.CaptureFixture[str]
) -> None:
    before = world.store.list("nodes"), world.store.list("resourceclaims")
    assert (
        await answer_what_if(
            options(WhatIfOptions, source, add_node=[f"like={world.nodes[0]}"], drain=[world.nodes[0]])
        )
        == NO
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"With 1 more node: {world.nodes[0]}-like-1."
    assert lines[1:3] == ["1 pod would still not fit:", "  default/three: 3 nodes lack the devices"]
    assert (world.store.list("nodes"), world.store.list("resourceclaims")) == before


async def test_one_pod_is_asked_about(world: World, source: Source, capsys: pytest.CaptureFixture[str]) -> None:
    drained = list(world.nodes[:2])
    assert (
        await answer_what_if(
            options(WhatIfOptions, source, pod="two", namespace="default", drain=drained, output="json")
        )
        == YES
    )
    (outcome,) = json.loads(capsys.readouterr().out)["outcomes"]
    assert outcome == {
        "pod": "default/two", "verdict": "fits", "displaced": False, "now": world.nodes[0], "node": world.nodes[2],
        "reason": "",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"add_node": ["node-0"]}, "--add-node node-0: expected like=NODE,count=N or nodepool=NAME,count=N"),
        ({"add_node": ["nodepool=large"]}, "node large not found: name a node, or a NodePool that has nodes"),
        ({"without_pod": ["nobody"]}, "pod default/nobody not found"),
        ({"drain": ["nowhere"]}, "node nowhere not found"),
    ],
)
async def test_an_invalid_request_says_why(
    source: Source, capsys: pytest.CaptureFixture[str], given: Any, problem: str
) -> None:
    assert await status_of(answer_what_if(options(WhatIfOptions, source, **given))) == FAILED
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("like=n", NodesLike("n", 1)),
        ("like=n,count=3", NodesLike("n", 3)),
        ("count=2,like=n", NodesLike("n", 2)),
        ("nodepool=p,count=2", NodesLike("p", 2)),
    ],
)
def test_nodes_that_are_added_are_read(text: str, found: NodesLike) -> None:
    assert added_node(text) == found


@pytest.mark.parametrize(
    "text", ["", "n", "like=", "like=n,count=x", "like=n,more=1", "like=n,nodepool=n", "like=n,count=-1"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected like=NODE,count=N"):
        added_node(text)


# --- objects


SLICE = """
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: more}
spec:
  driver: gpu.example.com
  nodeName: %s
  pool: {name: more, generation: 1, resourceSliceCount: 1}
  devices:
  - name: gpu-0
    attributes: {model: {string: A}}
"""


async def test_slices_of_a_file_are_added(
    world: World, source: Source, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "slices.yaml"
    file.write_text(SLICE % world.nodes[1])
    assert await answer_what_if(options(WhatIfOptions, source, pod="three", with_file=[str(file)])) == YES
    assert capsys.readouterr().out == f"1 pod would fit:\n  default/three: {world.nodes[1]}\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("kind: Secret\napiVersion: v1", "v1 Secret is not supported: give objects of kind ResourceSlice"),
        ("", "contains no object of kind ResourceSlice"),
        (
            "kind: DeviceClass\napiVersion: resource.k8s.io/v1beta2\nmetadata: {name: gpu}",
            "DeviceClass gpu: apiVersion resource.k8s.io/v1beta2 is not supported: use resource.k8s.io/v1",
        ),
    ],
)
async def test_a_file_with_anything_else_is_refused(
    source: Source, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, problem: str
) -> None:
    file = tmp_path / "objects.yaml"
    file.write_text(text)
    assert await status_of(answer_what_if(options(WhatIfOptions, source, with_file=[str(file)]))) == FAILED
    assert problem in capsys.readouterr().err
