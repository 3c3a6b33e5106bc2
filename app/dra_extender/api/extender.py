"""The messages of the scheduler extender protocol, version v1.

Go field names, as kube-scheduler sends and expects them (staging/src/k8s.io/kube-scheduler/extender/v1/types.go, 1.36).
Requests are decoded leniently (unknown fields ignored), answers always carry every field.
"""

from __future__ import annotations

import msgspec

from dra_extender.api.core import Pod

_CACHE = "set `nodeCacheCapable: true` for this extender in the KubeSchedulerConfiguration"
NEEDS_NAMES = f"dra-extender: the request has no NodeNames: {_CACHE}"
"""The error of a request that lacks the names of nodes."""
NEEDS_VICTIMS = f"dra-extender: the request has no NodeNameToMetaVictims: {_CACHE}"


class NodeList(msgspec.Struct, frozen=True, gc=False):
    """v1.NodeList, whose objects are not decoded yet."""

    items: tuple[msgspec.Raw, ...] | None = None


class ExtenderArgs(msgspec.Struct, frozen=True, gc=False):
    """Filter and prioritize. With nodeCacheCapable, `NodeNames` is a list and `Nodes` is null."""

    Pod: Pod
    NodeNames: tuple[str, ...] | None = None
    Nodes: NodeList | None = None


class ExtenderFilterResult(msgspec.Struct, frozen=True, gc=False):
    """Every node of the request is in exactly one of the three collections, unless `Error` is set."""

    NodeNames: list[str] = []
    FailedNodes: dict[str, str] = {}
    FailedAndUnresolvableNodes: dict[str, str] = {}
    Error: str = ""


class ExtenderNodesResult(ExtenderFilterResult, frozen=True, gc=False):
    """The answer to a call with `Nodes`, which has the nodes that fit, unchanged."""

    Nodes: NodeList = NodeList()


class HostPriority(msgspec.Struct, frozen=True, gc=False):
    """`Score` is an integer, 0 to 10."""

    Host: str
    Score: int


class MetaPod(msgspec.Struct, frozen=True, gc=False):
    UID: str


class MetaVictims(msgspec.Struct, frozen=True, gc=False):
    Pods: list[MetaPod] | None = None
    NumPDBViolations: int = 0


class ExtenderPreemptionArgs(msgspec.Struct, frozen=True, gc=False):
    """With nodeCacheCapable, `NodeNameToMetaVictims` has the victims, and `NodeNameToVictims` is null."""

    Pod: Pod
    NodeNameToMetaVictims: dict[str, MetaVictims] | None = None


class ExtenderPreemptionResult(msgspec.Struct, frozen=True, gc=False):
    NodeNameToMetaVictims: dict[str, MetaVictims] = {}


class ExtenderBindingArgs(msgspec.Struct, frozen=True, gc=False):
    PodName: str
    PodNamespace: str
    PodUID: str
    Node: str


class ExtenderBindingResult(msgspec.Struct, frozen=True, gc=False):
    """Only an empty `Error` means that the API server accepted the binding."""

    Error: str = ""
