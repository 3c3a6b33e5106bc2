"""The result of compaction: the pods to evict, in order; what the evictions achieve; the pods that cannot be moved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from dra_extender.devices.overlay import Planned
from dra_extender.insight.compaction.moves import Move
from dra_extender.plaintext import wrapped
from dra_extender.plurals import counted

WIDTH: Final = 80
SHOWN: Final = 5
CHECKED: Final = (
    "devices, cordons, taints, node selector and node affinity, host ports, resources of the node, disruption budgets"
)
UNCHECKED: Final = "volumes, affinity to pods, topology spread, quotas"


class MoveReport(msgspec.Struct, frozen=True):
    """Evict this pod (namespace/name) on `node`: it then fits on `target`, with these devices."""

    pod: str
    node: str
    target: str
    devices: tuple[str, ...]


class CompactionReport(msgspec.Struct, frozen=True, kw_only=True):
    """`Advice` as JSON: what `request` fits on which `node` with which `devices` after the `moves` in this order.
    `fits`: nodes where it fits without moves. `kept`: the pods that cannot be moved, by reason.
    """

    request: str
    fits: tuple[str, ...]
    node: str
    devices: tuple[str, ...]
    moves: tuple[MoveReport, ...]
    kept: Mapping[str, tuple[str, ...]]
    complete: bool


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """`request`: what has to fit. `fits`: nodes where it fits without moves.

    `node`: where it fits after the `moves`, with the devices of `plans`. Not `complete`: the limit of `decisions` was
    reached.
    """

    request: str
    fits: tuple[str, ...] = ()
    node: str = ""
    moves: tuple[Move, ...] = ()
    plans: tuple[Planned, ...] = ()
    kept: Mapping[str, tuple[str, ...]] = {}
    decisions: int = 0
    complete: bool = True

    @property
    def helps(self) -> bool:
        """True when there is a way, even without moves."""
        return bool(self.moves or self.fits)

    def report(self) -> CompactionReport:
        """For programs."""
        return CompactionReport(
            request=self.request,
            fits=self.fits,
            node=self.node,
            devices=_devices(self.plans),
            moves=tuple(
                MoveReport(move.item.key, move.item.node, move.target, _devices(move.plans)) for move in self.moves
            ),
            kept=self.kept,
            complete=self.complete,
        )

    def text(self) -> str:
        """For people."""
        return wrapped(self.lines(), WIDTH)

    def lines(self) -> Iterator[str]:
        """One finding each, of any length."""
        yield from self._finding()
        for number, move in enumerate(self.moves, start=1):
            yield f"  {number}. {move.item.key}: {move.item.node} -> {move.target}"
            yield f"     gets {_some(_devices(move.plans), 2)}"
        if self.moves:
            yield f"then {self.request} fits on {self.node}: {_some(_devices(self.plans)) or 'no devices'}"
        if self.moves:
            yield f"checked: {CHECKED}"
            yield f"not checked: {UNCHECKED}; the scheduler decides again where each pod goes"
        if self.kept and not self.fits:
            yield "pods that cannot be moved:"
            for reason, names in self.kept.items():
                yield f"  {counted(len(names), 'pod')}: {reason} ({_some(names)})"
        if not self.complete:
            yield f"stopped after {self.decisions} allocations: there may be better moves"

    def _finding(self) -> Iterator[str]:
        pods = counted(len(self.moves), "pod")
        if self.fits:
            yield f"{self.request} fits without a move on {counted(len(self.fits), 'node')}: {_some(self.fits)}"
        elif self.moves:
            yield f"to make room for {self.request} on {self.node}, evict {pods} in this order:"
        else:
            yield f"no evictions make room for {self.request}"


def _devices(plans: Sequence[Planned]) -> tuple[str, ...]:
    return tuple("/".join(result.id) for _, allocation in plans for result in allocation.devices.results)


def _some(names: Sequence[str], most: int = SHOWN) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
