"""Claims known by replies only: no watch has shown them, so none will say that one is gone.

A claim that came and went while the watch was broken, and that we met by a read or write of our own, would hold its
devices for ever: the list after the gap does not have it, and nobody reports what was never seen. So those that stay
unseen are looked up after a while.
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
        """The claim was found to exist: it may stay unseen a little longer."""
        if uid in self._since:
            self._since[uid] = self._clock.monotonic()

    def forget(self, uid: str) -> None:
        """The watch has shown the claim, or it is gone."""
        self._since.pop(uid, None)

    def overdue(self, seconds: float) -> list[str]:
        """The claims that have been unseen for so long."""
        now = self._clock.monotonic()
        return [uid for uid, since in self._since.items() if now - since >= seconds]
