"""The cluster of the misfits with a device in every state, and claims that hold some."""

from __future__ import annotations

from typing import Any

from tests.support.diagnosis.hardware import RESOURCE, cluster, device_class, node, shares
from tests.support.diagnosis.scene import Scene

Json = dict[str, Any]


def claim(
    name: str, driver: str, host: str, *devices: str, namespace: str = "default", share: str = "", **more: Any
) -> Json:
    """It has these devices of the host, for a pod of its own name; with `share` a part that consumes `memory`."""
    results: list[Json] = [
        {"request": "r", "driver": driver, "pool": f"{host}-{driver.partition('.')[0]}", "device": device}
        | ({"shareID": share, "consumedCapacity": more} if share else {})
        for device in devices
    ]
    exactly = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": len(devices)}
    return {
        "apiVersion": RESOURCE,
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
        "status": {
            "allocation": {"devices": {"results": results}},
            "reservedFor": [{"resource": "pods", "name": name, "uid": f"uid-{name}"}],
        },
    }


GPU, MIG, SHARE, NIC = "gpu.example.com", "mig.example.com", "share.example.com", "nic.example.com"
GATES = "DRAConsumableCapacity=true,DRAPartitionableDevices=true,DRADeviceTaints=true"
HELD = [
    claim("train", GPU, "a1", "gpu-0", "gpu-1"),
    claim("other", GPU, "a2", "gpu-0", namespace="team"),
    claim("half", MIG, "m1", "half-0"),
    claim("infer", SHARE, "s1", "share-0", share="11111111-1111-4111-8111-111111111111", memory="30Gi"),
]
GPUS_USED = ["a1-gpu/gpu-0", "a1-gpu/gpu-1", "a2-gpu/gpu-0"]
CLASSES = [device_class("gpu", f'device.driver == "{GPU}"'), device_class("any", "true")]


def scene(*more: Json, gates: str = GATES) -> Scene:
    return Scene(
        [item for item in cluster() if item["kind"] != "DeviceClass"] + CLASSES + HELD + list(more), gates=gates
    )


def shared_by(count: int, devices: int) -> Scene:
    """Each device is shared by this number of claims of different pods."""
    claims = [
        claim(f"c{device}-{each:04}", SHARE, "n", f"share-{device}", share=f"{device}-{each:04}", memory=f"{each}Mi")
        for device in range(devices)
        for each in range(count)
    ]
    return Scene([node("n"), shares("n", devices), *claims], gates=GATES)
