"""Allocations that may be of no use to anybody, and since when.

Promises: an entry for every allocated claim with at most one consumer, as the watch shows it, until somebody says that
the claim is in use after all. Its time starts anew with every change of its consumers, and with every bind that relies
on it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from app.api.resource import ResourceClaim
from app.scheduling.claims import ADOPTED
from app.scheduling.limits import Limits
from app.scheduling.ports import Clock


class Idle(msgspec.Struct, frozen=True):
    """An allocation that has had these consumers (UIDs), at most one, and this mark of the last bind that relied on it,
    since then (monotonic seconds).
    """

    since: float
    consumers: tuple[str, ...]
    adopted: str


class IdleAllocations:
    """By claim UID."""

    def __init__(self, clock: Clock, limits: Limits) -> None:
        self._clock = clock
        self._limits = limits
        self._idle: dict[str, Idle] = {}

    def observe(self, claim: ResourceClaim) -> None:
        """A version of a claim from the watch."""
        uid, consumers = claim.metadata.uid, tuple(entry.uid for entry in claim.status.reserved_for)
        adopted = claim.metadata.annotations.get(ADOPTED, "")
        if claim.allocation is None or len(consumers) > 1:
            self._idle.pop(uid, None)
            return
        known = self._idle.get(uid)
        if known is None or (known.consumers, known.adopted) != (consumers, adopted):
            self._idle[uid] = Idle(since=self._clock.monotonic(), consumers=consumers, adopted=adopted)

    def strike(self, uid: str) -> None:
        """The claim is in use, or gone, or not allocated."""
        self._idle.pop(uid, None)

    def entries(self) -> Sequence[tuple[str, Idle]]:
        """All of them, by claim UID."""
        return list(self._idle.items())

    def is_settled(self, claim: ResourceClaim) -> bool:
        """True when no bind of the claim's only consumer relies on it any more, not even one of another replica."""
        known = self._idle.get(claim.metadata.uid)
        if known is None:
            return False
        return not known.consumers or self._clock.monotonic() - known.since >= self._limits.settled_seconds
