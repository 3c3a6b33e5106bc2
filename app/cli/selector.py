"""`dra-extender selector`: which devices a CEL selector matches, and where and why it fails."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from app.cli.lines import answer_lines

if TYPE_CHECKING:
    from app.api.resource import ResourceSlice
    from app.cel.trial import Trial

MATCHED, UNMATCHED, FAILED = 0, 1, 2


def selector(
    expression: Annotated[str | None, typer.Argument(help="the CEL expression", show_default=False)] = None,
    slices: Annotated[
        str | None,
        typer.Option("--slice", metavar="FILE|-", help="ResourceSlices (YAML or JSON) instead of those of the cluster"),
    ] = None,
    batch: Annotated[
        bool, typer.Option("--batch", help="JSON lines in and out: name, expression, gates, device → name, result")
    ] = False,
    list_attributes: Annotated[bool, typer.Option(help="the gate DRAListTypeAttributes")] = False,
    kubeconfig: Annotated[str, typer.Option(help="kubeconfig file", show_default=False)] = "",
    context: Annotated[str, typer.Option(help="context of the kubeconfig", show_default=False)] = "",
) -> None:
    """Try a device selector on ResourceSlices.

    Exit status: 0 when a device matches, 1 when none does, 2 when the selector does not compile or fails for a device.
    """
    if batch:
        raise typer.Exit(_batch())
    if expression is None:
        raise typer.BadParameter("an expression is needed, or --batch", param_hint="EXPRESSION")
    raise typer.Exit(_single(expression, slices, list_attributes, kubeconfig, context))


def _batch() -> int:
    from app.cel.batch import answer

    def complain(name: str, problem: str) -> dict[str, Any]:
        return {"name": name, "result": "error", "message": problem}

    return 1 if answer_lines(sys.stdin.buffer, sys.stdout.buffer, answer, complain) else 0


def _single(expression: str, source: str | None, list_attributes: bool, kubeconfig: str, context: str) -> int:
    from app.api.decoding import DecodeError
    from app.cel import CelCompileError, CelGates, compile_selector
    from app.cel.trial import try_selector

    errors = Console(stderr=True)
    gates = CelGates(list_attributes=list_attributes)
    try:
        program = compile_selector(expression, gates)
    except CelCompileError as error:
        errors.print(f"[red]the selector does not compile:[/] {escape(str(error))}", highlight=False)
        return FAILED
    try:
        published = _read(source) if source else asyncio.run(_list(kubeconfig, context))
    except (DecodeError, OSError, yaml.YAMLError, ValueError) as error:
        errors.print(f"[red]the slices cannot be read:[/] {escape(str(error))}", highlight=False)
        return FAILED
    return _show(list(try_selector(program, published, gates)))


def _read(source: str) -> list[ResourceSlice]:
    """All ResourceSlices of a file: several documents, and lists of objects, are fine."""
    from app.api.decoding import convert
    from app.api.resource import ResourceSlice

    text = sys.stdin.read() if source == "-" else Path(source).read_text()
    objects: list[Any] = []
    for document in yaml.safe_load_all(text):
        if isinstance(document, dict) and isinstance(document.get("items"), list):
            objects.extend(document["items"])
        elif document is not None:
            objects.append(document)
    found = [item for item in objects if isinstance(item, dict) and item.get("kind") == "ResourceSlice"]
    if not found:
        raise ValueError(f"{source}: there is no object of kind ResourceSlice in it")
    return [convert(ResourceSlice, item) for item in found]


async def _list(kubeconfig: str, context: str) -> list[ResourceSlice]:
    from app.cli.cluster import list_slices

    return await list_slices(kubeconfig, context)


def _show(trials: list[Trial]) -> int:
    table = Table("DRIVER", "POOL", "DEVICE", "MATCHES", "WHY NOT", box=None, header_style="bold", pad_edge=False)
    words = {True: "[green]yes[/]", False: "no", None: "[red]error[/]"}
    for trial in trials:
        table.add_row(*trial.device, words[trial.matches], escape(trial.problem))
    console = Console()
    console.print(table)
    counts = Counter(trial.matches for trial in trials)
    console.print(f"{counts[True]} of {len(trials)} devices match, {counts[None]} errors", highlight=False)
    if counts[None]:
        return FAILED
    return MATCHED if counts[True] else UNMATCHED
