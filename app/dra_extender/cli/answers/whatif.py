"""The answer of `whatif`."""

from __future__ import annotations

import typer

from dra_extender.cli.answers.answer import Answer, answered, complaining, unanswerable
from dra_extender.cli.answers.watching import ask
from dra_extender.cli.answers.why import drafts, known_pod
from dra_extender.cli.cluster import Snapshot
from dra_extender.cli.output import NO, YES, terminal_width
from dra_extender.cli.questions import WhatIfOptions
from dra_extender.insight.manifests import Draft, hypothetical_objects, text_of, toleration
from dra_extender.insight.whatif.changes import Changes
from dra_extender.insight.whatif.whatif import what_if
from dra_extender.plaintext import wrapped


@complaining
async def answer(given: WhatIfOptions) -> int:
    """Print which pods would fit. Returns the exit status."""
    if given.pod and given.filename:
        raise typer.BadParameter("name a pod, or a file with -f", param_hint="POD")
    namespace = given.namespace or given.default_namespace()
    schedulers = frozenset(filter(None, given.scheduler_names.split(",")))
    with unanswerable():
        written = await drafts(given, given.filename, namespace) if given.filename else None
        added = tuple(map(added_node, given.add_node or ()))
        files = given.with_file or ()
        objects = tuple(item for file in files for item in hypothetical_objects(file, text_of(file), namespace))
        tolerations = tuple(map(toleration, given.toleration or ()))

    def answering(snapshot: Snapshot) -> Answer:
        with unanswerable():
            pods = [Draft(known_pod(snapshot, given.pod, namespace), ())] if given.pod else written
            changes = Changes(
                added=added,
                without=tuple(known_pod(snapshot, name, namespace).metadata.key for name in given.without_pod or ()),
                drained=tuple(given.drain or ()),
                objects=objects,
                tolerations=tolerations,
            )
            found = what_if(snapshot.view(schedulers=schedulers), changes, pods)
        status = YES if all(outcome.node for outcome in found.outcomes) and not found.left_out else NO
        return answered(found, given.output, lambda: wrapped(found.lines(), terminal_width()), status)

    return await ask(given, answering)


def added_node(text: str) -> tuple[str, int]:
    """Reads `like=NODE,count=N`; one node without a count. Raises ValueError."""
    parts = dict(part.partition("=")[::2] for part in text.split(","))
    count = parts.get("count", "1")
    if not parts.get("like") or parts.keys() - {"like", "count"} or not (count.isascii() and count.isdigit()):
        raise ValueError(f"--add-node {text}: expected like=NODE,count=N")
    return parts["like"], int(count)
