"""Ten pods that do not fit, on the real control plane: `kubectl describe` says why and what helps, and it does.

Among them are five that once were reported to fit: 100 CPUs, a resource that no node offers, a label that
no node has, a cordoned node and a tainted one. kube-scheduler refuses those by itself, and does not try a pod without
its claim.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import pytest

from tests.e2e.case import Case
from tests.e2e.ground import Ground
from tests.e2e.space import Body

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

EVERYWHERE: Final = {"A100": 8, "H100": 8}
"""Devices of each kind, four to a NUMA node, on a node of their own."""
RESOURCE: Final = "nvidia.com/gpu"
SHELF: Final = "example.com/shelf"

Change = Callable[[Case, re.Match[str]], object]


class Misfit(NamedTuple):
    """`claim` is what `exactly` says; `told` what `describe` has to say. Applying the remedy is up to `change`, and the
    claim and the pod are made again with `then` of their fields.
    """

    told: str
    claim: Body | None = None
    pod: Mapping[str, Any] = {}
    constraint: str = ""
    change: Change = lambda case, told: None
    then: Callable[[re.Match[str]], Body] = lambda told: {}
    then_pod: Callable[[re.Match[str]], Mapping[str, Any]] = lambda told: {}
    named: str = ""


def model(case: Case, name: str) -> Body:
    expression = f'device.attributes["{case.driver}"].model == "{name}"'
    return {"selectors": [{"cel": {"expression": expression}}]}


def misfits(case: Case) -> dict[str, Misfit]:
    """By name of the pod."""
    lone = nodes_apart(case)
    count = lambda told: {"count": int(told[1])}  # noqa: E731  # as short as the rest of the table
    return {
        "too-many": Misfit(
            r"9 devices of class \S+ requested, no node has more than 8; count <= (8) \(then it fits",
            {"count": 9},
            then=count,
        ),
        "misspelt-model": Misfit(
            r'model == "H1000" .*did you mean (H100)\? \(then it fits 1 node\)',
            model(case, "H1000"),
            then=lambda told: model(case, told[1]),
        ),
        "missing-class": Misfit(
            rf"device class {case.name}x does not exist.*did you mean class ({case.name})\? \(then it fits",
            {"deviceClassName": f"{case.name}x"},
            then=lambda told: {"deviceClassName": told[1]},
        ),
        "apart": Misfit(
            r"5 devices with the same numa requested, .* at most 4 such devices free; count <= (4) \(then it fits",
            {"count": 5},
            constraint="numa",
            then=count,
        ),
        "misspelt-claim": Misfit(
            rf"claim {case.name}/trainig-gpu does not exist; did you mean (training-gpu)\? \(then it fits",
            named="trainig-gpu",
        ),
        "hundred-cpus": Misfit(
            r"devices fit on .*, but cpu: 100 requested, .* free; cpu <= (\d+) \(then it fits",
            {},
            {"requests": {"cpu": "100"}},
            then_pod=lambda told: {"requests": {"cpu": told[1]}},
        ),
        "nobody-offers": Misfit(
            rf"(?:no node and no|neither the nodes? nor a) device class provides? {RESOURCE}",
            None,
            {"requests": {RESOURCE: "1"}},
            change=lambda case, told: case.device_class(f"{case.name}-nvidia", extendedResourceName=RESOURCE),
        ),
        "no-such-label": Misfit(
            rf"nodeSelector {SHELF}=botom\b.*did you mean (bottom)\? \(then it fits 1 node\)",
            {},
            {"nodeSelector": {SHELF: "botom"}},
            then_pod=lambda told: {"nodeSelector": {SHELF: told[1]}},
        ),
        "cordoned": Misfit(
            rf"devices fit on node {lone}, but the node is cordoned; uncordon ({lone}) \(then it fits 1 node\)",
            model(case, "V100"),
            change=lambda case, told: case.ground.plane.kubectl("uncordon", told[1]),
        ),
        "tainted": Misfit(
            r"has the taint (dedicated=ml:NoSchedule), which the pod does not tolerate; tolerate \1 \(then it fits 1",
            model(case, "L4"),
            then_pod=lambda told: {
                "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "ml", "effect": "NoSchedule"}]
            },
        ),
    }


def nodes_apart(case: Case) -> str:
    """A cordoned node, which is named, and a tainted one, each with a kind of devices that no other has."""
    lone = case.node_added()
    case.publish(lone, devices("V100", 2))
    case.ground.plane.kubectl("cordon", lone)
    walled = f"{case.name}-walled"
    labels = {"kubernetes.io/hostname": walled}
    taint = {"key": "dedicated", "value": "ml", "effect": "NoSchedule"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": walled, "labels": labels}}
    case.apply({**node, "spec": {"taints": [taint]}})
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    case.ground.patch(f"/api/v1/nodes/{walled}/status", {"status": {"capacity": amounts, "allocatable": amounts}})
    case.publish(walled, devices("L4", 2))
    return lone


def devices(name: str, count: int) -> list[Body]:
    return [
        {"name": f"d{index}", "attributes": {"model": {"string": name}, "numa": {"int": index // 4}}}
        for index in range(count)
    ]


@pytest.fixture
def furnished(case: Case, ground: Ground) -> Iterator[Case]:
    for node, (name, count) in zip(ground.nodes, EVERYWHERE.items(), strict=False):
        case.publish(node, devices(name, count))
    ground.plane.kubectl("label", "node", ground.nodes[0], f"{SHELF}=bottom")
    yield case
    ground.plane.kubectl("label", "node", ground.nodes[0], f"{SHELF}-")


def create(case: Case, name: str, misfit: Misfit, exactly: Body, pod: Mapping[str, Any], claim: str) -> None:
    if misfit.claim is not None:
        more = {"constraints": [{"matchAttribute": f"{case.driver}/{misfit.constraint}"}]} if misfit.constraint else {}
        case.claim(name, case.request(**exactly), **more)
    case.pod(name, *([claim] if claim else []), **pod)


@pytest.mark.needs("DRAExtendedResource")
def test_describe_says_what_to_change_and_the_change_works(furnished: Case, ground: Ground) -> None:
    case = furnished
    table = misfits(case)
    case.claim("training-gpu")
    for name, misfit in table.items():
        claim = misfit.named or (name if misfit.claim is not None else "")
        create(case, name, misfit, dict(misfit.claim or {}), misfit.pod, claim)
    # All of them before the first is changed: then no device is in use.
    described = {name: until_described(case, name, misfit.told) for name, misfit in table.items()}
    for name, misfit in table.items():
        told = described[name]
        assert case.node(name) == "", "it waits"
        misfit.change(case, told)
        gone(case, case.pod_path(name), gracePeriodSeconds=0)
        claim = misfit.named and told[1]
        if misfit.claim is not None:
            gone(case, case.claim_path(name))
            claim = name
        changed = {**(misfit.claim or {}), **misfit.then(told)}
        create(case, name, misfit, changed, {**misfit.pod, **misfit.then_pod(told)}, claim)
        case.until_runs(name)
        assert case.node(name), "it was bound"
        if claim:
            assert len(case.devices(claim)) == changed.get("count", 1)
        gone(case, case.pod_path(name), gracePeriodSeconds=0)


def until_described(case: Case, name: str, text: str) -> re.Match[str]:
    found: list[re.Match[str]] = []

    def seen() -> bool:
        found.extend(filter(None, [match_of(case, name, text)]))
        return bool(found)

    try:
        case.ground.eventually(seen, f"{text!r} of {name}")
    except AssertionError as problem:
        problem.add_note(case.ground.plane.kubectl("describe", "pod", name, f"--namespace={case.name}"))
        raise
    return found[0]


def match_of(case: Case, name: str, text: str) -> re.Match[str] | None:
    """What an event of the extender says in the output for people."""
    output = case.ground.plane.kubectl("describe", "pod", name, f"--namespace={case.name}")
    lines = (line for line in output.splitlines() if "dra-extender" in line)
    return next((found for line in lines if (found := re.search(text, line))), None)


def gone(case: Case, path: str, **options: Any) -> None:
    """Delete, and wait for the end."""
    case.ground.delete(path, **options)
    case.ground.eventually(lambda: not case._exists(path), f"the end of {path}")
