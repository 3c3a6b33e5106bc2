"""How many more pods with certain claims fit: now, or in a state that moves would make.

Promises: every pod that is counted was decided by the one allocator on what those before it leave, node by node in the
order of the names, as if they came one after the other; a node that devices do not tell apart from one that was filled
before counts like that one. At most so many decisions are made as the caller says, in small steps; `complete` says
whether they were enough. Looks at devices alone, and leaves out cordoned nodes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from dra_extender.allocation.plan import Failure, Plan
from dra_extender.allocation.requests import prepare
from dra_extender.api.meta import ObjectMeta
from dra_extender.api.resource import DeviceClaim, DeviceRequest, ExactDeviceRequest, ResourceClaim, ResourceClaimSpec
from dra_extender.devices.overlay import Overlay, Planned
from dra_extender.plurals import counted
from dra_extender.scheduling.slices import PORTION, QueryBudget, Slices, run_at_once
from dra_extender.scheduling.view import View

DECISIONS: Final = 2_000
"""So many decisions are made at most, where nobody says otherwise."""
EXAMPLES: Final = 5
UNCHECKED: Final = "CPU, memory and taints of nodes, affinity, quotas"


class Room(msgspec.Struct, frozen=True):
    """`fits` more pods fit on each of `nodes` nodes; `examples` are the names of some."""

    fits: int
    nodes: int
    examples: tuple[str, ...]


class Headroom(msgspec.Struct, frozen=True, kw_only=True):
    """How many more pods `fits`, on `nodes` nodes of `of`; `rooms`: those with the most room first. Not `complete`:
    at least so many, because no more was decided.
    """

    what: str
    fits: int
    nodes: int
    of: int
    rooms: tuple[Room, ...] = ()
    complete: bool = True
    decisions: int = 0

    def text(self) -> str:
        """For people."""
        least = "" if self.complete else "at least "
        what = self.what[:1].upper() + self.what[1:]
        lines = [f"{what}: {least}{self.fits} more {'fits' if self.fits == 1 else 'fit'}"]
        if self.nodes:
            lines[0] += f", on {self.nodes} of {counted(self.of, 'node')}."
            for room in self.rooms:
                names = ", ".join(room.examples) + (", …" if room.nodes > len(room.examples) else "")
                lines.append(
                    f"  {room.fits} on {'each of ' if room.nodes > 1 else ''}{counted(room.nodes, 'node')}: {names}"
                )
        else:
            lines[0] += f" on {counted(self.of, 'node')}."
        return "\n".join(lines)


def class_claim(name: str, count: int = 1) -> ResourceClaim:
    """A claim for so many devices of the class."""
    exactly = ExactDeviceRequest(device_class_name=name, allocation_mode="ExactCount", count=count)
    devices = DeviceClaim(requests=(DeviceRequest("devices", exactly),))
    return ResourceClaim(ObjectMeta(name="headroom", uid=f"headroom of {name}"), ResourceClaimSpec(devices))


def class_words(name: str, count: int = 1) -> str:
    """What is asked about, for people."""
    return f"pods with {counted(count, 'device')} of class {name}"


def problem_of(view: View, claims: Sequence[ResourceClaim]) -> str:
    """Why nothing can be decided about the claims, whatever the node; empty when it can."""
    found = prepare(claims, view.cluster.classes, view.features)
    return found.error if isinstance(found, Failure) else ""


def headroom(
    view: View, what: str, claims: Sequence[ResourceClaim], *, most: int = DECISIONS, state: Overlay | None = None
) -> Headroom:
    """All at once."""
    return run_at_once(measuring(view, what, claims, most=most, state=state))


def measuring(
    view: View, what: str, claims: Sequence[ResourceClaim], *, most: int = DECISIONS, state: Overlay | None = None
) -> Slices[Headroom]:
    """How many more pods with such claims fit, in this state or as things are. `what` they are, for people."""
    filling = _Filling(view, claims, state or view.overlay(), most)
    names = [name for name in sorted(view.cluster.nodes) if not view.cluster.nodes[name].spec.unschedulable]
    found: dict[int, list[str]] = {}
    for start in range(0, len(names), PORTION):
        portion = names[start : start + PORTION]
        keys = yield from filling.keys(portion)
        for name in portion:
            fits = yield from filling.node(name, keys.get(name))
            if fits:
                found.setdefault(fits, []).append(name)
        yield
    return Headroom(
        what=what,
        fits=sum(fits * len(members) for fits, members in found.items()),
        nodes=sum(map(len, found.values())),
        of=len(names),
        rooms=tuple(
            Room(fits, len(found[fits]), tuple(found[fits][:EXAMPLES])) for fits in sorted(found, reverse=True)
        ),
        complete=filling.complete,
        decisions=filling.decisions,
    )


def after(state: Overlay, moves: Iterable[tuple[Sequence[ResourceClaim], Sequence[Planned]]]) -> Overlay:
    """The state after pods have moved: each frees its claims, and gets what was planned for it."""
    for claims, plans in moves:
        state = state.without(claims).with_plans(plans)
    return state


class _Filling:
    """Nodes that are filled one after the other. What is taken of devices that several nodes see is taken for all."""

    def __init__(self, view: View, claims: Sequence[ResourceClaim], state: Overlay, most: int) -> None:
        self.decisions = 0
        self._enough = True
        self._view = replace(view, decisions=view.decisions.with_own_results())
        self._budget = QueryBudget(self._view)
        self._claims = claims
        self._state = state
        self._most = most
        self._is_shared = False
        self._known: dict[Hashable, int] = {}

    @property
    def complete(self) -> bool:
        """Everything was decided so far."""
        return self._enough and self._budget.complete

    def keys(self, names: Sequence[str]) -> Slices[Mapping[str, Hashable]]:
        """The same for nodes that devices do not tell apart."""
        found = yield from self._budget.turn(lambda view: dict(view.decisions.alike(self._claims, names)))
        return found or {}

    def node(self, name: str, key: Hashable) -> Slices[int]:
        """How many fit on the node."""
        if name in self._state.differing or self._is_shared:
            key = None
        known = self._known.get(key) if key is not None else None
        if known is not None:
            return known
        state, fits, whole = self._state, 0, self.complete
        while True:
            plans = yield from self._plan(state, name)
            if plans is None:
                break
            state, fits = state.with_plans(plans), fits + 1
            if not all(state.has(claim) for claim, _ in plans):  # somebody was faster
                fits -= 1
                break
            if self._reaches_others(plans):
                self._state, self._is_shared = state, True
            yield
        if key is not None and not self._is_shared and whole == self.complete:
            self._known[key] = fits
        return fits

    def _plan(self, state: Overlay, name: str) -> Slices[list[Planned] | None]:
        if self.decisions >= self._most:
            self._enough = False
            return None
        self.decisions += 1
        number = self.decisions
        claims = [
            replace(claim, metadata=replace(claim.metadata, uid=f"{claim.metadata.uid} ({number})"))
            for claim in self._claims
        ]
        found = yield from self._budget.turn(lambda view: view.decisions.with_state(state).plan(claims, name))
        return list(zip(claims, found.allocations, strict=True)) if isinstance(found, Plan) else None

    def _reaches_others(self, plans: Iterable[Planned]) -> bool:
        pools = {result.id[:2] for _, allocation in plans for result in allocation.devices.results}
        seeing = self._view.cluster.inventory.nodes_seeing
        return any(len(list(seeing(pool))) > 1 for pool in pools)
