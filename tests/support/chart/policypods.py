"""Pods, and what the shipped admission policies say of them: the same on a real API server and on the embedded one."""

from __future__ import annotations

from typing import Any

OURS, IN_TREE = "dra-scheduler", "default-scheduler"
CLAIM: dict[str, Any] = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}


def asking(name: str, at: str = "containers") -> dict[str, Any]:
    """A spec that asks for an extended resource in one of its containers; limits alone are requests, too."""
    container = {"name": "asking", "image": "none", "resources": {"limits": {name: "1"}}}
    return {"initContainers": [container]} if at == "initContainers" else {"container": container}


EXTENDED = asking("example.com/gpu")
PODS: dict[str, tuple[str, dict[str, Any], str]] = {
    "without devices": (IN_TREE, {}, ""),
    "with a claim for our scheduler": (OURS, CLAIM, ""),
    "with a claim for another one": (IN_TREE, CLAIM, "pods with resource claims need schedulerName: dra-scheduler"),
    "with an extended resource for our scheduler": (OURS, EXTENDED, ""),
    "with an extended resource for another one": (IN_TREE, EXTENDED, "pods with devices of class gpu"),
    "with one in an init container": (IN_TREE, asking("example.com/gpu", "initContainers"), "of class gpu"),
    "with one that a class has by its name": (
        IN_TREE,
        asking("deviceclass.resource.kubernetes.io/gpu"),
        "pods with devices of class gpu (an extended resource) need schedulerName: dra-scheduler in this cluster",
    ),
    "with one of a device plugin": (IN_TREE, asking("example.com/other"), ""),
}
"""The scheduler, the rest of the spec, and what is said of it: nothing, if it is accepted."""
