"""Metrics of devices and pending pods: counted in the background, ready at every scrape.

Promises: counting does not delay the verbs: it runs in turns and in a small share of the time, so small clusters are
counted more often than large ones. A scrape reads the last count; its cost depends on the number of series, not on the
size of the cluster. Names of drivers, classes and capacities are labels; their number is bounded, and the rest counts
as "other".
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from dra_extender.api.quantity import ratio
from dra_extender.insight.devicereport.listing import counting_devices
from dra_extender.insight.devicereport.report import DeviceCounts
from dra_extender.insight.why.statements import BindingRule
from dra_extender.scheduling.outcomes import UNDIAGNOSED, Reading
from dra_extender.scheduling.turns import Turns, run
from dra_extender.scheduling.view import View
from dra_extender.unexpected import unexpected

_SHORTEST: Final = 1.0
"""Minimum seconds between two counts."""
_USUAL: Final = 15.0
"""Seconds between two counts if shorter pauses would use more than one part in `_UNNOTICED` of the time."""
_UNNOTICED: Final = 200
_SHARE: Final = 20
"""Counting uses at most one part in this many of the time, however large the cluster is."""
OTHER: Final = "other"
"""Label value for all names that have no series of their own."""
MOST_DRIVERS: Final = 20
MOST_CLASSES: Final = 50
MOST_CAPACITIES: Final = 20
"""Of all drivers together."""
_PODS: Final = 500
"""Pods in one turn."""
_ENDED: Final = object()


def pause(cost: float) -> float:
    """Seconds until the next count, by the CPU seconds of the last one."""
    return max(_SHORTEST, min(_USUAL, _UNNOTICED * cost), _SHARE * cost)


@dataclass(eq=False)
class Labels:
    """The names with series of their own: those with the most devices. A name keeps its series as long as it exists, so
    series do not come and go.
    """

    _most: int
    _names: set[str] = field(default_factory=set)

    def choose(self, sizes: Mapping[str, int]) -> None:
        """Update the names. `sizes`: number of devices by name."""
        self._names &= sizes.keys()
        others = sorted(sizes.keys() - self._names, key=lambda name: (-sizes[name], name))
        self._names.update(others[: self._most - len(self._names)])

    def of(self, name: str) -> str:
        return name if name in self._names else OTHER


@dataclass(eq=False)
class DeviceMetrics:
    """`_pending`: UIDs of pending pods. `_rule`: by UID, the rule that refuses a pod (empty: unknown). `clock`: CPU
    time of this thread; with wall time, a busy machine would count less often.
    """

    _view: View
    _pending: Callable[[], Iterable[str]]
    _rule: Callable[[str], BindingRule]
    clock: Callable[[], float] = time.thread_time
    readings: tuple[Reading, ...] = ()
    """The result of the last count; empty before the first one."""

    def __post_init__(self) -> None:
        self._drivers, self._classes = Labels(MOST_DRIVERS), Labels(MOST_CLASSES)
        self._capacities = Labels(MOST_CAPACITIES)

    async def run(self) -> None:
        while True:
            seconds = _USUAL
            try:
                seconds = pause(await self.count())
            except Exception as problem:
                unexpected("metrics", problem)
            await asyncio.sleep(seconds)

    async def count(self) -> float:
        """Count everything once. Returns the CPU seconds of all turns together."""
        return await run(self._timed())

    def _timed(self) -> Turns[float]:
        turns, cost, left = self.counting(), 0.0, True
        while left:
            started = self.clock()
            left = next(turns, _ENDED) is not _ENDED
            cost += self.clock() - started
            yield
        return cost

    def counting(self) -> Turns[None]:
        counts = yield from counting_devices(self._view)
        rules = yield from self._pending_by_rule()
        pods = (Reading("pending_pods", count, (rule,)) for rule, count in sorted(rules.items()))
        self.readings = (*self._of_devices(counts), *self._of_shares(counts), *pods)

    def _pending_by_rule(self) -> Turns[Counter[str]]:
        found: Counter[str] = Counter()
        for number, uid in enumerate(list(self._pending()), start=1):
            pod = self._view.pods.get(uid)
            if pod is not None and not pod.spec.node_name:
                found[self._rule(uid) or UNDIAGNOSED] += 1
            if number % _PODS == 0:
                yield
        return found

    def _of_devices(self, counts: DeviceCounts) -> Iterator[Reading]:
        for name, labels, counted in (
            ("devices", self._drivers, counts.drivers),
            ("class_devices", self._classes, counts.classes),
        ):
            sizes: Counter[str] = Counter()
            for (each, _), count in counted.items():
                sizes[each] += count
            labels.choose(sizes)
            series: Counter[tuple[str, str]] = Counter()
            for (each, state), count in counted.items():
                series[labels.of(each), state] += count
            yield from (Reading(name, count, key) for key, count in sorted(series.items()))

    def _of_shares(self, counts: DeviceCounts) -> Iterator[Reading]:
        self._capacities.choose(Counter(capacity for _, capacity in counts.offered))
        for name, amounts in (("share_capacity", counts.offered), ("share_capacity_free", counts.free)):
            series: Counter[tuple[str, str]] = Counter()
            for (driver, capacity), nano in amounts.items():
                series[self._drivers.of(driver), self._capacities.of(capacity)] += nano
            yield from (Reading(name, ratio(nano), key) for key, nano in sorted(series.items()))
