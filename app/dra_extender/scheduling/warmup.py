"""The questions that pods will ask first, asked before any does: the first pod then finds what later ones find.

`warm_up` promises: it is a question, and changes no decision; one step takes no longer than a turn of a verb. Asked
again it costs what has changed since.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final

import msgspec

from dra_extender.allocation.budget import TurnSpent
from dra_extender.api.decoding import convert
from dra_extender.api.resource import ResourceClaim, ResourceClaimStatus
from dra_extender.scheduling.claims import Unschedulable
from dra_extender.scheduling.view import View

CONTENTS: Final = 32
"""Of so many different contents of claims every node is judged: more than most clusters have, and a fraction of what
is remembered."""
TURNS: Final = 300
"""After so many, some 3 seconds, pods have waited long enough: the rest is done when somebody asks."""
_UNALLOCATED: Final = ResourceClaimStatus()

Claims = tuple[ResourceClaim, ...]


def warm_up(view: View) -> Iterator[None]:
    """Judge every node for what the pods of the cluster ask for, those that wait first, and for one device of each
    class. A step is a turn, or a look at a pod.
    """
    seen: set[tuple[bytes, ...]] = set()
    turns = 0
    names = list(view.cluster.nodes)
    for claims in chain(_of_pods(view), _of_classes(view)):
        if claims and (content := view.decisions.signatures(claims)) not in seen:
            seen.add(content)
            for _ in _judge(view, claims, names):
                turns += 1
                yield
        if len(seen) >= CONTENTS or turns >= TURNS:
            return
        yield


def _judge(view: View, claims: Claims, names: list[str]) -> Iterator[None]:
    for turn in view.turns():
        try:
            turn.decisions.node_results(claims, names)
        except TurnSpent:
            yield
        else:
            return


def _of_pods(view: View) -> Iterator[Claims]:
    """What each pod asks for, as if nothing were allocated to it; nothing where that is not known."""
    for pod in sorted(view.pods, key=lambda pod: bool(pod.spec.node_name)):
        if pod.spec.resource_claims:
            found = view.claims_of(pod)
            yield () if isinstance(found, Unschedulable) else tuple(map(_unallocated, found))


def _unallocated(claim: ResourceClaim) -> ResourceClaim:
    return msgspec.structs.replace(claim, status=_UNALLOCATED)


def _of_classes(view: View) -> Iterator[Claims]:
    for name in view.cluster.classes:
        request = {"name": "r", "exactly": {"deviceClassName": name, "allocationMode": "ExactCount", "count": 1}}
        body = {"metadata": {"name": name, "uid": name}, "spec": {"devices": {"requests": [request]}}}
        yield (convert(ResourceClaim, body),)
