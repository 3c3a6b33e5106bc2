"""The parts of the page, as structs for JSON, with their keys.

Promises: every part has a `kind`; a part about one object names the object.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final

import msgspec

from dra_extender.api.core import Pod
from dra_extender.api.groups import group_of
from dra_extender.insight.devicereport.parts import Part, PartID
from dra_extender.insight.headroom import class_request, measuring
from dra_extender.insight.problems import ClusterProblem
from dra_extender.insight.requests import InvalidRequestError
from dra_extender.insight.why.diagnosis import diagnosing
from dra_extender.insight.why.report import Remedy
from dra_extender.scheduling.turns import Turns
from dra_extender.scheduling.view import View

DECISIONS: Final = 1_000
"""The most decisions for the headroom of one class."""
MOST_PROBLEMS: Final = 200
MOST_NAMES: Final = 20
"""Names of equal pods."""
DIAGNOSIS: Final = "diagnosis\n"
HEADROOM: Final = "headroom\n"
PROBLEMS: Final = "problems"


class PagePart(msgspec.Struct, frozen=True, tag_field="kind"):
    """A part of the page. `key` is unique."""

    key: str


class DevicesPart(PagePart, frozen=True, tag="devices"):
    """The devices of a pool on a node."""

    part: Part


class StatusPart(PagePart, frozen=True, tag="status"):
    """`unknown`: why the watches are not synced; empty when they are. `complete`: all devices have been counted."""

    unknown: str
    complete: bool


class NodesPart(PagePart, frozen=True, tag="nodes"):
    """The number of nodes and of device classes."""

    count: int
    classes: int


class NodePart(PagePart, frozen=True, tag="node"):
    """A node that is cordoned or has other taints, as key=value:effect."""

    name: str
    cordoned: bool
    taints: Sequence[str]


class PodPart(PagePart, frozen=True, tag="pod"):
    """`count` equal pods of a namespace that use devices and have no node: the pod that is diagnosed for all, the names
    of some others, and when the oldest was created. `diagnosed`: the feed has its diagnosis. `gang`: the pods are those
    of this gang that wait.
    """

    uid: str
    namespace: str
    name: str
    created: str
    count: int
    others: Sequence[str]
    diagnosed: bool
    gang: str = ""


class PodCountPart(PagePart, frozen=True, tag="pods"):
    """The number of pending pods, listed or not."""

    total: int


class DiagnosisPart(PagePart, frozen=True, tag="diagnosis"):
    """The diagnosis of a pending pod."""

    uid: str
    state: str
    summary: str
    fits: int
    remedies: Sequence[Remedy]
    complete: bool
    unchecked: Sequence[str] = ()


class HeadroomPart(PagePart, frozen=True, tag="headroom"):
    """How many more pods with one device of a class fit. `problem`: why it cannot be computed; empty otherwise."""

    name: str
    fits: int = 0
    nodes: int = 0
    of: int = 0
    complete: bool = True
    problem: str = ""


class ProblemsPart(PagePart, frozen=True, tag="problems"):
    """Problems of the cluster; `total` counts all, listed or not."""

    total: int
    problems: Sequence[ClusterProblem]


def devices_key(id: PartID) -> str:
    return "\n".join(("devices", *id))


def pod_part(pod: Pod, pods: Sequence[Pod], diagnosed: bool) -> PodPart:
    """Of equal pods, the oldest first, one of which is `pod`."""
    meta, names = pod.metadata, (each.metadata.name for each in pods if each is not pod)
    created, others = pods[0].metadata.creation_timestamp or "", tuple(islice(names, MOST_NAMES))
    key, gang = f"pod\n{meta.uid}", str(group_of(pod) or "")
    return PodPart(key, meta.uid, meta.namespace, meta.name, created, len(pods), others, diagnosed, gang)


def diagnosis_part(view: View, pod: Pod) -> Turns[PagePart]:
    found = yield from diagnosing(view, pod)
    uid, state, why, unchecked = found.uid, found.state, found.summary, found.unchecked
    return DiagnosisPart(f"{DIAGNOSIS}{uid}", uid, state, why, found.fits, found.remedies, found.complete, unchecked)


def headroom_part(view: View, name: str) -> Turns[PagePart]:
    try:
        what, claims = class_request(view, name)
    except InvalidRequestError as problem:
        return HeadroomPart(f"{HEADROOM}{name}", name, problem=problem.problem)
    found = yield from measuring(view, what, claims, most=DECISIONS)
    return HeadroomPart(f"{HEADROOM}{name}", name, found.fits, found.nodes, found.of, found.complete)
