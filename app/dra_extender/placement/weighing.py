"""When shapes are weighed anew, and how that is kept from taking long.

Promises: weights follow the workload and the cluster with a delay of a few questions: each question does a fixed amount
of the work, and the old weights are in force until the new ones are ready.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from dra_extender.allocation.budget import TurnSpent
from dra_extender.placement.policies import Fragmentation
from dra_extender.placement.standing import Standing
from dra_extender.placement.units import TooCostly
from dra_extender.placement.workload import Weights, Workload, plain, scarce

EAGER: Final = 64
"""Weights are renewed at each of so many first pods,"""
INTERVAL: Final = 400
"""and then whenever so many more have come."""

PORTION: Final = 200_000
"""Work of one question: shapes looked at on states of nodes, some 20 milliseconds."""


class Weighing:
    """Of the shapes of a workload on the nodes as they stand."""

    def __init__(self, workload: Workload, standing: Standing, fragmentation: Fragmentation) -> None:
        self._workload = workload
        self._standing = standing
        self._fragmentation = fragmentation
        self._pods = -1
        self._epoch = -1
        self._under_way: Generator[int, None, Weights] | None = None

    def renew(self) -> None:
        """The workload is another one: weigh it with the next question."""
        self._pods, self._under_way = -1, None

    def advance(self) -> None:
        """Begin when it is time, and do a portion of what has begun. Raises TooCostly and TurnSpent."""
        self._standing.catch_up()
        if self._epoch != self._standing.epoch:
            self._epoch = self._standing.epoch
            self.renew()
        if self._under_way is None and self._is_due():
            if not self._fragmentation.version:
                self._fragmentation.weigh(plain(self._workload.frequencies()))
            self._under_way = scarce(tuple(self._workload.frequencies()), tuple(self._standing.census()))
            self._pods = self._workload.pods
        if self._under_way is not None:
            self._continue(self._under_way)

    def _is_due(self) -> bool:
        pods = self._workload.pods
        return self._pods != pods and (self._pods < 0 or pods <= EAGER or pods - self._pods >= INTERVAL)

    def _continue(self, under_way: Generator[int, None, Weights]) -> None:
        work = 0
        while work < PORTION:
            try:
                work += next(under_way)
            except StopIteration as end:
                self._fragmentation.weigh(end.value)
                self._under_way = None
                return
            except (TooCostly, TurnSpent):  # begun anew by the next question
                self.renew()
                raise
