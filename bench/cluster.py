"""Pods per second on a real control plane: ours against the in-tree plugin. `python -m bench.cluster`.

Same cluster, same pods, one after the other in rounds, so that other load on the machine meets both. In each round all
pods and their claims exist before the scheduler starts; the time counts from the first binding to the last, as
a watch shows them. Writes its section of docs/performance.md, and bench/cluster.json. The exit status is 1
when a row is below the in-tree plugin, gangs are below 1.5 times as many pods, a pod is left unbound, or a device is in
two claims.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from pstats import Stats
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from bench import steady
from bench.arena import CLAIMS, CLASS, DEVICES, DRIVER, PCIE_ROOT, PODGROUPS, PODS, Arena, cpu_seconds
from bench.bindings import claim, pod, pod_group, watched
from bench.document import write_section
from bench.machine import described
from bench.shares import markdown as markdown_of_shares
from bench.shares import shares
from bench.steady import Pace, SteadyRow
from dra_extender.plaintext import counted
from dra_extender.service import logs
from dra_extender.version import VERSION

RESULTS = Path(__file__).with_name("cluster.json")
POD_COUNT = 600
"""Per round."""
LONGEST = 90.0
"""Seconds after which a round ends."""
GANG_RATIO = 1.5
"""How many times as many pods per second as the in-tree plugin gangs have to reach."""
IN_TREE, OURS = "in-tree", "ours"
NOTES = """\
Measured by `make bench-cluster` on a real control plane: etcd, kube-apiserver and kube-scheduler, {devices} devices
per node, one claim per pod. All pods and claims exist before the scheduler starts; pods/s counts from the first binding
to the last; a round ends after {longest:.0f} s, and the table shows the number of unbound pods. The two schedulers run
alternately, one at a time, with the same client limits (qps and burst 5,000). The in-tree scheduler uses its defaults
and scores a part of the nodes (`percentageOfNodesToScore`: 46 % of 500, 10 % of 5,000), except in the rows "all nodes
scored" (100 for both). Ours uses the shipped `scheduler_config/secondary-scheduler.yaml`, which passes all nodes to the
extender, and the shipped Deployment's `--offered-percent 0`: filter returns as many fitting nodes as the in-tree
scheduler looks for. kube-scheduler calls the service over mutual TLS, as shipped, except in the row with plain HTTP.
Writes: requests per pod that change objects other than events and leases. CPU: milliseconds per pod, all cores
together. In parentheses: the slowest and the fastest round. Gangs: every eight pods are a PodGroup with `minCount: 8`,
and all components have the feature gate GenericWorkload (1.37; with it, kube-scheduler schedules gangs).
"""
PROFILED = """\
### Where the service's time goes

Measured by `make bench-cluster BENCH_ARGS="--profile"`: one round under cProfile, from the first binding to the end,
milliseconds of processor time per pod. The profiler makes every call slower, so only the shares count.

{machine}.

"""


class Shape(msgspec.Struct, frozen=True):
    """A row: what kind of claim, on how many nodes, how many pods per round."""

    name: str
    nodes: int
    pods: int
    spec: dict[str, Any]
    percent: int = 0
    """percentageOfNodesToScore of the in-tree scheduler, and --offered-percent of ours; 0: as both are shipped."""
    tls: bool = True
    """Whether kube-scheduler and the service speak mutual TLS with each other, as shipped."""
    gang: int = 0
    """How many pods have to run together, as a PodGroup; 0: pods are single, and no component knows gangs."""

    @property
    def title(self) -> str:
        more = ", all nodes scored" * (self.percent == 100) + ", plain HTTP" * (not self.tls)
        return self.name + more + (f", gangs of {self.gang}" if self.gang else "")

    @property
    def plane(self) -> tuple[int, bool]:
        """What control plane it needs: the number of nodes, and whether it knows gangs."""
        return self.nodes, self.gang > 0


class Round(msgspec.Struct, frozen=True):
    """What one contestant did in one round. `cpu` in seconds by process; `twice`: devices in two claims."""

    pods: int
    bound: int
    seconds: float
    writes: float
    twice: int
    cpu: dict[str, float]


class Side(msgspec.Struct, frozen=True):
    """All rounds of one contestant. `cpu_ms` is per pod."""

    pods_per_second: float
    writes_per_pod: float
    unbound: int
    twice: int
    cpu_ms: dict[str, float]
    rounds: list[float]


class Row(msgspec.Struct, frozen=True):
    """`gang`: the pods of a gang; 0: pods are single."""

    name: str
    nodes: int
    in_tree: Side
    ours: Side
    ratio: float
    gang: int = 0

    @property
    def target(self) -> float:
        """The least ratio."""
        return GANG_RATIO if self.gang else 1


def _exactly(model: str, count: int = 1) -> dict[str, Any]:
    selector = f'device.attributes["{DRIVER}"].model == "{model}"'
    return {"deviceClassName": CLASS, "count": count, "selectors": [{"cel": {"expression": selector}}]}


def shapes() -> list[Shape]:
    one = {"requests": [{"name": "r", "exactly": _exactly("H100")}]}
    pair = {
        "requests": [{"name": "r", "exactly": _exactly("H100", 2)}],
        "constraints": [{"requests": ["r"], "matchAttribute": PCIE_ROOT}],
    }
    # No node has a B200, so every node is asked for the second alternative.
    alternatives = [{"name": "best", **_exactly("B200")}, {"name": "good", **_exactly("H100")}]
    prioritized = {"requests": [{"name": "r", "firstAvailable": alternatives}]}
    return [
        Shape("one device", 500, POD_COUNT, one),
        Shape("one device", 500, POD_COUNT, one, tls=False),
        Shape("one device", 500, POD_COUNT, one, gang=8),
        Shape("matched pair", 500, POD_COUNT, pair),
        Shape("prioritized list", 500, POD_COUNT, prioritized),
        *(Shape("one device", 5_000, POD_COUNT, one, percent) for percent in (0, 100)),
        *(Shape("matched pair", 5_000, POD_COUNT, pair, percent) for percent in (0, 100)),
    ]


# --- one round --------------------------------------------------------------------------------------------------------


async def play(arena: Arena, shape: Shape, side: str, number: int) -> Round:
    """One round of one contestant; leaves the cluster as it was."""
    names = [f"{side}-{number}-{index}" for index in range(shape.pods)]
    group = {name: f"{side}-{number}-gang-{index // shape.gang}" for index, name in enumerate(names) if shape.gang}
    groups = list(dict.fromkeys(group.values()))
    await arena.create(PODGROUPS, (pod_group(name, shape.gang) for name in groups))
    await arena.create(CLAIMS, (claim(name, shape.spec) for name in names))
    await arena.create(PODS, (pod(name, group.get(name, "")) for name in names))
    before = await arena.writes()
    async with (
        watched(arena, len(names)) as bindings,
        arena.contestant(side == OURS, shape.percent, shape.tls) as processes,
    ):
        await bindings.first(LONGEST)
        if arena.profile is not None:
            os.kill(processes["extender"], signal.SIGUSR2)
        started = cpu_seconds(processes)
        await bindings.last(LONGEST)
        used = {name: seconds - started[name] for name, seconds in cpu_seconds(processes).items()}
        writes = await arena.writes() - before
    twice = await devices_held_twice(arena)
    await arena.clear(names, groups)
    return Round(len(names), len(bindings.times), bindings.seconds, writes, twice, used)


async def devices_held_twice(arena: Arena) -> int:
    """Devices that are in more than one claim."""
    claims = msgspec.json.decode(await arena.client.get(CLAIMS))["items"]
    held: Counter[tuple[str, str, str]] = Counter()
    for stored in claims:
        results = stored.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
        held.update({(result["driver"], result["pool"], result["device"]) for result in results})
    return sum(1 for count in held.values() if count > 1)


# --- rows -------------------------------------------------------------------------------------------------------------


async def measure(
    chosen: list[Shape], paces: list[Pace], rounds: int, console: Console
) -> tuple[list[Row], list[SteadyRow]]:
    """All rows, cluster by cluster."""
    rows: list[Row] = []
    steady_rows: list[SteadyRow] = []
    for nodes, gangs in sorted({shape.plane for shape in chosen} | {(pace.nodes, False) for pace in paces}):
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="bench-cluster-") as directory:
            async with Arena(Path(directory), nodes, gangs=gangs) as arena:
                console.print(f"{counted(nodes, 'node')} ready after {time.monotonic() - started:.0f} s", style="dim")
                here = [shape for shape in chosen if shape.plane == (nodes, gangs)]
                rows += [await _row(arena, shape, rounds, console) for shape in here]
                paced = [pace for pace in paces if pace.nodes == nodes and not gangs]
                steady_rows += [await _steady_row(arena, pace, rounds, console) for pace in paced]
    return rows, steady_rows


def _sides(number: int) -> tuple[str, str]:
    """They take turns to begin, so that a machine that gets slower or faster favours neither."""
    return (IN_TREE, OURS) if number % 2 == 0 else (OURS, IN_TREE)


async def _steady_row(arena: Arena, pace: Pace, rounds: int, console: Console) -> SteadyRow:
    played: dict[str, list[steady.Arrivals]] = defaultdict(list)
    spec = shapes()[0].spec
    for number in range(rounds):
        for side in _sides(number):
            found = await steady.arrive(arena, side == OURS, spec, pace.rate, pace.pods, f"{side}-{number}")
            played[side].append(found)
            console.print(f"  {counted(pace.nodes, 'node')}, {pace.rate} pods/s, {side}", style="dim")
    return steady.row(pace.nodes, pace.rate, played[IN_TREE], played[OURS])


async def _row(arena: Arena, shape: Shape, rounds: int, console: Console) -> Row:
    played: dict[str, list[Round]] = defaultdict(list)
    for number in range(rounds):
        for side in _sides(number):
            result = await play(arena, shape, side, number)
            played[side].append(result)
            speed = _speed([result])
            console.print(f"  {counted(shape.nodes, 'node')}, {shape.title}, {side}: {speed:.1f} pods/s", style="dim")
    in_tree, ours = _side(played[IN_TREE]), _side(played[OURS])
    ratio = round(ours.pods_per_second / in_tree.pods_per_second, 2) if in_tree.pods_per_second else 0.0
    return Row(shape.title, shape.nodes, in_tree, ours, ratio, shape.gang)


def _speed(rounds: Iterable[Round]) -> float:
    rounds = list(rounds)
    seconds = sum(result.seconds for result in rounds)
    return sum(max(0, result.bound - 1) for result in rounds) / seconds if seconds else 0.0


def _side(rounds: list[Round]) -> Side:
    pods = sum(result.pods for result in rounds)
    return Side(
        pods_per_second=round(_speed(rounds), 1),
        writes_per_pod=round(sum(result.writes for result in rounds) / pods, 2),
        unbound=sum(result.pods - result.bound for result in rounds),
        twice=sum(result.twice for result in rounds),
        cpu_ms={name: round(sum(r.cpu[name] for r in rounds) / pods * 1e3, 1) for name in rounds[0].cpu},
        rounds=[round(_speed([result]), 1) for result in rounds],
    )


async def profile(chosen: list[Shape]) -> dict[str, dict[str, float]]:
    """By row: where the service's processor time goes in one round, in seconds."""
    found: dict[str, dict[str, float]] = {}
    for nodes, gangs in sorted({shape.plane for shape in chosen}):
        with tempfile.TemporaryDirectory(prefix="bench-cluster-") as directory:
            async with Arena(Path(directory), nodes, gangs=gangs) as arena:
                for shape in (shape for shape in chosen if shape.plane == (nodes, gangs)):
                    arena.profile = Path(directory) / "profile"
                    await play(arena, shape, OURS, 0)
                    found[f"{nodes:,} nodes, {shape.title}"] = shares(Stats(str(arena.profile)))
    return found


# --- telling ----------------------------------------------------------------------------------------------------------

_COLUMNS = (
    "nodes", "pods with", "in-tree pods/s", "our pods/s", "ratio", "in-tree writes", "our writes",
    "devices in two claims", "in-tree CPU", "our CPU",
)  # fmt: skip


def _cells(row: Row) -> list[str]:
    return [
        f"{row.nodes:,}",
        row.name,
        _pace(row.in_tree, row.gang),
        _pace(row.ours, row.gang),
        f"{row.ratio:.2f}",
        f"{row.in_tree.writes_per_pod:.2f}",
        f"{row.ours.writes_per_pod:.2f}",
        str(row.in_tree.twice + row.ours.twice),
        _shares(row.in_tree),
        _shares(row.ours),
    ]


def _pace(side: Side, gang: int) -> str:
    """Pods per second, and gangs; and how many pods the rounds left unbound."""
    left = f" ({side.unbound} not bound)" if side.unbound else ""
    gangs = f", {side.pods_per_second / gang:.1f} gangs/s" if gang else ""
    return f"{side.pods_per_second:.1f}{_spread(side)}{gangs}{left}"


def _spread(side: Side) -> str:
    """The slowest and the fastest round."""
    return f" ({min(side.rounds):.1f} to {max(side.rounds):.1f})" if len(set(side.rounds)) > 1 else ""


def _shares(side: Side) -> str:
    return ", ".join(f"{name} {value:.1f}" for name, value in side.cpu_ms.items())


def summary(rows: Sequence[Row]) -> str:
    if not rows:
        return "no row was measured"
    lowest = min(rows, key=lambda row: row.ratio)
    return f"lowest ratio: {lowest.ratio:.2f} ({lowest.nodes:,} nodes, {lowest.name})"


def passed(rows: Sequence[Row], steady_rows: Sequence[SteadyRow] = ()) -> bool:
    """True when every row reaches its ratio, no pod is left and no device is in two claims."""
    sides = [side for row in rows for side in (row.in_tree, row.ours)]
    clean = not any(side.twice for side in sides) and not any(row.ours.unbound for row in rows)
    return clean and all(row.ratio >= row.target for row in rows) and all(row.passed for row in steady_rows)


def markdown(rows: Sequence[Row], machine: str, steady_rows: Sequence[SteadyRow] = ()) -> str:
    lines = ["## On a real control plane", "", NOTES.format(devices=DEVICES, longest=LONGEST), f"{machine}.", ""]
    lines += ["| " + " | ".join(_COLUMNS) + " |", "|" + "---|" * len(_COLUMNS)]
    lines += ["| " + " | ".join(_cells(row)) + " |" for row in rows]
    lowest = summary(rows)
    lines += ["", f"{lowest[0].upper()}{lowest[1:]}."]
    return "\n".join([*lines, "", steady.markdown(steady_rows)] if steady_rows else lines)


def table(rows: list[Row]) -> Table:
    made = Table(header_style="bold")
    for name in _COLUMNS:
        made.add_column(name)
    for row in rows:
        made.add_row(*_cells(row))
    return made


def _machine(load: float) -> str:
    return f"Machine: {described()}, load {load:.1f} before the start"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.cluster", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each contestant per row (3)")
    only = "rows whose name, like '500 matched pair' or '5000 steady 20', contains this"
    parser.add_argument("--only", default="", help=only)
    parser.add_argument("--pods", type=int, default=POD_COUNT, help=f"per round ({POD_COUNT})")
    parser.add_argument("--profile", action="store_true", help="where the service's time goes in these rows")
    parser.add_argument("--dry-run", action="store_true", help="print the table and leave the documents alone")
    return parser.parse_args()


def main() -> int:
    options = _arguments()
    logs.configure("error")
    console = Console(width=None if sys.stdout.isatty() else 200)
    machine = _machine(os.getloadavg()[0])
    chosen = [
        msgspec.structs.replace(shape, pods=options.pods)
        for shape in shapes()
        if options.only in f"{shape.nodes} {shape.title}"
    ]
    if options.profile:
        text = PROFILED.format(machine=machine) + markdown_of_shares(asyncio.run(profile(chosen)), options.pods)
        console.print(text)
        if not options.dry_run:
            write_section("bench-profile", text)
        return 0
    paces = [pace for pace in steady.PACES if options.only in f"{pace.nodes} steady {pace.rate}"]
    paces = [msgspec.structs.replace(pace, pods=options.pods) for pace in paces]
    rows, steady_rows = asyncio.run(measure(chosen, paces, options.rounds, console))
    console.print(table(rows))
    console.print(steady.markdown(steady_rows) if steady_rows else "")
    if not options.dry_run:
        write_section("bench-cluster", markdown(rows, machine, steady_rows))
        found = {"version": VERSION, "machine": machine, "rows": rows, "steady": steady_rows}
        RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
    console.print(summary(rows))
    return 0 if passed(rows, steady_rows) else 1


if __name__ == "__main__":
    sys.exit(main())
