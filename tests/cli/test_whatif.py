"""`dra-extender whatif` against an API server."""

from __future__ import annotations

import json

import pytest

from app.cli.source import Source
from app.cli.statuses import FAILED, NO, YES
from app.cli.suppositions import Question, added_node, answer
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
