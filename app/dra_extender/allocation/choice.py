"""Choosing between solutions: other orders of a node's devices, and what their first solutions cost.

Promises: whether a node has a solution is decided in the published order alone, and so is which error ends an attempt.
Another order only ever replaces a plan by one that costs less, within the steps that are left of the budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import msgspec

from dra_extender.allocation.plan import Failure, Plan, Unfit
from dra_extender.allocation.requests import PreparedClaims
from dra_extender.devices.nodeview import NodeView


class Chooser(Protocol):
    """What a policy says about one pod on one node. Pure."""

    def orders(self, prepared: PreparedClaims, view: NodeView) -> Iterable[NodeView]:
        """The view with its devices in other orders, the most promising first."""

    def cost(self, plan: Plan) -> Any:
        """What is to be as little as possible; all costs can be compared."""

    def summary(self, plan: Plan) -> str:
        """Who chose, and what it costs, for people."""


Attempt = Callable[[NodeView, int], Plan | Unfit | Failure]
"""The decision on a view, with a step budget."""


def least(first: Plan, orders: Iterable[NodeView], cost: Callable[[Plan], Any], attempt: Attempt, budget: int) -> Plan:
    """The plan that costs least, of the first one and those found in other orders; the earliest of several. `steps` of
    what is returned are those of all searches.
    """
    best, best_cost, steps = first, cost(first), first.steps
    for view in orders:
        if steps >= budget:
            break
        found = attempt(view, budget - steps)
        steps += found.steps
        if isinstance(found, Plan) and (found_cost := cost(found)) < best_cost:
            best, best_cost = found, found_cost
    return best if best.steps == steps else msgspec.structs.replace(best, steps=steps)
