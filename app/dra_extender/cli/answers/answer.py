"""How a command answers: read the cluster, compute the answer, print it, and return the exit status.

Promises: standard output has the answer alone; problems go to standard error. The exit status is `YES`, `NO`, or
`FAILED` without an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import msgspec
import typer
import yaml

from dra_extender.api.errors import FORBIDDEN, ApiError
from dra_extender.cli.output import UnanswerableError, complain, note
from dra_extender.cli.questions import Form
from dra_extender.devices.cluster import Cluster
from dra_extender.kube.credentials import CredentialsError
from dra_extender.plaintext import printable

_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
"""The fast one if PyYAML has it: the device report of a large cluster has hundreds of thousands of lines."""


class ForbiddenError(UnanswerableError):
    """The API server refuses what the command has to read."""


def answered(found: object, form: Form | Literal["wide"], text: Callable[[], str]) -> str:
    """The answer in the requested form: the struct as JSON or YAML, or its text."""
    if form == "json":
        lines = msgspec.json.format(msgspec.json.encode(found)).decode().split("\n")
        return "\n".join(map(printable, lines))
    if form == "yaml":
        data = msgspec.json.encode(found)
        as_is = data.decode().isprintable()  # no escape sequence of YAML is needed
        dumped = str(yaml.dump(msgspec.json.decode(data), Dumper=_DUMPER, sort_keys=False, allow_unicode=as_is))
        return dumped.rstrip()
    return text()


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


def printed(text: str, status: int, cluster: Cluster, complaint: str = "") -> int:
    """Print the answer; on standard error the complaint, and what is wrong with objects of the cluster. Returns the
    exit status.
    """
    if text:
        typer.echo(text)
    if complaint:
        complain(complaint)
    note(cluster.problems)
    return status
