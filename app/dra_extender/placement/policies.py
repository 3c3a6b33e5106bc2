"""Policies: what taking devices, CPU and memory from a node costs.

Promises: pure and deterministic. A policy compares states of nodes; it never decides what fits. `pack` and `spread` are
MostAllocated and LeastAllocated of NodeResourcesFit with devices as one more resource: the mean of the used parts of
devices, CPU and memory, where a node has them.

`fragmentation` is a weighted loss: how much less the node is worth afterwards to the pods seen so far (`workload`).
Descended from Fragmentation Gradient Descent (Weng et al., USENIX ATC 2023); different from there are weights by
scarcity, devices that CPU and memory cannot feed, and exact costs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, NamedTuple, Protocol, get_args

from dra_extender.placement.account import SHOWN_LOSSES, described
from dra_extender.placement.podshape import Need
from dra_extender.placement.state import State
from dra_extender.placement.stock import Stock
from dra_extender.placement.workload import FED_PART, Row, Use, Weights, uses, worth

PolicyName = Literal["first-fit", "pack", "spread", "fragmentation"]
POLICIES: Final[tuple[PolicyName, ...]] = get_args(PolicyName)

REMEMBERED: Final = 200_000

Cost = tuple[float, float]
"""Less is better; the second decides between devices of one node where the first is equal."""


class Policy(Protocol):
    """`version` changes when costs may. `work` grows with what costs were found out, in steps of some 0.1
    microseconds.
    """

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> int: ...

    @property
    def work(self) -> int: ...

    @property
    def basis(self) -> str:
        """What costs are, in words."""

    def cost(self, before: State, after: State) -> Cost:
        """Of leaving the node like this."""

    def terms(self, before: State, after: State) -> Iterator[str]:
        """Why it costs that, for people."""


def used_part(state: State) -> float:
    """The mean of the used parts of what the node has, 0 to 1."""
    parts = [part for _, part in used_parts(state)]
    return sum(parts) / len(parts) if parts else 0.0


def used_parts(state: State) -> list[tuple[str, float]]:
    """Of what the node has, each by name: the used part, 0 to 1."""
    parts: list[tuple[str, float]] = []
    if state.stock.whole:
        parts.append(("devices", 1 - state.stock.free / state.stock.whole))
    if state.whole.cpu:
        parts.append(("CPU", 1 - state.cpu / state.whole.cpu))
    if state.whole.memory:
        parts.append(("memory", 1 - state.memory / state.whole.memory))
    return parts


_STEPS: Final = 20
"""Of finding out how much of a node is used."""


class _Allocated:
    """Looks at how much of the node is used afterwards. `sign`: 1 when the less the better, -1 when the more."""

    version: Final = 0

    def __init__(self, sign: int) -> None:
        self.work = 0
        self._sign = sign

    def cost(self, before: State, after: State) -> Cost:
        self.work += _STEPS
        return self._sign * used_part(after), self._sign * after.stock.unity

    def terms(self, before: State, after: State) -> Iterator[str]:
        yield f"used afterwards: {', '.join(f'{name} {part:.0%}' for name, part in used_parts(after))}"


class Pack(_Allocated):
    """The fullest node, and there what leaves most in one piece: the device that has least left."""

    name: Final = "pack"
    basis: Final = "less the mean of what is used of devices, CPU and memory afterwards"

    def __init__(self) -> None:
        super().__init__(-1)


class Spread(_Allocated):
    """The emptiest node, and there the device that has most left."""

    name: Final = "spread"
    basis: Final = "the mean of what is used of devices, CPU and memory afterwards"

    def __init__(self) -> None:
        super().__init__(1)


class Loss(NamedTuple):
    """What a shape loses: `amount` in devices, times what the shape counts."""

    cpu: int
    memory: int
    need: Need
    amount: float


class Worths:
    """What nodes are good for by their states, remembered. `work` grows with the shapes that were looked at."""

    def __init__(self, fed_part: float = FED_PART) -> None:
        self.work = 0
        self._fed_part = fed_part
        self._weights: Weights = ()
        self._uses: dict[Stock, tuple[Use, ...]] = {}
        self._known: dict[tuple[Stock, float, float], float] = {}

    def weigh(self, weights: Weights) -> None:
        """What shapes count from now on."""
        self._weights = weights
        self._uses.clear()
        self._known.clear()

    def of(self, state: State) -> float:
        """What the node is good for."""
        key = state[:3]
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            used = self._used(state.stock)
            self.work += _STEPS + sum(len(use.shapes) for use in used)
            found = self._known[key] = worth(used, state.cpu, state.memory, self._fed_part)
        return found

    def losses(self, before: State, after: State) -> Iterator[Loss]:
        """What each shape loses, where it loses or gains anything."""
        for row in self._weights:
            for cpu, memory, weight in row.shapes:
                one = (Row(row.need, ((cpu, memory, weight),)),)
                values = [
                    worth(uses(state.stock, one), state.cpu, state.memory, self._fed_part) for state in (before, after)
                ]
                if values[0] != values[1]:
                    yield Loss(round(1 / cpu), round(1 / memory), row.need, values[0] - values[1])

    def _used(self, stock: Stock) -> tuple[Use, ...]:
        found = self._uses.get(stock)
        if found is None:
            if len(self._uses) >= REMEMBERED:
                self._uses.clear()
            found = self._uses[stock] = uses(stock, self._weights)
        return found


class Fragmentation:
    """The node and device that the workload loses least with."""

    name: Final = "fragmentation"
    basis: Final = (
        "devices that the pods seen so far could use before and not afterwards, those in demand counting more"
    )

    def __init__(self) -> None:
        self.version = 0
        self.worths = Worths()

    @property
    def work(self) -> int:
        return self.worths.work

    def weigh(self, weights: Weights) -> None:
        """What shapes count from now on."""
        self.version += 1
        self.worths.weigh(weights)

    def cost(self, before: State, after: State) -> Cost:
        return self.worths.of(before) - self.worths.of(after), -after.stock.unity

    def terms(self, before: State, after: State) -> Iterator[str]:
        losses = sorted(self.worths.losses(before, after), key=lambda loss: -abs(loss.amount))
        for loss in losses[:SHOWN_LOSSES]:
            lost = "loses" if loss.amount > 0 else "gains"
            yield f"{lost} {abs(loss.amount):.4g} for pods with {described(loss.cpu, loss.memory, loss.need)}"
