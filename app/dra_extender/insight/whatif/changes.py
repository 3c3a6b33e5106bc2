"""The hypothetical changes of a what-if request, and their validation.

Promises: `validate` rejects names of objects that do not exist, and too many nodes. All other changes can be applied to
a copy of the cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from dra_extender.api.core import Pod, Toleration
from dra_extender.api.resource import DeviceToleration, ResourceClaim
from dra_extender.insight.manifests import HypotheticalObject, with_each_request
from dra_extender.insight.requests import InvalidRequestError, nodes_named, pod_named
from dra_extender.scheduling.view import View

MOST_NODES: Final = 100
"""Nodes to add, all together."""


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
    for number, (like, _) in enumerate(changes.added):
        nodes_named(view.cluster.nodes, [like], f"addNodes[{number}].like")
    total = sum(count for _, count in changes.added)
    if total > MOST_NODES or any(count < 1 for _, count in changes.added):
        raise InvalidRequestError("addNodes", f"{total} nodes", f"1 to {MOST_NODES} can be added, all together")
    for number, name in enumerate(changes.drained):
        nodes_named(view.cluster.nodes, [name], f"drain[{number}]")
    for number, key in enumerate(changes.without):
        pod_named(view.pods, key, f"withoutPods[{number}]", "name a pod as NAMESPACE/NAME")
    for item in changes.objects:
        _validate_object(view, item)


def _validate_object(view: View, item: HypotheticalObject) -> None:
    meta = item.metadata
    if not meta.name:
        raise InvalidRequestError("", f"a {type(item).__name__} has no metadata.name", "give it one")
    if isinstance(item, ResourceClaim):
        known = view.ledger.get(meta.namespace, meta.name)
        if known is not None and known.allocation is not None:
            remedy = "give the claim another name, or delete its pods in the same request"
            raise InvalidRequestError("", f"ResourceClaim {meta.key} exists and is allocated", remedy)


# --- tolerations ------------------------------------------------------------------------------------------------------


def tolerant_pod(pod: Pod, more: Sequence[Toleration]) -> Pod:
    """The pod with additional tolerations."""
    return replace(pod, spec=replace(pod.spec, tolerations=(*pod.spec.tolerations, *more)))


def tolerant_claim(claim: ResourceClaim, more: Sequence[Toleration]) -> ResourceClaim:
    """The claim with additional tolerations in every request."""
    added = tuple(DeviceToleration(item.key, item.operator, item.value, item.effect) for item in more)
    spec = with_each_request(claim.spec, lambda source: replace(source, tolerations=(*source.tolerations, *added)))
    return replace(claim, spec=spec)
