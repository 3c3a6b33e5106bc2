"""Builders of small objects for the tests of this room."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from dra_extender.api.core import Node
from dra_extender.api.decoding import convert
from dra_extender.api.resource import AllocationResult, ResourceClaim, ResourceSlice

ClaimBuilder = Callable[..., ResourceClaim]


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


@pytest.fixture(scope="session")
def make_allocation() -> Callable[..., AllocationResult]:
    """An allocation of `driver/pool/device[#share]` entries."""

    def build(*devices: str | Mapping[str, Any]) -> AllocationResult:
        return convert(AllocationResult, {"devices": {"results": [_result(entry) for entry in devices]}})

    return build


@pytest.fixture(scope="session")
def make_claim() -> ClaimBuilder:
    """A claim `default/NAME`; `devices=None` leaves it unallocated."""

    def build(
        name: str,
        version: int = 1,
        devices: Sequence[str | Mapping[str, Any]] | None = None,
        *,
        uid: str | None = None,
        pod: str = "",
        **metadata: Any,
    ) -> ResourceClaim:
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

    return build


@pytest.fixture(scope="session")
def make_slice() -> Callable[..., ResourceSlice]:
    """A slice of driver `gpu`; `devices` are names or JSON devices, `spec` overrides."""

    def build(
        name: str, pool: str, devices: Sequence[str | Mapping[str, Any]] = (), *, count: int = 1, **spec: Any
    ) -> ResourceSlice:
        generation = spec.pop("generation", 1)
        listed = [{"name": device} if isinstance(device, str) else dict(device) for device in devices]
        body: dict[str, Any] = {
            "driver": spec.pop("driver", "gpu"),
            "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
            "devices": listed,
            **spec,
        }
        return convert(ResourceSlice, {"metadata": {"name": name}, "spec": body})

    return build


@pytest.fixture(scope="session")
def make_node() -> Callable[..., Node]:
    def build(name: str, **labels: str) -> Node:
        return convert(Node, {"metadata": {"name": name, "labels": labels}})

    return build
