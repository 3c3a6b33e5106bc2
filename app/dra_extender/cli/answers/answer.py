"""What a command says, and why it cannot: made of a cluster that was read, printed by `asking` and `watching`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import yaml

from dra_extender.api.errors import ApiError
from dra_extender.cli.answers.drafts import text_of
from dra_extender.cli.answers.output import written
from dra_extender.cli.cluster import Snapshot
from dra_extender.cli.options import Form
from dra_extender.kube.credentials import CredentialsError


class Answer(msgspec.Struct, frozen=True):
    """`text` is for standard output, `complaint` for standard error; both may be empty. `between`: a line between this
    answer and the one before it, where several follow one another.
    """

    text: str
    status: int
    complaint: str = ""
    between: str = ""


def answered(found: object, form: Form, text: Callable[[], str], status: int) -> Answer:
    """The answer in the form that was asked for: a struct as it is, or its text."""
    if form == "text":
        return Answer(text(), status, between=" ")
    return Answer(written(found, form), status, between="---" if form == "yaml" else "")


class UnanswerableError(Exception):
    """Why a question cannot be answered: what was asked for does not exist, or nobody can be asked."""


Answering = Callable[[Snapshot], Answer]
"""Raises UnanswerableError."""


@contextmanager
def judging() -> Iterator[None]:
    """What is wrong with the question, or on the way to who is asked, as UnanswerableError."""
    try:
        yield
    except OSError as problem:
        raise UnanswerableError(f"{problem.filename}: {problem.strerror}" if problem.filename else problem) from None
    except (ApiError, CredentialsError, ValueError, yaml.YAMLError) as problem:
        raise UnanswerableError(str(problem)) from None


def named_text(filename: str) -> str:
    """The text of the file that a question names; empty when it names none. Raises UnanswerableError."""
    with judging():
        return text_of(filename) if filename else ""
