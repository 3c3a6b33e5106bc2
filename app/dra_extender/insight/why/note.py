"""A diagnosis as an event: a reason for programs, a note for people.

Promises: a note has at most `LONGEST` characters, the remedy included: the reason is cut before it. Reasons are
constant.
"""

from __future__ import annotations

from typing import Final, NamedTuple, get_args

from dra_extender.insight.why.report import BindingRule, Diagnosis
from dra_extender.plurals import counted
from dra_extender.scheduling.noderules import NodeRule

LONGEST: Final = 200
_TAIL: Final = 120
"""A remedy that is longer would leave too little room for the reason, and is not told."""

_REASONS: Final[dict[BindingRule, str]] = {
    "claim missing": "ClaimMissing",
    "claim not created": "ClaimNotCreated",
    "class missing": "DeviceClassMissing",
    "feature gate": "FeatureDisabled",
    "claim leaving": "ClaimLeaving",
    "claim full": "ClaimFull",
    "claim unreadable": "ClaimUnreadable",
    "claim": "ClaimUnusable",
    "error": "SelectorFailed",
}
_UNTOLD: Final[frozenset[BindingRule]] = frozenset(("", "claim in flight", "scheduling gate", "scheduler", "no nodes"))
"""What passes by itself, or is no matter of devices."""


class Note(NamedTuple):
    """What an event says. `claim` is to blame (namespace/name), if one is."""

    reason: str
    text: str
    claim: str


def note_of(found: Diagnosis) -> Note | None:
    """The event about a pod that waits; None when there is nothing to tell."""
    if found.state != "refused" or found.rule in _UNTOLD:
        return None
    reason = _REASONS.get(found.rule, "NodesUnavailable" if found.rule in get_args(NodeRule) else "DevicesUnavailable")
    return Note(reason, _text(found), found.claim)


def _text(found: Diagnosis) -> str:
    for remedy in found.remedies[:1]:
        added = any(change.kind == "node added" for change in remedy.changes)
        helps = "" if added else f" fits {counted(remedy.nodes, 'node')}"
        tail = f"; {remedy.short}{helps}"
        if len(tail) <= _TAIL:
            return _cut(found.summary, LONGEST - len(tail)) + tail
    return _cut(found.summary, LONGEST)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"
