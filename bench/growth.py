"""How the cost of a pod grows with nodes, devices, claims and pods that wait: filter and memory, each row in a process.

Filter is the verb from bytes to bytes, for a pod of its own each time that asks for all nodes, in an order of its own,
after one device has changed hands: warm, as all but the first pods of a kind are.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from itertools import count
from random import Random
from statistics import quantiles
from time import thread_time_ns
from typing import Any, Final, cast
from unittest.mock import Mock

import msgspec

from bench.filter import DRIVER, allocated, cluster_of
from dra_extender.allocation.decisions import Decisions
from dra_extender.api.core import Pod
from dra_extender.api.decoding import convert, decode, encode
from dra_extender.api.events import Applied
from dra_extender.api.extender import ExtenderArgs
from dra_extender.api.resource import ResourceClaim
from dra_extender.placement.learner import PlacementLearner
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.extender import Extender
from dra_extender.scheduling.handle import Runtime
from dra_extender.scheduling.ports import Ports
from dra_extender.service.process import ProcessMemory
from tools.memory import resident

RUNS: Final = 200
MEMORY_TARGET: Final = 500.0
"""MiB, for the largest cluster."""
FILTER_TARGET: Final = 20.0
"""Milliseconds, p99."""


class Size(msgspec.Struct, frozen=True):
    """`devices` per node, all with serial numbers; `claims`: nodes of which one device is in use; `pods` that wait."""

    nodes: int = 5_000
    devices: int = 8
    claims: int = 0
    pods: int = 0


class Row(msgspec.Struct, frozen=True):
    """Milliseconds of filter, median and p99; memory in MiB."""

    size: Size
    median: float
    p99: float
    memory: float


SIZES: Final = (
    *(Size(nodes=nodes) for nodes in (500, 1_000, 2_000, 5_000, 10_000, 15_000)),
    *(Size(devices=devices) for devices in (16, 32)),
    *(Size(claims=claims) for claims in (1_000, 5_000)),
    *(Size(pods=pods) for pods in (1_000, 10_000)),
    Size(nodes=15_000, claims=15_000, pods=10_000),
)


def run() -> dict[str, Any]:
    """All rows."""
    return {"rows": [msgspec.to_builtins(_apart(size)) for size in SIZES]}


def _apart(size: Size) -> Row:
    """Runs in its own process, so that its memory belongs to the row."""
    command = [sys.executable, "-m", "bench.growth", msgspec.json.encode(size).decode()]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    return msgspec.json.decode(output, type=Row)


def measure(size: Size) -> Row:
    """In this process."""
    cluster = cluster_of(size.nodes, serials=True, devices=size.devices)
    for node in range(size.claims):
        cluster.apply(Applied(allocated(node, [0], 1 + node)))
    decisions = Decisions(cluster, share_ids=lambda: "share")
    runtime = Runtime(config=SchedulingConfig(offered_percent=0))
    nobody = cast(Ports, Mock())  # nothing is read or written
    with asyncio.Runner() as runner:

        async def make() -> Extender:
            return Extender(cluster, decisions, nobody, runtime=runtime, placement=PlacementLearner(cluster))

        extender = runner.run(make())
        numbers, random = count(), Random(7)
        for _ in range(size.pods):
            _arrive(extender, next(numbers))
        names = [f"node-{index}" for index in range(size.nodes)]
        body = b""

        def ask() -> object:
            return runner.run(_filter(extender, body))

        def prepare() -> None:
            nonlocal body
            random.shuffle(names)
            node = random.randrange(size.nodes)
            cluster.apply(Applied(allocated(node, [random.randrange(size.devices)], 1_000_000 + next(numbers))))
            body = msgspec.json.encode({"Pod": _arrive(extender, next(numbers)), "Nodes": None, "NodeNames": names})

        for _ in range(3):
            prepare()
            ask()
        ProcessMemory(own=True).freeze()
        taken: list[float] = []
        for _ in range(RUNS):
            prepare()
            started = thread_time_ns()
            ask()
            taken.append((thread_time_ns() - started) / 1e6)
    found = quantiles(taken, n=100, method="inclusive")
    return Row(size, found[49], found[98], resident() / 2**20)


async def _filter(extender: Extender, body: bytes) -> bytes:
    return encode(await extender.filter(decode(ExtenderArgs, body)))


def _arrive(extender: Extender, number: int) -> dict[str, Any]:
    """A pod that waits, with its claim, as the watches bring them."""
    name = f"waiting-{number}"
    metadata = {"name": name, "namespace": "ns", "uid": name, "resourceVersion": str(number + 1)}
    selector = {"cel": {"expression": f'device.attributes["{DRIVER}"].model == "H100"'}}
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, "selectors": [selector]}
    requests = [{"name": "r", "exactly": exactly}]
    claim_metadata = {**metadata, "uid": f"{name}-claim"}
    extender.apply(
        Applied(convert(ResourceClaim, {"metadata": claim_metadata, "spec": {"devices": {"requests": requests}}}))
    )
    spec = {"containers": [{"name": "main"}], "resourceClaims": [{"name": "devices", "resourceClaimName": name}]}
    pod = {"metadata": metadata, "spec": spec}
    extender.apply(Applied(convert(Pod, pod)))
    return pod


def missed(result: dict[str, Any]) -> list[str]:
    """The targets that are missed."""
    rows = [convert(Row, row) for row in result["rows"]]
    slow = [f"growth: filter {row.p99:.1f} ms on {row.size.nodes} nodes" for row in rows if row.p99 > FILTER_TARGET]
    heavy = [f"growth: {row.memory:.0f} MiB with {row.size.nodes} nodes" for row in rows if row.memory > MEMORY_TARGET]
    return slow + heavy


def markdown(result: dict[str, Any]) -> str:
    lines = [
        "Milliseconds of filter, from bytes to bytes, for a pod with one device that asks for all nodes, after a",
        f"device has changed hands; memory of the process. Targets: p99 {FILTER_TARGET:g} ms, {MEMORY_TARGET:g} MiB.",
        "",
        "| nodes | devices per node | devices in use | pods waiting | filter, median | p99 | memory, MiB |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in (convert(Row, row) for row in result["rows"]):
        size = row.size
        lines.append(
            f"| {size.nodes:,} | {size.devices} | {size.claims:,} | {size.pods:,} "
            f"| {row.median:.2f} | {row.p99:.2f} | {row.memory:.0f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(measure(msgspec.json.decode(sys.argv[1], type=Size))))
