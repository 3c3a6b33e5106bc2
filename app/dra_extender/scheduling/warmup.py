"""Warm-up: make the decisions that the first calls will need, so that they find warm caches.

Promises: `warm_up` is a question and changes no decision. Each of its turns takes no longer than a turn of a verb. A
repetition costs only as much as has changed since.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final

import msgspec

from dra_extender.api.core import Pod
from dra_extender.api.decoding import convert
from dra_extender.api.resource import ResourceClaim, ResourceClaimStatus
from dra_extender.scheduling.claims import Unschedulable
from dra_extender.scheduling.turns import Turns, in_turns
from dra_extender.scheduling.view import View

CONTENTS: Final = 32
"""Different contents of claims that are decided on every node: more than most clusters have."""
TURNS: Final = 300
"""After this many turns, about 3 seconds, the rest is decided when pods ask."""
_UNALLOCATED: Final = ResourceClaimStatus()

Claims = tuple[ResourceClaim, ...]


def warm_up(view: View) -> Turns[None]:
    """Decide on every node for the claims of all pods, pending pods first, and for one device of each class."""
    yield from view.decisions.learn_attributes()
    seen: set[tuple[bytes, ...]] = set()
    turns = 0
    names = list(view.cluster.nodes)
    for _pod, claims in chain(_of_pods(view), _of_classes(view)):  # the watchdog finds the pod here
        content = yield from _content(view, claims)
        if claims and content not in seen:
            seen.add(content)
            for _ in _decide(view, claims, names):
                turns += 1
                yield
        if len(seen) >= CONTENTS or turns >= TURNS:
            return
        yield


def _content(view: View, claims: Claims) -> Turns[tuple[bytes, ...]]:
    return (yield from in_turns(view.budgets(), lambda budget: view.decisions.with_budget(budget).signatures(claims)))


def _decide(view: View, claims: Claims, names: list[str]) -> Turns[None]:
    yield from in_turns(view.budgets(), lambda budget: view.with_budget(budget).decisions.node_results(claims, names))


def _of_pods(view: View) -> Iterator[tuple[Pod, Claims]]:
    """Each pod and its claims as if they were not allocated; none where they are unknown."""
    for pod in sorted(view.pods, key=lambda pod: bool(pod.spec.node_name)):
        if pod.spec.resource_claims:
            found = view.claims_of(pod)
            claims = () if isinstance(found, Unschedulable) else found
            yield pod, tuple(msgspec.structs.replace(claim, status=_UNALLOCATED) for claim in claims)


def _of_classes(view: View) -> Iterator[tuple[None, Claims]]:
    for name in view.cluster.classes:
        request = {"name": "r", "exactly": {"deviceClassName": name, "allocationMode": "ExactCount", "count": 1}}
        body = {"metadata": {"name": name, "uid": name}, "spec": {"devices": {"requests": [request]}}}
        yield None, (convert(ResourceClaim, body),)
