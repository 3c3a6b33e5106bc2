"""The workload seen so far: which pod shapes come how often, and how scarce what they need has become.

Promises: pure; `count` costs the same however many pods were seen. Counts are halved when there are many, so a shape
that has not come for long is forgotten.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from dra_extender.allocation.requests import DeviceFilter
from dra_extender.placement.podshape import Need, PodShape, filters_of
from dra_extender.placement.state import State
from dra_extender.placement.stock import Stock

MOST_PODS: Final = 1 << 16
"""When so many pods were counted, all counts are halved."""
MOST_SHAPES: Final = 512
"""Shapes that are told apart; the rarest half is forgotten when there are more."""

SCARCITY_LIMIT: Final = 20.0
"""Nothing counts more than so many times its frequency, however scarce."""
FED_PART: Final = 0.5
"""λ: how much of a device's worth needs CPU and memory beside it."""

_HARD: Final = 4
"""Times as long as a shape takes in `worth`, it takes in `scarce`."""

_NO_CPU: Final = 1e12
_EXACT: Final = 1 - 1e-12


class Row(msgspec.Struct, frozen=True, gc=False):
    """Shapes with one need: per shape cpu and memory inverted (copies per millicore and byte), and the weight."""

    need: Need
    shapes: tuple[tuple[float, float, float], ...]


Weights = tuple[Row, ...]


class Workload:
    """Counts of pods by shape."""

    def __init__(self) -> None:
        self._counts: dict[PodShape, float] = {}
        self.pods = 0
        """How many were counted."""
        self._held = 0.0

    def count(self, shape: PodShape, times: int = 1) -> None:
        """So many pods of this shape have come. Pods without devices do not matter."""
        self.pods += times
        if not shape.need:
            return
        self._counts[shape] = self._counts.get(shape, 0.0) + times
        self._held += times
        if self._held > MOST_PODS:
            self._counts = {known: count / 2 for known, count in self._counts.items() if count > 1}
            self._held = sum(self._counts.values())
        elif len(self._counts) > MOST_SHAPES:
            kept = sorted(self._counts, key=lambda known: -self._counts[known])[: MOST_SHAPES // 2]
            self._counts = {known: self._counts[known] for known in kept}
            self._held = sum(self._counts.values())

    def discount(self, shape: PodShape, times: int) -> None:
        """So many pods of this shape do not count any more."""
        left = self._counts.get(shape, 0.0) - times
        if left > 0:
            self._counts[shape] = left
        else:
            self._counts.pop(shape, None)
        self._held = sum(self._counts.values())

    def forget(self, filter: DeviceFilter) -> None:
        """No shape with this filter counts any more."""
        self._counts = {shape: count for shape, count in self._counts.items() if filter not in filters_of(shape)}
        self._held = sum(self._counts.values())

    def frequencies(self) -> Iterator[tuple[PodShape, float]]:
        """The share of each shape in all that are remembered."""
        total = sum(self._counts.values())
        yield from ((shape, count / total) for shape, count in self._counts.items())


def plain(frequencies: Iterable[tuple[PodShape, float]]) -> Weights:
    """Each shape counts by its frequency."""
    by_need: dict[Need, list[tuple[float, float, float]]] = {}
    for shape, weight in frequencies:
        by_need.setdefault(shape.need, []).append((*_inverted(shape), weight))
    return tuple(Row(need, tuple(shapes)) for need, shapes in by_need.items())


def scarce(
    frequencies: Iterable[tuple[PodShape, float]], nodes: Iterable[tuple[State, int]]
) -> Generator[int, None, Weights]:
    """How much each shape counts, given the states of nodes and how many nodes are in each: its frequency times the
    free devices over those that the shape can still use. In small steps: each yields the work it took.
    """
    rows = plain(frequencies)
    shapes = sum(len(row.shapes) for row in rows)
    usable = [[0.0] * len(row.shapes) for row in rows]
    free = 0.0
    for state, count in nodes:
        free += count * state.stock.free
        for row, sums in zip(rows, usable, strict=True):
            supply = state.stock.supply(row.need)
            if supply is not None:
                for index, (cpu, memory, _) in enumerate(row.shapes):
                    sums[index] += count * supply.touch * fed(state.cpu * cpu, state.memory * memory, supply.copies)
        yield _HARD * shapes
    return tuple(
        Row(
            row.need,
            tuple(
                (cpu, memory, weight * (min(SCARCITY_LIMIT, free / total) if total > 0 else SCARCITY_LIMIT))
                for (cpu, memory, weight), total in zip(row.shapes, sums, strict=True)
            ),
        )
        for row, sums in zip(rows, usable, strict=True)
    )


class Use(NamedTuple):
    """What a stock offers to the shapes of one row."""

    touch: float
    copies: float
    shapes: tuple[tuple[float, float, float], ...]


def uses(stock: Stock, weights: Weights) -> tuple[Use, ...]:
    """The rows that the stock has anything for."""
    found = ((stock.supply(row.need), row.shapes) for row in weights)
    return tuple(Use(*supply, shapes) for supply, shapes in found if supply is not None)


def worth(uses: Iterable[Use], free_cpu: float, free_memory: float, fed_part: float = FED_PART) -> float:
    """What a node with these uses is still good for: over all shapes, weight times the devices that the shape can get
    at, those less that CPU and memory could not feed. The heart of the cost, so it is written for speed.
    """
    total = 0.0
    plain_part = 1 - fed_part
    for touch, copies, shapes in uses:
        part = 0.0
        share = fed_part / copies
        for cpu, memory, weight in shapes:
            fed_by_cpu, fed_by_memory = free_cpu * cpu, free_memory * memory
            enough = fed_by_cpu if fed_by_cpu < fed_by_memory else fed_by_memory
            if enough >= copies:
                part += weight
            elif enough >= _EXACT:
                part += weight * (plain_part + share * enough)
        total += touch * part
    return total


def fed(by_cpu: float, by_memory: float, copies: float, fed_part: float = FED_PART) -> float:
    """The part of the devices that counts, when CPU and memory are enough for so many pods and devices for `copies`."""
    enough = min(by_cpu, by_memory)
    if enough < _EXACT:
        return 0.0
    return 1.0 if enough >= copies else 1 - fed_part + fed_part * enough / copies


def _inverted(shape: PodShape) -> tuple[float, float]:
    return (1 / shape.cpu if shape.cpu else _NO_CPU), (1 / shape.memory if shape.memory else _NO_CPU)
