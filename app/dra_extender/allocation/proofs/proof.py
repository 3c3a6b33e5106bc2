"""The proofs by name: what a search may use to skip parts of its order.

Promises: every subset of the proofs leads to the same answers; fewer of them take more steps. All of them are used,
unless somebody measures what one of them saves.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class Proof(Enum):
    """The value is the name in tables."""

    NOGOODS = "states that failed"
    EXCHANGE = "states equal up to an exchange of devices"
    AHEAD = "bounds up to an error"
    COUNTS = "enough devices for each request"
    LIMIT = "the limit of results"
    MATCH = "values for matchAttribute"
    DISTINCT = "values for distinctAttribute"
    HALL = "devices for all requests together"
    BUDGETS = "counters for all requests together"
    YIELDS = "devices that counter sets yield"
    SHARES = "shares into devices"
    GROUPS = "claims into groups of devices"
    SUMS = "bins of one dimension"
    BINS = "bins of any dimension"


ALL: Final = frozenset(Proof)
