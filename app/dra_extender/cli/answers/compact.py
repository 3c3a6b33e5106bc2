"""The answer of `compact`."""

from __future__ import annotations

from typing import Final

import typer

from dra_extender.cli.answers.answer import Answer, answered, complaining, text_of_option, unanswerable
from dra_extender.cli.answers.watching import ask
from dra_extender.cli.answers.why import known_pod
from dra_extender.cli.cluster import Snapshot
from dra_extender.cli.output import NO, YES
from dra_extender.cli.questions import CompactOptions
from dra_extender.insight.compaction.compaction import Compaction, request_of_claims, request_of_pod
from dra_extender.insight.compaction.movable import EvictionRules
from dra_extender.insight.manifests import claims_of

SCHEDULER: Final = "dra-scheduler"
"""The scheduler whose pods may be evicted by default."""


@complaining
async def answer(given: CompactOptions) -> int:
    """Print which pods to evict. Returns the exit status."""
    if bool(given.pod) == bool(given.filename):
        raise typer.BadParameter("name a pod, or a file with -f", param_hint="POD")
    text = text_of_option(given.filename)

    def answering(snapshot: Snapshot) -> Answer:
        view, own = snapshot.view(), ""
        with unanswerable():
            if given.pod:
                pod = known_pod(snapshot, given.pod, given.namespace or given.default_namespace())
                request, own = request_of_pod(view, pod), pod.spec.scheduler_name
            else:
                request = request_of_claims(view, given.filename, claims_of(given.filename, text))
        schedulers = () if given.all_schedulers else given.scheduler_name or (own or SCHEDULER,)
        advice = Compaction(view, EvictionRules(frozenset(schedulers), snapshot.budgets)).room_for(request)
        return answered(advice.report(), given.output, advice.text, YES if advice.helps else NO)

    return await ask(given, answering, evictions=True)
