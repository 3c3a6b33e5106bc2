"""`dra-extender why` without a pod: the pods that wait for devices, grouped by reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer

from dra_extender.cli.answers.why import answer
from dra_extender.cli.output import NO, YES
from dra_extender.cli.questions import Source, WhyOptions
from dra_extender.cli.snapshot import take
from dra_extender.insight.why import waiting
from tests.cli.conftest import options
from tests.support.service.world import World


async def report(source: Source, **more: Any) -> int:
    """The exit status of the command."""
    return await answer(options(WhyOptions, source, **more))


def trains(world: World, count: int, devices: int) -> None:
    """Pods that differ only in their names and in the names of their claims, as those of a Job."""
    for number in range(count):
        pod = world.store.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"train-{number}", "namespace": "default"},
                "spec": {
                    "containers": [{"name": "c", "image": "pause"}],
                    "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}],
                },
            }
        )
        claim = world.claim(f"train-{number}-gpu", count=devices)
        owner = {"apiVersion": "v1", "kind": "Pod", "name": f"train-{number}", "uid": pod["metadata"]["uid"]}
        claim["metadata"]["ownerReferences"] = [owner | {"controller": True}]
        world.store.update(claim)
        stored = world.stored("pods", f"train-{number}")
        stored["status"] = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": f"train-{number}-gpu"}]}
        world.store.update(stored, subresource="status")


async def test_pods_that_wait_are_grouped_by_reason_in_a_cluster_and_in_a_snapshot(
    world: World, source: Source, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world.pod("alone", "missing")
    trains(world, 4, devices=3)
    world.claim("small")
    world.pod("fitting", "small")
    world.pod("without-devices")
    assert await report(source) == NO
    text = capsys.readouterr().out
    blocks = text.split("\n\n")
    assert [block.splitlines()[0] for block in blocks] == [
        "4 pods (train-0, train-1, train-2, …) fit none of 3 nodes.",
        "1 pod (alone) fits none of 3 nodes.",
        "1 pod (fitting) fits at least one of 3 nodes, each pod alone.",
    ]
    assert "Suggestion: request at most 2 devices instead of 3" in blocks[0]
    assert "Suggestion: create the claim" in blocks[1]
    assert "Not checked: volumes, whether scheduler default-scheduler runs" in blocks[2]
    assert await report(source, output="json") == NO
    found = json.loads(capsys.readouterr().out)
    assert [(group["count"], group["state"]) for group in found] == [(4, "refused"), (1, "refused"), (1, "fits")]
    assert found[0]["reason"] == found[0]["diagnosis"]["summary"]
    assert found[0]["pods"] == [f"default/train-{number}" for number in range(4)]
    file = tmp_path / "cluster.json"
    assert await take(file, source) == YES
    capsys.readouterr()
    assert await report(Source(from_file=str(file))) == NO
    assert capsys.readouterr().out == text


async def test_pods_that_differ_only_in_names_share_a_diagnosis(
    world: World, source: Source, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "MOST_DIAGNOSES", 1)
    trains(world, 4, devices=3)
    world.pod("zzz", "missing")
    assert await report(source, output="json") == NO
    found = json.loads(capsys.readouterr().out)
    assert [(group["count"], group["state"]) for group in found] == [(4, "refused"), (1, "not diagnosed")]
    assert await report(source) == NO
    assert "1 pod (zzz) not diagnosed: the work of one answer is limited." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "status", "text"),
    [
        ({"namespace": "default"}, NO, "1 pod (p) fits none"),
        ({"all_namespaces": True}, NO, "1 pod (default/p) fits none"),
        ({"namespace": "other"}, YES, "No pod waits for devices in namespace other."),
        ({"everything": True}, NO, "Pod default/p fits none"),
    ],
)
async def test_options_choose_the_pods_and_the_details(
    world: World, source: Source, capsys: pytest.CaptureFixture[str], more: dict[str, Any], status: int, text: str
) -> None:
    world.pod("p", "missing")
    assert await report(source, **more) == status
    assert text in capsys.readouterr().out


@pytest.mark.parametrize(
    "more",
    [
        {"all_namespaces": True, "pod": "p"},
        {"all_namespaces": True, "filename": "-"},
        {"all_namespaces": True, "namespace": "default"},
        {"pod": "p", "filename": "-"},
    ],
)
async def test_options_that_exclude_each_other_are_refused(source: Source, more: dict[str, Any]) -> None:
    with pytest.raises(typer.BadParameter):
        await report(source, **more)


async def test_pods_that_all_fit_are_a_success(
    world: World, source: Source, capsys: pytest.CaptureFixture[str]
) -> None:
    trains(world, 2, devices=1)
    assert await report(source) == YES
    assert capsys.readouterr().out.startswith("2 pods (train-0, train-1) fit at least one of 3 nodes, each pod alone.")
