"""What is supposed: the changes that nobody has made, and what is wrong with them.

Promises: `refuse` finds whatever names something that is not there, or asks for more than is answered; what it lets
pass can be made on paper.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dra_extender.api.core import Node, Pod, Toleration
from dra_extender.api.resource import MAX_SLICE_DEVICES, MAX_TOLERATIONS, DeviceClass, ResourceClaim, ResourceSlice
from dra_extender.scheduling.view import View

MOST_NODES: Final = 100
"""More nodes that may be supposed, all together."""
MOST_NAMES: Final = 1_000
"""Nodes that may be drained, and pods that may be gone."""
MOST_OBJECTS: Final = 100
EFFECTS: Final = ("", "None", "NoSchedule", "PreferNoSchedule", "NoExecute")
OPERATORS: Final = ("", "Exists", "Equal")

Supposed = ResourceSlice | DeviceClass | ResourceClaim
"""Objects that may be supposed; one of a name that is there replaces it."""


class Unusable(ValueError):
    """A question that cannot be answered. `field` as in the body of the HTTP call, `problem` and what to do."""

    def __init__(self, field: str, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}: {remedy}")
        self.field = field
        self.problem = problem
        self.remedy = remedy

    @property
    def sentence(self) -> str:
        """With the field, for programs."""
        return f"{self.field}: {self}"


class Missing(Unusable):
    """Something that is not in the cluster."""


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """`added`: (node, how many more like it). `without`: pods (namespace/name) that would be gone. `drained`: nodes.
    `objects` would be there. `tolerations` would be those of all pods that are placed, and of their claims.
    """

    added: tuple[tuple[str, int], ...] = ()
    without: tuple[str, ...] = ()
    drained: tuple[str, ...] = ()
    objects: tuple[Supposed, ...] = ()
    tolerations: tuple[Toleration, ...] = ()


def refuse(view: View, changes: Changes) -> None:
    """Raises Unusable."""
    _added(view, changes)
    _named(view, changes)
    _objects(view, changes)
    _tolerations(changes)


def _added(view: View, changes: Changes) -> None:
    for number, (like, count) in enumerate(changes.added):
        _known_node(view, f"addNodes[{number}].like", like)
        if not 0 < count <= MOST_NODES:
            raise Unusable(
                f"addNodes[{number}].count",
                f"{count} nodes like {like}",
                f"1 to {MOST_NODES} can be added, all together",
            )
    total = sum(count for _, count in changes.added)
    if total > MOST_NODES:
        raise Unusable("addNodes", f"{total} nodes", f"1 to {MOST_NODES} can be added, all together")


def _named(view: View, changes: Changes) -> None:
    for field, names in (("drain", changes.drained), ("withoutPods", changes.without)):
        if len(names) > MOST_NAMES:
            raise Unusable(field, f"{len(names)} names", f"give at most {MOST_NAMES}")
    for number, name in enumerate(changes.drained):
        _known_node(view, f"drain[{number}]", name)
    for number, key in enumerate(changes.without):
        known_pod(view, f"withoutPods[{number}]", key)


def _objects(view: View, changes: Changes) -> None:
    if len(changes.objects) > MOST_OBJECTS:
        raise Unusable("withObjects", f"{len(changes.objects)} objects", f"give at most {MOST_OBJECTS}")
    for item in changes.objects:
        kind, meta = type(item).__name__, item.metadata
        field = "withSlices" if isinstance(item, ResourceSlice) else "withObjects"
        if not meta.name:
            raise Unusable(field, f"a {kind} has no metadata.name", "give it one")
        if isinstance(item, ResourceSlice):
            _slice(field, item)
        if isinstance(item, ResourceClaim):
            known = view.ledger.get(meta.namespace, meta.name)
            if known is not None and known.allocation is not None:
                problem = f"ResourceClaim {meta.key} is there and has devices"
                raise Unusable(field, problem, "give the claim another name, or suppose its pods to be gone")


def _slice(field: str, item: ResourceSlice) -> None:
    what, spec = f"ResourceSlice {item.metadata.name}", item.spec
    if not spec.driver or not spec.pool.name:
        raise Unusable(field, f"{what} has no spec.driver or no spec.pool.name", "give both")
    if len(spec.devices) > MAX_SLICE_DEVICES:
        raise Unusable(
            field, f"{what} has {len(spec.devices)} devices", f"split it into slices of at most {MAX_SLICE_DEVICES}"
        )


def _tolerations(changes: Changes) -> None:
    if len(changes.tolerations) > MAX_TOLERATIONS:
        problem = f"{len(changes.tolerations)} tolerations"
        raise Unusable("tolerations", problem, f"give at most {MAX_TOLERATIONS}")
    for number, given in enumerate(changes.tolerations):
        field = f"tolerations[{number}]"
        if given.operator not in OPERATORS:
            raise Unusable(f"{field}.operator", f"{given.operator} is no operator", "give Exists or Equal")
        if given.effect not in EFFECTS:
            raise Unusable(f"{field}.effect", f"{given.effect} is no effect", "give NoSchedule, NoExecute, or none")
        if not given.key and given.operator != "Exists":
            raise Unusable(f"{field}.key", "is empty", "give the key of the taint, or operator Exists for all taints")


def _known_node(view: View, field: str, name: str) -> Node:
    node = view.cluster.nodes.get(name)
    if node is None:
        raise Missing(field, f"node {name} is not known", "name a node that is in the cluster")
    return node


def known_pod(view: View, field: str, key: str) -> Pod:
    """The pod (namespace/name). Raises Unusable."""
    pod = view.pods.named(*key.split("/", 1)) if key.count("/") == 1 else None
    if pod is None:
        raise Missing(
            field, f"pod {key} is not known: it does not exist, or has finished", "name a pod as NAMESPACE/NAME"
        )
    return pod
