"""The answer of `audit`: every violation, whoever wrote the claims."""

from __future__ import annotations

from collections.abc import Sequence

from dra_extender.cli.answers.answer import Answer, answered
from dra_extender.cli.answers.asking import ask, complaining
from dra_extender.cli.cluster import Snapshot
from dra_extender.cli.columns import folded, terminal_width
from dra_extender.cli.options import Form
from dra_extender.cli.source import Source
from dra_extender.cli.statuses import NO, YES
from dra_extender.devices.audit import Violation
from dra_extender.plurals import counted


@complaining
async def answer(source: Source, output: Form = "text") -> int:
    """Print what was found. The exit status."""

    def answering(snapshot: Snapshot) -> Answer:
        ledger = snapshot.cluster.ledger
        found = ledger.violations()
        allocated = sum(1 for claim in ledger.claims() if claim.allocation is not None)
        told = {"violations": found, "allocatedClaims": allocated}
        return answered(told, output, lambda: _text(found, allocated), NO if found else YES)

    return await ask(source, answering)


def _text(found: Sequence[Violation], allocated: int) -> str:
    lines = (f"{each.kind} {each.subject}: {each.detail}; claims: {', '.join(each.claims)}" for each in found)
    total = f"{counted(allocated, 'allocated claim')}, {counted(len(found), 'violation')}"
    return folded("\n".join([*lines, total]), terminal_width())
