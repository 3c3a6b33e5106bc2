"""`dra-extender whatif` against an API server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dra_extender.api.core import Toleration
from dra_extender.cli.answers.supposed import toleration
from dra_extender.cli.answers.whatif import Question, added_node, answer
from dra_extender.cli.source import Source
from dra_extender.cli.statuses import FAILED, NO, YES
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
    assert await answer(Question(added=(f"like={world.nodes[0]}",), drained=(world.nodes[0],), source=source)) == NO
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"With 1 more node: {world.nodes[0]}-like-1."
    assert lines[1:3] == ["1 pod would still not fit:", "  default/three: 3 nodes lack the devices"]
    assert (world.store.list("nodes"), world.store.list("resourceclaims")) == before


async def test_one_pod_is_asked_about(world: World, source: Source, capsys: pytest.CaptureFixture[str]) -> None:
    drained = tuple(world.nodes[:2])
    assert await answer(Question(pod="two", namespace="default", drained=drained, output="json", source=source)) == YES
    (outcome,) = json.loads(capsys.readouterr().out)["outcomes"]
    assert outcome == {
        "pod": "default/two", "verdict": "fits", "displaced": False, "now": world.nodes[0], "node": world.nodes[2],
        "reason": "", "remedy": "",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("question", "problem"),
    [
        (Question(added=("node-0",)), "--add-node node-0: it has to be like=NODE,count=N"),
        (Question(without=("nobody",)), "pod default/nobody is not known"),
        (Question(drained=("nowhere",)), "node nowhere is not known"),
    ],
)
async def test_a_question_that_cannot_be_answered_says_why(
    source: Source, capsys: pytest.CaptureFixture[str], question: Question, problem: str
) -> None:
    asked = Question(added=question.added, without=question.without, drained=question.drained, source=source)
    assert await answer(asked) == FAILED
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "found"), [("like=n", ("n", 1)), ("like=n,count=3", ("n", 3)), ("count=2,like=n", ("n", 2))]
)
def test_nodes_that_are_added_are_read(text: str, found: tuple[str, int]) -> None:
    assert added_node(text) == found


@pytest.mark.parametrize("text", ["", "n", "like=", "like=n,count=x", "like=n,more=1", "like=n,count=-1"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="it has to be like=NODE,count=N"):
        added_node(text)


# --- objects and tolerations


SLICE = """
apiVersion: resource.k8s.io/v1beta2
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


async def test_slices_of_a_file_are_supposed(
    world: World, source: Source, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "slices.yaml"
    file.write_text(SLICE % world.nodes[1])
    assert await answer(Question(pod="three", supposed=(str(file),), source=source)) == YES
    assert capsys.readouterr().out == f"1 pod would fit then:\n  default/three: {world.nodes[1]}\n"


async def test_a_taint_that_is_tolerated_keeps_nobody_away(
    world: World, source: Source, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in world.nodes:
        node = world.stored("nodes", name, "")
        node["spec"] = {"taints": [{"key": "lab", "value": "ml", "effect": "NoSchedule"}]}
        world.store.update(node)
    assert await answer(Question(pod="two", source=source)) == NO
    assert await answer(Question(pod="two", tolerations=("lab=ml:NoSchedule",), source=source)) == YES
    assert "1 pod would fit then:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("kind: Secret\napiVersion: v1", "v1 Secret cannot be supposed: give objects of kind ResourceSlice"),
        ("", "there is no object of kind ResourceSlice"),
        ("kind: DeviceClass\napiVersion: resource.k8s.io/v9", "resource.k8s.io/v9 DeviceClass cannot be supposed"),
    ],
)
async def test_a_file_with_anything_else_is_refused(
    source: Source, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, problem: str
) -> None:
    file = tmp_path / "objects.yaml"
    file.write_text(text)
    assert await answer(Question(supposed=(str(file),), source=source)) == FAILED
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("key", Toleration("key", "Exists")),
        ("key:NoExecute", Toleration("key", "Exists", "", "NoExecute")),
        ("example.com/key=a:NoSchedule", Toleration("example.com/key", "Equal", "a", "NoSchedule")),
        ("key=", Toleration("key", "Equal", "")),
        ("*", Toleration("", "Exists")),
    ],
)
def test_tolerations_are_read(text: str, found: Toleration) -> None:
    assert toleration(text) == found


@pytest.mark.parametrize("text", ["", "a b", "=v", "k=v=w", "k:", "k:No Schedule"])
def test_what_is_no_toleration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="it has to be KEY"):
        toleration(text)
