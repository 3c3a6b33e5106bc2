"""The answer of `compact`: look for moves, and say them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from dra_extender.cli.answers import wishes
from dra_extender.cli.answers.answer import Answer, answered, judging, named_text
from dra_extender.cli.answers.asking import ask, complaining
from dra_extender.cli.answers.why import known
from dra_extender.cli.cluster import Snapshot
from dra_extender.cli.options import Form
from dra_extender.cli.source import Source
from dra_extender.cli.statuses import NO, YES
from dra_extender.devices.overlay import Planned
from dra_extender.insight.compaction.advice import Advice
from dra_extender.insight.compaction.compaction import Compaction, Wish
from dra_extender.insight.compaction.movable import Rules
from dra_extender.scheduling.view import View

SCHEDULER: Final = "dra-scheduler"
"""Whose pods may be moved, where nobody says otherwise."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked, as the flags of the command say it. `schedulers`: None for everybody, none for the default."""

    pod: str = ""
    filename: str = ""
    namespace: str = ""
    schedulers: tuple[str, ...] | None = ()
    output: Form = "text"
    source: Source = Source()


class Move(msgspec.Struct, frozen=True):
    """A pod (namespace/name) to evict on `node`: it fits on `target` then, with these devices."""

    pod: str
    node: str
    target: str
    devices: tuple[str, ...]


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """`Advice` for programs: what room is made for, the moves in order, and where it fits then. `kept`: the pods that
    may not be moved, by reason.
    """

    wish: str
    fits: tuple[str, ...]
    node: str
    devices: tuple[str, ...]
    moves: tuple[Move, ...]
    freed: int
    kept: Mapping[str, tuple[str, ...]]
    complete: bool


@complaining
async def answer(question: Question) -> int:
    """Print the answer. The exit status."""
    text = named_text(question.filename)

    def answering(snapshot: Snapshot) -> Answer:
        view = snapshot.view()
        wish = _wish(question, snapshot, view, text)
        own = wish.pod.spec.scheduler_name if wish is not None and wish.pod is not None else ""
        asked = question.schedulers
        names = frozenset(asked or [own or SCHEDULER]) if asked is not None else frozenset[str]()
        compaction = Compaction(view, Rules(names, snapshot.budgets))
        advice = compaction.room_for(wish) if wish is not None else compaction.whole_devices()
        return answered(_told(advice), question.output, advice.text, YES if advice.helps else NO)

    return await ask(question.source, answering, evictions=True)


def _wish(question: Question, snapshot: Snapshot, view: View, text: str) -> Wish | None:
    """What room is to be made for; None: for nothing in particular. Raises UnanswerableError."""
    with judging():
        if question.pod:
            pod, _ = known(snapshot, question.pod, question.namespace or question.source.namespace())
            return wishes.of_pod(view, pod)
        return wishes.of_file(view, question.filename, text) if question.filename else None


def _told(advice: Advice) -> Told:
    return Told(
        wish=advice.wish,
        fits=advice.fits,
        node=advice.node,
        devices=_devices(advice.plans),
        moves=tuple(Move(move.item.key, move.item.node, move.target, _devices(move.plans)) for move in advice.moves),
        freed=advice.freed,
        kept=advice.kept,
        complete=advice.complete,
    )


def _devices(plans: tuple[Planned, ...]) -> tuple[str, ...]:
    return tuple("/".join(result.id) for _, allocation in plans for result in allocation.devices.results)
