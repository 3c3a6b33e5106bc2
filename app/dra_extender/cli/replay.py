"""`dra-extender replay FILE QUESTION …`: the questions of the other commands, asked of a file that `snapshot` wrote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Annotated, Final

import typer
from typer.core import TyperGroup

from dra_extender.cli import options
from dra_extender.cli.complaint import complain
from dra_extender.cli.statuses import FAILED, YES


def replay(questions: Mapping[str, Callable[..., None]], unlisted: Container[str] = ()) -> typer.Typer:
    """The command with its questions, each a command that takes `--from`. Help does not list those `unlisted`."""
    group = typer.Typer(
        invoke_without_command=True,
        no_args_is_help=True,
        subcommand_metavar="[QUESTION …]",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    group.callback()(_replay)
    for name, command in questions.items():
        group.command(name, hidden=name in unlisted)(command)
    return group


def _remember(ctx: typer.Context, file: Path) -> Path:
    """The questions get the file for `--from`, also while a shell asks what may follow: names are offered from it."""
    if isinstance(ctx.command, TyperGroup):
        ctx.default_map = {name: {options.FROM: str(file)} for name in ctx.command.commands}
    return file


def _replay(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="a file that snapshot wrote", callback=_remember)],
) -> None:
    """Ask a file that snapshot wrote what you would ask the cluster.

    `replay FILE why POD`, `replay FILE devices --free` and so on are the commands of these names with `--from FILE`.
    Without a question it says what is in the file.

    Exit status: that of the question; without one 0, or 2 when the file cannot be used.
    """
    if ctx.invoked_subcommand is None:
        raise typer.Exit(_described(file, ctx.command_path))


def _described(file: Path, command: str) -> int:
    from dra_extender.cli.cluster import stored
    from dra_extender.cli.source import Source
    from dra_extender.plurals import counted

    try:
        found = stored(Source(file=str(file)))
    except ValueError as problem:
        complain(problem)
        return FAILED
    typer.echo(f"{file}: taken {found.taken or 'at an unknown time'} by {found.made_by or 'somebody'}")
    for plural, items in found.objects.items():
        if items:
            typer.echo(f"  {counted(len(items), *_NOUNS.get(plural, (plural.removesuffix('s'), plural)))}")
    for kind, count in Counter(item.kind for item in found.unreadable).items():
        typer.echo(f"  {counted(count, 'object')} of kind {kind} that cannot be read")
    typer.echo(f"Ask it, for example: {command} {file} top nodes")
    return YES


_NOUNS: Final[Mapping[str, tuple[str, str]]] = {
    "deviceclasses": ("device class", "device classes"),
    "resourceslices": ("resource slice", "resource slices"),
    "resourceclaims": ("resource claim", "resource claims"),
    "devicetaintrules": ("device taint rule", "device taint rules"),
    "poddisruptionbudgets": ("pod disruption budget", "pod disruption budgets"),
}
