"""The answer of `selector`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import typer

from dra_extender.api.features import FeatureGates
from dra_extender.api.resource import ResourceSlice
from dra_extender.cel import CelCompileError, CelGates, Programs
from dra_extender.cel.trial import DeviceMatch, batch_answer, try_selector
from dra_extender.cli.answers.answer import answered, unanswerable
from dra_extender.cli.cluster import read_slices
from dra_extender.cli.output import FAILED, NO, YES, UnanswerableError, table, terminal_width
from dra_extender.cli.questions import SelectorOptions
from dra_extender.cli.scenarios import answer_lines
from dra_extender.insight.manifests import decoded, objects
from dra_extender.plaintext import counted, printable

_WORDS: Final = {True: "yes", False: "no", None: "error"}
_PAINT: Final = ("MATCHES", {"yes": typer.colors.GREEN, "error": typer.colors.RED})


async def answer(given: SelectorOptions) -> int:
    if given.batch:
        return _batch()
    if given.expression is None:
        raise typer.BadParameter("give an expression, or --batch", param_hint="EXPRESSION")
    with unanswerable():
        published, release = (_slices_of(given.slices), None) if given.slices else await read_slices(given)
        features = FeatureGates.parse(given.feature_gates, release)
    gates = CelGates(features.DRAListTypeAttributes, is_1_37=features.is_1_37)
    programs = Programs()
    try:
        program = programs.compile(given.expression, gates)
    except CelCompileError as error:
        raise UnanswerableError(f"the selector does not compile: {error}") from None
    trials = list(try_selector(program, published, programs))
    counts = Counter(trial.matches for trial in trials)
    status = FAILED if counts[None] else YES if counts[True] else NO
    typer.echo(answered({"devices": trials}, given.output, lambda: "\n".join(_lines(trials, counts))))
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


def _lines(trials: Sequence[DeviceMatch], counts: Counter[bool | None]) -> Iterator[str]:
    if trials:
        head = ("DRIVER", "POOL", "DEVICE", "MATCHES", "WHY NOT")
        rows = [(each.driver, each.pool, each.device, _WORDS[each.matches], each.problem) for each in trials]
        yield from table(head, rows, width=terminal_width(), paint=_PAINT)
    for place, count in Counter(trial.place for trial in trials if trial.place).items():
        yield f"It fails for {counted(count, 'device')} here:"
        yield from map(printable, place.splitlines())
    devices = f"{counts[True]} of {counted(len(trials), 'device')} {'matches' if len(trials) == 1 else 'match'}"
    yield f"{devices}, {counted(counts[None], 'error')}"
