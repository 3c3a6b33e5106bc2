"""How a command answers: read the cluster, compute the answer, print it, and return the exit status.

Promises: standard output has the answer alone; problems go to standard error. The exit status is `YES`, `NO`, or
`FAILED` if there is no answer.

`--watch` lists once and then watches, as the service does. It answers at most once in `PAUSE` seconds, and only after a
change. A terminal is redrawn; elsewhere answers are printed one after the other. Ctrl-C ends it with the exit status of
the last answer.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from datetime import datetime
from typing import Any, Final, Literal, TypeVar

import msgspec
import typer
import yaml

from dra_extender.api.errors import FORBIDDEN, ApiError
from dra_extender.api.events import ClusterEvent
from dra_extender.api.features import FeatureGates, release_of
from dra_extender.cli.cluster import Snapshot, connected, read
from dra_extender.cli.output import FAILED, complain, is_coloured, note
from dra_extender.cli.questions import Form
from dra_extender.cli.source import Source
from dra_extender.devices.cluster import Cluster
from dra_extender.insight.manifests import text_of
from dra_extender.kube.credentials import CredentialsError
from dra_extender.kube.reflector import Progress, Watches
from dra_extender.plaintext import printable
from dra_extender.service import logs

_CLEAR: Final = "\x1b[H\x1b[2J"
PAUSE: Final = 1.0
"""Seconds between two answers, at least."""
GAP: Final = 5.0
"""Seconds without a working watch until that is printed."""

_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
"""The fast one if PyYAML has it: the device report of a large cluster has hundreds of thousands of lines."""


class Answer(msgspec.Struct, frozen=True):
    """`text` is for standard output, `complaint` for standard error; both may be empty. `between`: a line between this
    answer and the previous one, with `--watch`.
    """

    text: str
    status: int
    complaint: str = ""
    between: str = ""


class UnanswerableError(Exception):
    """Why the command has no answer: an object does not exist, or the API server does not answer."""


class ForbiddenError(UnanswerableError):
    """The API server refuses what the command has to read."""


Answering = Callable[[Snapshot], Answer]
"""Raises UnanswerableError."""


def answered(found: object, form: Form | Literal["wide"], text: Callable[[], str], status: int) -> Answer:
    """The answer in the requested form: the struct as JSON or YAML, or its text."""
    if form == "json":
        lines = msgspec.json.format(msgspec.json.encode(found)).decode().split("\n")
        return Answer("\n".join(map(printable, lines)), status)
    if form == "yaml":
        data = msgspec.json.encode(found)
        as_is = data.decode().isprintable()  # no escape sequence of YAML is needed
        dumped = str(yaml.dump(msgspec.json.decode(data), Dumper=_DUMPER, sort_keys=False, allow_unicode=as_is))
        return Answer(dumped.rstrip(), status, between="---")
    return Answer(text(), status, between=" ")


@contextmanager
def unanswerable() -> Iterator[None]:
    """Raise UnanswerableError for an invalid request, and for an API server that does not answer."""
    try:
        yield
    except OSError as problem:
        raise UnanswerableError(f"{problem.filename}: {problem.strerror}" if problem.filename else problem) from None
    except (ApiError, CredentialsError, ValueError) as problem:
        forbidden = isinstance(problem, ApiError) and problem.status == FORBIDDEN
        raise (ForbiddenError if forbidden else UnanswerableError)(str(problem)) from None


def text_of_option(filename: str) -> str:
    """The text of the file that an option names; empty without a name. Raises UnanswerableError."""
    with unanswerable():
        return text_of(filename) if filename else ""


Options = TypeVar("Options", bound=Source)


def complaining(answer: Callable[[Options], Coroutine[Any, Any, int]]) -> Callable[[Options], Coroutine[Any, Any, int]]:
    """Print an UnanswerableError on standard error, and return `FAILED`."""

    async def answering(given: Options) -> int:
        try:
            return await answer(given)
        except UnanswerableError as problem:
            complain(problem)
            return FAILED

    return answering


# --- once, or until Ctrl-C --------------------------------------------------------------------------------------------


async def ask(source: Source, answering: Answering, *, evictions: bool = False, watch: bool = False) -> int:
    """Print the answer, or with `watch` each answer that differs from the previous one. `evictions`: as for `read`.
    Returns the exit status. Raises UnanswerableError.
    """
    if watch:
        return await follow(source, answering, evictions=evictions)
    with unanswerable():
        snapshot = await read(source, evictions=evictions)
    found = answering(snapshot)
    if found.text:
        typer.echo(found.text)
    if found.complaint:
        complain(found.complaint)
    note(snapshot.cluster.problems)
    return found.status


async def follow(source: Source, answering: Answering, *, evictions: bool = False) -> int:
    """Print answers until cancelled. Returns the exit status. Raises UnanswerableError without a first answer."""
    if source.from_file:
        raise UnanswerableError("--watch needs a cluster: the file of --from does not change")
    logs.configure("error")
    async with AsyncExitStack() as stack:
        with unanswerable():
            client, served = await stack.enter_async_context(connected(source))
            cluster = Cluster(FeatureGates.parse(source.feature_gates, release_of(served.server_version)))
        changed = asyncio.Event()

        def apply(event: ClusterEvent) -> None:
            cluster.apply(event)
            changed.set()

        watches = Watches(client, served, apply, budgets=evictions, on_synced=changed.set)
        watching = asyncio.create_task(watches.run())
        watching.add_done_callback(lambda _: changed.set())
        screen = Screen(Snapshot(cluster))
        try:
            while True:
                with suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), GAP if watches.synced else PAUSE)
                if watching.done():
                    raise UnanswerableError("the API server was set back to an older state: start again")
                trouble = _trouble(watches.progress())
                if watches.synced:
                    screen.show(answering if changed.is_set() else None, trouble)
                elif trouble:
                    raise UnanswerableError(trouble)
                changed.clear()
                await asyncio.sleep(PAUSE if watches.synced else 0)
        except asyncio.CancelledError:  # by Ctrl-C
            return screen.status
        finally:
            watching.cancel()
            await asyncio.wait([watching])


def _trouble(kinds: Sequence[Progress]) -> str:
    """Why the state may be outdated."""
    for kind in kinds:
        if kind.problem and not kind.optional and (not kind.synced or kind.behind > GAP):
            return f"{kind.kind} objects cannot be watched: {kind.problem}"
    return ""


class Screen:
    """Prints answers about a cluster that changes. `status` has the exit status of the last answer."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.status = FAILED
        self._snapshot = snapshot
        self._terminal = sys.stdout.isatty()
        self._found: Answer | None = None
        self._trouble = ""

    def show(self, answering: Answering | None, trouble: str) -> None:
        """Print the answer if it is another one. None: nothing has changed but perhaps the `trouble`."""
        found, before = self._found, self._found
        if answering is not None:
            found = self._answer(answering)
        if found is None or (found, trouble) == (before, self._trouble):
            return
        self._found, self._trouble, self.status = found, trouble, found.status
        if self._terminal:
            typer.echo(_CLEAR, nl=False)
        elif found.between and before is not None:
            typer.echo(found.between)
        if found.text:
            typer.echo(_cut(found.text) if self._terminal else found.text)
        for problem in filter(None, (found.complaint, trouble)):
            complain(problem)
        if self._terminal:
            footer = f"{datetime.now():%H:%M:%S}  watching; Ctrl-C ends"
            typer.secho(footer, dim=True, color=is_coloured(sys.stdout))
        else:
            note(self._snapshot.cluster.problems)

    def _answer(self, answering: Answering) -> Answer:
        """The object of the request has to exist at first; it may be deleted and created again later."""
        try:
            return answering(self._snapshot)
        except UnanswerableError as problem:
            if self._found is None:
                raise
            return Answer("", FAILED, str(problem))


def _cut(text: str) -> str:
    """The lines that fit the terminal, without those of the footer."""
    lines, room = text.splitlines(), shutil.get_terminal_size().lines - 3
    if len(lines) <= room:
        return text
    return "\n".join([*lines[: room - 1], f"… {len(lines) - room + 1} more lines"])
