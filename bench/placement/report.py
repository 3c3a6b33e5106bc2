"""What was measured, as tables and plots in docs/placement.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Final

from bench.document import write_section
from bench.placement.plot import Axis, Curve, plot
from bench.placement.run import KUBE, Outcome
from dra_extender.plaintext import counted

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "placement.md"
PLOTS: Final = DOCUMENT.parent / "placement"
SHOWN: Final = (80, 90, 100, 110, 120, 130)

PARTITIONS_GAIN: Final = 5.0
"""Points that packing partitions has to gain over first-fit when as much is asked for as there is."""

GOALS: Final[Mapping[str, float]] = {"default": 95.39, "gpushare100": 86.90, "gpuspec33": 94.55, "multigpu50": 97.18}
"""What Fragmentation Gradient Descent was published with, at 130 %."""


def grouped(outcomes: Sequence[Outcome]) -> Mapping[str, Mapping[str, Sequence[Outcome]]]:
    """Outcomes of all seeds by workload and policy, in the order in which they came."""
    found: dict[str, dict[str, list[Outcome]]] = {}
    for outcome in outcomes:
        found.setdefault(outcome.workload, {}).setdefault(outcome.policy, []).append(outcome)
    return found


def curve(outcomes: Sequence[Outcome]) -> Curve:
    """The mean over seeds."""
    percents = set.intersection(*(set(outcome.shares) for outcome in outcomes))
    return {percent: mean(outcome.shares[percent] for outcome in outcomes) for percent in sorted(percents)}


def table(outcomes: Sequence[Outcome]) -> str:
    """Allocated per cent of all GPUs; rows are workloads and policies."""
    percents = " | ".join(f"{percent} %" for percent in SHOWN)
    lines = [
        f"| workload | policy | {percents} | ± | pods placed | seeds | ms a pod |",
        f"|---|---|{'---:|' * (len(SHOWN) + 4)}",
    ]
    for workload, policies in grouped(outcomes).items():
        for policy, found in policies.items():
            line = curve(found)
            shown = " | ".join(f"{line[percent]:.2f}" if percent in line else "" for percent in SHOWN)
            last = [outcome.shares[max(line)] for outcome in found]
            spread = f"{stdev(last):.2f}" if len(last) > 1 else ""
            placed = 100 * sum(item.placed for item in found) / sum(item.arrived for item in found)
            each = 1000 * sum(item.seconds for item in found) / sum(item.arrived for item in found)
            lines.append(f"| {workload} | {policy} | {shown} | {spread} | {placed:.1f} % | {len(found)} | {each:.1f} |")
    return "\n".join(lines)


def missed(outcomes: Sequence[Outcome]) -> list[str]:
    """The goals that are missed."""
    found: list[str] = []
    for workload, policies in grouped(outcomes).items():
        goal, ours = GOALS.get(workload), policies.get("fragmentation")
        if goal is not None and ours:
            reached = curve(ours).get(130)
            if reached is not None and reached < goal:
                found.append(f"{workload}: fragmentation allocates {reached:.2f} % at 130 %, goal {goal}")
        first, packed = policies.get(KUBE), policies.get("pack")
        if workload == "partitions" and first and packed:
            gain = curve(packed)[100] - curve(first)[100]
            if gain < PARTITIONS_GAIN:
                found.append(f"{workload}: packing gains {gain:.2f} points at 100 %, goal {PARTITIONS_GAIN:g}")
    return found


def write(outcomes: Sequence[Outcome], machine: str) -> None:
    """The section of the document, and its plots."""
    PLOTS.mkdir(exist_ok=True)
    lines = [table(outcomes), ""]
    for workload, policies in grouped(outcomes).items():
        curves = {policy: curve(found) for policy, found in policies.items()}
        file = PLOTS / f"{workload.replace(' ', '-')}.svg"
        seeds = counted(max(len(found) for found in policies.values()), "seed")
        most = max(percent for line in curves.values() for percent in line)
        file.write_text(plot(f"{workload}, {seeds}", curves, Axis("GPUs asked for, % of all", 60, most, 10)))
        lines.append(f"![{workload}](placement/{file.name})")
    write_section("placement", "\n".join([*lines, "", f"Measured on {machine}, processor time."]), DOCUMENT)
