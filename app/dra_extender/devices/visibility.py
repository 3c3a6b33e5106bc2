"""What decides how a node sees a slice that is open to all nodes.

Promises: nodes to which all slices of a pool are the same see the same pool. The question is made ready once per
slice and costs a node about a microsecond.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

from dra_extender.api.resource import Device, ResourceSlice, ResourceSliceSpec
from dra_extender.devices.nodeselection import NodeSelection
from dra_extender.devices.nodeselector import NodeSelectorError

Visibility = Callable[[str, Mapping[str, str]], Hashable]
"""(node name, node labels) -> what the slice is to the node: falsy when it is nothing."""


def visibility_of(item: ResourceSlice) -> Visibility:
    """How nodes see the slice."""
    spec = item.spec
    if spec.shared_counters:
        return _always
    whole = _selection(spec)
    if not spec.per_device_node_selection:
        return whole or _never
    devices = [_selection(device) or _never for device in spec.devices]

    def each(name: str, labels: Mapping[str, str]) -> Hashable:
        matched = whole(name, labels) if whole is not None else None
        if matched is not None and matched is not True:
            return matched
        found = tuple(device(name, labels) for device in devices)
        return (matched, found) if matched or any(found) else False

    return each


def _selection(source: ResourceSliceSpec | Device) -> Visibility | None:
    """The node selection; the text of the error when it cannot be understood. None when nothing is set."""
    try:
        return NodeSelection(source).matcher()
    except NodeSelectorError as error:
        problem = str(error)
        return lambda _name, _labels: problem


def _always(_name: str, _labels: Mapping[str, str]) -> Hashable:
    return True


def _never(_name: str, _labels: Mapping[str, str]) -> Hashable:
    return False
