"""Pods that wait for GPUs of the class `gpu`, or run with some, as manifests."""

from __future__ import annotations

from typing import Any

from tests.support.diagnosis.hardware import RESOURCE
from tests.support.diagnosis.heldcluster import GPU, claim

Json = dict[str, Any]


def pod(name: str, host: str = "", *, cpu: str = "1", claims: str = "", **meta: Any) -> Json:
    """A pod with the claim of its name, or of another."""
    container = {"name": "c", "image": "pause", "resources": {"requests": {"cpu": cpu}}}
    spec: Json = {
        "containers": [container], "resourceClaims": [{"name": "gpu", "resourceClaimName": claims or name}]
    } | ({"nodeName": host} if host else {})  # fmt: skip
    return {
        "apiVersion": "v1", "kind": "Pod", "spec": spec,
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", **meta},
    }  # fmt: skip


def waiting(name: str, count: int = 1) -> list[Json]:
    """A pod without a node, and its claim for this number of devices."""
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
    meta = {"name": name, "namespace": "default", "uid": f"claim-{name}"}
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    return [pod(name), {"apiVersion": RESOURCE, "kind": "ResourceClaim", "metadata": meta, "spec": spec}]


def running(name: str, host: str, *devices: str, **meta: Any) -> list[Json]:
    """A pod on the node, and its claim with these devices."""
    held = claim(name, GPU, host, *devices)
    held["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = "gpu"
    return [pod(name, host, **meta), held]
