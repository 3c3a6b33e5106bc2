"""`dra-extender compact` against an API server: moves for a pod, for a claim in a file, and for whole devices."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import yaml

from app.cli.compact import ADVISED, FAILED, IN_VAIN, report
from app.cli.headroom import MOST
from app.cli.rooms import ROOM, Question, answer
from app.cli.source import Source
from app.embedded import EmbeddedAPIServer
from app.embedded.hardware import GPU_DRIVER
from tests.support.service.world import Json, World


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """Three nodes with two GPUs each; on each node a pod has one of them."""
    async with EmbeddedAPIServer(seed=1) as api, aiohttp.ClientSession() as session:
        made = World(api, session)
        made.populate()
        template = {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "pause"}]}}
        made.store.create(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": "d", "namespace": "default"},
                "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "d"}}, "template": template},
            }
        )
        for number in range(3):
            run(made, f"p{number}", made.nodes[number])
        yield made


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
    pod = world.store.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    published = next(item for item in world.store.list("resourceslices") if item["spec"]["nodeName"] == node)["spec"]
    result = {
        "request": "gpu", "driver": published["driver"], "pool": published["pool"]["name"],
        "device": published["devices"][0]["name"],
    }  # fmt: skip
    claim = world.stored("resourceclaims", name)
    claim["status"] = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": name, "uid": pod["metadata"]["uid"]}],
    }
    world.store.update(claim, subresource="status")


@pytest.fixture
def kubeconfig(world: World, tmp_path: Path) -> str:
    return str(world.api.write_kubeconfig(tmp_path / "kubeconfig"))


async def test_a_pending_pod_is_told_whom_to_evict(
    world: World, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    world.claim("big", count=2)
    world.pod("big", "big")
    assert await report("default/big", None, ["dra-scheduler"], "", kubeconfig, "") == ADVISED
    first, second, *_ = world.nodes
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        f"to make room for pod default/big on {first}, evict 1 pod in this order:",
        f"  1. default/p0: {first} -> {second}",
    ]
    assert lines[3].startswith(f"then pod default/big fits on {first}: {GPU_DRIVER}/")
    assert max(map(len, lines)) <= 80


async def test_pods_of_another_scheduler_than_that_of_the_pod_stay(
    world: World, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    world.claim("big", count=2)
    stored = world.pod("big", "big")
    assert stored["spec"].get("schedulerName", "default-scheduler") == "default-scheduler"
    assert await report("default/big", None, [], "", kubeconfig, "") == IN_VAIN
    out = capsys.readouterr().out
    assert out.startswith("no moves make room for pod default/big\nnot to be moved:\n")
    assert "3 pods: scheduled by dra-scheduler (default/p0, default/p1, default/p2)" in out
    assert await report("default/big", None, None, "", kubeconfig, "") == ADVISED


@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate"])
async def test_a_claim_in_a_file_is_made_room_for(
    world: World, kubeconfig: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    exactly = {"deviceClassName": GPU_DRIVER, "allocationMode": "ExactCount", "count": 2}
    spec: Json = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    document = {"kind": kind, "metadata": {"name": "wanted"}, "spec": {"spec": spec} if "Temp" in kind else spec}
    file = tmp_path / "claim.yaml"
    file.write_text(yaml.safe_dump(document))
    assert await report("", file, [], "", kubeconfig, "") == ADVISED
    assert capsys.readouterr().out.startswith(f"to make room for claim wanted on {world.nodes[0]}, evict 1 pod")


async def test_a_budget_is_named_and_its_pod_stays(
    world: World, kubeconfig: str, capsys: pytest.CaptureFixture[str]
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
    assert await report("default/big", None, None, "", kubeconfig, "") == ADVISED
    out = capsys.readouterr().out
    assert f"1. default/p1: {world.nodes[1]} -> " in out
    assert "1 pod: disruption budget default/careful allows no eviction (default/p0)" in out


async def test_headroom_counts_again_after_the_moves(
    world: World, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    question = Question(
        device_class=GPU_DRIVER, count=2, after_compaction=True, limit=MOST, source=Source(kubeconfig=kubeconfig)
    )
    assert await answer(question) == ROOM
    out = capsys.readouterr().out
    assert out.startswith(f"pods with 2 devices of class {GPU_DRIVER}: 0 more pods fit on 3 nodes.\nAfter 1 move (")
    assert "1 more pod fits, on 1 of 3 nodes." in out


async def test_without_a_wish_devices_are_made_whole(
    world: World, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await report("", None, [], "", kubeconfig, "") == IN_VAIN
    assert capsys.readouterr().out == "no move leaves more devices whole\n"


async def test_what_fits_already_needs_no_move(
    world: World, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    world.claim("small")
    world.pod("small", "small")
    assert await report("default/small", None, [], "", kubeconfig, "") == ADVISED
    assert capsys.readouterr().out.startswith("pod default/small fits without a move on 3 nodes: ")


@pytest.mark.parametrize(
    ("key", "content", "problem"),
    [
        ("default/none", "", "pod default/none is not known: it does not exist, or has finished"),
        ("default/p0", "", "pod default/p0 is bound to node"),
        ("default/alone", "", "pod default/alone has claims that are allocated already, extended resources, or no"),
        ("default/p0", "{}", "a pod and --filename are two questions: ask one of them"),
        ("", "---", "has no ResourceClaim and no ResourceClaimTemplate"),
        ("", "kind: Pod", "Pod is no ResourceClaim and no ResourceClaimTemplate with a spec"),
        ("", "kind: ResourceClaim\nspec: {devices: {requests: [{name: r}]}}", "request r"),
        ("", "[", "while parsing"),
    ],
)
async def test_a_question_that_cannot_be_answered_says_why(
    world: World, kubeconfig: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str, content: str,
    problem: str,
) -> None:  # fmt: skip
    world.pod("alone")
    file = tmp_path / "claim.yaml"
    file.write_text(content)
    assert await report(key, file if content else None, [], "", kubeconfig, "") == FAILED
    said = capsys.readouterr()
    assert (said.out, problem in said.err) == ("", True), said.err
