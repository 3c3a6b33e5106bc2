"""How a command answers: read the cluster, compute the answer, print it, and return the exit status.

Promises: standard output has the answer alone; problems go to standard error. The exit status is `YES`, `NO`, or
`FAILED` if there is no answer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Literal, ParamSpec

import msgspec
import yaml

from dra_extender.api.errors import FORBIDDEN, ApiError
from dra_extender.cli.cluster import Snapshot
from dra_extender.cli.options import Form
from dra_extender.cli.output import FAILED, complain
from dra_extender.insight.manifests import text_of
from dra_extender.kube.credentials import CredentialsError
from dra_extender.plaintext import printable

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


Given = ParamSpec("Given")


def complaining(answer: Callable[Given, Coroutine[Any, Any, int]]) -> Callable[Given, Coroutine[Any, Any, int]]:
    """Print an UnanswerableError on standard error, and return `FAILED`."""

    @functools.wraps(answer)
    async def answering(*given: Given.args, **more: Given.kwargs) -> int:
        try:
            return await answer(*given, **more)
        except UnanswerableError as problem:
            complain(problem)
            return FAILED

    return answering
