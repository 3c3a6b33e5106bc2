"""The answers of `devices`, `top`, `audit` and `selector`, and their tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import typer

from dra_extender.api.features import FeatureGates
from dra_extender.api.resource import ResourceSlice
from dra_extender.cel import CelCompileError, CelGates, Programs
from dra_extender.cel.trial import DeviceMatch, batch_answer, try_selector
from dra_extender.cli.answers.answer import answered, printed, unanswerable
from dra_extender.cli.cluster import read, view_of
from dra_extender.cli.output import FAILED, NO, YES, UnanswerableError, note, table, terminal_width
from dra_extender.cli.questions import AuditOptions, DevicesOptions, SelectorOptions, Source, TopOptions
from dra_extender.cli.scenarios import answer_lines
from dra_extender.devices.cluster import Cluster
from dra_extender.insight.devicereport.listing import DeviceQuery, reporting
from dra_extender.insight.devicereport.report import (
    STATES,
    Amount,
    By,
    CountedDevice,
    DeviceReport,
    DeviceTotals,
    Holding,
    Sum,
    partition_lines,
    sums,
)
from dra_extender.insight.manifests import decoded, objects
from dra_extender.plaintext import counted, printable, wrapped
from dra_extender.scheduling.turns import run_at_once

NONE: Final = "-"
_HEAD: Final = ("NODE", "DRIVER", "DEVICE", "STATE", "DETAILS")
_WIDE: Final = ("NODE", "DRIVER", "POOL", "DEVICE", "STATE", "FILL", "CLASSES", "TAINTS", "COUNTERS", "DETAILS")
_NAMED: Final[Mapping[By, str]] = {
    "nodes": "NODE", "drivers": "DRIVER", "classes": "CLASS", "namespaces": "NAMESPACE"
}  # fmt: skip
_ALWAYS: Final = ("free", "used")
_PAINT: Final = ("STATE", {
    "free": typer.colors.GREEN, "shared": typer.colors.CYAN, "blocked": typer.colors.YELLOW,
    "tainted": typer.colors.YELLOW, "unusable": typer.colors.RED,
})  # fmt: skip
_WORDS: Final = {True: "yes", False: "no", None: "error"}
_ANSWERS: Final = ("MATCHES", {"yes": typer.colors.GREEN, "error": typer.colors.RED})


async def list_devices(given: DevicesOptions) -> int:
    wanted = msgspec.convert({**_filter(given), "states": given.state or ()}, DeviceQuery)
    cluster, found = await _report(given, wanted)
    text = answered(found, given.output, lambda: _listed(found, wide=given.output == "wide"))
    return printed(text, YES if found.devices else NO, cluster, "" if found.devices else _no_devices(wanted))


async def sum_devices(given: TopOptions) -> int:
    wanted = msgspec.convert(_filter(given), DeviceQuery)
    cluster, found = await _report(given, wanted)
    added = sums(found.devices, given.by)

    def text() -> str:
        lines = sum_table(added, given.by, width=terminal_width()) if added else ()
        return "\n".join([*lines, summed(found.totals)]) if added else ""

    answer = answered({given.by: added, "totals": found.totals}, given.output, text)
    complaint = "no claim holds any of these devices" if found.devices else _no_devices(wanted)
    return printed(answer, YES if added else NO, cluster, "" if added else complaint)


def _filter(given: DevicesOptions | TopOptions) -> dict[str, object]:
    return {
        "nodes": given.node or (),
        "drivers": given.driver or (),
        "classes": given.device_class or (),
        "namespaces": [given.namespace] if given.namespace else (),
    }


async def _report(given: Source, wanted: DeviceQuery) -> tuple[Cluster, DeviceReport]:
    """Raises UnanswerableError, also for a node, driver or class that does not exist."""
    with unanswerable():
        cluster = await read(given)
        wanted.check(cluster)
    return cluster, run_at_once(reporting(view_of(cluster), wanted))


def _no_devices(wanted: DeviceQuery) -> str:
    if wanted != DeviceQuery():
        return "no device matches"
    return "there are no devices: no driver has published a ResourceSlice with devices"


def _listed(found: DeviceReport, *, wide: bool) -> str:
    if not found.devices:
        return ""
    lines = device_table(found.devices, wide=wide, width=terminal_width())
    return "\n".join([*lines, summed(found.totals), *partition_lines(found.partitions)])


async def audit(given: AuditOptions) -> int:
    with unanswerable():
        cluster = await read(given)
    ledger = cluster.ledger
    found = ledger.violations()
    allocated = sum(1 for claim in ledger.claims() if claim.allocation is not None)
    report = {"violations": found, "allocatedClaims": allocated}
    lines = [f"{each.kind} {each.subject}: {each.detail}; claims: {', '.join(each.claims)}" for each in found]
    lines.append(f"{counted(allocated, 'allocated claim')}, {counted(len(found), 'violation')}")
    text = answered(report, given.output, lambda: wrapped(lines, terminal_width()))
    return printed(text, NO if found else YES, cluster)


def device_table(devices: Sequence[CountedDevice], *, wide: bool, width: int) -> Iterator[str]:
    rows = [_wide_row(device) if wide else _row(device) for device in devices]
    return table(_WIDE if wide else _HEAD, rows, width=width, paint=_PAINT)


def _row(device: CountedDevice) -> tuple[str, ...]:
    name = device.name if device.pool == device.node else f"{device.pool}/{device.name}"
    return device.node or NONE, device.driver, name, device.state, details(device)


def _wide_row(device: CountedDevice) -> tuple[str, ...]:
    classes, taints = ",".join(device.classes), ",".join(device.taints)
    counters = ",".join(f"{counter.name}={counter.used}/{counter.of}" for counter in device.counters)
    return (
        device.node or NONE, device.driver, device.pool, device.name, device.state, f"{device.fill:.0f}%",
        classes or NONE, taints or NONE, counters or NONE, details(device),
    )  # fmt: skip


def details(device: CountedDevice) -> str:
    """What explains the state: the claims that hold the device, or why it cannot be allocated."""
    if device.state in ("used", "shared"):
        amounts = [f"{amount.name} {_of(amount)}" for amount in device.capacity]
        more = [f"{device.more_holders} more"] if device.more_holders else []
        held = ", ".join([*map(_holding, device.holders), *more])
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
    shown = [state for state in STATES if state in _ALWAYS or any(getattr(item.totals, state) for item in sums)]
    counts = ("devices", *(state for state in shown if by != "namespaces" or state in ("used", "shared")))
    fill = by != "namespaces"
    head = (_NAMED[by], *(name.upper() for name in counts), *(("FILL",) if fill else ()), "CLAIMS", "PODS")
    rows = [
        (
            item.name or NONE,
            *(str(getattr(item.totals, name)) for name in counts),
            *((f"{item.totals.fill:.0f}%",) if fill else ()),
            str(item.claims),
            str(item.pods),
        )
        for item in sums
    ]
    return table(head, rows, width=width, numbers=frozenset(range(1, len(head))))


def summed(totals: DeviceTotals) -> str:
    parts = [f"{number} {state}" for state in STATES if (number := getattr(totals, state))]
    return f"{counted(totals.devices, 'device')}: {', '.join(parts)}; {totals.fill:.0f}% taken"


async def try_selector_on_devices(given: SelectorOptions) -> int:
    if given.batch:
        return _batch()
    if given.expression is None:
        raise typer.BadParameter("give an expression, or --batch", param_hint="EXPRESSION")
    with unanswerable():
        if given.slices:
            published, features = _slices_of(given.slices), FeatureGates.parse(given.feature_gates)
        else:
            cluster = await read(given, only="resourceslices")
            published, features = list(cluster.inventory.slices()), cluster.features
            note(cluster.problems)
    gates = CelGates(features.DRAListTypeAttributes, is_1_37=features.is_1_37)
    programs = Programs()
    try:
        program = programs.compile(given.expression, gates)
    except CelCompileError as error:
        raise UnanswerableError(f"the selector does not compile: {error}") from None
    trials = list(try_selector(program, published, programs))
    counts = Counter(trial.matches for trial in trials)
    status = FAILED if counts[None] else YES if counts[True] else NO
    typer.echo(answered({"devices": trials}, given.output, lambda: "\n".join(_tried(trials, counts))))
    return status


def _batch() -> int:
    """Fails only for lines that are not valid, not for selectors."""
    programs, refused = Programs(), list[str]()

    def refuse(name: str, problem: str) -> dict[str, Any]:
        refused.append(name)
        return {"name": name, "result": "error", "message": problem}

    for _ in answer_lines(lambda case: batch_answer(case, programs), refuse):
        pass
    return FAILED if refused else YES


def _slices_of(file: str) -> list[ResourceSlice]:
    """All ResourceSlices of a file. Raises ValueError."""
    found = [decoded(item) for item in objects(file) if item.get("kind") == "ResourceSlice"]
    if not found:
        raise ValueError(f"{file} contains no object of kind ResourceSlice")
    return found


def _tried(trials: Sequence[DeviceMatch], counts: Counter[bool | None]) -> Iterator[str]:
    if trials:
        head = ("DRIVER", "POOL", "DEVICE", "MATCHES", "WHY NOT")
        rows = [(each.driver, each.pool, each.device, _WORDS[each.matches], each.problem) for each in trials]
        yield from table(head, rows, width=terminal_width(), paint=_ANSWERS)
    for place, count in Counter(trial.place for trial in trials if trial.place).items():
        yield f"It fails for {counted(count, 'device')} here:"
        yield from map(printable, place.splitlines())
    devices = f"{counts[True]} of {counted(len(trials), 'device')} {'matches' if len(trials) == 1 else 'match'}"
    yield f"{devices}, {counted(counts[None], 'error')}"
