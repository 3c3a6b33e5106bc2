"""`dra-extender replay FILE COMMAND …`: the other commands, answered from a file that `snapshot` wrote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Annotated, Final

import typer
from typer.core import TyperGroup

from dra_extender.cli.output import FAILED, YES, complain
from dra_extender.cli.source import FROM


def replay(questions: Mapping[str, Callable[..., None]], unlisted: Container[str] = ()) -> typer.Typer:
    """The command with its subcommands, each of which takes `--from`. The help omits those in `unlisted`."""
    group = typer.Typer(
        invoke_without_command=True,
        no_args_is_help=True,
        subcommand_metavar="[COMMAND …]",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    group.callback()(_replay)
    for name, command in questions.items():
        group.command(name, hidden=name in unlisted)(command)
    return group


def _remember(ctx: typer.Context, file: Path) -> Path:
    """Make the file the default of `--from`, also while a shell completes a word: then the names come from the file."""
    if isinstance(ctx.command, TyperGroup):
        ctx.default_map = {name: {FROM: str(file)} for name in ctx.command.commands}
    return file


def _replay(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="a file that snapshot wrote", callback=_remember)],
) -> None:
    """Answer from a file that snapshot wrote instead of from a cluster.

    `replay FILE why POD`, `replay FILE devices --free` and so on run the command of that name with `--from FILE`.
    Without a command it prints what the file contains.

    Exit status: the status of the command; without a command 0, or 2 if the file cannot be used.
    """
    if ctx.invoked_subcommand is None:
        raise typer.Exit(_described(file, ctx.command_path))


def _described(file: Path, command: str) -> int:
    from dra_extender.cli.cluster import stored
    from dra_extender.cli.source import Source
    from dra_extender.plaintext import wrapped
    from dra_extender.plurals import counted

    try:
        found = stored(Source(from_file=str(file)))
    except ValueError as problem:
        complain(problem)
        return FAILED
    lines = [f"{file}: taken {found.taken or 'at an unknown time'} by {found.made_by or 'an unknown program'}"]
    for plural, items in found.objects.items():
        if items:
            lines.append(f"  {counted(len(items), *_NOUNS.get(plural, (plural.removesuffix('s'), plural)))}")
    for kind, count in Counter(item.kind for item in found.unreadable).items():
        lines.append(f"  {counted(count, 'object')} of kind {kind} that cannot be read")
    typer.echo(wrapped([*lines, f"For example: {command} {file} top nodes"], 0))
    return YES


_NOUNS: Final[Mapping[str, tuple[str, str]]] = {
    "deviceclasses": ("device class", "device classes"),
    "resourceslices": ("resource slice", "resource slices"),
    "resourceclaims": ("resource claim", "resource claims"),
    "devicetaintrules": ("device taint rule", "device taint rules"),
    "poddisruptionbudgets": ("pod disruption budget", "pod disruption budgets"),
}
