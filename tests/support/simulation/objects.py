"""Small objects for the tests of this room, in the namespace default unless said otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from dra_extender.api.core import Node, Pod
from dra_extender.api.decoding import convert
from dra_extender.api.resource import (
    FINALIZER,
    AllocationResult,
    DeviceClass,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
    ResourceSlice,
)
from dra_extender.api.scheduling import PodGroup

Json = dict[str, Any]
KubernetesObject: TypeAlias = Node | Pod | ResourceClaim | ResourceSlice | DeviceClass | PodGroup
Objects: TypeAlias = Sequence[KubernetesObject]

DRIVER = "gpu.example.com"


def make_node(name: str, **allocatable: str) -> Node:
    return convert(Node, {"metadata": {"name": name, "uid": f"node-{name}"}, "status": {"allocatable": allocatable}})


def make_slice(
    node: str, devices: Sequence[str | Json], *, pool: str = "", generation: int = 1, count: int = 1, part: str = ""
) -> ResourceSlice:
    """A pool of its own on one node (`node=""`: on all nodes); devices by name or as JSON. Of several slices (`count`)
    of a pool each has a `part` in its name.
    """
    ready = [device if isinstance(device, dict) else {"name": device} for device in devices]
    spec: Json = {
        "driver": DRIVER,
        "pool": {"name": pool or node, "generation": generation, "resourceSliceCount": count},
        "devices": ready,
    }
    spec |= {"nodeName": node} if node else {"allNodes": True}
    name = f"slice-{pool or node}{part}"
    return convert(ResourceSlice, {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": spec})


def make_class(name: str = "gpu", *, resource: str = "") -> DeviceClass:
    spec: Json = {"extendedResourceName": resource} if resource else {}
    return convert(DeviceClass, {"metadata": {"name": name, "uid": f"class-{name}"}, "spec": spec})


def make_claim(
    name: str,
    *,
    count: int = 1,
    requests: Sequence[Json] | None = None,
    pod: str = "",
    pod_uid: str = "",
    uid: str = "",
    namespace: str = "default",
) -> ResourceClaim:
    """A claim `NAMESPACE/NAME` for `count` devices of the class gpu, or for these requests; `pod` makes it owned."""
    meta: Json = {"name": name, "namespace": namespace, "uid": uid or f"uid-{name}"}
    if pod:
        owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": pod_uid or f"uid-{pod}", "controller": True}
        meta["ownerReferences"] = [owner]
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
    spec = {"devices": {"requests": list(requests) if requests is not None else [{"name": "r", "exactly": exactly}]}}
    return convert(ResourceClaim, {"metadata": meta, "spec": spec})


def make_allocated(name: str, *pods: str) -> ResourceClaim:
    """A claim that has the device n1/a, reserved for these pods: as a crash leaves it, or as others write it."""
    claim = make_claim(name)
    result = {"request": "r", "driver": DRIVER, "pool": "n1", "device": "a"}
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
    body = {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": terms}}
    users = tuple(ResourceClaimConsumerReference(resource="pods", name=pod, uid=f"uid-{pod}") for pod in pods)
    meta = msgspec.structs.replace(claim.metadata, finalizers=(FINALIZER,))
    status = ResourceClaimStatus(allocation=convert(AllocationResult, body), reserved_for=users)
    return msgspec.structs.replace(claim, metadata=meta, status=status)


def make_wishes(name: str, *wishes: int) -> ResourceClaim:
    """A claim for this many devices, the first wish best."""
    alternatives: list[Json] = [
        {"name": f"w{count}", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
        for count in wishes
    ]
    return make_claim(name, requests=[{"name": "r", "firstAvailable": alternatives}])


def make_pod(name: str, *claims: str, node: str = "", uid: str = "", namespace: str = "default", **more: Any) -> Pod:
    """A pod `NAMESPACE/NAME` that uses these claims by name. `more` is merged into the spec."""
    entries = [{"name": f"c{index}", "resourceClaimName": claim} for index, claim in enumerate(claims)]
    spec: Json = {"resourceClaims": entries, "schedulerName": "dra-scheduler", **more}
    if node:
        spec["nodeName"] = node
    meta = {"name": name, "namespace": namespace, "uid": uid or f"uid-{name}"}
    return convert(Pod, {"metadata": meta, "spec": spec})
