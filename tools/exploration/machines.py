"""The states that one replica can be in, each reached by the real code, numbered as they are found.

Where a replica goes from a state by an input is looked up once, by replaying the inputs that lead to the state, and
remembered: the explorer meets the same state of one replica in many states of the world.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import msgspec

from tools.exploration.ports import Request
from tools.exploration.replica import Replica

KEPT = 300
"""Replicas that are kept as they are, to be given the next input. The others are made again when they are needed."""

Input = tuple[Any, ...]
"""The name of an input of `Replica`, and its arguments; objects are given by number (`Things`)."""


class Things:
    """Objects, requests and replies by number: equal ones have one number. None is 0."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._things: list[Any] = []
        self.number(None)

    def number(self, thing: Any) -> int:
        key: Hashable = repr(thing)
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self._things)
            self._things.append(thing)
        return found

    def __getitem__(self, number: int) -> Any:
        return self._things[number]


class Local(msgspec.Struct, frozen=True):
    """What the world sees of a replica in one state. `waiting`: (number of call, request) without a reply so far."""

    waiting: tuple[tuple[int, int], ...]
    answers: tuple[tuple[str, str], ...]
    may_pause: bool
    limit_next: bool
    idle: bool
    now: float
    may_sweep: bool
    unfinished: bool
    restarts: int


class Machine:
    """One replica's states. `merge`: states that are alike are one; otherwise each way is a state of its own."""

    def __init__(self, make: Callable[[], Replica], things: Things, *, merge: bool = True) -> None:
        self.states: list[Local] = []
        self.steps = 0
        self.replayed = 0
        self._make = make
        self._things = things
        self._merge = merge
        self._ways: list[tuple[Input, ...]] = []
        self._known: dict[Hashable, int] = {}
        self._next: dict[tuple[int, Input], int] = {}
        self._alive: dict[int, Replica] = {}
        self._enter(make(), ())

    def after(self, state: int, given: Input) -> int:
        """The state that this input leads to."""
        found = self._next.get((state, given))
        if found is None:
            replica = self._alive.pop(state, None) or self._replay(state)
            self._take(replica, given)
            self.steps += 1
            found = self._next[state, given] = self._enter(replica, (*self._ways[state], given))
        return found

    def _replay(self, state: int) -> Replica:
        replica = self._make()
        for given in self._ways[state]:
            self._take(replica, given)
            self.replayed += 1
        return replica

    def _take(self, replica: Replica, given: Input) -> None:
        things = self._things
        match given:
            case ("show", number, removed):
                replica.take("show", things[number], removed)
            case ("list", kind, shown, versions):
                replica.take("list", kind, [[things[number] for number in numbers] for numbers in shown], versions)
            case ("reply", call, number):
                replica.take("reply", call, things[number])
            case ("bind", call, number, node):
                replica.take("bind", call, things[number], node)
            case (verb, *rest):
                replica.take(verb, *rest)

    def _enter(self, replica: Replica, way: tuple[Input, ...]) -> int:
        key = replica.likeness() if self._merge else way
        state = self._known.get(key)
        if state is None:
            state = self._known[key] = len(self.states)
            may_pause, limit_next = replica.pauses
            self._ways.append(way)
            self.states.append(
                Local(
                    waiting=tuple((call, self._things.number(request)) for call, request in replica.requests),
                    answers=tuple(replica.answers.items()),
                    may_pause=may_pause,
                    limit_next=limit_next,
                    idle=replica.idle,
                    now=replica.loop.now,
                    may_sweep=replica.may_sweep,
                    unfinished=replica.unfinished,
                    restarts=replica.restarts,
                )
            )
            self._alive[state] = replica
            if len(self._alive) > KEPT:
                del self._alive[next(iter(self._alive))]
        return state


def is_write(request: Request) -> bool:
    return not request.operation.startswith("read")
