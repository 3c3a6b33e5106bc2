"""The pods that wait for devices, grouped by the reason for which they are not scheduled.

Promises: pods of a namespace that differ only in their names, and in the names of the claims created for them, share a
diagnosis, unless its text names one of them. `MOST_DIAGNOSES` and `MOST_TRIALS` bound the work; the pods that remain
are a group of their own. It runs in turns.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Final, Literal

import msgspec

from dra_extender.api.core import Pod
from dra_extender.api.decoding import encode
from dra_extender.api.groups import group_of
from dra_extender.devices.content import shortened
from dra_extender.insight.why.diagnosis import diagnosing
from dra_extender.insight.why.report import Diagnosis
from dra_extender.insight.why.statements import BindingRule
from dra_extender.insight.why.text import LIMITED, WIDTH, fully, suggestion
from dra_extender.plaintext import counted, wrapped
from dra_extender.scheduling.claims import Unschedulable, created_names
from dra_extender.scheduling.noderules import ResourcesInUse, parts_of
from dra_extender.scheduling.turns import QueryBudget, Turns
from dra_extender.scheduling.view import View

MOST_DIAGNOSES: Final = 200
MOST_TRIALS: Final = 4_000
"""Hypothetical decisions; no diagnosis begins after these."""
FEW: Final = 3
"""Names in the text."""


class WaitingGroup(msgspec.Struct, frozen=True):
    """Pods (namespace/name) that wait for the same `reason`. `diagnosis`: that of the first of them; None if the work
    did not suffice for these pods.
    """

    count: int
    state: Literal["fits", "refused", "not diagnosed"]
    reason: str
    pods: tuple[str, ...]
    diagnosis: Diagnosis | None = None


def pending_pods(view: View) -> Turns[list[Pod]]:
    """The pods without a node that use devices."""
    found, budget = list[Pod](), QueryBudget(view)
    for pod in view.pods:
        waits = not pod.spec.node_name and not pod.finished
        yield from budget.charge(1 + (parts_of(pod) if waits else 0))
        if waits and view.uses_devices(pod):
            found.append(pod)
    return found


def content_of(view: View, pod: Pod, spec: bytes) -> Turns[Hashable]:
    """Equal for pods of a namespace that share a diagnosis. `spec`: that of the pod, encoded."""
    claims = view.claims_of(pod)
    if isinstance(claims, Unschedulable):
        return pod.metadata.uid
    signatures = yield from QueryBudget(view).turn(lambda view: view.decisions.signatures(claims))
    if signatures is None:
        return pod.metadata.uid
    allocated = [claim.metadata.uid for claim in claims if claim.allocation is not None]
    return shortened(spec), pod.status.nominated_node_name, group_of(pod), signatures, *allocated


def names_itself(pod: Pod, text: str, rule: BindingRule = "") -> bool:
    """True when the text names the pod or a claim that was created for it: other pods cannot share it. What refuses a
    gang is the same for all its pods.
    """
    return rule != "gang" and any(
        name in text for name in (pod.metadata.key, *filter(None, created_names(pod).values()))
    )


def waiting(view: View, namespace: str, names: Sequence[str] | None = None) -> Turns[tuple[WaitingGroup, ...]]:
    """The pods of the namespace, or of all namespaces if it is empty; most pods first. `names`: as for `diagnosing`."""
    usage, shared = ResourcesInUse(view.pods), dict[Hashable, Diagnosis]()
    groups: dict[Hashable, tuple[list[str], Diagnosis | None]] = {}
    diagnosed = trials = 0
    for pod in sorted((yield from pending_pods(view)), key=lambda pod: pod.metadata.key):
        if namespace not in ("", pod.metadata.namespace):
            continue
        content = pod.metadata.namespace, (yield from content_of(view, pod, encode(pod.spec)))
        found = shared.get(content)
        if found is None and diagnosed < MOST_DIAGNOSES and trials < MOST_TRIALS:
            found = yield from diagnosing(view, pod, names, usage=usage)
            diagnosed, trials = diagnosed + 1, trials + found.work
            if not names_itself(pod, f"{found.summary} {suggestion(found)}", found.rule):
                shared[content] = found
        reason = (found.state, found.summary, found.unchecked, found.complete) if found is not None else None
        groups.setdefault(reason, ([], found))[0].append(pod.metadata.key)
        yield
    ordered = sorted(groups.values(), key=lambda group: (group[1] is None, -len(group[0])))
    return tuple(_group(pods, found) for pods, found in ordered)


def _group(pods: Sequence[str], found: Diagnosis | None) -> WaitingGroup:
    if found is None:
        return WaitingGroup(len(pods), "not diagnosed", "the work of one answer is limited", tuple(pods))
    return WaitingGroup(len(pods), "fits" if found.state == "fits" else "refused", found.summary, tuple(pods), found)


def waiting_text(
    groups: Sequence[WaitingGroup], namespace: str, width: int = WIDTH, *, everything: bool = False
) -> str:
    """A block per group. `everything`: with the complete diagnosis of its first pod."""
    if not groups:
        return f"No pod waits for devices in {f'namespace {namespace}' if namespace else 'any namespace'}."
    return "\n\n".join(
        wrapped(list(_lines(group, namespace)), width)
        if not everything or group.diagnosis is None
        else wrapped([f"{_named(group, namespace)}:"], width) + "\n" + fully(group.diagnosis, width)
        for group in groups
    )


def _named(group: WaitingGroup, namespace: str) -> str:
    few = [key.removeprefix(f"{namespace}/") for key in group.pods[:FEW]]
    return f"{counted(group.count, 'pod')} ({', '.join(few)}{', …' if group.count > FEW else ''})"


def _lines(group: WaitingGroup, namespace: str) -> Iterator[str]:
    found, named, one = group.diagnosis, _named(group, namespace), group.count == 1
    if found is None:
        yield f"{named} not diagnosed: {group.reason}. Use why POD."
        return
    if group.state == "fits":
        yield f"{named} {'fits' if one else 'fit'} at least one of {counted(found.nodes, 'node')}, each pod alone."
        if found.unchecked:
            yield f"Not checked: {', '.join(found.unchecked)}."
    else:
        yield f"{named} {'fits' if one else 'fit'} none of {counted(found.nodes, 'node')}."
        yield f"Reason: {found.summary}."
        yield suggestion(found)
    if not found.complete:
        yield LIMITED
