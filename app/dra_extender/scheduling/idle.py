"""Claims that may be unused, and since when: allocations that no pod may rely on, and claims that no watch has shown.

`IdleAllocations` promises an entry for every allocated claim that has at most one consumer on the watch, until
`forget`. Its time starts again when its consumers change, when a bind of this replica relies on it, and after a gap of
the watch: the claim may have been deallocated and allocated again for the same pod. Labels and annotations, which users
can write, do not count.

A claim can be created and deleted while the watch is broken. If a reply has shown the claim, it would keep its devices
for ever, because the list after the gap does not contain it, and the watch does not report the deletion of a claim that
it never showed. So a claim that the watch does not show is `unseen`, and read after a while.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from dra_extender.api.resource import ResourceClaim
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.ports import Clock


class Idle(msgspec.Struct, frozen=True):
    """`since`: monotonic seconds since when the claim has these `consumers` (UIDs, at most one). `version`: the last
    resourceVersion on the watch.
    """

    since: float
    version: str
    consumers: tuple[str, ...]


class IdleAllocations:
    """By claim UID."""

    def __init__(self, clock: Clock, config: SchedulingConfig) -> None:
        self._clock = clock
        self._config = config
        self._idle: dict[str, Idle] = {}
        self.unseen: dict[str, float] = {}
        """Claims that a reply has shown and no watch: since when, or when they were read last (monotonic seconds)."""

    def observe(self, claim: ResourceClaim, *, after_gap: bool = False) -> None:
        """A version of a claim from the watch. `after_gap`: versions before it may be missing."""
        uid, consumers = claim.metadata.uid, tuple(entry.uid for entry in claim.status.reserved_for)
        self.unseen.pop(uid, None)
        if claim.allocation is None or len(consumers) > 1:
            self._idle.pop(uid, None)
            return
        known = self._idle.get(uid)
        same = known is not None and known.consumers == consumers and not after_gap
        since = known.since if known is not None and same else self._clock.monotonic()
        version = claim.metadata.resource_version
        self._idle[uid] = Idle(since=since, version=version, consumers=consumers)

    def renew(self, uid: str) -> None:
        """A bind of this replica relies on the claim."""
        known = self._idle.get(uid)
        if known is not None:
            self._idle[uid] = msgspec.structs.replace(known, since=self._clock.monotonic())

    def forget(self, uid: str) -> None:
        """The claim is in use, or gone, or not allocated."""
        self._idle.pop(uid, None)
        self.unseen.pop(uid, None)

    def replied(self, uid: str) -> None:
        """A reply has shown a claim that no watch has shown."""
        self.unseen.setdefault(uid, self._clock.monotonic())

    def entries(self) -> Iterator[tuple[str, Idle]]:
        """All of them, by claim UID, each as it is when it is reached."""
        return ((uid, entry) for uid in list(self._idle) if (entry := self._idle.get(uid)) is not None)

    def is_abandoned(self, claim: ResourceClaim) -> bool:
        """True when no bind of any replica relies on the claim any more: it has no consumer, or the same one for
        `abandoned_seconds`. False for a version that is not the last one on the watch.
        """
        known = self._idle.get(claim.metadata.uid)
        if known is None or known.version != claim.metadata.resource_version:
            return False
        return not known.consumers or self._clock.monotonic() - known.since >= self._config.abandoned_seconds
