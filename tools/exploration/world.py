"""A small world all of whose interleavings are walked through: replicas, the API server, and others who write there.

A step is one of
- a bind is called at a replica;
- the API server carries out a request of a replica;
- its reply arrives; or it never does, before or after the request was carried out (`lost`): one that was not may still
  be carried out at any time until `Limits.doubt_seconds` have passed for who sent it;
- a watch brings its next event: those of claims and those of pods, at each replica, each as late as you like;
- a watch has broken, what it had not brought is lost, and a list brings what is there (`gaps`);
- the server is set back to the first state, with its versions or higher ones (`set_backs`): requests and replies under
  way are lost, all watches break, and each goes on with a list, as late as you like;
- a pause of a replica is over; or a limit to its waiting is reached (`limits`);
- the sweeper of a replica goes its round (`sweeps`), or it goes on with binds that could not take everything back;
- another component takes the next step on its list (`Actor`), at any time or never.
Numbers in brackets are how often, at most. What is not named as bounded happens in all orders.

Why the states are fewer than the orders: a state holds all that the future rests on (the server's objects and versions,
what each replica is in, what is on its way), so ways that meet go on together. One thing is left out: what a watch
brings to a replica that has answered all its calls, holds nothing and sweeps nothing. It asks the server for nothing
any more, so neither the server nor anybody else can tell when it hears of what.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import msgspec

from dra_extender.api.core import Pod
from dra_extender.api.errors import OutcomeUnknownError
from dra_extender.api.resource import ResourceClaim
from tools.exploration.likeness import Tokens
from tools.exploration.machines import Machine, Things, is_write
from tools.exploration.replica import KINDS, Replica
from tools.exploration.scene import FAULTS, LIMITS, PRICES, SWEEPER, Price, Scene
from tools.exploration.server import Event, Outcome, Server


class Cell(msgspec.Struct, frozen=True):
    """One replica and what is on its way to it: its state, undelivered events of claims and pods, replies, and requests
    without a caller, with the time they were given up.
    """

    local: int
    queues: tuple[tuple[Event, ...], tuple[Event, ...]] = ((), ())
    replies: tuple[tuple[int, int], ...] = ()
    orphans: tuple[tuple[int, float], ...] = ()
    retired: tuple[tuple[str, str], ...] | None = None
    """What it has answered, when nothing is left for it to do."""


class Rest(msgspec.Struct, frozen=True):
    """Which binds have been called, how far the others are, and what is left of what is bounded."""

    called: int
    acted: tuple[int, ...]
    left: tuple[int, ...]

    def paid(self, price: Price) -> Rest | None:
        if not price or price == "free":
            return self
        at = PRICES.index(price)
        if not self.left[at]:
            return None
        return msgspec.structs.replace(self, left=(*self.left[:at], self.left[at] - 1, *self.left[at + 1 :]))


BROKEN: Event = (-1, -1, False)
"""At the head of a queue: the watch has broken, and a list comes first."""

State = tuple[int, ...]
"""Numbers: of the server's state, of the rest, and of each replica's cell."""

Move = tuple[str, int, Price]
"""(what happens at a replica, the cell afterwards, what it takes)"""


class Numbered:
    """Values by number."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self.values: list[Any] = []

    def number(self, value: Hashable) -> int:
        found = self._numbers.get(value)
        if found is None:
            found = self._numbers[value] = len(self.values)
            self.values.append(value)
        return found


class World:
    """`moves` from a state; `wrong` says what must never be."""

    def __init__(self, scene: Scene, *, merge: bool = True) -> None:
        self.scene = scene
        self.things = Things()
        self.server = Server(self.things, scene.objects)
        self._lost = self.things.number(OutcomeUnknownError(0, "Timeout"))
        tokens, objects = Tokens(), self.server.objects

        def machine(name: str) -> Machine:
            def make() -> Replica:
                return Replica(name, objects, LIMITS, tokens, scene.aged, bool(scene.set_backs))

            return Machine(make, self.things, merge=merge)

        self.machines = [machine(name) for name in "ABC"[: scene.replicas]]
        self._cells = [Numbered() for _ in self.machines]
        self._calls_of = [sum(bind.replica == n for bind in scene.binds) for n in range(scene.replicas)]
        self._rests = Numbered()
        self._paid: dict[tuple[int, Price], int | None] = {}
        self._own: list[dict[int, tuple[Move, ...]]] = [{} for _ in self.machines]
        self._sent: list[dict[tuple[int, tuple[Event, ...]], int]] = [{} for _ in self.machines]
        self._served: dict[tuple[int, int, int], tuple[tuple[str, Price, int, Outcome], ...]] = {}
        self._pods = {pod.metadata.name: pod for pod in self.server.objects if isinstance(pod, Pod)}
        rest = Rest(0, (0,) * len(scene.actors), (scene.lost, scene.gaps, scene.limits, scene.sweeps, scene.set_backs))
        self.first: State = (
            self.server.first,
            self._rests.number(rest),
            *(cells.number(Cell(0)) for cells in self._cells),
        )
        for act in scene.before:
            outcome = self.server.act(self.first[0], act.name, act.step, KINDS.index(act.kind))
            assert outcome is not None, act.name
            self.first = self._spread(outcome, self.first[1], self.first[2:])

    # --- moves ------------------------------------------------------------------------------------------------------

    def moves(self, state: State) -> Iterator[tuple[str, State, bool]]:
        """(what happens, the state afterwards, True when it has to happen sooner or later)"""
        server, rest_number = state[0], state[1]
        for index in range(len(self.machines)):
            cell = state[2 + index]
            own = self._own[index].get(cell)
            if own is None:
                own = self._own[index][cell] = tuple(self._moves_of(index, self._cells[index].values[cell]))
            spared = self.scene.faulty not in (None, index)
            for what, after, price in own:
                rest = self._pay(rest_number, price) if not (spared and price in FAULTS) else None
                if rest is not None:
                    yield what, (server, rest, *state[2 : 2 + index], after, *state[3 + index :]), not price
            served = self._served.get((server, index, cell))
            if served is None:
                served = tuple(self._moves_with(index, server, self._cells[index].values[cell]))
                self._served[server, index, cell] = served
            for what, price, after, outcome in served:
                rest = self._pay(rest_number, price) if not (spared and price in FAULTS) else None
                if rest is not None:
                    cells = (*state[2 : 2 + index], after, *state[3 + index :])
                    yield what, self._spread(outcome, rest, cells), not price
        yield from self._calls(state)
        yield from self._acts(state)
        if (rest := self._pay(rest_number, "set_backs")) is not None:
            cut = (self._cut(index, number) for index, number in enumerate(state[2:]))
            yield "the server is set back", (self.server.set_back(self.scene.bump), rest, *cut), False

    def _cut(self, index: int, number: int) -> int:
        """The server ends all connections of a replica."""
        cell: Cell = self._cells[index].values[number]
        if cell.retired is not None:
            return number
        lost = tuple((call, self._lost) for call, _ in self.machines[index].states[cell.local].waiting)
        return self._put(index, cell, queues=((BROKEN,), (BROKEN,)), replies=lost, orphans=())

    def _pay(self, rest: int, price: Price) -> int | None:
        if not price or price == "free":
            return rest
        key = rest, price
        if key not in self._paid:
            paid = self._rests.values[rest].paid(price)
            self._paid[key] = None if paid is None else self._rests.number(paid)
        return self._paid[key]

    def _spread(self, outcome: Outcome, rest: int, cells: Sequence[int]) -> State:
        """Events go to all watches."""
        if not outcome.events:
            return (outcome.state, rest, *cells)
        return (outcome.state, rest, *(self._send(index, cell, outcome.events) for index, cell in enumerate(cells)))

    def _send(self, index: int, number: int, events: tuple[Event, ...]) -> int:
        found = self._sent[index].get((number, events))
        if found is None:
            cell: Cell = self._cells[index].values[number]
            found = self._put(index, cell, **self._delivered(index, cell, events)) if cell.retired is None else number
            self._sent[index][number, events] = found
        return found

    def _delivered(self, index: int, cell: Cell, events: tuple[Event, ...]) -> dict[str, Any]:
        claims, pods = (
            tuple(event for event in events if event[0] == kind and BROKEN not in cell.queues[kind])
            for kind in range(2)
        )
        if not self.scene.prompt_pods:
            return {"queues": ((*cell.queues[0], *claims), (*cell.queues[1], *pods))}
        local = cell.local
        for _, number, removed in pods:
            local = self.machines[index].after(local, ("show", number, removed))
        return {"queues": ((*cell.queues[0], *claims), cell.queues[1]), "local": local}

    def _put(self, index: int, cell: Cell, **changed: Any) -> int:
        after: Cell = msgspec.structs.replace(cell, **changed)
        if after.retired is None:
            local = self.machines[index].states[after.local]
            if after.orphans:
                alive = tuple(orphan for orphan in after.orphans if local.now <= orphan[1] + LIMITS.doubt_seconds)
                after = msgspec.structs.replace(after, orphans=alive)
            if (
                local.idle
                and len(local.answers) == self._calls_of[index]
                and not (self.scene.sweeps and index == SWEEPER)
            ):
                after = Cell(0, orphans=after.orphans, retired=local.answers)
        return self._cells[index].number(after)

    def _moves_of(self, index: int, cell: Cell) -> Iterator[Move]:
        """What can happen at a replica without the server."""
        if cell.retired is not None:
            return
        machine, name = self.machines[index], "ABC"[index]
        local = machine.states[cell.local]
        replies = dict(cell.replies)
        for call, number in local.waiting:
            request = self.things[number]
            what = f"{name} {request.operation}"
            rest = tuple(entry for entry in cell.replies if entry[0] != call)
            if call in replies:
                after = machine.after(cell.local, ("reply", call, replies[call]))
                yield f"{what}: reply", self._put(index, cell, local=after, replies=rest), ""
            if is_write(request):
                after = machine.after(cell.local, ("reply", call, self._lost))
                if call in replies:
                    yield f"{what}: the reply is lost", self._put(index, cell, local=after, replies=rest), "lost"
                else:
                    orphans = (*cell.orphans, (number, local.now))
                    yield f"{what}: is lost, or late", self._put(index, cell, local=after, orphans=orphans), "lost"
        for kind, queue in enumerate(cell.queues):
            if queue and queue[0] != BROKEN:
                _, number, removed = queue[0]
                after = machine.after(cell.local, ("show", number, removed))
                queues = (queue[1:], cell.queues[1]) if kind == 0 else (cell.queues[0], queue[1:])
                yield (
                    f"{name} sees {self._called(number, removed)}",
                    self._put(index, cell, local=after, queues=queues),
                    "",
                )
        if local.may_pause or local.limit_next:
            after = machine.after(cell.local, ("fire",))
            yield f"{name} time", self._put(index, cell, local=after), "" if local.may_pause else "limits"
        if local.unfinished and cell.queues == ((), ()):
            after = machine.after(cell.local, ("unfinished_due",))
            yield f"{name} goes on with what is unfinished", self._put(index, cell, local=after), ""
        if self.scene.sweeps and index == SWEEPER and local.may_sweep:
            after = machine.after(cell.local, ("chores_due", self.scene.between))
            yield f"{name} sweeps", self._put(index, cell, local=after), "sweeps"

    def _moves_with(self, index: int, state: int, cell: Cell) -> Iterator[tuple[str, Price, int, Outcome]]:
        """What the server does for a replica."""
        machine, name = self.machines[index], "ABC"[index]
        done = {call for call, _ in cell.replies}
        for call, number in machine.states[cell.local].waiting if cell.retired is None else ():
            if call not in done:
                outcome = self.server.carry_out(state, number)
                replies = (*cell.replies, (call, outcome.reply))
                yield (
                    f"{name} {self.things[number].operation}: done",
                    "",
                    self._put(index, cell, replies=replies),
                    outcome,
                )
        for orphan in cell.orphans:
            outcome = self.server.carry_out(state, orphan[0])
            orphans = tuple(entry for entry in cell.orphans if entry is not orphan)
            what = f"{name} {self.things[orphan[0]].operation}: done late"
            yield what, "free", self._put(index, cell, orphans=orphans), outcome
        for kind, queue in enumerate(cell.queues):
            if queue and (self.scene.gaps or queue[0] == BROKEN):
                yield (
                    f"{name} lists {KINDS[kind].__name__}",
                    "" if queue[0] == BROKEN else "gaps",
                    self._listed(index, cell, state, kind),
                    Outcome(state, 0, ()),
                )

    def _listed(self, index: int, cell: Cell, state: int, kind: int) -> int:
        """After a list of the kind; or, if that has shown a set-back, after a restart, when both kinds are listed. What
        the replica had asked for may be carried out later.
        """
        machine, stored = self.machines[index], self.server.states[state]
        other = stored.objects if self.scene.set_backs else ((), ())
        shown = (stored.objects[0], other[1]) if kind == 0 else (other[0], stored.objects[1])
        after = machine.after(cell.local, ("list", KINDS[kind], shown, stored.versions))
        before = machine.states[cell.local]
        if machine.states[after].restarts == before.restarts:
            queues = ((), cell.queues[1]) if kind == 0 else (cell.queues[0], ())
            return self._put(index, cell, local=after, queues=queues)
        asked = {number for call, number in before.waiting if call not in dict(cell.replies)}
        late = ((number, before.now) for number in asked if is_write(self.things[number]))
        return self._put(index, cell, local=after, queues=((), ()), replies=(), orphans=(*cell.orphans, *late))

    def _calls(self, state: State) -> Iterator[tuple[str, State, bool]]:
        rest: Rest = self._rests.values[state[1]]
        for number, bind in enumerate(self.scene.binds):
            if not rest.called >> number & 1:
                called = self._rests.number(msgspec.structs.replace(rest, called=rest.called | 1 << number))
                at = 2 + bind.replica
                cell: Cell = self._cells[bind.replica].values[state[at]]
                pod = self.things.number(self._pods[bind.pod])
                given = ("bind", f"{number}", pod, bind.node)
                after = self._put(bind.replica, cell, local=self.machines[bind.replica].after(cell.local, given))
                what = f"{'ABC'[bind.replica]} is called to bind {bind.pod}"
                yield what, (state[0], called, *state[2:at], after, *state[at + 1 :]), False

    def _acts(self, state: State) -> Iterator[tuple[str, State, bool]]:
        rest: Rest = self._rests.values[state[1]]
        for number, acts in enumerate(self.scene.actors):
            at = rest.acted[number]
            if at < len(acts):
                act = acts[at]
                outcome = self.server.act(state[0], act.name, act.step, KINDS.index(act.kind))
                if outcome is not None:
                    acted = (*rest.acted[:number], at + 1, *rest.acted[number + 1 :])
                    after = self._rests.number(msgspec.structs.replace(rest, acted=acted))
                    yield act.name, self._spread(outcome, after, state[2:]), False

    def _called(self, number: int, removed: bool) -> str:
        obj = self.things[number]
        told = f"{type(obj).__name__} {obj.metadata.name}@{obj.metadata.resource_version}"
        if isinstance(obj, ResourceClaim) and obj.allocation is not None:
            told += f" allocated for {[entry.name for entry in obj.status.reserved_for]}"
        if isinstance(obj, Pod) and obj.spec.node_name:
            told += f" on {obj.spec.node_name}"
        return told + (" gone" if removed else "")

    # --- what must never be -----------------------------------------------------------------------------------------

    def wrong(self, before: State, after: State) -> Sequence[str]:
        """What is wrong with a state, as reached from the one before."""
        found: list[str] = []
        if after[0] != before[0]:
            found += self.server.wrong[after[0]]
        if self.scene.set_backs:  # a binding may have been on its way, and what was bound is not bound any more
            return [said for said in found if " bound without " not in said]
        for index, cells in enumerate(self._cells):
            if after[2 + index] != before[2 + index]:
                old, new = cells.values[before[2 + index]], cells.values[after[2 + index]]
                found += self._wrong_answers(index, self._said(index, old), self._said(index, new), after[0])
        return found

    def answers(self, state: State) -> tuple[tuple[tuple[str, str], ...], ...]:
        """What each replica has answered, by the number of the bind."""
        return tuple(self._said(n, cells.values[state[2 + n]]) for n, cells in enumerate(self._cells))

    def _said(self, index: int, cell: Cell) -> tuple[tuple[str, str], ...]:
        return self.machines[index].states[cell.local].answers if cell.retired is None else cell.retired

    def _wrong_answers(
        self, index: int, known: Sequence[tuple[str, str]], said: Sequence[tuple[str, str]], state: int
    ) -> Iterator[str]:
        """ "Bound" is said of a pod that is bound to that node."""
        for call, error in said[len(known) :]:
            bind = self.scene.binds[int(call)]
            exists = any(self.things[n].metadata.name == bind.pod for n in self.server.states[state].objects[1])
            if not error and exists and self.server.bound[state].get(f"uid-{bind.pod}") != bind.node:
                yield f"{'ABC'[index]} says that {bind.pod} is bound, and it is not"

    def unfinished(self, state: State) -> Sequence[str]:
        """What is wrong with a state in which nothing has to happen any more."""
        found: list[str] = []
        rest: Rest = self._rests.values[state[1]]
        for index, cells in enumerate(self._cells):
            cell: Cell = cells.values[state[2 + index]]
            found += () if self.scene.set_backs else self._unfenced(index, cell, state[0])
            if cell.retired is not None:
                continue
            local = self.machines[index].states[cell.local]
            called = sum(bind.replica == index and rest.called >> n & 1 for n, bind in enumerate(self.scene.binds))
            if len(local.answers) != called:
                found.append(f"{'ABC'[index]} owes {called - len(local.answers)} answers")
            elif not local.idle:
                found.append(f"{'ABC'[index]} still holds devices, or is at work")
        if self.scene.tidy:
            found += self.server.left_over(state[0])
        return found

    def _unfenced(self, index: int, cell: Cell, state: int) -> Iterator[str]:
        """Allocations that may still be written although no hold keeps the devices."""
        for number, _ in cell.orphans:
            request = self.things[number]
            allocates = request.operation == "write_status" and "allocation" in dict(request.named)
            if allocates and self.server.carry_out(state, number).events:
                name = request.args[0].metadata.name
                yield f"{'ABC'[index]} has given up, and what it wrote to {name} may still arrive"
