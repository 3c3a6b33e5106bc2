"""The answer of `headroom`: fill the cluster on paper."""

from __future__ import annotations

import msgspec

from dra_extender.api.resource import ResourceClaim
from dra_extender.cli.answers import wishes
from dra_extender.cli.answers.answer import Answer, answered, judging, named_text
from dra_extender.cli.answers.asking import ask, complaining
from dra_extender.cli.cluster import Snapshot
from dra_extender.cli.columns import folded, terminal_width
from dra_extender.cli.options import Form
from dra_extender.cli.source import Source
from dra_extender.cli.statuses import NO, YES
from dra_extender.devices.overlay import Overlay
from dra_extender.insight.compaction.advice import Advice
from dra_extender.insight.compaction.compaction import Compaction, Wish
from dra_extender.insight.compaction.movable import Rules
from dra_extender.insight.headroom import UNCHECKED, Headroom, after, class_claim, class_words, headroom, problem_of
from dra_extender.plurals import counted
from dra_extender.scheduling.view import View


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked, as the flags of the command say it: about pods with devices of a class, or with these claims."""

    device_class: str = ""
    filename: str = ""
    count: int = 1
    after_compaction: bool = False
    schedulers: tuple[str, ...] = ()
    limit: int
    output: Form = "text"
    watch: bool = False
    source: Source = Source()


class Told(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`after_compaction`: how many fit after so many `moves`; null: nobody asked, or no move was found."""

    now: Headroom
    after_compaction: Headroom | None = None
    moves: int = 0


@complaining
async def answer(question: Question) -> int:
    """Print the answer. The exit status."""
    text = named_text(question.filename)

    def answering(snapshot: Snapshot) -> Answer:
        view = snapshot.view()
        with judging():
            what, claims = _wanted(question, view, text)
        now = headroom(view, what, claims, most=question.limit)
        told = _after(question, snapshot, view, claims, now) if question.after_compaction else Told(now=now)
        later = told.after_compaction
        status = YES if now.fits or (later is not None and later.fits) else NO
        return answered(told, question.output, lambda: folded(_text(question, told), terminal_width()), status)

    return await ask(question.source, answering, evictions=question.after_compaction, watch=question.watch)


def _wanted(question: Question, view: View, text: str) -> tuple[str, tuple[ResourceClaim, ...]]:
    """What the pods are, in words, and their claims. Raises ValueError."""
    if question.filename:
        wish = wishes.of_file(view, question.filename, text)
        return f"pods with {wish.name}", wish.claims
    claims = (class_claim(question.device_class, question.count),)
    problem = problem_of(view, claims)
    if question.device_class not in view.cluster.classes:
        raise ValueError(f"DeviceClass {question.device_class} is not known")
    if problem:
        raise ValueError(problem)
    return class_words(question.device_class, question.count), claims


def _after(
    question: Question, snapshot: Snapshot, view: View, claims: tuple[ResourceClaim, ...], now: Headroom
) -> Told:
    """Moves that leave more devices whole; when there are none, those that make room for one pod."""
    rules = Rules(frozenset(question.schedulers), snapshot.budgets)
    advice = Compaction(view, rules).whole_devices()
    if not advice.moves and not now.fits:
        advice = Compaction(view, rules).room_for(Wish(now.what, claims))
    if not advice.moves:
        return Told(now=now)
    found = headroom(view, now.what, claims, most=question.limit, state=_moved(view, advice))
    return Told(now=now, after_compaction=found, moves=len(advice.moves))


def _moved(view: View, advice: Advice) -> Overlay:
    return after(view.overlay(), ((move.item.claims, move.plans) for move in advice.moves))


def _text(question: Question, told: Told) -> str:
    lines = [told.now.text()]
    if told.after_compaction is not None:
        lines += [f"After {counted(told.moves, 'move')} (see compact):", told.after_compaction.text()]
    elif question.after_compaction:
        lines.append("No moves would change that.")
    lines.append(f"Not looked at: {UNCHECKED}.")
    if not told.now.complete:
        lines.append(f"{counted(told.now.decisions, 'decision')} were made; --limit allows more.")
    return "\n".join(lines)
