"""What compaction comes to: an ordered list of moves, what they are good for, and who stays where he is."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from dra_extender.devices.overlay import Planned
from dra_extender.insight.compaction.moves import Move
from dra_extender.insight.compaction.surroundings import CHECKED, UNCHECKED
from dra_extender.plurals import counted

WIDTH: Final = 80
SHOWN: Final = 5


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """`wish`: what room is made for; empty when devices are to be whole. `fits`: nodes where it fits with no move.

    `node` is where it fits after the `moves`, with the devices of `plans`; `freed` whole devices more are there then.
    `complete`: False when not everything could be looked at within the `questions` that may be asked.
    """

    wish: str = ""
    fits: tuple[str, ...] = ()
    node: str = ""
    moves: tuple[Move, ...] = ()
    plans: tuple[Planned, ...] = ()
    freed: int = 0
    kept: Mapping[str, tuple[str, ...]] = {}
    questions: int = 0
    complete: bool = True

    @property
    def helps(self) -> bool:
        """True when there is a way, be it none at all."""
        return bool(self.moves or self.fits)

    def text(self) -> str:
        """For people."""
        return "\n".join(_wrapped(self.lines()))

    def lines(self) -> Iterator[str]:
        """One thing each, of any length."""
        yield from self._finding()
        for number, move in enumerate(self.moves, start=1):
            what, devices = move.lines()
            yield f"  {number}. {what}"
            yield f"     {devices}"
        if self.moves and self.wish:
            yield f"then {self.wish} fits on {self.node}: {_devices(self.plans)}"
        if self.moves:
            yield f"checked: {CHECKED}"
            yield f"not checked: {UNCHECKED}; the scheduler decides anew where each pod goes"
        if self.kept and not self.fits:
            yield "not to be moved:"
            for reason, names in self.kept.items():
                yield f"  {counted(len(names), 'pod')}: {reason} ({_some(names)})"
        if not self.complete:
            yield f"stopped after {self.questions} questions to the allocator: there may be better moves"

    def _finding(self) -> Iterator[str]:
        pods = counted(len(self.moves), "pod")
        if self.fits:
            yield f"{self.wish} fits without a move on {counted(len(self.fits), 'node')}: {_some(self.fits)}"
        elif self.moves and self.wish:
            yield f"to make room for {self.wish} on {self.node}, evict {pods} in this order:"
        elif self.moves:
            yield f"to have {counted(self.freed, 'whole device')} more, evict {pods} in this order:"
        elif self.wish:
            yield f"no moves make room for {self.wish}"
        else:
            yield "no move leaves more devices whole"


def _devices(plans: Sequence[Planned]) -> str:
    found = ["/".join(result.id) for _, allocation in plans for result in allocation.devices.results]
    return _some(found) or "no devices"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _wrapped(lines: Iterator[str]) -> Iterator[str]:
    """Long lines go on below, indented; what has no spaces is left whole."""
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip()) + 4)
        yield from (
            textwrap.wrap(
                line,
                WIDTH,
                subsequent_indent=indent,
                break_long_words=False,
                break_on_hyphens=False,
                drop_whitespace=True,
            )
            if len(line) > WIDTH
            else [line]
        )
