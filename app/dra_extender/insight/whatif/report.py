"""The answer to "what if": pod by pod, and for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from dra_extender.plurals import counted

Verdict = Literal["fits", "would fit", "no more", "does not fit"]

_TITLES: Final[tuple[tuple[Verdict, str], ...]] = (
    ("no more", "would not fit any more"),
    ("would fit", "would fit then"),
    ("does not fit", "would still not fit"),
    ("fits", "would fit, as now"),
)


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One pod (namespace/name). `displaced`: it would lose its node. `now`: where it fits as things are, or is, and
    `node`: where it would fit; empty when nowhere. `reason`: why it would not; `remedy`: what would help then, decided
    again with that change; empty when no single change would, or nobody has looked for it.
    """

    pod: str
    verdict: Verdict
    displaced: bool
    now: str
    node: str
    reason: str = ""
    remedy: str = ""


def verdict_of(now: str, node: str) -> Verdict:
    """`now` and `node`: where the pod fits, empty when nowhere."""
    if node:
        return "fits" if now else "would fit"
    return "no more" if now else "does not fit"


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """How many pods have each verdict."""

    no_more: int = 0
    would_fit: int = 0
    does_not_fit: int = 0
    fits: int = 0


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """`problems` are those of the slices that were supposed. `left_out`: pods that were not looked at, because there
    are too many, or looking took too much; then the answer is not `complete`. Nor is it when somebody would have to be
    waited for: such pods count as not fitting, and their reason says so. `work`: how many nodes were looked at.
    """

    nodes_added: tuple[str, ...]
    outcomes: tuple[Outcome, ...]
    totals: Totals
    problems: tuple[str, ...] = ()
    left_out: int = 0
    complete: bool = True
    work: int = 0

    def text(self) -> str:
        """For people."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        if self.nodes_added:
            yield f"With {counted(len(self.nodes_added), 'more node')}: {', '.join(self.nodes_added)}."
        for problem in self.problems:
            yield f"Problem: {problem}."
        if not self.outcomes and not self.left_out:
            yield "No pod waits, and none would lose its node."
        for verdict, title in _TITLES:
            found = [outcome for outcome in self.outcomes if outcome.verdict == verdict]
            if found:
                yield f"{counted(len(found), 'pod')} {title}:"
            for outcome in found:
                source = f"{outcome.now} -> " if outcome.displaced and outcome.node else ""
                yield f"  {outcome.pod}: {source}{outcome.node or outcome.reason}"
                if outcome.remedy:
                    yield f"    What helps then: {outcome.remedy}{'' if outcome.remedy.endswith('?') else '.'}"
        if self.left_out:
            yield f"Not looked at: {counted(self.left_out, 'more pod')}."


def totals_of(outcomes: tuple[Outcome, ...]) -> Totals:
    """Added up."""
    found = Counter(outcome.verdict for outcome in outcomes)
    return Totals(
        no_more=found["no more"],
        would_fit=found["would fit"],
        does_not_fit=found["does not fit"],
        fits=found["fits"],
    )
