"""Gangs in racks: how many get one clique to themselves, and how much the largest free clique has left after that.

A clique is all nodes with one value of a node label, here the rack: 18 nodes of 4 GPUs, as many as one NVLink domain
has. The protocol: random jobs of 1, 2 and 4 GPUs, each on a random node that has room, fill a part of the GPUs. Then
gangs come in turn. Before each one, a tenth of the jobs end, and others come until the cluster is as full as before. A
gang ends when `RUNNING` others have come. A gang that cannot be placed as a whole is given up.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from statistics import mean, stdev
from typing import Final

import msgspec

from bench.document import write_section
from bench.placement.kubescheduler import Scheduler
from bench.placement.plot import Axis, plot
from bench.placement.report import DOCUMENT, PLOTS
from bench.placement.trace import WHOLE, Job, Machine
from bench.placement.world import RACK, World
from dra_extender.api.core import Pod
from dra_extender.api.groups import GANG, GANG_SIZE
from dra_extender.placement.policies import PlacementStrategy
from dra_extender.scheduling.gangs.topology import REQUIRED

RESULTS: Final = Path(__file__).with_name("gangs.json")
RACKS: Final = 4
NODES: Final = 18
"""In a rack."""
GPUS: Final = 4
"""Of a node."""
ALL: Final = RACKS * NODES * GPUS
SIZE: Final = 16
"""Pods of a gang, with a GPU each."""
GANGS: Final = 200
RUNNING: Final = 2
"""How many gangs run when the next one comes."""
FILLED: Final = (50, 60, 70, 80)
"""Per cent of the GPUs that random jobs have."""
SHOWN: Final = 70
"""The one in the table."""
ENDING: Final = 0.1
"""Part of the jobs that end before a gang comes."""
MEMBER: Final = Job(4_000, 16_384, 1, WHOLE)


class Played(msgspec.Struct, frozen=True):
    """One run. `within`: gangs in one clique; `placed`: gangs in any; `free`: mean GPUs that were free in the clique
    with most of them after a gang had come; `nodes`: mean nodes of a placed gang.
    """

    way: str
    filled: int
    seed: int
    gangs: int
    within: int
    placed: int
    free: float
    nodes: float


def machines() -> list[Machine]:
    return [
        Machine(f"rack-{rack}-{number:02d}", 128_000, 1_048_576, GPUS, "GB200", f"rack-{rack}")
        for rack in range(RACKS)
        for number in range(NODES)
    ]


class Racks:
    """The cluster, what runs in it, and kube-scheduler's view of it. Nodes are positions."""

    def __init__(self, random: Random) -> None:
        listed = machines()
        self.random = random
        self.racks = [machine.rack for machine in listed]
        self.free = [machine.gpus for machine in listed]
        self.world = World(listed, PlacementStrategy("first-fit"), random)
        self.scheduler = Scheduler(listed, random)

    def put(self, job: Job, pod: Pod, node: int) -> None:
        self.world.bind(pod, node)
        self.scheduler.place(node, job)
        self.free[node] -= job.gpus

    def end(self, job: Job, pod: Pod, node: int) -> None:
        self.world.leave(pod)
        self.scheduler.remove(node, job)
        self.free[node] += job.gpus

    def free_in(self) -> Counter[str]:
        """By rack."""
        found: Counter[str] = Counter()
        for rack, free in zip(self.racks, self.free, strict=True):
            found[rack] += free
        return found


# --- ways to place a gang ---------------------------------------------------------------------------------------------

Way = Callable[[Racks, Sequence[int], Sequence[int]], Sequence[int]]
"""Of the nodes on which the next member fits, those that it may use; also given: the nodes of the members before."""


def anywhere(racks: Racks, fits: Sequence[int], before: Sequence[int]) -> Sequence[int]:
    """The extender has chosen already."""
    return fits


def random_rack(racks: Racks, fits: Sequence[int], before: Sequence[int]) -> Sequence[int]:
    """A required topology, where all racks with room for the gang are equally good."""
    free = racks.free_in()
    enough = sorted(rack for rack in free if free[rack] >= SIZE)
    chosen = racks.racks[before[0]] if before else racks.random.choice(enough) if enough else ""
    return [node for node in fits if racks.racks[node] == chosen]


def affinity(racks: Racks, fits: Sequence[int], before: Sequence[int]) -> Sequence[int]:
    """Preferred pod affinity to the members, by rack: most members first, and another rack when there is no room."""
    members = Counter(racks.racks[node] for node in before)
    most = max((members[racks.racks[node]] for node in fits), default=0)
    return [node for node in fits if members[racks.racks[node]] == most]


OURS: Final = "the extender"
WAYS: Final[Mapping[str, Way]] = {
    "pod affinity": affinity,
    "required, random ties": random_rack,
    OURS: anywhere,
}

Placed = Sequence[tuple[Pod, int]]
"""The pods of a gang with their nodes."""


async def place(racks: Racks, way: str, name: str) -> Placed:
    """One gang comes. Empty when it has no room, and is gone."""
    written = {GANG: name, GANG_SIZE: str(SIZE), REQUIRED: RACK} if way == OURS else {}
    waiting = [racks.world.arrive(MEMBER, written) for _ in range(SIZE)]
    placed: list[tuple[Pod, int]] = []
    while waiting:
        fits = await racks.world.fits(waiting[0], racks.scheduler.fitting(MEMBER))
        usable = WAYS[way](racks, fits, [node for _, node in placed])
        if not usable:
            break
        pod = waiting.pop(0)
        placed.append((pod, racks.scheduler.favourite(MEMBER, usable)))
        racks.put(MEMBER, *placed[-1])
    if not waiting:
        return placed
    for pod in waiting:
        racks.world.leave(pod)
    for pod, node in placed:
        racks.end(MEMBER, pod, node)
    return ()


# --- a run ------------------------------------------------------------------------------------------------------------


class Jobs:
    """The random jobs. `filled`: per cent of all GPUs that they have."""

    def __init__(self, racks: Racks, filled: int) -> None:
        self._racks = racks
        self._most = ALL * filled // 100
        self._running: list[tuple[Job, Pod, int]] = []
        self._gpus = 0

    def change(self) -> None:
        """Some end, and others come until the cluster is as full as it has to be."""
        racks, random = self._racks, self._racks.random
        for _ in range(round(ENDING * len(self._running))):
            job, pod, node = self._running.pop(random.randrange(len(self._running)))
            racks.end(job, pod, node)
            self._gpus -= job.gpus
        while self._gpus < self._most:
            most = min(self._most - self._gpus, max(racks.free))
            job = Job(4_000, 16_384, random.choice([gpus for gpus in (1, 2, 4) if gpus <= most]), WHOLE)
            nodes = [node for node, free in enumerate(racks.free) if free >= job.gpus]
            found = job, racks.world.arrive(job), random.choice(nodes)
            racks.put(*found)
            self._running.append(found)
            self._gpus += job.gpus


async def play(way: str, filled: int, seed: int, gangs: int = GANGS) -> Played:
    racks = Racks(Random(seed))
    jobs = Jobs(racks, filled)
    running: deque[Placed] = deque()
    within = placed = 0
    free: list[int] = []
    nodes: list[int] = []
    for number in range(gangs):
        jobs.change()
        found = await place(racks, way, f"gang-{number}")
        free.append(max(racks.free_in().values()))
        used = {node for _, node in found}
        within += len({racks.racks[node] for node in used}) == 1
        if found:
            placed += 1
            nodes.append(len(used))
        running.append(found)
        if len(running) > RUNNING:
            for pod, node in running.popleft():
                racks.end(MEMBER, pod, node)
    return Played(way, filled, seed, gangs, within, placed, mean(free), mean(nodes or [0]))


Case = tuple[str, int, int]
"""Way, per cent filled, seed."""


def cases(seeds: range) -> Iterator[Case]:
    return ((way, filled, seed) for way in WAYS for filled in FILLED for seed in seeds)


def measure(case: Case) -> Played:
    """One run, in a process of its own."""
    return asyncio.run(play(*case))


# --- telling ----------------------------------------------------------------------------------------------------------


def _of(found: Sequence[Played], way: str, filled: int) -> list[Played]:
    return [each for each in found if (each.way, each.filled) == (way, filled)]


def _within(runs: Sequence[Played]) -> float:
    """Per cent of the gangs."""
    return 100 * sum(each.within for each in runs) / sum(each.gangs for each in runs)


def _free(runs: Sequence[Played]) -> float:
    """GPUs."""
    return mean(each.free for each in runs)


def missed(found: Sequence[Played]) -> list[str]:
    """Where another way is ahead of ours."""
    problems: list[str] = []
    ours = _of(found, OURS, SHOWN)
    for way in WAYS:
        others = _of(found, way, SHOWN)
        if not (ours and others):
            continue
        if _within(others) > _within(ours):
            problems.append(f"gangs: {way} has {_within(others):.1f} % in one clique, {OURS} {_within(ours):.1f} %")
        if _free(others) > _free(ours):
            problems.append(f"gangs: {way} leaves a clique of {_free(others):.1f} GPUs, {OURS} {_free(ours):.1f}")
    return problems


def table(found: Sequence[Played]) -> str:
    """The cluster filled to `SHOWN` per cent."""
    lines = [
        "| gangs placed by | in one clique | placed | largest free clique, GPUs | ± | nodes of a gang | seeds |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for way in WAYS:
        runs = _of(found, way, SHOWN)
        if runs:
            placed = 100 * sum(each.placed for each in runs) / sum(each.gangs for each in runs)
            spread = f"{stdev(each.free for each in runs):.1f}" if len(runs) > 1 else ""
            nodes = mean(each.nodes for each in runs)
            lines.append(
                f"| {way} | {_within(runs):.1f} % | {placed:.1f} % | {_free(runs):.1f} | {spread} | {nodes:.1f} "
                f"| {len(runs)} |"
            )
    return "\n".join(lines)


def write(found: Sequence[Played], machine: str) -> None:
    """The section of the document, and its plots."""
    shown = {
        "gangs-within": ("gangs in one clique, % of all", _within),
        "gangs-free": ("largest free clique, % of a rack", lambda runs: 100 * _free(runs) / (NODES * GPUS)),
    }
    lines = [table(found), ""]
    for name, (title, value) in shown.items():
        curves = {way: {filled: value(runs) for filled in FILLED if (runs := _of(found, way, filled))} for way in WAYS}
        axis = Axis("GPUs that random jobs have, % of all", FILLED[0], FILLED[-1], 10)
        (PLOTS / f"{name}.svg").write_text(plot(f"gangs of {SIZE} in racks", curves, axis, 0, title))
        lines.append(f"![{title}](placement/{name}.svg)")
    write_section("gangs", "\n".join([*lines, "", f"Measured on {machine}."]), DOCUMENT)
