"""The answers of `devices` and `top`: count, and say it."""

from __future__ import annotations

import sys

import msgspec

from dra_extender.cli.answers.answer import Answer, UnanswerableError, answered
from dra_extender.cli.answers.asking import ask, complaining
from dra_extender.cli.answers.censustables import device_table, painted, sum_table, summed
from dra_extender.cli.cluster import Snapshot
from dra_extender.cli.colours import is_coloured
from dra_extender.cli.columns import terminal_width
from dra_extender.cli.options import WideForm
from dra_extender.cli.source import Source
from dra_extender.cli.statuses import NO, YES
from dra_extender.insight.devicereport.report import Census, State
from dra_extender.insight.devicereport.taking import Asked, census
from dra_extender.insight.devicereport.totals import By, sums


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """Which devices, as the flags of the commands say it; nothing means all."""

    nodes: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    states: tuple[State, ...] = ()
    namespace: str = ""
    output: WideForm = "text"
    watch: bool = False
    source: Source = Source()

    def none(self) -> str:
        """That there are no devices, as it is told."""
        if self.nodes or self.drivers or self.classes or self.states or self.namespace:
            return "there are no such devices"
        return "there are no devices: no driver has published any in a ResourceSlice"

    def counted(self, snapshot: Snapshot) -> Census:
        """Raises UnanswerableError for what does not exist."""
        asked = Asked(
            nodes=frozenset(self.nodes),
            drivers=frozenset(self.drivers),
            classes=frozenset(self.classes),
            states=frozenset(self.states),
            namespaces=frozenset(filter(None, (self.namespace,))),
        )
        unknown = asked.unknown(snapshot.cluster)
        if unknown:
            raise UnanswerableError(unknown)
        return census(snapshot.view(), asked)


@complaining
async def list_devices(question: Question) -> int:
    """Print the devices. The exit status."""

    def answering(snapshot: Snapshot) -> Answer:
        found = question.counted(snapshot)
        wide = question.output == "wide"
        form = "text" if question.output == "wide" else question.output
        answer = answered(found, form, lambda: _listed(found, wide=wide), YES if found.devices else NO)
        return answer if found.devices else msgspec.structs.replace(answer, complaint=question.none())

    return await ask(question.source, answering, watch=question.watch)


@complaining
async def add_up(question: Question, by: By) -> int:
    """Print the sums. The exit status."""

    def answering(snapshot: Snapshot) -> Answer:
        found = question.counted(snapshot)
        told = sums(found.devices, by)
        form = "text" if question.output == "wide" else question.output

        def text() -> str:
            return "\n".join([*sum_table(told, by, width=terminal_width()), summed(found.totals)]) if told else ""

        answer = answered({by: told, "totals": found.totals}, form, text, YES if told else NO)
        return (
            answer if told else msgspec.structs.replace(answer, complaint=_UNHELD if found.devices else question.none())
        )

    return await ask(question.source, answering, watch=question.watch)


_UNHELD = "no claim holds any of these devices"


def _listed(found: Census, *, wide: bool) -> str:
    if not found.devices:
        return ""
    lines = device_table(found.devices, wide=wide, width=terminal_width(), paint=painted(is_coloured(sys.stdout)))
    return "\n".join([*lines, summed(found.totals)])
