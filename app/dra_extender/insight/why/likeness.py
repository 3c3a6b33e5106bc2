"""One more node like another, with the same devices and nothing on it."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from dra_extender.api.core import Node
from dra_extender.api.resource import ResourceSlice
from dra_extender.scheduling.noderules import LABELS_OF_ONE


def another(node: Node, slices: Iterable[ResourceSlice], suffix: str) -> tuple[Node, list[ResourceSlice]]:
    """The node, and the slices as it would publish them, in pools of its own. What has a name gets the suffix."""
    name = node.name + suffix
    labels = {key: name if key in LABELS_OF_ONE else value for key, value in node.metadata.labels.items()}
    metadata = replace(node.metadata, name=name, uid=node.metadata.uid + suffix, labels=labels)
    return replace(node, metadata=metadata), [_published(item, name, suffix) for item in slices]


def _published(item: ResourceSlice, node: str, suffix: str) -> ResourceSlice:
    pool = replace(item.spec.pool, name=item.spec.pool.name + suffix)
    metadata = replace(item.metadata, name=item.metadata.name + suffix)
    return replace(item, metadata=metadata, spec=replace(item.spec, node_name=node, pool=pool))
