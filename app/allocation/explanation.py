"""Why a node was refused."""

from __future__ import annotations

from app.allocation.plan import Explanation, Failure
from app.allocation.requests import PreparedClaims
from app.devices.holdings import NodeHoldings
from app.devices.pools import NodeView


def explain(
    prepared: PreparedClaims | Failure, view: NodeView, holdings: NodeHoldings, step_budget: int
) -> Explanation:
    """Not yet."""
    error = prepared.error if isinstance(prepared, Failure) else ""
    return Explanation(view.node, "error" if error else "refused", error, (), "", "", (), 0)
