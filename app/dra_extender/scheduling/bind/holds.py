"""Devices promised to claims by binds that are under way: the one writer of holds.

Promises: a pod's claims are held all or none; who waits for the end of a hold is woken and notified when it has come.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dra_extender.api.resource import AllocationResult, ResourceClaim
from dra_extender.devices.ledger import HeldError, Hold, Ledger
from dra_extender.scheduling.requeue import RequeueTrigger
from dra_extender.scheduling.signals import Signals


class Holds(msgspec.Struct, frozen=True):
    """See the module, and `Ledger` for what a hold is."""

    ledger: Ledger
    requeue: RequeueTrigger
    signals: Signals

    def hold(self, claim: ResourceClaim, allocation: AllocationResult, owner: str) -> Hold:
        """Hold the devices for the claim of the pod with UID `owner`. Raises HeldError."""
        return self.ledger.hold(claim, allocation, owner=owner)

    def hold_all(
        self, claims: Sequence[ResourceClaim], allocations: Sequence[AllocationResult], owner: str
    ) -> list[Hold]:
        """Hold all or none. Raises HeldError."""
        holds: list[Hold] = []
        try:
            for claim, allocation in zip(claims, allocations, strict=True):
                holds.append(self.hold(claim, allocation, owner))
        except HeldError:
            for hold in holds:
                self.ledger.release(hold)
            raise
        return holds

    def exchange(self, hold: Hold, claim: ResourceClaim) -> Hold:
        """Hold the same devices for another claim instead, of which the held one was the stand-in. Raises HeldError."""
        self.ledger.release(hold)
        return self.hold(claim, hold.allocation, hold.owner)

    def confirm(self, hold: Hold, written: ResourceClaim) -> None:
        """Our write of the held allocation is stored."""
        self.ledger.confirm(hold, written)
        self._ended(hold)

    def release(self, hold: Hold) -> None:
        """The held allocation will not be written, or has been taken back."""
        if self.ledger.release(hold):
            self.requeue.improved()
        self._ended(hold)

    def _ended(self, hold: Hold) -> None:
        self.requeue.ended(hold.claim_uid)
        self.signals.notify(hold.claim_uid)
