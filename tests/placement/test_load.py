"""What pods ask of their nodes besides devices, and what nodes have."""

from __future__ import annotations

from typing import Any

import pytest

from dra_extender.api.core import Node, Pod
from dra_extender.api.decoding import convert
from dra_extender.placement.podshape import NO_LOAD, Load, Loads, allocatable, load_of

Json = dict[str, Any]
GIB = 2**30


def container(cpu: str = "", memory: str = "", **more: Any) -> Json:
    requests = {name: value for name, value in (("cpu", cpu), ("memory", memory)) if value}
    return {"name": "c", "resources": {"requests": requests}, **more}


def pod(uid: str = "p", node: str = "", phase: str = "", **spec: Any) -> Pod:
    status = {"phase": phase}
    return convert(Pod, {"metadata": {"name": uid, "uid": uid}, "spec": {"nodeName": node, **spec}, "status": status})


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, Load(0, 0)),
        ({"containers": [container("1", "1Gi"), container("500m", "1Gi")]}, Load(1500, 2 * GIB)),
        ({"containers": [container("0.1m")]}, Load(1, 0)),
        ({"containers": [container("1")], "initContainers": [container("3"), container("2")]}, Load(3000, 0)),
        ({"containers": [container("1")], "initContainers": [container("2", restartPolicy="Always")]}, Load(3000, 0)),
        (
            {
                "containers": [container("1")],
                "initContainers": [container("1", restartPolicy="Always"), container("4")],
            },
            Load(5000, 0),
        ),
        ({"containers": [container("1")], "overhead": {"cpu": "250m", "memory": "1Gi"}}, Load(1250, GIB)),
    ],
    ids=[
        "nothing",
        "containers together",
        "rounded up",
        "largest init container",
        "sidecar",
        "beside a sidecar",
        "overhead",
    ],
)
def test_a_pod_asks_for_what_the_scheduler_counts(spec: Json, expected: Load) -> None:
    assert load_of(pod(**spec)) == expected


def test_a_node_has_what_it_says_is_allocatable() -> None:
    node = convert(Node, {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "7900m", "memory": "30Gi"}}})
    assert allocatable(node) == Load(7900, 30 * GIB)
    assert allocatable(convert(Node, {"metadata": {"name": "n"}})) == NO_LOAD


@pytest.mark.parametrize("amount", ["1e30", "1e400", "1e900"])
def test_absurd_amounts_count_as_much_as_kube_scheduler_counts_and_go_away_again(amount: str) -> None:
    """A float cannot hold a sum with more."""
    loads, most = Loads(), 2**63 - 1
    node = convert(Node, {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": amount, "memory": amount}}})
    assert allocatable(node) == load_of(pod(containers=[container(amount, amount)])) == Load(most, most)
    for uid in ("a", "b"):
        loads.put(pod(uid, "n", containers=[container(amount, amount)]))
    assert loads.on("n") == Load(2 * most, 2 * most)
    for uid in ("a", "b"):
        loads.drop(uid)
    assert loads.on("n") == NO_LOAD


def test_a_pod_counts_on_its_node_until_it_has_ended_or_is_gone() -> None:
    changed: list[str] = []
    loads = Loads()
    loads.changed = changed.append
    small = [container("1", "1Gi")]
    loads.put(pod("waits", containers=small))
    loads.put(pod("a", "n", containers=small))
    loads.put(pod("a", "n", "Running", containers=small))
    loads.put(pod("b", "n", containers=small))
    assert loads.on("n") == Load(2000, 2 * GIB)
    loads.put(pod("a", "n", "Succeeded", containers=small))
    assert loads.on("n") == Load(1000, GIB)
    loads.drop("b")
    loads.drop("b")
    assert loads.on("n") == NO_LOAD
    assert changed == ["n", "n", "n", "n"]
