"""The hypothetical changes of a what-if request, and their validation.

Promises: `validate` rejects objects that do not exist, and requests that are too large. All other changes can be
applied to a copy of the cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from dra_extender.api.core import Pod, Toleration
from dra_extender.api.resource import (
    MAX_SLICE_DEVICES,
    MAX_TOLERATIONS,
    DeviceRequest,
    DeviceSubRequest,
    DeviceToleration,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceSlice,
)
from dra_extender.devices.nodeselection import size_of
from dra_extender.insight.manifests import HypotheticalObject
from dra_extender.insight.requests import InvalidRequestError, nodes_named, pod_named
from dra_extender.limits import PARTS_OF_SLICE
from dra_extender.scheduling.view import View

S = TypeVar("S", ExactDeviceRequest, DeviceSubRequest)

MOST_NODES: Final = 100
"""Nodes to add, all together."""
MOST_NAMES: Final = 1_000
"""Nodes to drain, or pods to delete."""
MOST_OBJECTS: Final = 100
EFFECTS: Final = ("", "None", "NoSchedule", "PreferNoSchedule", "NoExecute")
OPERATORS: Final = ("", "Exists", "Equal")


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """`added`: (node, number of nodes like it to add). `without`: pods to delete (namespace/name). `drained`: nodes to
    drain. `objects`: objects to add. `tolerations`: tolerations for all pods that are placed, and for their claims.
    """

    added: tuple[tuple[str, int], ...] = ()
    without: tuple[str, ...] = ()
    drained: tuple[str, ...] = ()
    objects: tuple[HypotheticalObject, ...] = ()
    tolerations: tuple[Toleration, ...] = ()


def validate(view: View, changes: Changes) -> None:
    """Raises InvalidRequestError."""
    _added(view, changes)
    _named(view, changes)
    _objects(view, changes)
    _tolerations(changes)


def _added(view: View, changes: Changes) -> None:
    for number, (like, count) in enumerate(changes.added):
        nodes_named(view.cluster.nodes, [like], f"addNodes[{number}].like")
        if not 0 < count <= MOST_NODES:
            raise InvalidRequestError(
                f"addNodes[{number}].count",
                f"{count} nodes like {like}",
                f"1 to {MOST_NODES} can be added, all together",
            )
    total = sum(count for _, count in changes.added)
    if total > MOST_NODES:
        raise InvalidRequestError("addNodes", f"{total} nodes", f"1 to {MOST_NODES} can be added, all together")


def _named(view: View, changes: Changes) -> None:
    for field, names in (("drain", changes.drained), ("withoutPods", changes.without)):
        if len(names) > MOST_NAMES:
            raise InvalidRequestError(field, f"{len(names)} names", f"give at most {MOST_NAMES}")
    for number, name in enumerate(changes.drained):
        nodes_named(view.cluster.nodes, [name], f"drain[{number}]")
    for number, key in enumerate(changes.without):
        pod_named(view.pods, key, f"withoutPods[{number}]", "name a pod as NAMESPACE/NAME")


def _objects(view: View, changes: Changes) -> None:
    if len(changes.objects) > MOST_OBJECTS:
        raise InvalidRequestError("withObjects", f"{len(changes.objects)} objects", f"give at most {MOST_OBJECTS}")
    for item in changes.objects:
        kind, meta = type(item).__name__, item.metadata
        field = "withSlices" if isinstance(item, ResourceSlice) else "withObjects"
        if not meta.name:
            raise InvalidRequestError(field, f"a {kind} has no metadata.name", "give it one")
        if isinstance(item, ResourceSlice):
            _slice(field, item)
        if isinstance(item, ResourceClaim):
            known = view.ledger.get(meta.namespace, meta.name)
            if known is not None and known.allocation is not None:
                problem = f"ResourceClaim {meta.key} exists and is allocated"
                raise InvalidRequestError(
                    field, problem, "give the claim another name, or delete its pods in the same request"
                )


def _slice(field: str, item: ResourceSlice) -> None:
    what, spec = f"ResourceSlice {item.metadata.name}", item.spec
    if not spec.driver or not spec.pool.name:
        raise InvalidRequestError(field, f"{what} has no spec.driver or no spec.pool.name", "give both")
    if len(spec.devices) > MAX_SLICE_DEVICES:
        raise InvalidRequestError(
            field, f"{what} has {len(spec.devices)} devices", f"split it into slices of at most {MAX_SLICE_DEVICES}"
        )
    selectors = (spec.node_selector, *(device.node_selector for device in spec.devices))
    parts = sum(size_of(selector) for selector in selectors if selector is not None)
    if parts > PARTS_OF_SLICE:
        problem = f"the node selectors of {what} have {parts:,} requirements"
        raise InvalidRequestError(field, problem, f"give at most {PARTS_OF_SLICE:,}")


def _tolerations(changes: Changes) -> None:
    if len(changes.tolerations) > MAX_TOLERATIONS:
        problem = f"{len(changes.tolerations)} tolerations"
        raise InvalidRequestError("tolerations", problem, f"give at most {MAX_TOLERATIONS}")
    for number, given in enumerate(changes.tolerations):
        field = f"tolerations[{number}]"
        if given.operator not in OPERATORS:
            raise InvalidRequestError(
                f"{field}.operator", f"{given.operator} is not an operator", "give Exists or Equal"
            )
        if given.effect not in EFFECTS:
            raise InvalidRequestError(
                f"{field}.effect", f"{given.effect} is not an effect", "give NoSchedule, NoExecute, or none"
            )
        if not given.key and given.operator != "Exists":
            raise InvalidRequestError(
                f"{field}.key", "is empty", "give the key of the taint, or operator Exists for all taints"
            )


# --- tolerations ------------------------------------------------------------------------------------------------------


def tolerant_pod(pod: Pod, more: Sequence[Toleration]) -> Pod:
    """The pod with additional tolerations."""
    return replace(pod, spec=replace(pod.spec, tolerations=(*pod.spec.tolerations, *more)))


def tolerant_claim(claim: ResourceClaim, more: Sequence[Toleration]) -> ResourceClaim:
    """The claim with additional tolerations in every request."""
    added = tuple(DeviceToleration(item.key, item.operator, item.value, item.effect) for item in more)
    requests = tuple(_request(request, added) for request in claim.spec.devices.requests)
    devices = replace(claim.spec.devices, requests=requests)
    return replace(claim, spec=replace(claim.spec, devices=devices))


def _request(request: DeviceRequest, more: tuple[DeviceToleration, ...]) -> DeviceRequest:
    exactly = _source(request.exactly, more) if request.exactly is not None else None
    alternatives = tuple(_source(item, more) for item in request.first_available)
    return replace(request, exactly=exactly, first_available=alternatives)


def _source(source: S, more: tuple[DeviceToleration, ...]) -> S:
    return replace(source, tolerations=(*source.tolerations, *more))
