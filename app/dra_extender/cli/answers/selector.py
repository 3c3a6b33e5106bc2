"""The answer of `selector`: try it on ResourceSlices, and say it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
import typer
import yaml

from dra_extender.api.decoding import convert
from dra_extender.api.resource import ResourceSlice
from dra_extender.cel import CelCompileError, CelGates, Programs
from dra_extender.cel.trial import DeviceMatch, try_selector
from dra_extender.cli.answers.answer import UnanswerableError, answered, judging
from dra_extender.cli.answers.asking import complaining
from dra_extender.cli.answers.drafts import text_of
from dra_extender.cli.cluster import read_slices
from dra_extender.cli.colours import is_coloured
from dra_extender.cli.columns import table, terminal_width
from dra_extender.cli.options import Form
from dra_extender.cli.source import Source
from dra_extender.cli.statuses import FAILED, NO, YES
from dra_extender.plurals import counted

_WORDS: Final = {True: "yes", False: "no", None: "error"}
_COLOURS: Final = {"yes": typer.colors.GREEN, "error": typer.colors.RED}


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked, as the flags of the command say it. `slices`: a file with them."""

    expression: str
    slices: str = ""
    list_attributes: bool = False
    output: Form = "text"
    source: Source = Source()


class Told(msgspec.Struct, frozen=True, omit_defaults=True):
    """One device. `matches` is null when the selector fails for it; `place` is where."""

    driver: str
    pool: str
    device: str
    matches: bool | None
    problem: str = ""
    place: str = ""


@complaining
async def answer(question: Question) -> int:
    """Print which devices match. The exit status."""
    gates, programs = CelGates(list_attributes=question.list_attributes), Programs()
    try:
        program = programs.compile(question.expression, gates)
    except CelCompileError as error:
        raise UnanswerableError(f"the selector does not compile: {error}") from None
    with judging():
        published = _written(question.slices) if question.slices else await read_slices(question.source)
    trials = list(try_selector(program, published, programs))
    counts = Counter(trial.matches for trial in trials)
    status = FAILED if counts[None] else YES if counts[True] else NO
    told = [Told(*trial.device, trial.matches, trial.problem, trial.place) for trial in trials]
    found = answered({"devices": told}, question.output, lambda: "\n".join(_lines(trials, counts)), status)
    typer.echo(found.text)
    return found.status


def _written(file: str) -> list[ResourceSlice]:
    """All ResourceSlices of a file: several documents, and lists of objects, are fine. Raises ValueError."""
    objects: list[Any] = []
    for document in yaml.safe_load_all(text_of(file)):
        if isinstance(document, dict) and isinstance(document.get("items"), list):
            objects.extend(document["items"])
        elif document is not None:
            objects.append(document)
    found = [item for item in objects if isinstance(item, dict) and item.get("kind") == "ResourceSlice"]
    if not found:
        raise ValueError(f"{file}: there is no object of kind ResourceSlice in it")
    return [convert(ResourceSlice, item) for item in found]


def _lines(trials: Sequence[DeviceMatch], counts: Counter[bool | None]) -> Iterator[str]:
    if trials:
        head = ("DRIVER", "POOL", "DEVICE", "MATCHES", "WHY NOT")
        rows = [(*trial.device, _WORDS[trial.matches], trial.problem) for trial in trials]
        yield from table(head, rows, width=terminal_width(), paint=_paint)
    for place, count in Counter(trial.place for trial in trials if trial.place).items():
        yield f"It fails for {counted(count, 'device')} here:"
        yield place
    devices = f"{counts[True]} of {counted(len(trials), 'device')} {'matches' if len(trials) == 1 else 'match'}"
    yield f"{devices}, {counted(counts[None], 'error')}"


def _paint(column: int, cell: str) -> str:
    colour = _COLOURS.get(cell.strip()) if column == 3 and is_coloured(sys.stdout) else None
    return typer.style(cell, fg=colour) if colour else cell
