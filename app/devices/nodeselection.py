"""Where a slice or a device can be used: nodeName, allNodes or nodeSelector, the first that is set decides.

Rules: Kubernetes 1.36, structured/internal/incubating/pools_incubating.go.
"""

from __future__ import annotations

from collections.abc import Mapping

from app.api.core import NodeSelector
from app.api.resource import Device, ResourceSliceSpec
from app.devices.nodeselector import matches


class NodeSelection:
    """Where a device can be used: what an allocation of it says about nodes. The first that is set decides."""

    __slots__ = ("all_nodes", "node_name", "node_selector")

    def __init__(self, source: ResourceSliceSpec | Device) -> None:
        self.node_name: str = source.node_name or ""
        self.all_nodes: bool = source.all_nodes is True
        self.node_selector: NodeSelector | None = source.node_selector

    def matches(self, name: str, labels: Mapping[str, str]) -> bool | None:
        """Whether it is for the node; None when nothing known is set. Raises NodeSelectorError."""
        if self.node_name:
            return self.node_name == name
        if self.all_nodes:
            return True
        if self.node_selector is not None:
            return matches(self.node_selector, name, labels)
        return None
