"""Stocks: what the devices of a node are to pods, whichever device it is.

Promises: pure. Nodes with equal units, in any order, have one stock, so what it supplies to a need and what a pod may
leave of it are found out once. A need whose requests compete for the same units is treated as if each came first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from dra_extender.allocation.requests import DeviceFilter
from dra_extender.placement.podshape import EVERY, Demand, Need
from dra_extender.placement.units import Unit

MOST_REMAINDERS: Final = 32
"""How many different remainders of a stock are compared for a pod; those most in one piece, if there are more."""
REMEMBERED: Final = 512


class Supply(NamedTuple):
    """What a stock has for a need. `touch`: the units it can get at, in whole units; `copies`: how many pods with this
    need the devices could serve, fractions included.
    """

    touch: float
    copies: float


class Stock:
    """Units sorted by number. `free`: how much of them is left, of `whole`."""

    __slots__ = ("_remainders", "_stocks", "_supplies", "free", "number", "units", "unity", "whole")

    def __init__(self, number: int, units: tuple[Unit, ...], stocks: Stocks) -> None:
        self.number = number
        self.units = units
        self.free = sum(unit.free for unit in units)
        self.whole = sum(unit.whole for unit in units)
        self.unity = sum(unit.unity for unit in units)
        """How much of it is left in one piece."""
        self._stocks = stocks
        self._supplies: dict[Need, Supply | None] = {}
        self._remainders: dict[Need, tuple[Stock, ...]] = {}

    def supply(self, need: Need) -> Supply | None:
        """None when the need cannot be met."""
        try:
            return self._supplies[need]
        except KeyError:
            if len(self._supplies) >= REMEMBERED:
                self._supplies.clear()
            found = self._supplies[need] = self._supply(need)
            return found

    def _supply(self, need: Need) -> Supply | None:
        touch, copies = 0.0, float("inf")
        for demand in need:
            for filter, count in demand.alternatives:
                found = self._supply_of(filter, count)
                if found is not None:
                    touch += found.touch
                    copies = min(copies, found.copies)
                    break
            else:
                return None
        return Supply(touch, copies)

    def _supply_of(self, filter: DeviceFilter, count: int) -> Supply | None:
        touch, copies, at_once = 0.0, 0, 0
        for unit in self.units:
            rate = unit.rate(filter)
            touch += rate.touch
            copies += rate.copies
            at_once += min(rate.copies, 1) if unit.once else rate.copies
        if not at_once or at_once < count:
            return None
        return Supply(touch, copies / count if count > 0 else 1.0)

    def remainders(self, need: Need) -> tuple[Stock, ...]:
        """What may be left of it when a pod with this need comes, each once; the stock itself when it cannot come."""
        found = self._remainders.get(need)
        if found is None:
            if len(self._remainders) >= REMEMBERED:
                self._remainders.clear()
            found = self._remainders[need] = self._remaining(need)
        return found

    def _remaining(self, need: Need) -> tuple[Stock, ...]:
        stocks: tuple[Stock, ...] = (self,)
        for demand in need:
            found = {left.number: left for stock in stocks for left in stock.after(demand)}
            if not found:
                return (self,)
            stocks = _fullest(found.values())
        return stocks

    def after(self, demand: Demand) -> tuple[Stock, ...]:
        """What may be left of it after one request; none when the request cannot be met."""
        for filter, count in demand.alternatives:
            if self._supply_of(filter, count) is not None:
                return self._all_gone(filter) if count == EVERY else self._some_gone(filter, count)
        return ()

    def _all_gone(self, filter: DeviceFilter) -> tuple[Stock, ...]:
        units: list[Unit] = []
        for unit in self.units:
            left = unit
            while rate := left.rate(filter).after:
                left = rate[0]
                if unit.once:
                    break
            units.append(left)
        return (self._stocks.of(units),)

    def _some_gone(self, filter: DeviceFilter, count: int) -> tuple[Stock, ...]:
        """Device by device. A device is not taken twice by one request, so those that are done with stand aside."""
        stages: list[tuple[Stock, tuple[Unit, ...]]] = [(self, ())]
        for _ in range(count):
            found: dict[tuple[int, tuple[int, ...]], tuple[Stock, tuple[Unit, ...]]] = {}
            for stock, done in stages:
                for rest, aside in stock._one_gone(filter):
                    both = (*done, *aside)
                    found[rest.number, tuple(sorted(unit.number for unit in both))] = rest, both
            stages = sorted(found.values(), key=_fullness)[:MOST_REMAINDERS]
        left = {(stock := self._stocks.of((*rest.units, *done))).number: stock for rest, done in stages}
        return tuple(left.values())

    def _one_gone(self, filter: DeviceFilter) -> Iterator[tuple[Stock, tuple[Unit, ...]]]:
        last = None
        for index, unit in enumerate(self.units):
            if unit is last:
                continue
            last = unit
            rest = self.units[:index] + self.units[index + 1 :]
            for after in unit.rate(filter).after:
                if unit.once:
                    yield self._stocks.of(rest), (after,)
                else:
                    yield self._stocks.of((*rest, after)), ()


def _fullness(stage: tuple[Stock, tuple[Unit, ...]]) -> tuple[float, int]:
    stock, done = stage
    return -stock.unity - sum(unit.unity for unit in done), stock.number


def _fullest(stocks: Iterable[Stock]) -> tuple[Stock, ...]:
    return tuple(sorted(stocks, key=lambda stock: (-stock.unity, stock.number))[:MOST_REMAINDERS])


class Stocks:
    """All stocks by their units."""

    def __init__(self) -> None:
        self._by_units: dict[tuple[int, ...], Stock] = {}

    def __len__(self) -> int:
        return len(self._by_units)

    def of(self, units: Iterable[Unit]) -> Stock:
        """The stock of these units, in any order."""
        ordered = tuple(sorted(units, key=_number))
        key = tuple([unit.number for unit in ordered])
        found = self._by_units.get(key)
        if found is None:
            found = self._by_units[key] = Stock(len(self._by_units), ordered, self)
        return found


def _number(unit: Unit) -> int:
    return unit.number
