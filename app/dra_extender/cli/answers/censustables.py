"""Devices, and sums of devices, as tables for people."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import typer

from dra_extender.cli.columns import table
from dra_extender.insight.devicereport.report import STATES, Amount, CountedDevice, Holding, State, Totals
from dra_extender.insight.devicereport.totals import By, Sum
from dra_extender.plurals import counted

NOBODY: Final = "-"

_HEAD: Final = ("NODE", "DRIVER", "DEVICE", "STATE", "DETAILS")
_WIDE: Final = ("NODE", "DRIVER", "POOL", "DEVICE", "STATE", "FILL", "CLASSES", "TAINTS", "COUNTERS", "DETAILS")
_NAMED: Final[Mapping[By, str]] = {
    "nodes": "NODE", "drivers": "DRIVER", "classes": "CLASS", "namespaces": "NAMESPACE"
}  # fmt: skip
_ALWAYS: Final = ("free", "used")
_COLOURS: Final[Mapping[str, str]] = {
    "free": typer.colors.GREEN, "shared": typer.colors.CYAN, "blocked": typer.colors.YELLOW,
    "tainted": typer.colors.YELLOW, "unusable": typer.colors.RED,
}  # fmt: skip

Paint = Callable[[int, str], str]


def painted(coloured: bool) -> Paint:
    """Colours for the names of states."""

    def paint(column: int, cell: str) -> str:
        colour = _COLOURS.get(cell.rstrip()) if coloured and column >= _HEAD.index("STATE") else None
        return typer.style(cell, fg=colour) if colour else cell

    return paint


def device_table(
    devices: Sequence[CountedDevice], *, wide: bool, width: int, paint: Paint = painted(False)
) -> Iterator[str]:
    """A line for each device."""
    rows = [_wide_row(device) if wide else _row(device) for device in devices]
    return table(_WIDE if wide else _HEAD, rows, width=width, paint=paint)


def _row(device: CountedDevice) -> tuple[str, ...]:
    name = device.name if device.pool == device.node else f"{device.pool}/{device.name}"
    return device.node or NOBODY, device.driver, name, device.state, details(device)


def _wide_row(device: CountedDevice) -> tuple[str, ...]:
    classes, taints = ",".join(device.classes), ",".join(device.taints)
    counters = ",".join(f"{counter.name}={counter.used}/{counter.of}" for counter in device.counters)
    return (
        device.node or NOBODY, device.driver, device.pool, device.name, device.state, f"{device.fill:.0f}%",
        classes or NOBODY, taints or NOBODY, counters or NOBODY, details(device),
    )  # fmt: skip


def details(device: CountedDevice) -> str:
    """What explains the state: who holds the device, or why nobody gets it."""
    if device.state in ("used", "shared"):
        amounts = [f"{amount.name} {_of(amount)}" for amount in device.capacity]
        held = ", ".join(map(_holding, device.holders))
        return "; ".join([*amounts, held] if device.state == "shared" else [held])
    if device.state == "blocked":
        return "taken: " + ", ".join(f"{counter.name} {_of(counter)}" for counter in device.counters)
    return ", ".join(device.taints) if device.state == "tainted" else device.problem


def _of(amount: Amount) -> str:
    return f"{amount.used} of {amount.of}"


def _holding(holder: Holding) -> str:
    """The claim, and the pods that use it."""
    users = ", ".join(holder.pods) or ("being bound" if holder.in_flight else "no pod")
    return f"{holder.claim} ({users})"


def sum_table(sums: Sequence[Sum], by: By, *, width: int) -> Iterator[str]:
    """A line for each sum. Columns in which there is nothing are left out."""
    shown = [state for state in STATES if state in _ALWAYS or any(_count(item.totals, state) for item in sums)]
    counts = ("devices", *(state for state in shown if by != "namespaces" or state in ("used", "shared")))
    fill = by != "namespaces"
    head = (_NAMED[by], *(name.upper() for name in counts), *(("FILL",) if fill else ()), "CLAIMS", "PODS")
    rows = [
        (
            item.name or NOBODY,
            *(str(getattr(item.totals, name)) for name in counts),
            *((f"{item.totals.fill:.0f}%",) if fill else ()),
            str(item.claims),
            str(item.pods),
        )
        for item in sums
    ]
    return table(head, rows, width=width, numbers=frozenset(range(1, len(head))))


def _count(totals: Totals, state: State) -> int:
    count: int = getattr(totals, state)
    return count


def summed(totals: Totals) -> str:
    """The totals in words."""
    parts = [f"{_count(totals, state)} {state}" for state in STATES if _count(totals, state)]
    return f"{counted(totals.devices, 'device')}: {', '.join(parts)}; {totals.fill:.0f}% taken"
