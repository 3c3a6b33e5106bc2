"""The answers of `audit` and `workload`."""

from __future__ import annotations

from collections.abc import Sequence

from dra_extender.cli.answers.answer import Answer, answered, complaining
from dra_extender.cli.answers.watching import ask
from dra_extender.cli.cluster import Snapshot
from dra_extender.cli.output import NO, YES, terminal_width
from dra_extender.cli.questions import AuditOptions
from dra_extender.cli.source import Source
from dra_extender.devices.audit import Violation
from dra_extender.plaintext import wrapped
from dra_extender.plurals import counted
from dra_extender.scheduling.claims import Unschedulable, resolve_claims
from dra_extender.service import workloadfile


@complaining
async def answer(given: AuditOptions) -> int:
    """Print what is allocated twice. Returns the exit status."""

    def answering(snapshot: Snapshot) -> Answer:
        ledger = snapshot.cluster.ledger
        found = ledger.violations()
        allocated = sum(1 for claim in ledger.claims() if claim.allocation is not None)
        report = {"violations": found, "allocatedClaims": allocated}
        return answered(report, given.output, lambda: _text(found, allocated), NO if found else YES)

    return await ask(given, answering)


def _text(found: Sequence[Violation], allocated: int) -> str:
    lines = (f"{each.kind} {each.subject}: {each.detail}; claims: {', '.join(each.claims)}" for each in found)
    total = f"{counted(allocated, 'allocated claim')}, {counted(len(found), 'violation')}"
    return wrapped([*lines, total], terminal_width())


@complaining
async def workload(given: Source) -> int:
    """Print the workload file. Returns the exit status."""
    return await ask(given, _workload)


def _workload(snapshot: Snapshot) -> Answer:
    cluster = snapshot.cluster
    found = ((pod, resolve_claims(pod, cluster.ledger.get, cluster.features)) for pod in snapshot.pods)
    kinds = workloadfile.seen((pod, claims) for pod, claims in found if not isinstance(claims, Unschedulable))
    if not kinds:
        return Answer("", NO, "no pod uses devices: there is nothing to write")
    return Answer(workloadfile.text(kinds).rstrip("\n"), YES)
