"""`dra-extender compact` against an API server: moves for a pod, and for a claim in a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
import yaml

from dra_extender.cli.answers.capacity import answer_compact
from dra_extender.cli.output import FAILED, NO, YES, status_of
from dra_extender.cli.questions import CompactOptions, Source
from dra_extender.cli.snapshot import take
from embedded_cluster.hardware import GPU_DRIVER
from tests.cli.conftest import options
from tests.support.service.world import Json, World


@pytest.fixture
def world(world: World) -> World:
    """On each node a pod has a GPU."""
    template = {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "pause"}]}}
    world.store.create(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "d", "namespace": "default"},
            "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "d"}}, "template": template},
        }
    )
    for number in range(3):
        run(world, f"p{number}", world.nodes[number])
    return world


def run(world: World, name: str, node: str) -> None:
    """A pod of the Deployment that has the first GPU of the node."""
    world.claim(name)
    owner = {
        "apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "controller": True,
        "uid": world.stored("deployments", "d")["metadata"]["uid"],
    }  # fmt: skip
    metadata = {"name": name, "namespace": "default", "labels": {"app": name}, "ownerReferences": [owner]}
    spec = {
        "schedulerName": "dra-scheduler", "nodeName": node, "containers": [{"name": "c", "image": "pause"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
    }  # fmt: skip
    world.store.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    world.allocate(name, name, node)


async def report(source: Source, pod: str, file: Path | None = None, schedulers: tuple[str, ...] = ()) -> int:
    """The exit status of the command."""
    filename = str(file) if file is not None else ""
    return await answer_compact(
        options(CompactOptions, source, pod=pod, filename=filename, scheduler_name=list(schedulers))
    )


async def test_a_pending_pod_is_told_whom_to_evict(
    world: World, source: Source, capsys: pytest.CaptureFixture[str]
) -> None:
    world.claim("big", count=2)
    world.pod("big", "big")
    assert await report(source, "default/big", None, ("dra-scheduler",)) == YES
    first, second, *_ = world.nodes
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        f"to make room for pod default/big on {first}, evict 1 pod in this order:",
        f"  1. default/p0: {first} -> {second}",
    ]
    assert lines[3].startswith(f"then pod default/big fits on {first}: {GPU_DRIVER}/")
    assert max(map(len, lines)) <= 80


async def test_pods_of_another_scheduler_than_that_of_the_pod_stay(
    world: World, source: Source, capsys: pytest.CaptureFixture[str]
) -> None:
    world.claim("big", count=2)
    stored = world.pod("big", "big")
    assert stored["spec"].get("schedulerName", "default-scheduler") == "default-scheduler"
    assert await report(source, "default/big", None, ()) == NO
    out = capsys.readouterr().out
    assert out.startswith("no evictions make room for pod default/big\npods that cannot be moved:\n")
    assert "3 pods: scheduled by dra-scheduler (default/p0, default/p1, default/p2)" in out
    assert await report(source, "default/big", None, ("dra-scheduler", "default-scheduler")) == YES


@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate"])
async def test_a_claim_in_a_file_is_made_room_for(
    world: World, source: Source, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    exactly = {"deviceClassName": GPU_DRIVER, "allocationMode": "ExactCount", "count": 2}
    spec: Json = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    document = {"kind": kind, "metadata": {"name": "wanted"}, "spec": {"spec": spec} if "Temp" in kind else spec}
    file = tmp_path / "claim.yaml"
    file.write_text(yaml.safe_dump(document))
    assert await report(source, "", file, ()) == YES
    assert capsys.readouterr().out.startswith(f"to make room for claim wanted on {world.nodes[0]}, evict 1 pod")


async def test_a_budget_is_named_and_its_pod_stays(
    world: World, source: Source, capsys: pytest.CaptureFixture[str]
) -> None:
    world.store.create(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "careful", "namespace": "default"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "p0"}}},
        }
    )
    world.claim("big", count=2)
    world.pod("big", "big")
    assert await report(source, "default/big", None, ("dra-scheduler",)) == YES
    out = capsys.readouterr().out
    assert f"1. default/p1: {world.nodes[1]} -> " in out
    assert "1 pod: disruption budget default/careful allows no eviction (default/p0)" in out


async def test_no_advice_is_given_when_a_budget_cannot_be_read(
    world: World, source: Source, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metadata = {"name": "careful", "namespace": "default"}
    world.store.create({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": {}})
    world.claim("big", count=2)
    world.pod("big", "big")
    file = tmp_path / "snapshot.json"
    await take(file, source)
    content = json.loads(file.read_bytes())
    content["objects"]["poddisruptionbudgets"][0]["spec"] = {"selector": {"matchLabels": "text"}}
    file.write_text(json.dumps(content))
    answer = report(Source(from_file=str(file)), "default/big", None, ("dra-scheduler",))
    assert await status_of(answer) == FAILED
    assert "PodDisruptionBudget default/careful: " in capsys.readouterr().err


async def test_a_pod_or_a_file_is_needed(source: Source) -> None:
    with pytest.raises(typer.BadParameter, match="name a pod, or a file with -f"):
        await report(source, "", None, ())


async def test_what_fits_already_needs_no_move(
    world: World, source: Source, capsys: pytest.CaptureFixture[str]
) -> None:
    world.claim("small")
    world.pod("small", "small")
    assert await report(source, "default/small", None, ()) == YES
    assert capsys.readouterr().out.startswith("pod default/small fits without a move on 3 nodes: ")


@pytest.mark.parametrize(
    ("key", "content", "problem"),
    [
        ("default/none", "", "pod default/none not found: it does not exist or has finished"),
        ("default/p0", "", "pod default/p0 is bound to node"),
        ("", "---", "contains no object of kind ResourceClaim, ResourceClaimTemplate"),
        ("", "kind: Pod", "Pod is not supported: give objects of kind ResourceClaim, ResourceClaimTemplate"),
        ("", "kind: ResourceClaim\nspec: {devices: {requests: [{name: r}]}}", "request r"),
        ("", "[", "while parsing"),
    ],
)
async def test_a_question_that_cannot_be_answered_says_why(
    world: World, source: Source, tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str, content: str,
    problem: str,
) -> None:  # fmt: skip
    file = tmp_path / "claim.yaml"
    file.write_text(content)
    assert await status_of(report(source, key, file if content else None, ())) == FAILED
    said = capsys.readouterr()
    assert (said.out, problem in said.err) == ("", True), said.err
