"""What decisions cost against the units of work that they charge: `python -m tests.support.allocation.costs`.

`make cost` draws scenarios for ten minutes, and ends with the most expensive ones. The exit status is 1 when one of
them costs more than it is charged for.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, Final

import msgspec

from dra_extender.allocation.allocator import Allocator
from dra_extender.allocation.budget import UNLIMITED, CallState, Deferred, TurnBudget, TurnSpent, WorkBudget
from dra_extender.allocation.plan import STEP_BUDGET, Failure
from dra_extender.allocation.requests import PreparedClaims, prepare
from dra_extender.allocation.scenario import Scenario
from dra_extender.allocation.selection import suitability
from dra_extender.allocation.selectors import filter_selectors
from dra_extender.allocation.tallying import tally
from dra_extender.allocation.workerrequests import WorkerReplies
from dra_extender.cel import Work, WorkExceeded
from dra_extender.devices.holdings import NodeHoldings
from dra_extender.devices.inventory import node_view
from dra_extender.devices.pools import NodeView
from dra_extender.devices.usage import holdings_of
from dra_extender.limits import FRAMES
from tests.support.allocation.grammar import expensive
from tests.support.counting import TooMuch, lines, memory

Json = dict[str, Any]

LINES_PER_UNIT: Final = 20
"""A unit is about a microsecond: the most lines of Python that one may run."""
LINES_PER_UNIT_OF_CEL: Final = 40
LINES: Final = 5_000
"""Of the work that a decision does once."""
BYTES_PER_UNIT: Final = 250
BYTES: Final = 2**18
TURNS: Final = 4
"""In which the selectors of a request are evaluated for a device."""
CEILING: Final = 5_000
"""Units of work that one decision gets."""

Question = Callable[[PreparedClaims, NodeView, NodeHoldings, WorkBudget, Work | None], object]


def _allocate(prepared: PreparedClaims, view: NodeView, held: NodeHoldings, budget: WorkBudget, work: Any) -> object:
    return Allocator(share_ids=str).allocate(prepared, view, held, budget, work)


def _tally(prepared: PreparedClaims, view: NodeView, held: NodeHoldings, budget: WorkBudget, work: Any) -> object:
    return tally(prepared, view, held, STEP_BUDGET, budget, work)


QUESTIONS: Final[dict[str, Question]] = {"allocate": _allocate, "explain": _tally}


class Cost(msgspec.Struct, frozen=True):
    """Of one decision. `lines` is one more than a decision may run when it was stopped there."""

    lines: int
    bytes: int
    units: int

    @property
    def excess(self) -> float:
        """Above 1 when the decision costs more than it is charged for."""
        return max(
            self.lines / (LINES_PER_UNIT * self.units + LINES), self.bytes / (BYTES_PER_UNIT * self.units + BYTES)
        )


def cost(case: Json, question: Question, ceiling: int = CEILING) -> Cost | None:
    """The cost of evaluating the selectors, or of the decision on one node that follows, whichever is in greater
    excess; None for invalid claims.
    """
    scenario = Scenario(case)
    prepared = prepare(scenario.claims, scenario.classes, scenario.features)
    if isinstance(prepared, Failure):
        return None
    view = node_view(scenario.node, scenario.slices, scenario.rules, scenario.features)
    selected = _selected(prepared, view, ceiling)
    if selected.excess > 1:
        return selected
    for ask in (ask for request in prepared.requests for ask in request.asks):
        for device in view.devices:
            suitability(device.model, ask.filter)
    held = NodeHoldings(view, holdings_of(scenario.allocated, scenario.features))
    units = 0

    def decide() -> None:
        nonlocal units
        view.memo.clear()
        budget = TurnBudget(WorkerReplies(), allowance=2**40, ceiling=ceiling)
        try:
            budget.attempt(lambda work: question(prepared, view, held, budget, work))
        except (WorkExceeded, TurnSpent, Deferred):
            pass
        finally:
            units = budget.used

    most = LINES_PER_UNIT * 4 * ceiling + LINES
    try:
        found = lines(decide, most, "allocation", "devices")
    except TooMuch:
        return Cost(most + 1, 0, units)
    return max(selected, Cost(found, memory(decide), units), key=lambda each: each.excess)


def _selected(prepared: PreparedClaims, view: NodeView, ceiling: int) -> Cost:
    """The cost of evaluating all selectors, already compiled, for the first device in turns. Too many turns for an
    answer are in excess.
    """
    units = 0
    filters = {ask.filter: filter_selectors(ask.filter, UNLIMITED) for each in prepared.requests for ask in each.asks}

    def select() -> None:
        nonlocal units
        for filter, device in product(filters, view.devices[:1]):
            call = CallState()
            for _ in range(TURNS):
                budget = TurnBudget(WorkerReplies(), allowance=ceiling // 2, ceiling=ceiling, call=call)
                try:
                    suitability(device.model, filter, budget)
                    break
                except TurnSpent:
                    continue
                except Deferred:
                    break
                finally:
                    units += budget.used
            else:
                raise TooMuch(f"no answer in {TURNS} turns")

    most = 2**24
    try:
        found = lines(select, most, "dra_extender/cel", "dra_extender/allocation")
    except TooMuch:
        return Cost(most + 1, 0, 0)
    return Cost(found * LINES_PER_UNIT // LINES_PER_UNIT_OF_CEL, 0, units)


def main(given: Sequence[str] | None = None) -> int:
    sys.setrecursionlimit(FRAMES)
    parser = argparse.ArgumentParser(prog="python -m tests.support.allocation.costs")
    parser.add_argument("--seconds", type=float, default=600.0, help="for which scenarios are drawn (%(default)s)")
    parser.add_argument(
        "--seed", type=int, default=random.SystemRandom().randrange(10**9), help="of the first scenario"
    )
    parser.add_argument("--ceiling", type=int, default=20_000, help="units of work of a decision (%(default)s)")
    options = parser.parse_args(given)
    end = time.monotonic() + options.seconds
    found: list[tuple[float, int, str, Cost]] = []
    seed = options.seed
    while time.monotonic() < end:
        for name, question in QUESTIONS.items():
            measured = cost(expensive(random.Random(seed)), question, options.ceiling)
            if measured is not None:
                found.append((measured.excess, seed, name, measured))
        seed += 1
    found.sort(key=lambda entry: -entry[0])
    for excess, number, name, measured in found[:5]:
        print(f"{excess:.2f} of what it may cost: seed {number}, {name}: {measured}")
    excessive = sum(excess > 1 for excess, *_ in found)
    print(f"{len(found)} decisions, too expensive: {excessive}")
    return 1 if excessive else 0


if __name__ == "__main__":
    sys.exit(main())
