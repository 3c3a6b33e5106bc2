"""The answer to a what-if request, pod by pod, and its text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from dra_extender.plurals import counted

Verdict = Literal["fits", "would fit", "no more", "does not fit"]

_TITLES: Final[tuple[tuple[Verdict, str], ...]] = (
    ("no more", "would no longer fit"),
    ("would fit", "would fit"),
    ("does not fit", "would still not fit"),
    ("fits", "would still fit"),
)


class PodOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """One pod (namespace/name). `displaced`: it would lose its node. `now`: the node that it fits, or runs on, without
    the changes. `node`: the node that it would fit after the changes; empty if it would fit no node. `reason`: why it
    would not fit. `remedy`: a verified change with which it would then fit; empty if no such change was found.
    """

    pod: str
    verdict: Verdict
    displaced: bool
    now: str
    node: str
    reason: str = ""
    remedy: str = ""


def verdict_of(now: str, node: str) -> Verdict:
    """`now` and `node`: the node that the pod fits; empty if there is none."""
    if node:
        return "fits" if now else "would fit"
    return "no more" if now else "does not fit"


class VerdictTotals(msgspec.Struct, frozen=True, kw_only=True):
    """How many pods have each verdict."""

    no_more: int = 0
    would_fit: int = 0
    does_not_fit: int = 0
    fits: int = 0


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """`problems`: of the slices that the request adds. `left_out`: pods that were not tried, because there are too many
    pods or nodes. The answer is not `complete` then, nor if some node was not decided in time: such a pod counts as not
    fitting, and its reason says it. `work`: nodes that were tried.
    """

    nodes_added: tuple[str, ...]
    outcomes: tuple[PodOutcome, ...]
    totals: VerdictTotals
    problems: tuple[str, ...] = ()
    left_out: int = 0
    complete: bool = True
    work: int = 0

    def lines(self) -> Iterator[str]:
        """For people."""
        if self.nodes_added:
            yield f"With {counted(len(self.nodes_added), 'more node')}: {', '.join(self.nodes_added)}."
        for problem in self.problems:
            yield f"Problem: {problem}."
        if not self.outcomes and not self.left_out:
            yield "No pod is pending, and no pod would lose its node."
        for verdict, title in _TITLES:
            found = [outcome for outcome in self.outcomes if outcome.verdict == verdict]
            if found:
                yield f"{counted(len(found), 'pod')} {title}:"
            for outcome in found:
                source = f"{outcome.now} -> " if outcome.displaced and outcome.node else ""
                yield f"  {outcome.pod}: {source}{outcome.node or outcome.reason}"
                if outcome.remedy:
                    yield f"    Suggestion: {outcome.remedy}{'' if outcome.remedy.endswith('?') else '.'}"
        if self.left_out:
            yield f"Not tried: {counted(self.left_out, 'more pod')}."


def totals_of(outcomes: tuple[PodOutcome, ...]) -> VerdictTotals:
    """Counted by verdict."""
    found = Counter(outcome.verdict for outcome in outcomes)
    return VerdictTotals(
        no_more=found["no more"],
        would_fit=found["would fit"],
        does_not_fit=found["does not fit"],
        fits=found["fits"],
    )
