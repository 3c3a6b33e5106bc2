"""The answer of `headroom`: read the cluster, fill it on paper, print. Loads the client and the compiler: import it
when needed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec
import typer

from app.api.errors import ApiError
from app.api.resource import ResourceClaim
from app.cli import wishes
from app.cli.cluster import Snapshot
from app.cli.complaint import complain, note
from app.cli.output import written
from app.cli.source import Source
from app.devices.overlay import Overlay
from app.kube.credentials import CredentialsError
from app.plurals import counted
from app.scheduling.compaction.advice import Advice
from app.scheduling.compaction.compaction import Compaction, Wish
from app.scheduling.compaction.movable import Rules
from app.scheduling.headroom import UNCHECKED, Headroom, after, class_claim, class_words, headroom, problem_of
from app.scheduling.view import View

ROOM, FULL, FAILED = 0, 1, 2


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked, as the flags of the command say it: about pods with devices of a class, or with these claims."""

    device_class: str = ""
    filename: Path | None = None
    count: int = 1
    after_compaction: bool = False
    schedulers: tuple[str, ...] = ()
    limit: int
    output: Literal["text", "json", "yaml"] = "text"
    source: Source = Source()


class Told(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`after_compaction`: how many fit after so many `moves`; null: nobody asked, or no move was found."""

    now: Headroom
    after_compaction: Headroom | None = None
    moves: int = 0


async def answer(question: Question) -> int:
    """Print the answer. The exit status."""
    try:
        snapshot = await question.source.read(evictions=question.after_compaction)
        view = snapshot.view()
        what, claims = _wanted(question, view)
    except (ApiError, CredentialsError, ValueError) as problem:
        complain(problem)
        return FAILED
    now = headroom(view, what, claims, most=question.limit)
    told = _after(question, snapshot, view, claims, now) if question.after_compaction else Told(now=now)
    typer.echo(_text(question, told) if question.output == "text" else written(told, question.output))
    note(snapshot.cluster.problems)
    return ROOM if now.fits or (told.after_compaction is not None and told.after_compaction.fits) else FULL


def _wanted(question: Question, view: View) -> tuple[str, tuple[ResourceClaim, ...]]:
    """What the pods are, in words, and their claims. Raises ValueError."""
    if question.filename is not None:
        wish = wishes.of_file(view, question.filename)
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
