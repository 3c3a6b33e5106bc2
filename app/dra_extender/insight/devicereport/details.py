"""One device with all fields of its ResourceSlice entry.

Promises: amounts, values and taints are texts as people write them, so the answer can be encoded as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from dra_extender.api.core import NodeSelector
from dra_extender.api.resource import Device, DeviceID, ResourceSlice
from dra_extender.devices.publishedpool import PublishedPool
from dra_extender.insight.devicereport.listing import ClassMembers, counting
from dra_extender.insight.devicereport.report import CountedDevice
from dra_extender.scheduling.turns import Turns
from dra_extender.scheduling.view import View


class PublishedTaint(msgspec.Struct, frozen=True):
    """NoSchedule and NoExecute keep pods away, other effects do not. `since`: when the taint was added."""

    key: str
    value: str
    effect: str
    since: str


class DeviceDetails(msgspec.Struct, frozen=True, kw_only=True):
    """`attributes` and `capacity` by name, from `slice` in this `generation` of the pool. `nodes`: the nodes that can
    use the device, in words.
    """

    device: CountedDevice
    slice: str
    generation: int
    nodes: str
    attributes: Mapping[str, str]
    capacity: Mapping[str, str]
    taints: tuple[PublishedTaint, ...]


def detailing(view: View, id: DeviceID) -> Turns[DeviceDetails | None]:
    """None if the device does not exist."""
    published = view.cluster.inventory.pools.get(id[:2])
    found = _find(published, id[2]) if published is not None else None
    if published is None or found is None:
        return None
    item, device = found
    counted = yield from counting(view, published, ClassMembers(view), lambda node, each: each == id)
    if not counted:
        return None
    return DeviceDetails(
        device=counted[0],
        slice=item.metadata.name,
        generation=item.spec.pool.generation,
        nodes=_nodes(item, device),
        attributes={name: _text(attribute.value) for name, attribute in device.attributes.items()},
        capacity={name: str(capacity.value) for name, capacity in device.capacity.items()},
        taints=tuple(
            PublishedTaint(taint.key, taint.value, taint.effect, taint.time_added or "") for taint in device.taints
        ),
    )


def _find(pool: PublishedPool, name: str) -> tuple[ResourceSlice, Device] | None:
    for item in pool.newest():
        for device in item.spec.devices:
            if device.name == name:
                return item, device
    return None


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_text, value))
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def _nodes(item: ResourceSlice, device: Device) -> str:
    spec = device if item.spec.per_device_node_selection else item.spec
    if spec.node_name:
        return f"node {spec.node_name}"
    if spec.all_nodes:
        return "all nodes"
    return "nodes with " + " or ".join(_terms(spec.node_selector)) if spec.node_selector is not None else "no node"


def _terms(selector: NodeSelector) -> Iterator[str]:
    for term in selector.node_selector_terms:
        rules = (*term.match_expressions, *term.match_fields)
        yield " and ".join(" ".join((rule.key, rule.operator, *rule.values)) for rule in rules) or "nothing"
