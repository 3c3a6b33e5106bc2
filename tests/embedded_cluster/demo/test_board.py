"""What the demo shows."""

from __future__ import annotations

import re
from io import StringIO
from typing import Any

import msgspec
import pytest
from rich.console import Console, RenderableType

from dra_extender.api.decoding import convert
from dra_extender.api.resource import ResourceClaim
from embedded_cluster.demo import board
from embedded_cluster.demo.board import EXPECTED, Header, PodRow
from embedded_cluster.objects import FullPod

MESSAGE = (
    "0/4 nodes are available: 4 cannot allocate all claims. "
    "preemption: 0/4 nodes are available: 4 Preemption is not helpful for scheduling."
)
REFUSED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": MESSAGE}
HEADER = Header(
    api="http://127.0.0.1:1",
    cluster="4 nodes",
    service="service: process 7",
    page="http://127.0.0.1:2/",
    environment="export KUBECONFIG=.demo/kubeconfig PATH=$PWD/.venv/bin:$PATH",
    commands=("kubectl get pods -A",),
)


def pod(phase: str = "Pending", node: str = "", *conditions: dict[str, str], **meta: Any) -> FullPod:
    return convert(
        FullPod,
        {
            "metadata": {"name": "p", "namespace": "ns", "uid": "u", **meta},
            "spec": {"nodeName": node, "resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]},
            "status": {"phase": phase, "conditions": list(conditions)},
        },
    )


def claim(*devices: str, consumers: int = 1, admin: bool = False) -> ResourceClaim:
    result = {"request": "r", "driver": "d", "pool": "n", "adminAccess": admin}
    results = [result | {"device": device} for device in devices]
    reserved = [{"resource": "pods", "name": str(n), "uid": str(n)} for n in range(consumers)]
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": reserved}
    return convert(ResourceClaim, {"metadata": {"name": "c", "namespace": "ns"}, "status": status})


def row(pod: FullPod, claim: ResourceClaim | None = None, why: str = "") -> PodRow:
    (made,) = board.rows([pod], {"ns/c": claim} if claim is not None else {}, {"u": why} if why else {})
    return made


@pytest.mark.parametrize(
    ("pod", "state", "reason"),
    [
        (pod(), "Pending", "not tried yet"),
        (pod("Pending", "", REFUSED), "Pending", "0/4 nodes are available: 4 cannot allocate all claims"),
        (pod("Pending", "n1"), "Starting", ""),
        (pod("Running", "n1"), "Running", ""),
        (pod("Running", "n1", deletionTimestamp="2026-01-01T00:00:00Z"), "Terminating", ""),
        (pod("Succeeded", "n1"), "Succeeded", ""),
    ],
)
def test_a_row_says_where_a_pod_is_and_why(pod: FullPod, state: str, reason: str) -> None:
    made = row(pod)
    assert (made.state, made.reason) == (state, reason)


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (("gpu-0",), "gpu-0"),
        (("gpu-3", "gpu-1"), "gpu-1,3"),
        (tuple(f"gpu-{n}" for n in range(8)), "gpu-0…7"),
        (("gpu-0", "nic-0", "whole"), "gpu-0 nic-0 whole"),
    ],
)
def test_devices_are_listed_shortly(names: tuple[str, ...], shown: str) -> None:
    assert row(pod("Running", "n1"), claim(*names)).devices == shown


def test_a_shared_claim_is_told() -> None:
    assert row(pod("Running", "n1"), claim("gpu-0", consumers=2)).reason == "claim shared by 2 pods"


def test_what_the_service_found_out_is_told_rather_than_the_count_of_nodes() -> None:
    assert row(pod("Pending", "", REFUSED), why="claim c: 2 of 3").reason == "claim c: 2 of 3"
    assert row(pod("Running", "n1"), claim("gpu-0"), why="claim c: 2 of 3").reason == "", "it runs now"


def test_pods_that_wait_come_first() -> None:
    named = [
        convert(FullPod, {"metadata": {"name": name, "namespace": "ns"}, "status": {"phase": phase}})
        for name, phase in (("a", "Running"), ("b", "Pending"), ("c", "Running"), ("d", "Pending"))
    ]
    assert [made.name for made in board.rows(named, {})] == ["b", "d", "a", "c"]


EXPECTS = {"annotations": {EXPECTED: "Unschedulable"}}


@pytest.mark.parametrize(
    ("pod", "why", "settled"),
    [
        (pod("Running", "n1"), "", True),
        (pod(), "", False),
        (pod("Pending", "", REFUSED), "2 of 3", False),
        (pod("Pending", "", REFUSED, **EXPECTS), "2 of 3", True),
        (pod("Pending", "", REFUSED, **EXPECTS), "", False),
        (pod("Pending", "", REFUSED | {"reason": "SchedulerError"}, **EXPECTS), "2 of 3", False),
        (pod("Running", "n1", **EXPECTS), "", False),
    ],
)
def test_a_pod_is_settled_when_it_runs_or_waits_as_expected_and_says_why(pod: FullPod, why: str, settled: bool) -> None:
    assert row(pod, why=why).settled is settled


def test_changes_are_told_once_and_in_words() -> None:
    refused, waits = row(pod("Pending", "", REFUSED)), row(pod("Pending", "", REFUSED), why="claim c: 2 of 3")
    fails = row(pod("Pending", "", REFUSED | {"reason": "SchedulerError", "message": "connection refused"}))
    runs = row(pod("Running", "n1"), claim("gpu-0"))
    assert board.changes({}, {"ns/p": row(pod())}) == []
    assert board.changes({}, {"ns/p": refused}) == [], "not before it is explained"
    assert board.changes({"ns/p": refused}, {"ns/p": waits}) == ["ns/p waits: claim c: 2 of 3"]
    assert board.changes({"ns/p": refused}, {"ns/p": fails}) == ["ns/p waits: connection refused"]
    assert board.changes({"ns/p": waits}, {"ns/p": waits}) == []
    assert board.changes({"ns/p": waits}, {"ns/p": runs}) == ["ns/p runs on n1 with gpu-0"]
    assert board.changes({"ns/p": runs}, {}) == ["ns/p is gone, gpu-0 of n1 free again"]


def test_devices_that_another_pod_still_uses_are_not_called_free() -> None:
    shares = row(pod("Running", "n1"), claim("gpu-0", consumers=2))
    assert board.changes({"ns/p": shares}, {}) == ["ns/p is gone"]


def test_who_only_looked_at_devices_frees_none() -> None:
    looks = row(pod("Running", "n1"), claim("gpu-0", "gpu-1", admin=True))
    assert board.changes({"ns/p": looks}, {}) == ["ns/p is gone"]


def rendered(what: RenderableType, width: int) -> list[str]:
    console = Console(width=width, file=StringIO(), force_terminal=False)
    console.print(what)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text.rstrip("\n").split("\n")


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 30), (200, 50)])
@pytest.mark.parametrize("run", [0, 10, 200])
@pytest.mark.parametrize("wait", [0, 2, 200])
def test_the_screen_fits_the_terminal_and_always_says_how_to_go_on(
    width: int, height: int, run: int, wait: int
) -> None:
    waiting = row(pod("Pending", "", REFUSED), why="claim c: 2 of 3 " + "and more " * 20)
    shown = [waiting] * wait + [row(pod("Running", "n1"), claim("gpu-0"))] * run
    log = [f"12:00:00  line {number} {'x' * 300}" for number in range(100)]
    lines = rendered(board.screen(HEADER, shown, log, width=width, height=height), width)
    assert len(lines) <= height and all(len(line) <= width for line in lines)
    text = "\n".join(lines)
    assert HEADER.environment in text and "Ctrl-C" in text
    assert (wait == 200) == ("more wait" in text)
    assert run < 200 or re.search(r"… and \d+ more +$", text, re.MULTILINE)
    assert not wait or "claim c: 2 of 3" in text


def test_a_comment_that_does_not_fit_is_left_out_rather_than_cut() -> None:
    header = msgspec.structs.replace(HEADER, commands=("kubectl get pods -A  # all of them",))
    wide, narrow = (rendered(board.screen(header, [], [], width=width, height=24), width) for width in (80, 30))
    assert "  kubectl get pods -A  # all of them" in wide and "  kubectl get pods -A" in narrow
