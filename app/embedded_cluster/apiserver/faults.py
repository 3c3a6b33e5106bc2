"""Faults to inject: what can go wrong between a client and the API server, on demand and repeatable by seed.

A `RequestFault` says which requests it hits (verb, resource, name, user agent, chance, how often) and what happens to
them: latency, an error status, or a connection that breaks, before or after the request took effect. Watches can be
cut, expired, delayed, made to repeat events and to bring any line.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from embedded_cluster.apiserver.requests import RequestInfo
from embedded_cluster.apiserver.statuses import StatusError

_ANSWERS: Final = {
    409: (
        "Conflict",
        "Operation cannot be fulfilled: injected conflict; please apply your changes to the latest version",
    ),
    410: ("Expired", "injected: too old resource version"),
    429: ("TooManyRequests", "injected: the server is currently unable to handle the request"),
    500: ("InternalError", "Internal error occurred: injected"),
    503: ("ServiceUnavailable", "injected: the server is currently unable to handle the request"),
    504: ("Timeout", "injected: the server was unable to return a response in the time allotted"),
}


@dataclass(eq=False)
class RequestFault:
    """One rule. Patterns are shell globs; `resource` is `pods` or `pods/status`.

    `latency` in seconds; `until` holds the request back until this event is set. `status` answers with that code, or
    `drop` breaks the connection without an answer. With `after`, all of that comes when the request has taken effect,
    so its outcome is unknown to the client. `times` bounds how many requests are hit, `skip` lets that many matching
    requests through first.
    """

    verb: str = "*"
    resource: str = "*"
    name: str = "*"
    user_agent: str = "*"
    probability: float = 1.0
    times: int | None = None
    skip: int = 0
    latency: float = 0.0
    until: asyncio.Event | None = None
    status: int | None = None
    drop: bool = False
    after: bool = False
    hits: int = 0
    """How many requests were hit so far."""

    def matches(self, info: RequestInfo, user_agent: str) -> bool:
        return (
            fnmatchcase(info.verb, self.verb)
            and fnmatchcase(info.target, self.resource)
            and fnmatchcase(info.name, self.name)
            and fnmatchcase(user_agent, self.user_agent)
        )

    def problem(self) -> Exception | None:
        """What it raises: ConnectionDropped, a StatusError, or nothing when it only takes time."""
        if self.drop:
            return ConnectionDropped()
        return self.error() if self.status is not None else None

    def error(self) -> StatusError:
        """The answer of a fault with a status."""
        code = self.status or 500
        reason, message = _ANSWERS.get(code, ("", "injected"))
        headers: dict[str, str] = {}
        details = None
        if code == 429:
            headers["Retry-After"] = "1"
            details = {"retryAfterSeconds": 1}
        return StatusError(code, reason, message, details, headers=headers)


class ConnectionDropped(Exception):
    """The connection is to be broken without an answer."""


@dataclass(frozen=True, slots=True)
class Ordeal:
    """What one request has to go through, before or after it takes effect: time to wait, and an exception."""

    delay: float = 0.0
    gates: tuple[asyncio.Event, ...] = ()
    problem: Exception | None = None

    def and_then(self, fault: RequestFault) -> Ordeal:
        """This, and what the fault does; the first exception counts."""
        gates = (*self.gates, fault.until) if fault.until is not None else self.gates
        return Ordeal(self.delay + fault.latency, gates, self.problem or fault.problem())

    async def undergo(self) -> None:
        """Wait, then raise the exception if there is one: StatusError or ConnectionDropped."""
        for gate in self.gates:
            await gate.wait()
        if self.delay:
            await asyncio.sleep(self.delay)
        if self.problem is not None:
            raise self.problem


UNHARMED: Final = Ordeal()


class Faults:
    """The faults of one server. With the same seed, rules and requests, the same requests are hit."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)
        self._rules: list[RequestFault] = []
        self._lags: dict[str, float] = {}
        self._repeats: dict[str, float] = {}
        self._end: Callable[[str, bool], int] = lambda resource, expired: 0
        self._tell: Callable[[str, bytes], int] = lambda resource, line: 0

    def add(self, fault: RequestFault) -> RequestFault:
        """Put a rule in force; returns it, so that `hits` can be read and `remove` called."""
        self._rules.append(fault)
        return fault

    def remove(self, fault: RequestFault) -> None:
        """Take a rule back."""
        self._rules.remove(fault)

    def clear(self) -> None:
        """No more faults."""
        self._rules.clear()
        self._lags.clear()
        self._repeats.clear()

    def judge(self, info: RequestInfo, user_agent: str) -> tuple[Ordeal, Ordeal]:
        """What happens to this request before and after it takes effect; counts the hits."""
        before = after = UNHARMED
        for fault in self._rules:
            if not fault.matches(info, user_agent) or not self._strikes(fault):
                continue
            if fault.after:
                after = after.and_then(fault)
            else:
                before = before.and_then(fault)
        return before, after

    def _strikes(self, fault: RequestFault) -> bool:
        if fault.times is not None and fault.hits >= fault.times:
            return False
        if fault.probability < 1.0 and self._random.random() >= fault.probability:
            return False
        if fault.skip > 0:
            fault.skip -= 1
            return False
        fault.hits += 1
        return True

    # watches

    def lag(self, seconds: float, resource: str = "*") -> None:
        """Deliver watch events of matching resources that much later; 0 ends it."""
        self._lags[resource] = seconds

    def repeat_events(self, probability: float, resource: str = "*") -> None:
        """Deliver that share of watch events of matching resources twice; 0 ends it."""
        self._repeats[resource] = probability

    def lag_of(self, resource: str) -> float:
        """Seconds by which events of `resource` are late."""
        return max((s for pattern, s in self._lags.items() if fnmatchcase(resource, pattern)), default=0.0)

    def repeated(self, resource: str, lines: list[bytes]) -> list[bytes]:
        """`lines` with some of them twice."""
        chance = max((p for pattern, p in self._repeats.items() if fnmatchcase(resource, pattern)), default=0.0)
        if chance <= 0:
            return lines
        return [line for line in lines for _ in range(2 if self._random.random() < chance else 1)]

    def connect(self, end: Callable[[str, bool], int], tell: Callable[[str, bytes], int]) -> None:
        """The server sets how its watches are ended: `end(resource pattern, with 410)` returns how many. `tell` writes
        a line into them.
        """
        self._end, self._tell = end, tell

    def cut_watches(self, resource: str = "*") -> int:
        """Break the connections of matching watches; returns how many."""
        return self._end(resource, False)

    def expire_watches(self, resource: str = "*") -> int:
        """End matching watches with a 410 ERROR event; returns how many."""
        return self._end(resource, True)

    def tell_watches(self, line: bytes, resource: str = "*") -> int:
        """Write a line, whatever it is, into matching watches; returns into how many."""
        return self._tell(resource, line)
