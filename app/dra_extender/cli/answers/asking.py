"""How a command answers: the cluster is read, the answer is printed, and how it came out is the exit status.

Promises: standard output has answers alone; what is wrong goes to standard error. Exit statuses: `YES`, `NO`, and
`FAILED` for a question that cannot be answered.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

import typer

from dra_extender.cli.answers.answer import Answering, UnanswerableError, judging
from dra_extender.cli.answers.watching import follow
from dra_extender.cli.cluster import read
from dra_extender.cli.complaint import complain, note
from dra_extender.cli.source import Source
from dra_extender.cli.statuses import FAILED

Asked = ParamSpec("Asked")


def complaining(answer: Callable[Asked, Coroutine[Any, Any, int]]) -> Callable[Asked, Coroutine[Any, Any, int]]:
    """For what answers a question: one that cannot be answered is a complaint, and a status of its own."""

    @functools.wraps(answer)
    async def answering(*asked: Asked.args, **more: Asked.kwargs) -> int:
        try:
            return await answer(*asked, **more)
        except UnanswerableError as problem:
            complain(problem)
            return FAILED

    return answering


async def ask(source: Source, answering: Answering, *, evictions: bool = False, watch: bool = False) -> int:
    """Print the answer, or with `watch` each one that is another than before. `evictions`: as for `read`. The exit
    status. Raises UnanswerableError.
    """
    if watch:
        return await follow(source, answering, evictions=evictions)
    with judging():
        snapshot = await read(source, evictions=evictions)
    found = answering(snapshot)
    if found.text:
        typer.echo(found.text)
    if found.complaint:
        complain(found.complaint)
    note(snapshot.cluster.problems)
    return found.status
