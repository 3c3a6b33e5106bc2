"""The answer of `workload`: the pods of the cluster, as the file that says which are to be expected."""

from __future__ import annotations

from dra_extender.cli.answers.answer import Answer
from dra_extender.cli.answers.asking import ask, complaining
from dra_extender.cli.cluster import Snapshot
from dra_extender.cli.source import Source
from dra_extender.cli.statuses import NO, YES
from dra_extender.scheduling.claims import Unschedulable, resolve_claims
from dra_extender.service import workloadfile


@complaining
async def answer(source: Source) -> int:
    """Print the file. The exit status."""
    return await ask(source, _answering)


def _answering(snapshot: Snapshot) -> Answer:
    cluster = snapshot.cluster
    found = ((pod, resolve_claims(pod, cluster.ledger.get, cluster.features)) for pod in snapshot.pods)
    kinds = workloadfile.seen((pod, claims) for pod, claims in found if not isinstance(claims, Unschedulable))
    if not kinds:
        return Answer("", NO, "no pod uses devices: there is nothing to write")
    return Answer(workloadfile.text(kinds).rstrip("\n"), YES)
