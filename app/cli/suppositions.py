"""The answer of `whatif`: read the cluster, suppose, print. Loads the client and the compiler: import it then."""

from __future__ import annotations

from typing import Literal

import msgspec
import typer
import yaml

from app.api.decoding import DecodeError
from app.api.errors import ApiError
from app.cli.complaint import complain, note
from app.cli.diagnoses import known
from app.cli.drafts import drafts
from app.cli.output import written
from app.cli.source import Source
from app.kube.credentials import CredentialsError
from app.scheduling.whatif.asking import what_if
from app.scheduling.whatif.changes import Changes

FITTING, LACKING, FAILED = 0, 1, 2


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked, as the flags of the command say it."""

    pod: str = ""
    filename: str = ""
    added: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    drained: tuple[str, ...] = ()
    namespace: str = ""
    output: Literal["text", "json", "yaml"] = "text"
    scheduler_names: str = ""
    source: Source = Source()


async def answer(question: Question) -> int:
    """Print the answer. The exit status."""
    namespace = question.namespace or question.source.namespace()
    schedulers = frozenset(filter(None, question.scheduler_names.split(",")))
    try:
        added = tuple(map(added_node, question.added))
        asked = drafts(question.filename, namespace) if question.filename else None
        snapshot = await question.source.read()
        if question.pod:
            asked = [known(snapshot, question.pod, namespace)]
        gone = tuple(known(snapshot, name, namespace).pod.metadata.key for name in question.without)
        changes = Changes(added=added, without=gone, drained=question.drained)
        found = what_if(snapshot.view(schedulers=schedulers), changes, asked)
    except (ApiError, CredentialsError, DecodeError, OSError, ValueError, yaml.YAMLError) as problem:
        complain(problem)
        return FAILED
    typer.echo(found.text() if question.output == "text" else written(found, question.output))
    note(snapshot.cluster.problems)
    return FITTING if all(outcome.node for outcome in found.outcomes) and not found.left_out else LACKING


def added_node(text: str) -> tuple[str, int]:
    """Reads `like=NODE,count=N`; one node without a count. Raises ValueError."""
    parts = dict(part.partition("=")[::2] for part in text.split(","))
    count = parts.get("count", "1")
    if not parts.get("like") or parts.keys() - {"like", "count"} or not (count.isascii() and count.isdigit()):
        raise ValueError(f"--add-node {text}: it has to be like=NODE,count=N")
    return parts["like"], int(count)
