"""A selector tried on ResourceSlices, as a table. Loads the compiler and the client: import it when needed."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from app.api.decoding import DecodeError, convert
from app.api.resource import ResourceSlice
from app.cel import CelCompileError, CelGates, compile_selector
from app.cel.trial import Trial, try_selector
from app.cli.cluster import list_slices
from app.plurals import counted

MATCHED, UNMATCHED, FAILED = 0, 1, 2


def show_trials(expression: str, source: str | None, list_attributes: bool, kubeconfig: str, context: str) -> int:
    """Try the selector on the slices of a file, or of the cluster without `source`. Returns the exit status."""
    errors = Console(stderr=True, soft_wrap=True)
    gates = CelGates(list_attributes=list_attributes)
    try:
        program = compile_selector(expression, gates)
    except CelCompileError as error:
        errors.print(f"[red]the selector does not compile:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        return FAILED
    try:
        published = _read(source) if source else asyncio.run(list_slices(kubeconfig, context))
    except (DecodeError, OSError, yaml.YAMLError, ValueError) as error:
        errors.print(f"[red]the slices cannot be read:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        return FAILED
    return _show(list(try_selector(program, published, gates)))


def _read(source: str) -> list[ResourceSlice]:
    """All ResourceSlices of a file: several documents, and lists of objects, are fine."""
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


def _show(trials: list[Trial]) -> int:
    table = Table("DRIVER", "POOL", "DEVICE", "MATCHES", "WHY NOT", box=None, header_style="bold", pad_edge=False)
    words = {True: "[green]yes[/]", False: "no", None: "[red]error[/]"}
    for trial in trials:
        table.add_row(*trial.device, words[trial.matches], escape(trial.problem))
    console = Console()
    console.print(table)
    counts = Counter(trial.matches for trial in trials)
    devices = f"{counts[True]} of {counted(len(trials), 'device')} {'matches' if len(trials) == 1 else 'match'}"
    console.print(f"{devices}, {counted(counts[None], 'error')}", highlight=False)
    if counts[None]:
        return FAILED
    return MATCHED if counts[True] else UNMATCHED
