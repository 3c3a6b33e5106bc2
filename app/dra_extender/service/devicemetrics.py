"""What monitoring reads of devices and of pods that wait for them: counted in the background, ready at every scrape.

Promises: nothing of it is in the way of a verb: it is counted in small steps, between which everything else goes on,
and for a small share of the time only, so a small cluster is counted more often than a large one. A scrape reads what
was counted last: it costs as much as there are series, whatever the cluster's size. Names of drivers, classes and
capacities are labels, and their number is bounded: the rest is summed up as "other".
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from dra_extender.insight.devicereport.report import State
from dra_extender.insight.devicereport.stocktaking import Stock, stocktaking
from dra_extender.insight.why.report import BindingRule
from dra_extender.scheduling.outcomes import UNDIAGNOSED, Reading
from dra_extender.scheduling.slices import Slices, run
from dra_extender.scheduling.view import View
from dra_extender.unexpected import unexpected

_SHORTEST: Final = 1.0
"""Seconds between two counts at least."""
_USUAL: Final = 15.0
"""Seconds between two counts where shorter pauses would cost more than one part in `_UNNOTICED`."""
_UNNOTICED: Final = 200
_SHARE: Final = 20
"""Counting takes at most one part in so many of the time, however large the cluster is."""
OTHER: Final = "other"
"""Label value for all names that have no series of their own."""
MOST_DRIVERS: Final = 20
MOST_CLASSES: Final = 50
MOST_CAPACITIES: Final = 20
"""Of all drivers together."""
_PODS: Final = 500
"""Looked at in one step."""
_NANO: Final = 10**9


def pause(cost: float) -> float:
    """Seconds from a count that took so many seconds of CPU time to the next one."""
    return max(_SHORTEST, min(_USUAL, _UNNOTICED * cost), _SHARE * cost)


class Labels:
    """Which names are told by themselves: those with the most devices. One that is told stays as long as it is there,
    so that its series does not come and go.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._told: set[str] = set()

    def choose(self, sizes: Mapping[str, int]) -> None:
        """From now on. `sizes`: devices by name."""
        self._told &= sizes.keys()
        others = sorted(sizes.keys() - self._told, key=lambda name: (-sizes[name], name))
        self._told.update(others[: self._most - len(self._told)])

    def of(self, name: str) -> str:
        """The name, or what stands for those that are not told."""
        return name if name in self._told else OTHER


class DeviceMetrics:
    """`refused`: UIDs of the pods that wait. `rule`: the one that refuses a pod, by UID, where that was found out.

    `clock`: of the CPU time of this thread. By another one, counts would be the rarer the busier the machine is.
    """

    def __init__(
        self,
        view: View,
        refused: Callable[[], Iterable[str]],
        rule: Callable[[str], BindingRule],
        *,
        clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._view = view
        self._refused = refused
        self._rule = rule
        self._clock = clock
        self._drivers = Labels(MOST_DRIVERS)
        self._classes = Labels(MOST_CLASSES)
        self._capacities = Labels(MOST_CAPACITIES)
        self._readings: tuple[Reading, ...] = ()

    async def run(self) -> None:
        """Count again and again, until cancelled."""
        while True:
            seconds = _USUAL
            try:
                seconds = pause(await self.count())
            except Exception as problem:
                unexpected("metrics", problem)
            await asyncio.sleep(seconds)

    async def count(self) -> float:
        """Count everything once. The seconds of CPU time that it took, without what others did between its steps."""
        return await run(self._timed())

    def _timed(self) -> Slices[float]:
        """Count; the seconds of CPU time of all slices together."""
        slices, cost, left = self.counting(), 0.0, True
        while left:
            started = self._clock()
            left = next(slices, _ENDED) is not _ENDED
            cost += self._clock() - started
            yield
        return cost

    def counting(self) -> Slices[None]:
        """As `count`, a step at a time."""
        stock = yield from stocktaking(self._view)
        rules = yield from self._pending()
        self._readings = (*self._of_devices(stock), *self._of_shares(stock), *_of_pods(rules))

    def readings(self) -> tuple[Reading, ...]:
        """What was counted last; nothing before the first count has ended."""
        return self._readings

    def _pending(self) -> Slices[Counter[str]]:
        found: Counter[str] = Counter()
        for number, uid in enumerate(list(self._refused()), start=1):
            pod = self._view.pods.get(uid)
            if pod is not None and not pod.spec.node_name:
                found[self._rule(uid) or UNDIAGNOSED] += 1
            if number % _PODS == 0:
                yield
        return found

    def _of_devices(self, stock: Stock) -> Iterator[Reading]:
        for name, labels, counted in (
            ("devices", self._drivers, stock.drivers),
            ("class_devices", self._classes, stock.classes),
        ):
            labels.choose(_by_first(counted))
            told: Counter[tuple[str, str]] = Counter()
            for (each, state), count in counted.items():
                told[labels.of(each), state] += count
            yield from (Reading(name, count, key) for key, count in sorted(told.items()))

    def _of_shares(self, stock: Stock) -> Iterator[Reading]:
        self._capacities.choose(Counter(capacity for _, capacity in stock.offered))
        for name, amounts in (("share_capacity", stock.offered), ("share_capacity_free", stock.free)):
            told: Counter[tuple[str, str]] = Counter()
            for (driver, capacity), nano in amounts.items():
                told[self._drivers.of(driver), self._capacities.of(capacity)] += nano
            yield from (Reading(name, nano / _NANO, key) for key, nano in sorted(told.items()))


_ENDED: Final = object()


def _by_first(counted: Mapping[tuple[str, State], int]) -> Counter[str]:
    found: Counter[str] = Counter()
    for (name, _), count in counted.items():
        found[name] += count
    return found


def _of_pods(rules: Mapping[str, int]) -> Iterator[Reading]:
    return (Reading("pending_pods", count, rule) for rule, count in sorted(rules.items()))
