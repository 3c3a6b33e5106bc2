"""A workload end to end, scaled down: pods come over HTTP to a cluster with a scheduler and the running service.

On the embedded cluster with the embedded scheduler, or with `--real` on etcd, kube-apiserver and kube-scheduler. A few
nodes of the trace, drawn once; pods by the published protocol, each tried once. CPU-only pods come as well.

    python -m bench.placement.replay [--trace DIR] [--real]

Writes bench/placement/replay.json and its table in docs/placement.md.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from bench.arena import NAMESPACE, Arena
from bench.document import write_section
from bench.machine import described
from bench.placement import scene, trace
from bench.placement.report import DOCUMENT
from bench.placement.scene import Ended, Scene
from bench.placement.trace import Machine, Workload
from bench.placement.world import CLASS, DRIVER
from dra_extender.kube.client import KubeClient
from dra_extender.placement.policies import PolicyName
from dra_extender.service import logs
from dra_extender.service.service import Service
from dra_extender.service.settings import load
from embedded_cluster.cluster import EmbeddedCluster
from embedded_cluster.scheduler.config import SchedulerConfig, takeover
from tests.support.service.readiness import until_ready

RESULTS: Final = Path(__file__).with_name("replay.json")
WEIGHT: Final = 200
"""Of our scores; see docs/placement.md."""
SCHEDULER: Final = "default-scheduler"
POLICIES: Final[tuple[PolicyName, ...]] = ("first-fit", "fragmentation")


class Replayed(msgspec.Struct, frozen=True):
    """`where`: "embedded" or "kube-scheduler"."""

    where: str
    workload: str
    policy: PolicyName
    nodes: int
    gpus: int
    ended: Ended
    seconds: float


@contextlib.asynccontextmanager
async def embedded(machines: Sequence[Machine]) -> AsyncIterator[KubeClient]:
    """An embedded cluster with these machines, its scheduler, and the service in this process, over HTTP."""
    async with EmbeddedCluster(nodes=0, devices=0) as cluster:
        cluster.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        cluster.store.create(scene.device_class(CLASS, DRIVER))
        for made in (*scene.nodes(machines), *scene.slices(machines)):
            cluster.store.create(made)
        service = Service(load({"server": cluster.url, "listen": "127.0.0.1:0", "scheduler_names": SCHEDULER}))
        await service.start()
        try:
            await until_ready(service)
            await cluster.schedule_with(service.url, weighted(takeover(service.url, (SCHEDULER,))))
            yield cluster.client
            cluster.check()
        finally:
            await cluster.stop_scheduler()
            await service.stop()


def weighted(config: SchedulerConfig) -> SchedulerConfig:
    """With our scores deciding."""
    extenders = tuple(
        msgspec.structs.replace(item, weight=WEIGHT) if item.prioritize_verb else item for item in config.extenders
    )
    return msgspec.structs.replace(config, extenders=extenders)


@contextlib.asynccontextmanager
async def real(machines: Sequence[Machine]) -> AsyncIterator[KubeClient]:
    """The real control plane with these machines, kube-scheduler, and the service as a process of its own."""
    with tempfile.TemporaryDirectory(prefix="bench-replay-") as directory:
        async with Arena(Path(directory), 0) as arena:
            await arena.create("/api/v1/nodes", scene.nodes(machines))
            await arena.create(f"{scene.RESOURCE}/resourceslices", scene.slices(machines))
            async with arena.ours(WEIGHT):
                yield arena.client


async def replay(workload: Workload, policy: PolicyName, seed: int, arrivals: float, *, on_real: bool) -> Replayed:
    """One run on a cluster of its own."""
    jobs = trace.tuned(workload, arrivals, Random(seed))
    started = time.perf_counter()
    async with (real if on_real else embedded)(workload.machines) as client:
        ended = await Scene(client, NAMESPACE, SCHEDULER, policy, CLASS).play(jobs)
    return Replayed(
        where="kube-scheduler" if on_real else "embedded",
        workload=workload.name,
        policy=policy,
        nodes=len(workload.machines),
        gpus=workload.capacity // trace.WHOLE,
        ended=ended,
        seconds=round(time.perf_counter() - started, 1),
    )


def table(found: Sequence[Replayed]) -> str:
    lines = [
        "| scheduler | workload | policy | nodes | GPUs | asked for | allocated | pods | placed |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for item in found:
        part = 100 / (item.gpus * trace.WHOLE)
        lines.append(
            f"| {item.where} | {item.workload} | {item.policy} | {item.nodes} | {item.gpus} "
            f"| {item.ended.asked * part:.1f} % | {item.ended.allocated * part:.1f} % "
            f"| {item.ended.arrived} | {item.ended.placed} |"
        )
    return "\n".join(lines)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.placement.replay")
    parser.add_argument("--trace", type=Path, help="folder with openb_*.csv; without it the workload is made up")
    parser.add_argument("--list", default="default", help="pod list of the trace")
    parser.add_argument("--nodes", type=int, default=24)
    parser.add_argument("--arrivals", type=float, default=1.2, help="GPUs asked for, as a multiple of those there are")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--real", action="store_true", help="on the real control plane, which has to be built")
    parser.add_argument("--dry-run", action="store_true", help="print, and leave the files alone")
    return parser.parse_args()


def main() -> int:
    options = parsed()
    logs.configure("warning", "console")
    whole = trace.read(options.trace, options.list) if options.trace else trace.made_up()
    workload = trace.sampled(whole, options.nodes / len(whole.machines))
    found: dict[tuple[str, str, str], Replayed] = {}
    if RESULTS.exists():
        for known in msgspec.json.decode(RESULTS.read_bytes(), type=list[Replayed]):
            found[known.where, known.workload, known.policy] = known
    for policy in POLICIES:
        item = asyncio.run(replay(workload, policy, options.seed, options.arrivals, on_real=options.real))
        found[item.where, item.workload, item.policy] = item
        print(f"{item.where}, {policy}: {item.ended}, {item.seconds} s", flush=True)
    print(table(list(found.values())))
    if not options.dry_run:
        RESULTS.write_bytes(msgspec.json.encode(list(found.values())) + b"\n")
        write_section("replay", f"{table(list(found.values()))}\n\nMeasured on {described()}.", DOCUMENT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
