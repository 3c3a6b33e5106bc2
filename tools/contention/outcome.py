"""What a contest has shown: the rows of its table, and what is wrong with it. Pure, but for the look of the table."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec
from prometheus_client.parser import text_string_to_metric_families
from rich.table import Table

from dra_extender.scheduling.outcomes import OUTCOMES
from dra_extender.service.audit import CONFLICT
from tools.contention.entrants import Entrant
from tools.contention.history import IN_TREE, OURS, History, Overlap

COUNTED = (*(outcome.name.removesuffix("_total") for outcome in OUTCOMES), "violations_reported")
"""Our counters that are shown, without prefix and suffix."""
RESULTS = ("scheduled", "unschedulable", "error")
"""How an attempt of kube-scheduler ends."""


class Told(msgspec.Struct, frozen=True):
    """A violation that a replica has logged."""

    subject: str
    claims: frozenset[str]


class Replica(msgspec.Struct):
    """One of ours at the end: its metrics (text) and the violations it told of."""

    name: str
    metrics: str
    told: frozenset[Told]

    def found(self, overlap: Overlap) -> bool:
        return any(told.subject == overlap.device and overlap.claims <= told.claims for told in self.told)

    def counters(self) -> dict[tuple[str, str], int]:
        """By counter and label, those above zero."""
        names = {f"dra_extender_{name}": name for name in COUNTED}
        found = {}
        for family in text_string_to_metric_families(self.metrics):
            if family.name in names and family.type == "counter":
                for sample in family.samples:
                    if sample.name.endswith("_total") and sample.value:
                        found[names[family.name], " ".join(sample.labels.values())] = int(sample.value)
        return found


def told_in(log: str) -> frozenset[Told]:
    """The violations in the log (JSON) of a replica."""
    found = []
    for line in log.splitlines():
        if CONFLICT in line:
            entry = msgspec.json.decode(line)
            found.append(Told(entry["subject"], frozenset(entry["claims"].split(", "))))
    return frozenset(found)


def api_conflicts(metrics: str) -> dict[str, int]:
    """From the metrics of the API server: writes that it refused with 409, by what was written.

    The verb tells the two allocators apart: ours patches claims, others replace them.
    """
    lines = [line for line in metrics.splitlines() if line.startswith("apiserver_request_total{") and '"409"' in line]
    found: Counter[str] = Counter()
    for family in text_string_to_metric_families("\n".join(lines) + "\n"):
        for sample in family.samples:
            labels = sample.labels
            if labels["resource"] in ("resourceclaims", "pods"):
                what = "/".join(part for part in (labels["resource"], labels["subresource"]) if part)
                found[f"{labels['verb']} {what}"] += int(sample.value)
    return dict(found)


class Outcome(msgspec.Struct):
    """`waited`: seconds from making to running by name of pod. `attempts`: of each kube-scheduler to schedule a pod, by
    result. `refused`: 409s of the API server by kind of write. `events`: how many claims have an event about a device
    held twice.
    """

    entrants: Sequence[Entrant]
    history: History
    seconds: float
    waited: dict[str, float]
    attempts: dict[str, dict[str, int]]
    replicas: list[Replica]
    refused: dict[str, int]
    events: int

    @property
    def unfound(self) -> list[Overlap]:
        """Devices that bound pods have shared without any replica telling of it."""
        shared = [overlap for overlap in self.history.overlaps if overlap.shared]
        return [overlap for overlap in shared if not any(replica.found(overlap) for replica in self.replicas)]

    def problems(self) -> list[str]:
        """One sentence per broken promise; empty when all were kept."""
        history = self.history
        found = [f"ours wrote second and bound its pod: {overlap}" for overlap in history.by(OURS) if overlap.stood]
        found += [f"no replica has told of it: {overlap}" for overlap in self.unfound]
        found += history.wrong
        ran = {key.rpartition("/")[2] for key in history.ran}
        found += [f"pod {entrant.name} has never run" for entrant in self.entrants if entrant.name not in ran]
        found += [f"claim {key} is still allocated at the end" for key in history.held]
        return found

    def verdict(self) -> str:
        """The last line."""
        problems = len(self.problems())
        kept = sum(overlap.stood for overlap in self.history.by(OURS))
        ran = f"{len(self.history.ran):,} of {len(self.entrants):,} pods ran"
        return f"{ran}, {kept} devices in two claims of ours, violations: {problems}"

    # --- tables

    def schedulers(self) -> Table:
        columns = [f"attempts: {result}" for result in RESULTS]
        table = _table("pods", "scheduler", "pods", "bound", "ran", "median wait", "longest wait", *columns)
        for scheduler in dict.fromkeys(entrant.scheduler for entrant in self.entrants):
            mine = [entrant.name for entrant in self.entrants if entrant.scheduler == scheduler]
            bound = sum(pod.scheduler == scheduler for pod in self.history.bound.values())
            ran = sum(pod.scheduler == scheduler for pod in self.history.ran.values())
            waits = [self.waited[name] for name in mine if name in self.waited]
            times = (f"{statistics.median(waits):.1f} s", f"{max(waits):.1f} s") if waits else ("", "")
            attempts = [self.attempts.get(scheduler, {}).get(result, 0) for result in RESULTS]
            cells = [f"{number:,}" for number in (len(mine), bound, ran, *attempts)]
            table.add_row(scheduler, *cells[:3], *times, *cells[3:])
        return table

    def writers(self) -> Table:
        """Devices in two claims, by who wrote second onto whose."""
        table = _table(
            "a device in a second claim", "second writer", "onto", "allocations", "in both", "again", "taken back",
            "first gave way", "second bound", "in-tree joined", "both bound", "told of",
        )  # fmt: skip
        for second in (OURS, IN_TREE):
            for first in (OURS, IN_TREE):
                found = self.history.by(second, first)
                told = sum(overlap.shared and overlap not in self.unfound for overlap in found)
                numbers = [
                    self.history.allocations[second],
                    len(found),
                    sum(overlap.again for overlap in found),
                    _count(found, "taken back"),
                    _count(found, "gave way"),
                    sum(overlap.stood for overlap in found),
                    sum(overlap.joined for overlap in found),
                    sum(overlap.shared for overlap in found),
                    told,
                ]
                table.add_row(second, first, *(f"{number:,}" for number in numbers))
        table.caption = "again: yet another claim had the device before, and let it go while the first one kept it"
        return table

    def conflicts(self) -> Table:
        names = [replica.name for replica in self.replicas]
        table = _table("conflicts and what came of them", "counter", "label", *names)
        counted = [replica.counters() for replica in self.replicas]
        keys = sorted({key for counters in counted for key in counters}, key=lambda key: (COUNTED.index(key[0]), key))
        for name, label in keys:
            table.add_row(name, label, *(f"{counters.get((name, label), 0):,}" for counters in counted))
        return table

    def refusals(self) -> Table:
        table = _table("writes refused by the API server with 409", "write", "times")
        for what, times in sorted(self.refused.items()):
            table.add_row(what, f"{times:,}")
        return table


def _count(overlaps: Iterable[Overlap], ending: str) -> int:
    return sum(overlap.ending == ending for overlap in overlaps)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", header_style="bold")
    for column in columns:
        table.add_column(column)
    return table
