"""Which of two allocations of one device is the older: all orders of a small world, and the cases that went wrong.

Two claims that want one device are allocated, deallocated and touched at the API server; one replica hears of it by a
watch that lags, by replies that run ahead of it, and by lists after gaps. Whatever it has heard in whatever order, an
older allocation is a rival of a younger one. A replica that takes it for younger binds a pod with a device that is in
use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from dra_extender.api.features import FeatureGates
from dra_extender.api.resource import ResourceClaim
from dra_extender.devices.inventory import Inventory
from dra_extender.devices.ledger import Ledger
from tests.support.devices.objects import make_claim

DEVICE = ["gpu/n/x"]
DEPTH = 6
"""How many steps each enumerated order has."""

CLAIMS = "cd"
STEPS = (
    *(f"{what} {claim}" for what in ("turn", "touch", "reply") for claim in CLAIMS),
    "deliver",
    "list",
)
"""Allocated or deallocated at the API server; changed otherwise there; read by us; the next watch event; a list."""


class Stored(msgspec.Struct, frozen=True):
    """A claim at the API server. `since`: the version at which its present allocation was written; 0: there is none."""

    version: int = 0
    since: int = 0


class World:
    """The API server, and one replica's ledger with what is on its way to it."""

    def __init__(self) -> None:
        features = FeatureGates()
        self.ledger = Ledger(features, Inventory(features).pools.get)
        self.gaps = 0
        self._version = 0
        self._stored = dict.fromkeys(CLAIMS, Stored())
        self._queue: list[tuple[str, Stored]] = []
        self._shown = dict.fromkeys(CLAIMS, 0)
        self._since: dict[tuple[str, int], int] = {}
        for claim in CLAIMS:
            self._write(claim, 0)
        while self._queue:
            self.step("deliver")

    def step(self, step: str) -> bool:
        """Take the step; False when it is not possible now."""
        what, _, claim = step.partition(" ")
        if what == "deliver":
            if not self._queue:
                return False
            self._show(*self._queue.pop(0))
        elif what == "list":
            if not self._queue:
                return False  # a list that shows nothing new is no gap
            self._queue.clear()
            self.gaps += 1
            for name, stored in self._stored.items():
                if stored.version != self._shown[name]:
                    self._show(name, stored, after_gap=True)
        elif what == "reply":
            self.ledger.observe(self._claim(claim, self._stored[claim]), watched=False)
        else:
            since = self._stored[claim].since
            self._write(claim, since if what == "touch" else 0 if since else self._version + 1)
        return True

    def _write(self, claim: str, since: int) -> None:
        self._version += 1
        self._stored[claim] = Stored(self._version, since)
        self._since[claim, self._version] = since
        self._queue.append((claim, self._stored[claim]))

    def _show(self, claim: str, stored: Stored, *, after_gap: bool = False) -> None:
        self._shown[claim] = stored.version
        self.ledger.observe(self._claim(claim, stored), watched=True, after_gap=after_gap)

    def _claim(self, name: str, stored: Stored) -> ResourceClaim:
        return make_claim(name, stored.version, DEVICE if stored.since else None)

    def known(self, claim: str) -> tuple[ResourceClaim, int] | None:
        """The newest version that the replica knows, and since when it had its allocation in truth, if it has one."""
        found = self.ledger.by_uid(f"uid-{claim}")
        assert found is not None
        since = self._since[claim, found.metadata.version]
        return (found, since) if since else None

    def hidden(self) -> Iterator[str]:
        """Older allocations that are not taken for rivals of younger ones."""
        for one, other in (("c", "d"), ("d", "c")):
            younger, older = self.known(one), self.known(other)
            if younger is None or older is None or older[1] > younger[1]:
                continue
            if older[0] not in self.ledger.rivals(younger[0]):
                yield f"{other}, allocated at {older[1]}, is no rival of {one}, allocated at {younger[1]}"

    @property
    def up_to_date(self) -> bool:
        return not self._queue

    @property
    def key(self) -> Any:
        """What tells this state from others."""
        records = self.ledger._records.items()
        known = tuple(
            (uid, record.seen, record.since, record.bare, record.shown is not None, record.claim)
            for uid, record in records
        )
        return tuple(self._stored.values()), tuple(self._queue), tuple(self._shown.values()), repr(known), self.gaps > 0


@pytest.fixture(scope="module")
def states() -> dict[tuple[str, ...], World]:
    """A shortest way to every state that can be reached in so many steps."""
    found: dict[tuple[str, ...], World] = {(): World()}
    seen = {found[()].key}
    edge: list[tuple[str, ...]] = [()]
    for _ in range(DEPTH):
        ways, edge = edge, []
        for way in ways:
            for step in STEPS:
                world = World()
                if all(world.step(taken) for taken in (*way, step)) and world.key not in seen:
                    seen.add(world.key)
                    found[(*way, step)] = world
                    edge.append((*way, step))
    return found


@pytest.mark.slow
def test_whatever_was_heard_an_older_allocation_is_a_rival_of_a_younger_one(
    states: dict[tuple[str, ...], World], record_property: Callable[[str, object], None]
) -> None:
    record_property("states", len(states))
    print(f"{len(states)} states in {DEPTH} steps")
    assert len(states) > 3_000
    assert [(way, hidden) for way, world in states.items() for hidden in world.hidden()] == []


@pytest.mark.slow
def test_when_everything_was_heard_in_order_a_younger_allocation_is_no_rival_of_an_older_one(
    states: dict[tuple[str, ...], World],
) -> None:
    compared = 0
    for way, world in states.items():
        older, younger = sorted((world.known(claim) or (None, 0) for claim in CLAIMS), key=lambda known: known[1])
        if older[0] is not None and younger[0] is not None and world.up_to_date and not world.gaps:
            compared += 1
            assert world.ledger.rivals(older[0]) == (), way
    assert compared


# --- cases ------------------------------------------------------------------------------------------------------------

CASES: dict[str, tuple[list[str], str]] = {
    "allocated one after the other, seen in order": (["turn d", "deliver", "turn c", "deliver"], "d"),
    "a reply jumps over a deallocation": (
        ["turn c", "deliver", "turn c", "turn d", "turn c", "reply c", "deliver", "deliver", "deliver"],
        "d",
    ),
    "a list jumps over a deallocation": (["turn c", "deliver", "turn c", "turn d", "turn c", "list"], "d"),
    "the watch is behind a reply": (
        ["turn c", "deliver", "touch d", "deliver", "turn c", "turn d", "turn c", "reply d", "reply c"],
        "d",
    ),
    "the watch shows a version older than the one a reply brought": (
        ["turn c", "deliver", "touch d", "turn d", "reply d", "deliver"],
        "",
    ),
}
"""What happens, and which rivals c has then."""


@pytest.mark.parametrize(("steps", "rivals"), CASES.values(), ids=CASES)
def test_rivals_after(steps: list[str], rivals: str) -> None:
    world = World()
    assert all(map(world.step, steps))
    claim = world.ledger.by_uid("uid-c")
    assert claim is not None
    assert "".join(rival.metadata.name for rival in world.ledger.rivals(claim)) == rivals


def test_a_rival_less_is_an_improvement() -> None:
    """Nothing is freed, and yet a pod that shares the older claim may fit now."""
    features = FeatureGates()
    ledger = Ledger(features, Inventory(features).pools.get)
    ledger.observe(make_claim("d", 1), watched=True)
    ledger.observe(make_claim("c", 2, DEVICE), watched=True)
    ledger.observe(make_claim("d", 4, DEVICE), watched=False)
    (older,) = [claim for claim in ledger.claims() if claim.metadata.name == "c"]
    assert ledger.rivals(older)
    assert ledger.observe(make_claim("d", 3, labels={"still": "free"}), watched=True)
    assert ledger.rivals(older) == ()
    assert not ledger.observe(make_claim("d", 4, DEVICE), watched=True)
