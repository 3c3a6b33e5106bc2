"""Claims that only replies have shown, because the watch does not report the deletion of a claim that it never showed.

A claim can be created and deleted while the watch is broken. If a reply has shown the claim, it would keep its devices
for ever, because the list after the gap does not contain it. So a claim that the watch does not show is read after a
while.
"""

from __future__ import annotations

from dra_extender.scheduling.ports import Clock


class Unseen:
    """By claim UID, since when."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}

    def replied(self, uid: str) -> None:
        """A reply brought the claim."""
        self._since.setdefault(uid, self._clock.monotonic())

    def looked_up(self, uid: str) -> None:
        """The claim exists: it may stay unseen a little longer."""
        if uid in self._since:
            self._since[uid] = self._clock.monotonic()

    def forget(self, uid: str) -> None:
        """The watch has shown the claim, or it is gone."""
        self._since.pop(uid, None)

    def overdue(self, seconds: float) -> list[str]:
        """The claims that have been unseen for at least `seconds`."""
        now = self._clock.monotonic()
        return [uid for uid, since in self._since.items() if now - since >= seconds]
