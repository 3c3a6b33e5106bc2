"""All states of a world, depth first: every one is looked at, and none twice.

Promises: ends only when all states that can be reached have been visited, or with the first violation, for which the
shortest way is then looked for, if the caller wants it. A circle of steps that have to happen would be a bind that
never ends: a violation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import msgspec

from tools.exploration.replica import determined
from tools.exploration.scene import Scene
from tools.exploration.world import State, World


class Explored(msgspec.Struct, frozen=True):
    """`ends`: states in which nothing has to happen. `local`: states of one replica, each reached by the real code."""

    states: int
    transitions: int
    ends: int
    local: int
    outcomes: frozenset[tuple[int, tuple[tuple[tuple[str, str], ...], ...]]]
    """(state of the server, what each replica has answered) of all states."""

    def __str__(self) -> str:
        return (
            f"{self.states:,} states, {self.transitions:,} transitions, {self.ends:,} ends, {self.local:,} of a replica"
        )


class ViolationError(AssertionError):
    """Something that must never be, and the shortest way to it."""

    def __init__(self, wrong: Sequence[str], way: Sequence[str]) -> None:
        self.wrong, self.way = wrong, way
        super().__init__("\n".join((*wrong, "after", *way)))


def explore(scene: Scene, *, merge: bool = True, most: int = 10_000_000, shortest: bool = True) -> Explored:
    """Visit every state. Raises ViolationError. `shortest`: look for the shortest way to a violation."""
    with determined():
        world = World(scene, merge=merge)
        found = _depth_first(world, most)
        if isinstance(found, Explored):
            return found
        raise (_shortest(world) if shortest else None) or found


def _depth_first(world: World, most: int) -> Explored | ViolationError:
    done: dict[State, bool] = {world.first: False}
    transitions = ends = 0
    stack: list[tuple[State, Iterator[tuple[str, State, bool]], list[bool]]] = [
        (world.first, world.moves(world.first), [])
    ]
    while stack:
        state, moves, forced = stack[-1]
        for what, after, must in moves:
            transitions += 1
            if must:
                forced.append(True)
            known = done.get(after)
            if known is None:
                wrong = world.wrong(state, after)
                if wrong:
                    return ViolationError(wrong, [what])
                done[after] = False
                if len(done) > most:
                    raise RuntimeError(f"more than {most:,} states: {world.scene.name}")
                stack.append((after, world.moves(after), []))
                break
            if not known:
                return ViolationError([f"steps that have to happen go round in a circle: {what}"], [what])
        else:
            if not forced:
                ends += 1
                wrong = world.unfinished(state)
                if wrong:
                    return ViolationError(wrong, [])
            done[state] = True
            stack.pop()
    local = sum(len(machine.states) for machine in world.machines)
    outcomes = frozenset((state[0], world.answers(state)) for state in done)
    return Explored(len(done), transitions, ends, local, outcomes)


def _shortest(world: World) -> ViolationError | None:
    """The violation that the fewest steps lead to; None for a circle."""
    came: dict[State, tuple[State, str] | None] = {world.first: None}
    queue = deque([world.first])
    while queue:
        state = queue.popleft()
        must_happen = False
        for what, after, must in world.moves(state):
            must_happen = must_happen or must
            if after not in came:
                came[after] = state, what
                wrong = world.wrong(state, after)
                if wrong:
                    return ViolationError(wrong, _way(came, after))
                queue.append(after)
        if not must_happen and (wrong := world.unfinished(state)):
            return ViolationError(wrong, _way(came, state))
    return None


def _way(came: dict[State, tuple[State, str] | None], state: State) -> list[str]:
    way: list[str] = []
    while (step := came[state]) is not None:
        state, what = step
        way.append(what)
    return way[::-1]
