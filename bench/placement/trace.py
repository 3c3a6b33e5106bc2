"""Workloads: nodes with GPUs and pods that come, from a trace or made up.

A trace is a folder in the form of Alibaba's cluster-trace-gpu-v2023: `openb_node_list_gpu_node.csv` and pod lists. The
made-up workload has the same shape and needs no files. Tuning follows the protocol of "Beware of Fragmentation" (Weng
et al., USENIX ATC 2023): arrivals add up to a multiple of the GPUs there are.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

WHOLE: Final = 1000
"""Milli of one GPU."""
MIB: Final = 2**20


class Machine(NamedTuple):
    """A node: millicores, MiB, number of GPUs and their model, and the rack that it is in, if that is known."""

    name: str
    cpu: int
    memory: int
    gpus: int
    model: str
    rack: str = ""


class Job(NamedTuple):
    """A pod: `gpus` GPUs of `milli` each, of any of the `models`, or of any model at all; or a partition with a
    `profile`, which is this many thousandths of its GPU.
    """

    cpu: int
    memory: int
    gpus: int
    milli: int
    models: tuple[str, ...] = ()
    profile: str = ""

    @property
    def demand(self) -> int:
        return self.gpus * self.milli


class Workload(NamedTuple):
    """`seconds`: how long each of the jobs runs; empty when unknown."""

    name: str
    machines: tuple[Machine, ...]
    jobs: tuple[Job, ...]
    seconds: tuple[float, ...] = ()

    @property
    def capacity(self) -> int:
        """Milli of all GPUs."""
        return WHOLE * sum(machine.gpus for machine in self.machines)


def read(folder: Path, name: str) -> Workload:
    """The workload of `openb_pod_list_NAME.csv`."""
    with (folder / "openb_node_list_gpu_node.csv").open(newline="") as file:
        machines = tuple(
            Machine(row["sn"], int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpu"]), row["model"])
            for row in csv.DictReader(file)
        )
    with (folder / f"openb_pod_list_{name}.csv").open(newline="") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: row["name"])
    seconds = tuple(map(_seconds, rows)) if rows and "deletion_time" in rows[0] else ()
    return Workload(name, machines, tuple(map(_job, rows)), seconds)


def _job(row: dict[str, str]) -> Job:
    models = tuple(sorted(filter(None, (row.get("gpu_spec") or "").split("|"))))
    return Job(int(row["cpu_milli"]), int(row["memory_mib"]), int(row["num_gpu"]), int(row["gpu_milli"]), models)


def _seconds(row: dict[str, str]) -> float:
    """From when the pod was scheduled, or from its creation if it never was."""
    return max(0.0, float(row["deletion_time"]) - float(row["scheduled_time"] or row["creation_time"]))


def sampled(workload: Workload, part: float) -> Workload:
    """The same with this part of the machines, the same ones each time, and all pods."""
    machines = workload.machines
    kept = sorted(Random(0).sample(range(len(machines)), round(part * len(machines))))
    return workload._replace(machines=tuple(machines[position] for position in kept))


def names(folder: Path) -> list[str]:
    """The pod lists in the folder."""
    return sorted(path.stem.removeprefix("openb_pod_list_") for path in folder.glob("openb_pod_list_*.csv"))


def tuned(workload: Workload, arrivals: float, random: Random) -> list[Job]:
    """The pods in the order in which they come, until they ask for `arrivals` times the GPUs."""
    jobs = list(workload.jobs)
    random.shuffle(jobs)
    most = arrivals * workload.capacity
    asked = sum(job.demand for job in jobs)
    while asked > most:
        asked -= jobs.pop(random.randrange(len(jobs))).demand
    while True:
        job = random.choice(workload.jobs)
        if asked + job.milli > most:
            return jobs
        jobs.append(job)
        asked += job.demand


# --- made up ----------------------------------------------------------------------------------------------------------

_MACHINES: Final = (
    (0.45, 96_000, 384, 8, "G2"),
    (0.32, 104_000, 512, 2, "T4"),
    (0.11, 16_000, 120, 2, "P100"),
    (0.05, 128_000, 768, 8, "G3"),
    (0.04, 32_000, 128, 4, "V100"),
    (0.03, 96_000, 768, 8, "V100"),
)  # share of the nodes, millicores, GiB, GPUs, model
_JOBS: Final = (
    (0.13, 0, 0, (2_000, 8_000, 32_000)),
    (0.38, 1, 0, (3_000, 6_000, 12_000)),
    (0.43, 1, WHOLE, (4_000, 8_000, 12_000)),
    (0.02, 2, WHOLE, (12_000, 24_000)),
    (0.01, 4, WHOLE, (24_000, 48_000)),
    (0.03, 8, WHOLE, (64_000, 90_000)),
)  # share of the pods, GPUs, milli (0: a share), millicores
_SHARES: Final = (100, 200, 250, 330, 460, 500, 810)
_DEMANDING: Final = 0.15
"""Part of the GPU pods that name models."""

_LOG_SECONDS: Final = 6.4
"""Half of the pods end within ten minutes,"""
_LOG_SPREAD: Final = 1.9
"""and a tenth run for two hours or more."""


def made_up(nodes: int = 200, pods: int = 2_000, seed: int = 0) -> Workload:
    """A workload in the shape of the public trace: few kinds of nodes, many small pods, few large ones."""
    random = Random(seed)
    machines: list[Machine] = []
    for number in range(nodes):
        _, cpu, memory, gpus, model = _MACHINES[_draw(random, [kind[0] for kind in _MACHINES])]
        machines.append(Machine(f"node-{number:04d}", cpu, memory * 1024, gpus, model))
    models = sorted({machine.model for machine in machines})
    jobs: list[Job] = []
    for _ in range(pods):
        _, count, milli, cpus = _JOBS[_draw(random, [kind[0] for kind in _JOBS])]
        cpu = random.choice(cpus)
        share = milli or (random.choice(_SHARES) if count else 0)
        named = count and count < 8 and random.random() < _DEMANDING
        jobs.append(Job(cpu, cpu * 4, count, share, tuple(sorted(random.sample(models, 2))) if named else ()))
    seconds = tuple(random.lognormvariate(_LOG_SECONDS, _LOG_SPREAD) for _ in jobs)
    return Workload("made up", tuple(machines), tuple(jobs), seconds)


PARTITIONED: Final = "partitioned"
"""The model of GPUs that are cut into partitions."""

PROFILES: Final = {"1g": 143, "2g": 286, "3g": 429, "4g": 571, "7g": WHOLE}
"""What each partition is of a GPU, in milli."""
_PARTITIONS: Final = (("1g", 0.34), ("2g", 0.24), ("3g", 0.18), ("4g", 0.08), ("7g", 0.16))


def partitions(nodes: int = 60, pods: int = 1_200, seed: int = 0) -> Workload:
    """Nodes with four GPUs that can be cut into partitions, and pods that want one each: many small, some a whole."""
    random = Random(seed)
    machines = tuple(Machine(f"node-{number:04d}", 64_000, 512 * 1024, 4, PARTITIONED) for number in range(nodes))
    jobs: list[Job] = []
    for _ in range(pods):
        profile, _ = _PARTITIONS[_draw(random, [share for _, share in _PARTITIONS])]
        cpu = 2 * PROFILES[profile]
        jobs.append(Job(cpu, cpu * 4, 1, PROFILES[profile], (), profile))
    return Workload("partitions", machines, tuple(jobs))


def _draw(random: Random, shares: Sequence[float]) -> int:
    return random.choices(range(len(shares)), weights=shares)[0]


def typical(jobs: Iterable[Job], part: float = 0.95) -> dict[Job, float]:
    """The most frequent kinds of pods, memory aside, that together make this part of them, and the share of each."""
    counts: dict[Job, int] = {}
    for job in jobs:
        kind = job._replace(memory=0)
        counts[kind] = counts.get(kind, 0) + 1
    total, seen = sum(counts.values()), 0
    found: dict[Job, float] = {}
    for kind in sorted(counts, key=lambda kind: -counts[kind]):
        if seen >= part * total:
            break
        found[kind] = counts[kind]
        seen += counts[kind]
    return {kind: count / seen for kind, count in found.items()}
