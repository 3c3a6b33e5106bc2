"""Where a slice or a device can be used: nodeName, allNodes or nodeSelector, the first that is set decides.

Rules: Kubernetes 1.36, structured/internal/incubating/pools_incubating.go.
"""

from __future__ import annotations

from collections.abc import Mapping

from dra_extender.api.core import NodeSelector
from dra_extender.api.resource import Device, ResourceSliceSpec
from dra_extender.devices.nodeselector import Matcher, parse


class NodeSelection:
    """Where a device can be used: what an allocation of it says about nodes. The first that is set decides."""

    __slots__ = ("all_nodes", "node_name", "node_selector")

    def __init__(self, source: ResourceSliceSpec | Device) -> None:
        self.node_name: str = source.node_name or ""
        self.all_nodes: bool = source.all_nodes is True
        self.node_selector: NodeSelector | None = source.node_selector

    def matcher(self) -> Matcher | None:
        """The selection made ready for many nodes; None when nothing known is set. Raises NodeSelectorError."""
        wanted = self.node_name
        if wanted:
            return lambda name, _: name == wanted
        if self.all_nodes:
            return _always
        return parse(self.node_selector) if self.node_selector is not None else None

    def matches(self, name: str, labels: Mapping[str, str]) -> bool | None:
        """Whether it is for the node; None when nothing known is set. Raises NodeSelectorError."""
        if self.node_name:
            return name == self.node_name
        matcher = self.matcher()
        return matcher(name, labels) if matcher is not None else None

    @property
    def has_many_terms(self) -> bool:
        """True when the selection cannot be written into an allocation beside that of another device."""
        return self.node_selector is not None and len(self.node_selector.node_selector_terms) > 1


def _always(_name: str, _labels: Mapping[str, str]) -> bool:
    return True
