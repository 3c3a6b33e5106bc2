"""What may take longer than the event loop can wait, as questions that a worker answers with the same code.

Promises: immutable, and complete: an answer depends on nothing but the question. `Overrun` is an answer as well: the
worker was stopped at one of its limits, so that nobody knows what it would have said.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from dra_extender.allocation.requests import PreparedClaims
from dra_extender.cel import CelGates, DeviceView, ReadSet
from dra_extender.devices.holdings import NodeHoldings, PoolHoldings
from dra_extender.devices.nodeview import NodeView
from dra_extender.devices.uses import PoolID


class CompileQuestion(msgspec.Struct, frozen=True):
    """Does the expression compile, and what does it read?"""

    expression: str
    gates: CelGates


class EvaluateQuestion(msgspec.Struct, frozen=True, eq=False):
    """Does the device match?"""

    expression: str
    gates: CelGates
    view: DeviceView


class SearchQuestion(msgspec.Struct, frozen=True, eq=False):
    """Which devices do the claims get on the node? `held` is what is held in its pools, `holdings` the same over the
    view.
    """

    prepared: PreparedClaims
    view: NodeView
    held: Mapping[PoolID, PoolHoldings]
    holdings: NodeHoldings


Question = CompileQuestion | EvaluateQuestion | SearchQuestion

Kind = Literal["compile", "evaluate", "search"]


def kind_of(question: Question) -> Kind:
    """For counting."""
    if isinstance(question, CompileQuestion):
        return "compile"
    return "evaluate" if isinstance(question, EvaluateQuestion) else "search"


class Compiled(msgspec.Struct, frozen=True, tag="compiled"):
    """A selector that workers have compiled, and evaluate. `problem`: why it fails on every device, as a whole text."""

    reads: ReadSet = ReadSet()
    problem: str = ""


class Evaluated(msgspec.Struct, frozen=True, tag="evaluated"):
    """`problem`: why the evaluation failed, as a whole text."""

    matches: bool
    problem: str = ""


class Searched(msgspec.Struct, frozen=True, tag="searched"):
    """The devices that were taken, in order, each as (request, alternative, device), all counted in the order of the
    search. None of them: the node is unfit for `reason`, or `error` is fatal for the attempt. Where that is about a
    claim, of this index, it is what follows the claim's name.
    """

    steps: int
    taken: tuple[tuple[int, int, int], ...] = ()
    reason: str = ""
    error: str = ""
    claim: int | None = None


class Overrun(msgspec.Struct, frozen=True, tag="overrun"):
    """`text` continues a sentence about the question: "needs more than 2 s"."""

    limit: Literal["time", "memory", "crash", "start"]
    text: str


Answer = Compiled | Evaluated | Searched | Overrun
