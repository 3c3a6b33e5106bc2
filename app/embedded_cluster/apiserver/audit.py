"""The list of requests served, bounded, for tests and for people who wonder who wrote what."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """One request; `resource` includes the subresource, `code` is 0 when the connection was broken without an
    answer."""

    verb: str
    resource: str
    namespace: str
    name: str
    user: str
    user_agent: str
    code: int


class AuditLog:
    """The last `limit` requests, oldest first; `total` counts all."""

    def __init__(self, limit: int = 10_000) -> None:
        self._served: deque[AuditEvent] = deque(maxlen=limit)
        self.total = 0

    def note(self, served: AuditEvent) -> None:
        self._served.append(served)
        self.total += 1

    def clear(self) -> None:
        self._served.clear()

    def __iter__(self) -> Iterator[AuditEvent]:
        return iter(self._served)

    def __len__(self) -> int:
        return len(self._served)

    def find(self, verb: str = "", resource: str = "", name: str = "") -> list[AuditEvent]:
        """The requests with this verb, resource and name; empty means any."""
        return [
            served
            for served in self._served
            if verb in ("", served.verb) and resource in ("", served.resource) and name in ("", served.name)
        ]
