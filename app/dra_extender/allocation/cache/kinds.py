"""Kinds of devices: numbers that are equal when nothing a decision reads of two devices is different.

Promises: what the filters of requests say, the attributes that constraints or a scorer compare, and all other traits as
a whole. A field that traits get is part of the kind by itself. Only ordinary attributes that nobody reads are left out:
a serial number does not make a device unlike all others.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from contextlib import suppress
from itertools import count
from typing import Final

from dra_extender.allocation.budget import UNLIMITED, Deferred, WorkBudget
from dra_extender.allocation.requests import Filter
from dra_extender.allocation.selection import suitability
from dra_extender.devices.belongings import Belongings
from dra_extender.devices.models import DeviceModel

REMEMBERED: Final = 50_000
"""How many kinds are found again. The number of one that was forgotten is never given again."""

FILTERS_PER_UNIT: Final = 4
"""What a filter says is charged when it is found out."""

IRRELEVANT: Final = 0
"""The kind of devices that no request can have."""


class Kinds:
    """The kinds for claims with these filters, and constraints on these attributes (full names).

    `every`: devices that no request can have are of interest as well.
    """

    def __init__(self, filters: tuple[Filter, ...], attributes: tuple[str, ...], *, every: bool = False) -> None:
        self._filters = filters
        self._attributes = attributes
        self._every = every
        self._numbers: dict[Hashable, int] = {}
        self._next = count(IRRELEVANT + 1)
        self._known: Belongings[DeviceModel, int] = Belongings()

    def of(self, model: DeviceModel, budget: WorkBudget = UNLIMITED) -> int:
        """The kind of devices with this model. Raises TurnSpent and Deferred."""
        known = self._known.get(id(model))
        return known.value if known is not None else self._known.give(model, self._number(model, budget))

    def look(self, models: Iterable[DeviceModel], budget: WorkBudget) -> None:
        """Find out what the filters say, one after the other: of all together, not all compiled selectors may be
        remembered. Raises TurnSpent; what workers have to answer is asked.
        """
        new = [model for model in dict.fromkeys(models) if id(model) not in self._known]
        for filter in self._filters if len(new) > 1 else ():
            for model in new:
                with suppress(Deferred):
                    suitability(model, filter, budget)

    def _number(self, model: DeviceModel, budget: WorkBudget) -> int:
        budget.spend(2 + len(self._filters) // FILTERS_PER_UNIT)
        suitabilities = tuple(
            (found.lost, found.selected, found.takes, found.objection is not None)
            for found in (suitability(model, filter, budget) for filter in self._filters)
        )
        if not self._every and not any(selected or objection for _, selected, _, objection in suitabilities):
            return IRRELEVANT
        content = suitabilities, tuple(model.traits.attribute(name) for name in self._attributes), model.bare
        number = self._numbers.get(content)
        if number is None:
            if len(self._numbers) >= REMEMBERED:
                self._numbers.clear()
            number = self._numbers[content] = next(self._next)
        return number
