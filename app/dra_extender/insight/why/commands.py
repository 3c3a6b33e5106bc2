"""What a person types to make the changes of a remedy.

Promises: the commands are in the order in which they have to run. A claim, a template and most of a pod cannot be
changed in place, so the commands delete and create the object again (`kubectl replace --force`). A pod that a
controller made is deleted, and its controller makes it again. There are no commands where the text of the remedy is
one, and where another person or component has to act, such as for a scheduling gate or a new node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from dra_extender.api.core import Pod
from dra_extender.insight.why.report import Change

_KINDS: Final = {
    "Pod": "pod",
    "ResourceClaim": "resourceclaim",
    "ResourceClaimTemplate": "resourceclaimtemplate",
}
_NONE: Final = frozenset(("gate", "claim made again", "node added", "uncordon"))
"""Kinds of changes without commands."""


def commands(pod: Pod, changes: Sequence[Change]) -> tuple[str, ...]:
    """The commands for the changes of the pod and of other objects; empty if one of the changes has no command."""
    if any(change.kind in _NONE or change.object not in _KINDS for change in changes):
        return ()
    lines = dict.fromkeys(line for change in changes for line in _of_change(pod, change))
    again = dict.fromkeys(line for change in changes for line in _of_pod(pod, change))
    return (*lines, *again)


def _of_change(pod: Pod, change: Change) -> Iterator[str]:
    if change.op == "delete":
        yield f"kubectl delete {_named(change)}"
    elif change.object != "Pod" and change.op != "wait":
        yield from _edited(_named(change), change.name)


def _of_pod(pod: Pod, change: Change) -> Iterator[str]:
    """A pod takes its claims from the changed template when it is made again."""
    if change.op in ("wait", "delete") or change.object not in ("Pod", "ResourceClaimTemplate"):
        return
    meta = pod.metadata
    named, controller = f"pod {meta.name} -n {meta.namespace}", meta.controller
    if controller is None and change.object == "Pod":
        yield from _edited(named, meta.name)
    elif controller is None:
        yield f"kubectl get {named} -o yaml > {meta.name}.yaml"
        yield f"kubectl replace --force -f {meta.name}.yaml"
    else:
        if change.object == "Pod":
            yield f"# change the pod template of {controller.kind} {controller.name}, or of its owner"
        yield f"kubectl delete {named}"


def _edited(named: str, name: str) -> Iterator[str]:
    yield f"kubectl get {named} -o yaml > {name}.yaml"
    yield f"# change {name}.yaml"
    yield f"kubectl replace --force -f {name}.yaml"


def _named(change: Change) -> str:
    return f"{_KINDS[change.object]} {change.name} -n {change.namespace}"


def place(change: Change) -> str:
    """Where in the manifest a field is, such as "spec.devices.requests[0].exactly of resourceclaim c"."""
    parts = change.path.split("/")[1:-1]
    path = "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in parts).removeprefix(".")
    return f"{path} of {_KINDS.get(change.object, change.object)} {change.name}"
