"""A backlog of refused pods while bound pods change all the time, on a real control plane. `python -m bench.backlog`.

Measures how quickly other pods are bound at the same time, what the service costs, and that every refused pod is tried
again when its devices come. Writes its section of docs/performance.md. The exit status is 1 when a limit is broken.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median

import msgspec
from rich.console import Console
from rich.table import Table

from bench.arena import CLASS, DRIVER, NAMESPACE, Arena, cpu_seconds
from bench.cluster import devices_held_twice
from bench.document import write_section
from bench.machine import described
from dra_extender.plaintext import counted
from dra_extender.service import logs
from tests.e2e.backlog import Backlog
from tests.e2e.components import Component, metric
from tests.e2e.extender import Extender
from tests.e2e.ground import SCHEDULER

MOST_SECONDS, MOST_CORES, MOST_WAKING = 1.0, 1.0, 30.0
"""From creation to binding of 99 in 100 pods, of the service, and from new devices to the last binding."""
_PORTIONS = 4
_QUIET = 3.0
"""Seconds without a call of filter after which kube-scheduler counts as resting."""
NOTES = """\
Measured by `make bench-backlog` on a real control plane: etcd, kube-apiserver, a second kube-scheduler with the shipped
`scheduler_config/secondary-scheduler.yaml`, and the service with the settings of the shipped Deployment, TLS included.
Half of the refused pods want devices that bound pods hold, half want devices that do not exist yet; every pod has a
claim of its own. When kube-scheduler is idle, the benchmark changes status, label or annotation of bound pods in turn;
each change makes kube-scheduler try all refused pods again. At the same time it creates pods that fit, and deletes them
once they are bound. Their time counts from the reply to their creation to the binding on a watch. At the end, devices
become available in portions, published or released in turn, each when kube-scheduler is idle again.

kube-scheduler tries one pod at a time: among pods of equal priority, the one that has waited longest. So a new pod
waits for all refused pods that are due before it, at most once per `podMaxBackoffSeconds`. The wait is their number
times the mean attempt below, of which filter is a small part. Give pods that must not wait a higher priority.
"""


class Plan(msgspec.Struct, frozen=True):
    """The amounts; rates are per second."""

    nodes: int
    refused: int
    updates: float
    arrivals: float
    seconds: float


class Found(msgspec.Struct, frozen=True):
    """`cores` by process, `strangers`: the cores that all other processes of the machine used; `calls` of filter by
    answer; `attempt` and `answer`: mean seconds of an attempt of kube-scheduler that found no node, and of filter in
    it; `waking` has the seconds of each portion.
    """

    plan: Plan
    updates: float
    taken: list[float]
    cores: dict[str, float]
    strangers: float
    calls: dict[str, float]
    attempt: float
    answer: float
    searches: float
    requeues: float
    waking: list[float]
    left: int
    flushed: float
    twice: int


class Bench:
    """One run."""

    def __init__(self, plan: Plan, console: Console) -> None:
        self._plan = plan
        self._console = console

    async def run(self) -> Found:
        """Raises TimeoutError when something never happens."""
        plan = self._plan
        with tempfile.TemporaryDirectory(prefix="bench-backlog-") as directory:
            async with Arena(Path(directory), plan.nodes) as arena:
                nodes = [f"node-{index}" for index in range(plan.nodes)]
                async with (
                    arena.shipped(SCHEDULER) as (extender, scheduler),
                    Backlog(
                        arena.client, NAMESPACE, device_class=CLASS, driver=DRIVER, scheduler=SCHEDULER, nodes=nodes
                    ) as backlog,
                ):
                    self._say(f"{counted(plan.nodes, 'node')} ready")
                    return await self._play(arena, extender, scheduler, backlog)

    async def _play(self, arena: Arena, extender: Extender, scheduler: Component, backlog: Backlog) -> Found:
        plan = self._plan
        await backlog.occupy(plan.refused // 2)
        await backlog.wait(plan.refused)
        await _until_quiet(extender)
        self._say(f"{plan.refused} pods are refused, {plan.refused // 2} are bound")
        assert extender.process is not None
        ours = {"scheduler": scheduler.process.pid, "service": extender.process.pid, "benchmark": os.getpid()}
        meter = Meter(arena.processes(ours))
        trust = arena.plane.credentials.trust()
        service, queue = extender.metrics(), scheduler.metrics(trust)
        updates, taken = await asyncio.gather(
            backlog.change(round(plan.updates * plan.seconds), plan.updates),
            backlog.pass_by(round(plan.arrivals * plan.seconds), plan.arrivals),
        )
        cores, strangers = meter.read()
        grown = _Growth(service, extender.metrics())
        attempts = _Growth(queue, scheduler.metrics(trust))
        self._say(f"{counted(len(taken), 'other pod')} bound meanwhile; now devices come")
        waking = await self._relieve(extender, backlog)
        return Found(
            plan=plan,
            updates=updates,
            taken=taken,
            cores=cores,
            strangers=strangers,
            calls={
                result: grown.of("dra_extender_filter_results_total", result=result) for result in ("refused", "fits")
            },
            attempt=attempts.mean("scheduler_scheduling_attempt_duration_seconds", result="unschedulable"),
            answer=grown.mean("dra_extender_verb_duration_seconds", verb="filter"),
            searches=grown.of("dra_extender_allocation_searches_total"),
            requeues=grown.of("dra_extender_requeues_total", result="triggered"),
            waking=waking,
            left=plan.refused - backlog.served,
            flushed=metric(scheduler.metrics(trust), "scheduler_pod_scheduled_after_flush_total"),
            twice=await devices_held_twice(arena),
        )

    async def _relieve(self, extender: Extender, backlog: Backlog) -> list[float]:
        """Every portion begins when kube-scheduler rests: only a requeue can wake a pod."""
        waking: list[float] = []
        for number in range(_PORTIONS):
            await _until_quiet(extender)
            pods = self._plan.refused * (number + 1) // _PORTIONS - self._plan.refused * number // _PORTIONS
            waking.append(await (backlog.free(pods) if number % 2 else backlog.publish(pods)))
            self._say(f"{counted(pods, 'pod')} bound within {waking[-1]:.1f} s")
        return waking

    def _say(self, text: str) -> None:
        self._console.print(f"  {text}", style="dim")


class Meter:
    """Processor time from now on, in cores."""

    def __init__(self, processes: Mapping[str, int]) -> None:
        self._processes = processes
        self._begun, self._used, self._busy = time.monotonic(), cpu_seconds(processes), _busy_seconds()

    def read(self) -> tuple[dict[str, float], float]:
        """By process, and of everything else on the machine."""
        seconds = time.monotonic() - self._begun
        used = {name: now - self._used[name] for name, now in cpu_seconds(self._processes).items()}
        strangers = _busy_seconds() - self._busy - sum(used.values())
        return {name: spent / seconds for name, spent in used.items()}, max(0.0, strangers / seconds)


def _busy_seconds() -> float:
    """Seconds that all cores together have worked since boot."""
    ticks = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle = ticks[3] + ticks[4]
    return (sum(ticks) - idle) / os.sysconf("SC_CLK_TCK")


class _Growth:
    """What metrics grew by from one page to another."""

    def __init__(self, before: str, after: str) -> None:
        self._before, self._after = before, after

    def of(self, name: str, **labels: str) -> float:
        return metric(self._after, name, **labels) - metric(self._before, name, **labels)

    def mean(self, name: str, **labels: str) -> float:
        """Of a histogram."""
        return self.of(f"{name}_sum", **labels) / max(1.0, self.of(f"{name}_count", **labels))


async def _until_quiet(extender: Extender) -> None:
    calls = -1.0
    while (now := metric(await asyncio.to_thread(extender.metrics), "dra_extender_filter_results_total")) != calls:
        calls = now
        await asyncio.sleep(_QUIET)


# --- telling ----------------------------------------------------------------------------------------------------------


def percentile(values: list[float], share: float) -> float:
    """The quantile: the smallest value that at least this share of all values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def rows(found: Found) -> list[tuple[str, str, str]]:
    """What was measured, and its limit if it has one."""
    plan, taken = found.plan, found.taken
    calls = sum(found.calls.values())
    parts = ", ".join(f"{result} {count:.0f}" for result, count in found.calls.items())
    cores = found.cores | {"everything else on the machine": found.strangers}
    others = ", ".join(f"{name} {used:.2f}" for name, used in cores.items() if name != "service")
    return [
        ("nodes, refused pods, seconds", f"{plan.nodes}, {plan.refused}, {plan.seconds:g}", ""),
        ("updates of bound pods per second", f"{found.updates:.1f}", f"≥ {_least_updates(plan):g}"),
        ("other pods, per second", f"{len(taken)}, {plan.arrivals:g}", ""),
        ("creation to binding, median", f"{median(taken):.3f} s", ""),
        ("creation to binding, p99", f"{percentile(taken, 0.99):.3f} s", f"< {MOST_SECONDS:g} s"),
        ("creation to binding, longest", f"{max(taken):.3f} s", ""),
        ("CPU of the service", f"{found.cores['service']:.2f} cores", f"< {MOST_CORES:g} core"),
        ("CPU of the others", others, ""),
        ("calls of filter per second", f"{calls / plan.seconds:.0f}", ""),
        ("calls of filter by answer", parts, ""),
        (
            "an attempt without a node, mean",
            f"{found.attempt * 1e3:.1f} ms, filter in it {found.answer * 1e3:.2f} ms",
            "",
        ),
        ("searches for devices", f"{found.searches:.0f}", ""),
        ("requeues", f"{found.requeues:.0f}", ""),
        (f"seconds until {plan.refused // _PORTIONS} were bound", _list(found.waking), f"< {MOST_WAKING:g} s"),
        ("refused pods never bound", str(found.left), "0"),
        ("bound only after kube-scheduler's own retry", f"{found.flushed:.0f}", "0"),
        ("devices in two claims", str(found.twice), "0"),
    ]


def _list(values: list[float]) -> str:
    return ", ".join(f"{value:.1f}" for value in values)


def _least_updates(plan: Plan) -> float:
    """With fewer the run shows nothing."""
    return 0.95 * plan.updates


def problems(found: Found) -> list[str]:
    """The limits that are broken."""
    slow = percentile(found.taken, 0.99)
    checks = [
        (found.updates >= _least_updates(found.plan), f"only {found.updates:.1f} updates per second"),
        (slow < MOST_SECONDS, f"p99 from creation to binding is {slow:.3f} s"),
        (found.cores["service"] < MOST_CORES, f"the service used {found.cores['service']:.2f} cores"),
        (max(found.waking) < MOST_WAKING, f"pods waited {max(found.waking):.1f} s for devices that were there"),
        (found.left == 0, f"{found.left} refused pods were never bound"),
        (found.flushed == 0, f"{found.flushed:.0f} pods were bound only after kube-scheduler's own retry"),
        (found.twice == 0, f"{found.twice} devices are in two claims"),
    ]
    return [problem for fine, problem in checks if not fine]


def verdict(found: Found) -> str:
    broken = problems(found)
    return "broken: " + "; ".join(broken) if broken else "all limits are kept"


def markdown(found: Found, machine: str) -> str:
    lines = ["## A backlog of refused pods", "", NOTES, f"{machine}.", ""]
    lines += ["| | measured | limit |", "|---|---|---|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows(found)]
    return "\n".join([*lines, "", verdict(found).capitalize() + "."])


def table(found: Found) -> Table:
    made = Table(header_style="bold")
    for name in ("", "measured", "limit"):
        made.add_column(name)
    for row in rows(found):
        made.add_row(*row)
    return made


def _machine(before: float) -> str:
    return f"Machine: {described()}, load {before:.1f} before the start, {os.getloadavg()[0]:.1f} at the end"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.backlog", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seconds", type=float, default=300, help="how long others come and go (300)")
    parser.add_argument("--refused", type=int, default=500, help="pods that wait (500)")
    parser.add_argument("--nodes", type=int, default=200, help="nodes with devices (200)")
    parser.add_argument("--updates", type=float, default=100, help="updates of bound pods per second (100)")
    parser.add_argument("--arrivals", type=float, default=4, help="pods that fit, per second (4)")
    parser.add_argument("--dry-run", action="store_true", help="print the table and leave the document alone")
    return parser.parse_args()


def main() -> int:
    options = _arguments()
    logs.configure("error")
    console = Console(width=None if sys.stdout.isatty() else 160)
    load = os.getloadavg()[0]
    plan = Plan(options.nodes, options.refused, options.updates, options.arrivals, options.seconds)
    found = asyncio.run(Bench(plan, console).run())
    machine = _machine(load)
    console.print(machine, style="dim")
    console.print(table(found))
    if not options.dry_run:
        write_section("bench-backlog", markdown(found, machine))
    console.print(verdict(found))
    return 1 if problems(found) else 0


if __name__ == "__main__":
    sys.exit(main())
