"""Pods per second on a real control plane: ours against the in-tree plugin. `python -m bench.cluster`.

Same cluster, same pods, one after the other in rounds, so that other load on the machine meets both. In each round all
pods and their claims exist before the scheduler starts; the time counts from the first binding to the last, as
a watch shows them. Writes its section of docs/performance.md, and bench/cluster.json. The exit status is 1
when a row is below the in-tree plugin, a pod is left unbound, or a device is in two claims.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from pstats import Stats
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from app.plurals import counted
from app.service import logs
from app.version import VERSION
from bench.arena import CLAIMS, CLASS, DEVICES, DRIVER, PCIE_ROOT, PODS, Arena, cpu_seconds
from bench.document import write_section
from bench.machine import described

RESULTS = Path(__file__).with_name("cluster.json")
LONGEST = 90.0
"""Seconds after which a round ends."""
IN_TREE, OURS = "in-tree", "ours"
NOTES = """\
Measured by `make bench-cluster` on a real control plane: etcd, kube-apiserver and kube-scheduler, {devices} devices
per node, one claim per pod. All pods and claims exist before the scheduler starts; pods/s counts from the first binding
to the last; a round ends after {longest:.0f} s, and the table names the pods left unbound. The two take turns, and
only one of them runs at a time. Both schedulers have the same client limits (qps and burst 5,000). The in-tree
scheduler runs with its defaults, so it looks at a part of the nodes per pod (`percentageOfNodesToScore`: 46 % of
500, 10 % of 5,000). Ours runs with the shipped `scheduler_config/secondary-scheduler.yaml`, which looks at all of
them, and with the `--offered-percent 0` of the shipped Deployment: of the nodes that fit, it offers as many as the
in-tree scheduler looks for. Writes: requests that change something other than events and leases, per pod. CPU:
milliseconds per pod, summed over all cores.
"""


class Shape(msgspec.Struct, frozen=True):
    """A row: what kind of claim, on how many nodes, how many pods per round."""

    name: str
    nodes: int
    pods: int
    spec: dict[str, Any]


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
    name: str
    nodes: int
    in_tree: Side
    ours: Side
    ratio: float


def _exactly(model: str, count: int = 1) -> dict[str, Any]:
    selector = f'device.attributes["{DRIVER}"].model == "{model}"'
    return {"deviceClassName": CLASS, "count": count, "selectors": [{"cel": {"expression": selector}}]}


def shapes() -> list[Shape]:
    one = {"requests": [{"name": "r", "exactly": _exactly("H100")}]}
    pair = {
        "requests": [{"name": "r", "exactly": _exactly("H100", 2)}],
        "constraints": [{"requests": ["r"], "matchAttribute": PCIE_ROOT}],
    }
    # There is no B200: every node has to be asked for the second best.
    alternatives = [{"name": "best", **_exactly("B200")}, {"name": "good", **_exactly("H100")}]
    prioritized = {"requests": [{"name": "r", "firstAvailable": alternatives}]}
    return [
        Shape("one device", 500, 300, one),
        Shape("matched pair", 500, 300, pair),
        Shape("prioritized list", 500, 300, prioritized),
        Shape("one device", 5_000, 150, one),
    ]


# --- one round --------------------------------------------------------------------------------------------------------


async def play(arena: Arena, shape: Shape, side: str, number: int) -> Round:
    """One round of one contestant; leaves the cluster as it was."""
    names = [f"{side}-{number}-{index}" for index in range(shape.pods)]
    await arena.create(CLAIMS, (_claim(name, shape.spec) for name in names))
    await arena.create(PODS, map(_pod, names))
    before = await arena.writes()
    bindings = Bindings(arena, len(names))
    watching = asyncio.create_task(bindings.watch())
    try:
        async with arena.in_tree() if side == IN_TREE else arena.ours() as processes:
            await bindings.first(LONGEST)
            started = cpu_seconds(processes)
            await bindings.last(LONGEST)
            used = {name: seconds - started[name] for name, seconds in cpu_seconds(processes).items()}
            writes = await arena.writes() - before
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    twice = await devices_held_twice(arena)
    await arena.clear(names)
    return Round(len(names), len(bindings.times), bindings.seconds, writes, twice, used)


def _claim(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"devices": spec}}


def _pod(name: str) -> dict[str, Any]:
    container = {"name": "main", "image": "none", "resources": {"claims": [{"name": "devices"}]}}
    spec = {"containers": [container], "resourceClaims": [{"name": "devices", "resourceClaimName": name}]}
    return {"metadata": {"name": name}, "spec": spec | {"terminationGracePeriodSeconds": 0}}


class _Meta(msgspec.Struct, frozen=True):
    name: str = ""


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _Pod(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()
    spec: _Spec = _Spec()


class _Event(msgspec.Struct, frozen=True):
    object: _Pod = _Pod()


class Bindings:
    """When each pod was seen bound, by a watch."""

    def __init__(self, arena: Arena, expected: int) -> None:
        self.times: dict[str, float] = {}
        self._arena = arena
        self._expected = expected
        self._begun, self._ended = asyncio.Event(), asyncio.Event()

    async def watch(self) -> None:
        """Until cancelled."""
        decoder = msgspec.json.Decoder(_Event)
        async for line in self._arena.client.stream(PODS, {"watch": "1"}):
            pod = decoder.decode(line).object
            if pod.spec.node_name and pod.metadata.name not in self.times:
                self.times[pod.metadata.name] = time.perf_counter()
                self._begun.set()
                if len(self.times) == self._expected:
                    self._ended.set()

    async def first(self, seconds: float) -> None:
        await _within(self._begun, seconds)

    async def last(self, seconds: float) -> None:
        await _within(self._ended, seconds)

    @property
    def seconds(self) -> float:
        """From the first to the last."""
        return max(self.times.values(), default=0.0) - min(self.times.values(), default=0.0)


async def _within(event: asyncio.Event, seconds: float) -> None:
    """Wait for it, at most so long."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return


async def devices_held_twice(arena: Arena) -> int:
    """Devices that are in more than one claim."""
    claims = msgspec.json.decode(await arena.client.get(CLAIMS))["items"]
    held: Counter[tuple[str, str, str]] = Counter()
    for claim in claims:
        results = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
        held.update({(result["driver"], result["pool"], result["device"]) for result in results})
    return sum(1 for count in held.values() if count > 1)


# --- rows -------------------------------------------------------------------------------------------------------------


async def measure(chosen: list[Shape], rounds: int, console: Console) -> list[Row]:
    """All rows, cluster by cluster."""
    rows: list[Row] = []
    for nodes in sorted({shape.nodes for shape in chosen}):
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="bench-cluster-") as directory:
            async with Arena(Path(directory), nodes) as arena:
                console.print(f"{counted(nodes, 'node')} ready after {time.monotonic() - started:.0f} s", style="dim")
                here = [shape for shape in chosen if shape.nodes == nodes]
                rows += [await _row(arena, shape, rounds, console) for shape in here]
    return rows


async def _row(arena: Arena, shape: Shape, rounds: int, console: Console) -> Row:
    played: dict[str, list[Round]] = defaultdict(list)
    for number in range(rounds):
        # They take turns to begin, so that a machine that gets slower or faster favours neither.
        for side in (IN_TREE, OURS) if number % 2 == 0 else (OURS, IN_TREE):
            result = await play(arena, shape, side, number)
            played[side].append(result)
            speed = _speed([result])
            console.print(f"  {counted(shape.nodes, 'node')}, {shape.name}, {side}: {speed:.1f} pods/s", style="dim")
    in_tree, ours = _side(played[IN_TREE]), _side(played[OURS])
    ratio = round(ours.pods_per_second / in_tree.pods_per_second, 2) if in_tree.pods_per_second else 0.0
    return Row(shape.name, shape.nodes, in_tree, ours, ratio)


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


async def profile(shape: Shape, file: Path) -> None:
    """One round of ours, with the service under cProfile."""
    with tempfile.TemporaryDirectory(prefix="bench-cluster-") as directory:
        async with Arena(Path(directory), shape.nodes) as arena:
            arena.profile = file
            await play(arena, shape, OURS, 0)
    Stats(str(file)).sort_stats("tottime").print_stats(40)


# --- telling ----------------------------------------------------------------------------------------------------------

_COLUMNS = (
    "nodes", "pods with", "in-tree pods/s", "our pods/s", "ratio", "in-tree writes", "our writes",
    "devices in two claims", "in-tree CPU", "our CPU",
)  # fmt: skip


def _cells(row: Row) -> list[str]:
    return [
        f"{row.nodes:,}",
        row.name,
        _pace(row.in_tree),
        _pace(row.ours),
        f"{row.ratio:.2f}",
        f"{row.in_tree.writes_per_pod:.2f}",
        f"{row.ours.writes_per_pod:.2f}",
        str(row.in_tree.twice + row.ours.twice),
        _shares(row.in_tree),
        _shares(row.ours),
    ]


def _pace(side: Side) -> str:
    """Pods per second, and how many pods the rounds left unbound."""
    left = f" ({side.unbound} not bound)" if side.unbound else ""
    return f"{side.pods_per_second:.1f}{left}"


def _shares(side: Side) -> str:
    return ", ".join(f"{name} {value:.1f}" for name, value in side.cpu_ms.items())


def summary(rows: list[Row]) -> str:
    lowest = min(rows, key=lambda row: row.ratio)
    return f"lowest ratio: {lowest.ratio:.2f} ({lowest.nodes:,} nodes, {lowest.name})"


def passed(rows: list[Row]) -> bool:
    sides = [side for row in rows for side in (row.in_tree, row.ours)]
    clean = not any(side.twice for side in sides) and not any(row.ours.unbound for row in rows)
    return clean and all(row.ratio >= 1 for row in rows)


def markdown(rows: list[Row], machine: str) -> str:
    lines = ["## On a real control plane", "", NOTES.format(devices=DEVICES, longest=LONGEST), f"{machine}.", ""]
    lines += ["| " + " | ".join(_COLUMNS) + " |", "|" + "---|" * len(_COLUMNS)]
    lines += ["| " + " | ".join(_cells(row)) + " |" for row in rows]
    return "\n".join([*lines, "", summary(rows).capitalize() + "."])


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
    parser.add_argument("--rounds", type=int, default=2, help="rounds of each contestant per row (2)")
    parser.add_argument("--only", default="", help="rows whose name, like '500 matched pair', contains this")
    parser.add_argument("--profile", type=Path, metavar="FILE", help="profile the service on the first row and end")
    parser.add_argument("--dry-run", action="store_true", help="print the table and leave the documents alone")
    return parser.parse_args()


def main() -> int:
    options = _arguments()
    logs.configure("error")
    console = Console(width=None if sys.stdout.isatty() else 200)
    machine = _machine(os.getloadavg()[0])
    chosen = [shape for shape in shapes() if options.only in f"{shape.nodes} {shape.name}"]
    if options.profile:
        asyncio.run(profile(chosen[0], options.profile))
        return 0
    rows = asyncio.run(measure(chosen, options.rounds, console))
    console.print(table(rows))
    if not options.dry_run:
        write_section("bench-cluster", markdown(rows, machine))
        found = {"version": VERSION, "machine": machine, "rows": rows}
        RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
    console.print(summary(rows))
    return 0 if passed(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
