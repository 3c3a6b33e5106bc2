"""A diagnosis as a reader may see it: names of other namespaces become counts.

Promises: no field of a redacted diagnosis names a pod or claim that the reader does not see. `HIDDEN` stands for each
such object, so texts can count them. The texts are made again from the redacted structs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from dra_extender.allocation.tally import RequestTally
from dra_extender.api.core import Pod
from dra_extender.insight.why.remedies import place
from dra_extender.insight.why.report import Change, Diagnosis, Preempted, Remedy
from dra_extender.insight.why.statements import HoldingClaim
from dra_extender.insight.why.wording import text_of
from dra_extender.scheduling.noderules import Obstacle
from dra_extender.scheduling.reader import HIDDEN, Reader, listed

_NOUNS: Final = {"ResourceClaim": "claim", "ResourceClaimTemplate": "template"}


def redacted(found: Diagnosis, reader: Reader) -> Diagnosis:
    if reader.namespace is None:
        return found
    seen: Diagnosis = _part(found, reader)
    return replace(seen, summary=text_of(seen.statements)) if seen.statements else seen


def in_namespace(found: Diagnosis, pod: Pod, namespace: str) -> Diagnosis:
    """The pod's diagnosis for an equal pod of this namespace: remedies change the templates and claims there, and have
    no commands.
    """
    home = pod.metadata.namespace
    own = {("ResourceClaimTemplate", each.resource_claim_template_name) for each in pod.spec.resource_claims}
    own |= {("ResourceClaim", each.resource_claim_name) for each in pod.spec.resource_claims}

    def change(each: Change) -> Change:
        is_own = each.namespace == home and (each.object, each.name) in own
        return replace(each, namespace=namespace) if is_own else each

    return replace(
        found,
        remedies=tuple(replace(each, changes=tuple(map(change, each.changes)), commands=()) for each in found.remedies),
    )


def _part(part: Any, reader: Reader) -> Any:
    match part:
        case tuple():
            return tuple(_part(each, reader) for each in part)
        case HoldingClaim() if not reader.sees(part.claim):
            return replace(part, claim=HIDDEN, pods=())
        case Obstacle(rule="host port") if part.has:
            return replace(part, has=reader.shown(part.has))
        case Preempted():
            return replace(part, pods=tuple(map(reader.shown, part.pods)))
        case Remedy():
            return _remedy(part, reader)
        case msgspec.Struct() if not isinstance(part, RequestTally):  # which names no other object
            return replace(part, **{name: _part(getattr(part, name), reader) for name in part.__struct_fields__})
    return part


def _remedy(remedy: Remedy, reader: Reader) -> Remedy:
    """Without commands if a change is hidden: the reader could not type them."""
    changes = tuple(_change(change, reader) for change in remedy.changes)
    if changes == remedy.changes:
        return remedy
    text = " and ".join(_lines(changes))
    return replace(remedy, text=text, short=text, changes=changes, commands=())


def _change(change: Change, reader: Reader) -> Change:
    if not change.namespace or reader.sees(_key(change)):
        return change
    return Change(change.kind, change.object, HIDDEN, op=change.op)


def _lines(changes: Sequence[Change]) -> list[str]:
    """What to do, in a line per kind of change."""
    edited = [f"change {place(change)}" for change in changes if change.path]
    kinds = dict.fromkeys((change.op, change.object) for change in changes if not change.path)
    for op, kind in kinds:
        keys = [_key(change) for change in changes if not change.path and (change.op, change.object) == (op, kind)]
        edited.append(f"{'wait for' if op == 'wait' else op} {listed(_NOUNS.get(kind, kind.lower()), keys)}")
    return edited


def _key(change: Change) -> str:
    return f"{change.namespace}/{change.name}" if change.namespace else change.name
