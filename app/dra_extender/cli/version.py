"""`dra-extender version`, and `dra-extender --version`."""

from __future__ import annotations

import typer

from dra_extender.version import VERSION


def version() -> None:
    """Print the version."""
    typer.echo(VERSION)


def print_if(asked: bool) -> None:
    """What `--version` does before a command is looked for."""
    if asked:
        version()
        raise typer.Exit
