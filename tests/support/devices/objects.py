"""Builders of small objects of the resource API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dra_extender.api.core import Node
from dra_extender.api.decoding import convert
from dra_extender.api.resource import AllocationResult, ResourceClaim, ResourceSlice


def _result(entry: str | Mapping[str, Any]) -> dict[str, Any]:
    """`driver/pool/device`, optionally with `#share`, or a ready JSON result."""
    if not isinstance(entry, str):
        return dict(entry)
    path, _, share = entry.partition("#")
    driver, pool, device = path.split("/")
    result: dict[str, Any] = {"request": "r", "driver": driver, "pool": pool, "device": device}
    if share:
        result["shareID"] = share
    return result


def make_allocation(*devices: str | Mapping[str, Any]) -> AllocationResult:
    """An allocation of `driver/pool/device[#share]` entries."""
    return convert(AllocationResult, {"devices": {"results": [_result(entry) for entry in devices]}})


def make_claim(
    name: str,
    version: int = 1,
    devices: Sequence[str | Mapping[str, Any]] | None = None,
    *,
    uid: str | None = None,
    pod: str = "",
    **metadata: Any,
) -> ResourceClaim:
    """A claim `default/NAME`; `devices=None` leaves it unallocated."""
    meta = {
        "name": name,
        "namespace": "default",
        "uid": f"uid-{name}" if uid is None else uid,
        "resourceVersion": str(version),
        **metadata,
    }
    if pod:
        meta["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": pod, "controller": True}]
    claim: dict[str, Any] = {"metadata": meta}
    if devices is not None:
        results = [_result(entry) for entry in devices]
        claim["status"] = {"allocation": {"devices": {"results": results}}}
    return convert(ResourceClaim, claim)


def make_slice(
    name: str, pool: str, devices: Sequence[str | Mapping[str, Any]] = (), *, count: int = 1, **spec: Any
) -> ResourceSlice:
    """A slice of driver `gpu`; `devices` are names or JSON devices, `spec` overrides."""
    generation = spec.pop("generation", 1)
    listed = [{"name": device} if isinstance(device, str) else dict(device) for device in devices]
    body: dict[str, Any] = {
        "driver": spec.pop("driver", "gpu"),
        "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
        "devices": listed,
        **spec,
    }
    return convert(ResourceSlice, {"metadata": {"name": name}, "spec": body})


def make_node(name: str, **labels: str) -> Node:
    return convert(Node, {"metadata": {"name": name, "labels": labels}})
