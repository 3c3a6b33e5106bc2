"""What the board holds besides devices: structs for JSON, and their keys.

Promises: every part says what `kind` it is and, where there are several of the kind, what it is about.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from dra_extender.api.core import Pod
from dra_extender.insight.devicereport.parts import Part, PartID
from dra_extender.insight.headroom import class_claim, class_words, measuring, problem_of
from dra_extender.insight.why.diagnose import diagnosing
from dra_extender.insight.why.report import Remedy
from dra_extender.scheduling.slices import Slices
from dra_extender.scheduling.view import View

DECISIONS: Final = 1_000
"""For the headroom of one class."""
MOST_PROBLEMS: Final = 200
WHY: Final = "why\n"
ROOM: Final = "room\n"
PROBLEMS: Final = "problems"


class BoardPart(msgspec.Struct, frozen=True, tag_field="kind"):
    """Anything on the board, under its key."""

    key: str


class Devices(BoardPart, frozen=True, tag="devices"):
    """The devices of a pool on a node."""

    part: Part


class Status(BoardPart, frozen=True, tag="status"):
    """`unknown`: why nothing can be said about the cluster. Not `complete`: devices are still being counted."""

    unknown: str
    complete: bool


class Nodes(BoardPart, frozen=True, tag="nodes"):
    """How many there are, and the names of those that are cordoned."""

    count: int
    cordoned: Sequence[str]


class Waiting(BoardPart, frozen=True, tag="pod"):
    """A pod that wants devices and has no node."""

    uid: str
    namespace: str
    name: str
    created: str
    priority: int


class Pods(BoardPart, frozen=True, tag="pods"):
    """How many pods wait, those that are not told included."""

    total: int


class Why(BoardPart, frozen=True, tag="why"):
    """What a diagnosis says of a pod that waits."""

    uid: str
    state: str
    rule: str
    summary: str
    nodes: int
    fits: int
    remedies: Sequence[Remedy]
    complete: bool


class Room(BoardPart, frozen=True, tag="room"):
    """How many more pods with one device of a class fit. `problem`: why that cannot be said."""

    name: str
    fits: int = 0
    nodes: int = 0
    of: int = 0
    complete: bool = True
    problem: str = ""


class Problems(BoardPart, frozen=True, tag="problems"):
    """What is wrong in the cluster; `total` counts those that are not told as well."""

    total: int
    problems: Sequence[Any]


def devices_key(id: PartID) -> str:
    return "\n".join(("devices", *id))


def waiting(pod: Pod) -> Waiting:
    meta = pod.metadata
    return Waiting(
        f"pod\n{meta.uid}", meta.uid, meta.namespace, meta.name, meta.creation_timestamp or "", pod.spec.priority
    )


def why(view: View, pod: Pod) -> Slices[BoardPart]:
    """In slices."""
    found = yield from diagnosing(view, pod)
    return Why(
        key=f"{WHY}{found.uid}",
        uid=found.uid,
        state=found.state,
        rule=found.rule,
        summary=found.summary,
        nodes=found.nodes,
        fits=found.fits,
        remedies=found.remedies,
        complete=found.complete,
    )


def room(view: View, name: str) -> Slices[BoardPart]:
    """In slices."""
    claims = (class_claim(name),)
    problem = problem_of(view, claims)
    if problem:
        return Room(f"{ROOM}{name}", name, problem=problem)
    found = yield from measuring(view, class_words(name), claims, most=DECISIONS)
    return Room(f"{ROOM}{name}", name, found.fits, found.nodes, found.of, found.complete)
