"""The answer of `whatif`: suppose, and say it."""

from __future__ import annotations

import msgspec

from dra_extender.cli.answers.answer import Answer, answered, judging
from dra_extender.cli.answers.asking import ask, complaining
from dra_extender.cli.answers.drafts import drafts
from dra_extender.cli.answers.supposed import supposed, toleration
from dra_extender.cli.answers.why import known
from dra_extender.cli.cluster import Snapshot
from dra_extender.cli.columns import folded, terminal_width
from dra_extender.cli.options import Form
from dra_extender.cli.source import Source
from dra_extender.cli.statuses import NO, YES
from dra_extender.insight.whatif.asking import what_if
from dra_extender.insight.whatif.changes import Changes


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked, as the flags of the command say it."""

    pod: str = ""
    filename: str = ""
    added: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    drained: tuple[str, ...] = ()
    supposed: tuple[str, ...] = ()
    """Files."""
    tolerations: tuple[str, ...] = ()
    namespace: str = ""
    output: Form = "text"
    scheduler_names: str = ""
    source: Source = Source()


@complaining
async def answer(question: Question) -> int:
    """Print the answer. The exit status."""
    namespace = question.namespace or question.source.namespace()
    schedulers = frozenset(filter(None, question.scheduler_names.split(",")))
    with judging():
        drawn = await drafts(question.source, question.filename, namespace) if question.filename else None
        added = tuple(map(added_node, question.added))
        objects = tuple(item for file in question.supposed for item in supposed(file, namespace))
        tolerations = tuple(map(toleration, question.tolerations))

    def answering(snapshot: Snapshot) -> Answer:
        with judging():
            asked = [known(snapshot, question.pod, namespace)] if question.pod else drawn
            gone = tuple(known(snapshot, name, namespace).pod.metadata.key for name in question.without)
            changes = Changes(
                added=added, without=gone, drained=question.drained, objects=objects, tolerations=tolerations
            )
            found = what_if(snapshot.view(schedulers=schedulers), changes, asked)
        status = YES if all(outcome.node for outcome in found.outcomes) and not found.left_out else NO
        return answered(found, question.output, lambda: folded(found.text(), terminal_width()), status)

    return await ask(question.source, answering)


def added_node(text: str) -> tuple[str, int]:
    """Reads `like=NODE,count=N`; one node without a count. Raises ValueError."""
    parts = dict(part.partition("=")[::2] for part in text.split(","))
    count = parts.get("count", "1")
    if not parts.get("like") or parts.keys() - {"like", "count"} or not (count.isascii() and count.isdigit()):
        raise ValueError(f"--add-node {text}: it has to be like=NODE,count=N")
    return parts["like"], int(count)
