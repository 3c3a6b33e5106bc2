"""`dra-extender version`."""

from __future__ import annotations

import typer

from app.version import VERSION


def version() -> None:
    """Print the version."""
    typer.echo(VERSION)
