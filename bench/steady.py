"""Pods that arrive one by one, at a fixed pace: how long each waits, from its creation to its binding.

Pods arrive by the clock, whether the scheduler keeps up or not. The time counts from the reply to the creation of
the pod to the binding as a watch shows it; the first pods of a round, for which everything warms up, are left out.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from statistics import quantiles
from typing import Any, Final

import msgspec

from bench.arena import CLAIMS, PODS, Arena
from bench.bindings import claim, pod, watched

WARM_UP: Final = 40
"""Pods that are not counted."""
LONGEST: Final = 60.0
"""Seconds that the last pods get."""
COLUMNS: Final = (
    "nodes", "pods per second", "in-tree median", "p99", "our median", "p99", "p99 in-tree / ours", "not bound"
)  # fmt: skip


class Pace(msgspec.Struct, frozen=True):
    """Number of nodes, pods per second, and pods in all."""

    nodes: int
    rate: int
    pods: int = 600


PACES: Final = tuple(Pace(nodes, rate) for nodes in (500, 5_000) for rate in (20, 50))


class Arrivals(msgspec.Struct, frozen=True):
    """Of one contestant in one round: seconds until the binding, in the order of creation, and pods left unbound."""

    seconds: list[float]
    unbound: int = 0


class SteadyRow(msgspec.Struct, frozen=True):
    """Seconds over all rounds. `unbound`: of ours."""

    nodes: int
    rate: int
    in_tree_median: float
    in_tree_p99: float
    our_median: float
    our_p99: float
    unbound: int

    @property
    def ratio(self) -> float:
        """How much longer theirs lets the slowest pods wait."""
        return round(self.in_tree_p99 / self.our_p99, 2) if self.our_p99 else 0.0

    @property
    def passed(self) -> bool:
        return self.ratio >= 1 and not self.unbound


async def arrive(arena: Arena, ours: bool, spec: dict[str, Any], rate: int, pods: int, round_: str) -> Arrivals:
    """One round of one contestant; leaves the cluster as it was."""
    names = [f"steady-{round_}-{index}" for index in range(WARM_UP + pods)]
    created: dict[str, float] = {}

    async def create(name: str) -> None:
        await arena.create(CLAIMS, [claim(name, spec)])
        await arena.create(PODS, [pod(name)])
        created[name] = time.perf_counter()

    async def create_at_pace(some: Sequence[str]) -> None:
        started = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as group:
            for number, name in enumerate(some):
                await asyncio.sleep(started + number / rate - asyncio.get_running_loop().time())
                group.create_task(create(name))

    async with arena.contestant(ours):
        async with watched(arena, WARM_UP) as bindings:  # the scheduler, too, has to start
            await create_at_pace(names[:WARM_UP])
            await bindings.last(LONGEST)
        async with watched(arena, len(names)) as bindings:
            await create_at_pace(names[WARM_UP:])
            await bindings.last(LONGEST)
    await arena.clear(names)
    counted = [name for name in names[WARM_UP:] if name in bindings.times]
    # The watch may show a binding before the reply to the creation is read.
    seconds = [max(0.0, bindings.times[name] - created[name]) for name in counted]
    return Arrivals(seconds, len(names) - len(bindings.times))


def row(nodes: int, rate: int, in_tree: list[Arrivals], ours: list[Arrivals]) -> SteadyRow:
    """All rounds as one."""
    theirs = [seconds for arrivals in in_tree for seconds in arrivals.seconds]
    own = [seconds for arrivals in ours for seconds in arrivals.seconds]
    unbound = sum(arrivals.unbound for arrivals in ours)
    return SteadyRow(nodes, rate, *_percentiles(theirs), *_percentiles(own), unbound)


def _percentiles(seconds: list[float]) -> tuple[float, float]:
    """Median and p99."""
    if len(seconds) < 2:
        return (seconds[0], seconds[0]) if seconds else (0.0, 0.0)
    found = quantiles(seconds, n=100, method="inclusive")
    return found[49], found[98]


def markdown(rows: Sequence[SteadyRow]) -> str:
    """The table, with what it shows."""
    lines = [
        "Pods that arrive at a fixed pace, one device each: milliseconds from the reply to the creation to the",
        f"binding, as a watch shows it, without the first {WARM_UP} pods of a round.",
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|" + "---|" * len(COLUMNS),
    ]
    return "\n".join([*lines, *("| " + " | ".join(cells(found)) + " |" for found in rows)])


def cells(found: SteadyRow) -> list[str]:
    times = (found.in_tree_median, found.in_tree_p99, found.our_median, found.our_p99)
    shown = [f"{seconds * 1e3:.0f}" for seconds in times]
    return [f"{found.nodes:,}", str(found.rate), *shown, f"{found.ratio:.2f}", str(found.unbound)]
