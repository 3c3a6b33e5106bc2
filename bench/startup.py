"""A start of the service in a large cluster, its first questions, and a new list after its watches expire.

The service is a process of its own, as shipped but over plain HTTP. The API server is the embedded one, in this
process: it answers slower than a real one, so seconds are upper bounds. Processor time and memory are those of the
service. Every node has devices with serial numbers, and each claim belongs to a pod that runs. Writes a section of
docs/performance.md; `--dry-run` prints it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final

import aiohttp
import msgspec

from bench.arena import cpu_seconds
from bench.document import write_section
from bench.machine import described
from bench.placement.scene import device_class
from embedded_cluster import hardware
from embedded_cluster.apiserver import EmbeddedAPIServer
from embedded_cluster.demo.show import service_command
from embedded_cluster.hardware import GPU_DRIVER
from tests.e2e.components import free_port
from tools.memory import resident

DEVICES: Final = 8
QUESTIONS: Final = 40
LONGEST: Final = 600.0
"""Seconds after which something that does not happen is an error."""
_ARRIVAL: Final = 0.05


class Size(msgspec.Struct, frozen=True):
    """Each claim has one device of a node, in turns, and a pod that runs there."""

    nodes: int
    claims: int


SIZES: Final = (Size(500, 2_000), Size(5_000, 20_000), Size(15_000, 100_000))


class Row(msgspec.Struct, frozen=True):
    """`ready`, `listed`: seconds; `*_cpu`: of the service; filter: milliseconds by the clock; memory: MiB."""

    size: Size
    ready: float
    ready_cpu: float
    memory: float
    first: float
    median: float
    worst: float
    listed: float
    listed_cpu: float
    listing_worst: float
    listed_memory: float


# --- the cluster ------------------------------------------------------------------------------------------------------


def seed(server: EmbeddedAPIServer, size: Size) -> None:
    """Store everything past HTTP."""
    server.store.create(device_class(GPU_DRIVER, GPU_DRIVER))
    for index in range(size.nodes):
        add_node(server, index)
    for number in range(size.claims):
        add_user(server, number, hardware.node_name(number % size.nodes), number // size.nodes)


def add_node(server: EmbeddedAPIServer, index: int) -> None:
    server.store.create_stored(hardware.node(index, datetime.now(UTC)))
    slices = hardware.slices(hardware.gpus(index, DEVICES), 1)
    server.store.create_all(hardware.manifest(each) for each in slices)


def claim(name: str) -> dict[str, Any]:
    request = {"name": "gpu", "exactly": {"deviceClassName": GPU_DRIVER}}
    spec = {"devices": {"requests": [request]}}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name}, "spec": spec}


def pod(name: str, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": "none"}]
    claims = [{"name": "gpu", "resourceClaimName": name}]
    meta = {"name": name, "namespace": "default"}
    spec |= {"containers": containers, "resourceClaims": claims, "schedulerName": "dra-scheduler"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def add_user(server: EmbeddedAPIServer, number: int, node: str, device: int) -> None:
    """A pod that runs with a device."""
    name, store = f"used-{number}", server.store
    made = store.create(claim(name))
    user = store.create_stored(pod(name, nodeName=node)).object
    result = {"request": "gpu", "driver": GPU_DRIVER, "pool": node, "device": f"gpu-{device}"}
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    made["status"] = {
        "allocation": {
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
        },
        "reservedFor": [{"resource": "pods", "name": name, "uid": user["metadata"]["uid"]}],
    }
    store.update(made, subresource="status")


# --- what is measured -------------------------------------------------------------------------------------------------


class Service:
    """The process, and what is asked of it."""

    def __init__(self, session: aiohttp.ClientSession, url: str, pid: int) -> None:
        self._session, self._url, self.pid = session, url, pid

    async def is_ready(self) -> bool:
        try:
            async with self._session.get(f"{self._url}/readyz") as reply:
                return reply.ok
        except aiohttp.ClientError:
            return False

    def cpu(self) -> float:
        """Seconds."""
        return cpu_seconds({"service": self.pid})["service"]

    async def filter(self, asking: dict[str, Any], names: Iterable[str]) -> tuple[float, int]:
        """Milliseconds, and how many nodes fit."""
        body = msgspec.json.encode({"Pod": asking, "NodeNames": list(names)})
        started = time.perf_counter()
        async with self._session.post(f"{self._url}/scheduler/filter", data=body) as reply:
            answer = await reply.read()
        taken = (time.perf_counter() - started) * 1000
        return taken, len(msgspec.json.decode(answer)["NodeNames"] or ())


@asynccontextmanager
async def serving(api_server: str) -> AsyncIterator[Service]:
    listen = f"127.0.0.1:{free_port()}"
    command = service_command(api_server, listen, "--log-level", "warning", "--offered-percent", "0")
    process = await asyncio.create_subprocess_exec(*command)
    try:
        async with aiohttp.ClientSession() as session:
            yield Service(session, f"http://{listen}", process.pid)
    finally:
        process.terminate()
        await process.wait()


async def measure(size: Size) -> Row:
    """In this process."""
    async with EmbeddedAPIServer(seed=1, window=1_000) as server:
        seed(server, size)
        names = [hardware.node_name(index) for index in range(size.nodes)]
        started = time.perf_counter()
        async with serving(server.url) as service, asyncio.timeout(LONGEST):
            while not await service.is_ready():
                await asyncio.sleep(0.05)
            ready, ready_cpu = time.perf_counter() - started, service.cpu()
            memory = resident(service.pid) / 2**20
            times = [(await service.filter(await arrive(server, number), names))[0] for number in range(QUESTIONS)]
            listed, worst = await relist(server, service, names)
            return Row(
                size, ready, ready_cpu, memory, times[0], sorted(times)[QUESTIONS // 2], max(times[1:]),
                listed, service.cpu() - ready_cpu, worst, resident(service.pid) / 2**20,
            )  # fmt: skip


async def arrive(server: EmbeddedAPIServer, number: int, **spec: Any) -> dict[str, Any]:
    """A pod that asks for one device, after the watches have brought it."""
    server.store.create(claim(f"new-{number}"))
    made = server.store.create(pod(f"new-{number}", **spec))
    await asyncio.sleep(_ARRIVAL)
    return made


async def relist(server: EmbeddedAPIServer, service: Service, names: list[str]) -> tuple[float, float]:
    """All watches expire, and a node comes: seconds until it is offered, and the slowest filter until then."""
    asking = await arrive(server, QUESTIONS)
    server.store.forget_history()
    server.faults.expire_watches()
    started, worst = time.perf_counter(), 0.0
    late = len(names)
    add_node(server, late)
    while True:
        worst = max(worst, (await service.filter(asking, names))[0])
        _, fits = await service.filter(asking, [hardware.node_name(late)])
        if fits:
            return time.perf_counter() - started, worst
        await asyncio.sleep(0.05)


def markdown(rows: Iterable[Row]) -> str:
    lines = [
        "## A start, and a new list",
        "",
        "Measured by `make bench-startup`. The service is a process, and the API server is the embedded one,",
        "which answers slower than a real one: seconds are upper bounds. All devices have serial numbers, and",
        "each claim has a device and a pod that runs. First filter: the first pod after the replica is Ready asks",
        "for all nodes, over HTTP. New list: all watches expire at once, and a node is added; seconds until",
        "filter offers it, and the slowest filter until then.",
        "",
        "| nodes × devices | claims and pods | Ready, s | its CPU, s | memory, MiB | first filter, ms | median "
        "| slowest | new list, s | slowest filter, ms | memory, MiB |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {row.size.nodes:,} × {DEVICES} | {row.size.claims:,} | {row.ready:.1f} | {row.ready_cpu:.1f} "
        f"| {row.memory:.0f} | {row.first:.0f} | {row.median:.0f} | {row.worst:.0f} | {row.listed:.1f} "
        f"| {row.listing_worst:.0f} | {row.listed_memory:.0f} |"
        for row in rows
    ]
    return "\n".join([*lines, "", f"Measured on {described()}, by the clock."])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.startup", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--nodes", type=int, help="only the size with this number of nodes")
    parser.add_argument("--dry-run", action="store_true", help="print the section instead of writing it")
    options = parser.parse_args()
    sizes = [size for size in SIZES if options.nodes in (None, size.nodes)]
    text = markdown([asyncio.run(measure(size)) for size in sizes])
    if options.dry_run:
        print(text)
    else:
        write_section("startup", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
