"""The answers of `devices` and `top`: read the cluster, count, print. Loads the client and the compiler: import it when
needed.
"""

from __future__ import annotations

from typing import Literal

import msgspec
import typer

from app.api.errors import ApiError
from app.cli.censustables import device_table, painted, sum_table, summed
from app.cli.cluster import Snapshot
from app.cli.columns import is_coloured, terminal_width
from app.cli.complaint import complain, note
from app.cli.output import written
from app.cli.source import Source
from app.kube.credentials import CredentialsError
from app.scheduling.census.report import Census, State
from app.scheduling.census.taking import Asked, census
from app.scheduling.census.totals import By, sums

LISTED, EMPTY, FAILED = 0, 1, 2


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """Which devices, as the flags of the commands say it; nothing means all."""

    nodes: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    states: tuple[State, ...] = ()
    namespace: str = ""
    output: Literal["text", "wide", "json", "yaml"] = "text"
    source: Source = Source()

    def asked(self, snapshot: Snapshot) -> Asked:
        """Raises ValueError for what does not exist."""
        asked = Asked(
            nodes=frozenset(self.nodes),
            drivers=frozenset(self.drivers),
            classes=frozenset(self.classes),
            states=frozenset(self.states),
            namespaces=frozenset(filter(None, (self.namespace,))),
        )
        unknown = asked.unknown(snapshot.cluster)
        if unknown:
            raise ValueError(unknown)
        return asked


async def list_devices(question: Question) -> int:
    """Print the devices. The exit status."""
    found = await _counted(question)
    if found is None:
        return FAILED
    if question.output in ("json", "yaml"):
        typer.echo(written(found, question.output))
    elif found.devices:
        lines = device_table(
            found.devices, wide=question.output == "wide", width=terminal_width(), paint=painted(is_coloured())
        )
        typer.echo("\n".join(lines))
        typer.echo(summed(found.totals))
    return _ended(found)


async def add_up(question: Question, by: By) -> int:
    """Print the sums. The exit status."""
    found = await _counted(question)
    if found is None:
        return FAILED
    told = sums(found.devices, by)
    if question.output in ("json", "yaml"):
        typer.echo(written({by: told, "totals": found.totals}, question.output))
    elif told:
        typer.echo("\n".join(sum_table(told, by, width=terminal_width())))
        typer.echo(summed(found.totals))
    elif found.devices:
        complain("no claim holds any of these devices")
        return EMPTY
    return _ended(found)


def _ended(found: Census) -> int:
    if not found.devices:
        complain("there are no such devices")
    return LISTED if found.devices else EMPTY


async def _counted(question: Question) -> Census | None:
    """None when that cannot be answered, which is told."""
    try:
        snapshot = await question.source.read()
        asked = question.asked(snapshot)
    except (ApiError, CredentialsError, ValueError) as problem:
        complain(problem)
        return None
    note(snapshot.cluster.problems)
    return census(snapshot.view(), asked)
