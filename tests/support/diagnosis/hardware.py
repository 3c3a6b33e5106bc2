"""The cluster of the misfits: nodes that differ in what keeps pods away, and every kind of device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Json = dict[str, Any]

RESOURCE = "resource.k8s.io/v1"
ROOT = "resource.kubernetes.io/pcieRoot"
DEDICATED = {"key": "dedicated", "value": "ml", "effect": "NoSchedule"}
CORDONED = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
FIRMWARE = {"key": "maintenance", "value": "firmware", "effect": "NoSchedule"}


def node(name: str, *, pods: str = "30", labels: Json | None = None, **spec: Any) -> Json:
    amounts = {"cpu": "8", "memory": "32Gi", "pods": pods, "ephemeral-storage": "100Gi"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": spec,
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}],
        },
    }


def device_class(name: str, expression: str, resource: str = "") -> Json:
    spec: Json = {"selectors": [{"cel": {"expression": expression}}]}
    if resource:
        spec["extendedResourceName"] = resource
    return {"apiVersion": RESOURCE, "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


def pool(host: str, driver: str, devices: Sequence[Json], *, part: str = "", count: int = 1, **spec: Any) -> Json:
    name = f"{host}-{driver.partition('.')[0]}"
    body: Json = {
        "driver": driver,
        "nodeName": host,
        "pool": {"name": name, "generation": 1, "resourceSliceCount": count},
        **spec,
    }
    if devices:
        body["devices"] = list(devices)
    return {"apiVersion": RESOURCE, "kind": "ResourceSlice", "metadata": {"name": f"{name}{part}"}, "spec": body}


def gpus(host: str, model: str, count: int, memory: str, version: str, taints: Sequence[Json] = ()) -> Json:
    """Two behind each PCIe root, four on each NUMA node."""
    return pool(host, "gpu.example.com", [_gpu(host, index, model, memory, version, taints) for index in range(count)])


def _gpu(host: str, index: int, model: str, memory: str, version: str, taints: Sequence[Json]) -> Json:
    device: Json = {
        "name": f"gpu-{index}",
        "attributes": {
            "model": {"string": model},
            "uuid": {"string": f"{host}-{index}"},
            "index": {"int": index},
            "numa": {"int": index // 4},
            "nvlink": {"bool": model == "H100"},
            "firmware": {"version": version},
            ROOT: {"string": f"root-{index // 2}"},
        },
        "capacity": {"memory": {"value": memory}},
    }
    return device | ({"taints": list(taints)} if taints else {})


def nics(host: str, count: int) -> Json:
    return pool(
        host,
        "nic.example.com",
        [
            {"name": f"nic-{index}", "attributes": {"speed": {"int": 100}, ROOT: {"string": f"root-{index}"}}}
            for index in range(count)
        ],
    )


def partitions(host: str) -> list[Json]:
    """One device that is offered whole, as halves and as quarters, out of 80Gi."""
    parts = [("whole", 1, "80Gi"), ("half", 2, "40Gi"), ("quarter", 4, "20Gi")]
    devices = [
        {
            "name": f"{profile}-{index}",
            "attributes": {"profile": {"string": profile}},
            "consumesCounters": [{"counterSet": "card", "counters": {"memory": {"value": memory}}}],
        }
        for profile, count, memory in parts
        for index in range(count)
    ]
    counters = [{"name": "card", "counters": {"memory": {"value": "80Gi"}}}]
    return [
        pool(host, "mig.example.com", devices, count=2),
        pool(host, "mig.example.com", (), part="-counters", count=2, sharedCounters=counters),
    ]


def divided(host: str, parts: int, gpus: int = 1) -> list[Json]:
    """The slices of GPUs that are offered as this many equal parts each."""
    devices = [
        {
            "name": f"part-{gpu}-{part}",
            "consumesCounters": [{"counterSet": f"gpu-{gpu}", "counters": {"memory": {"value": "1"}}}],
        }
        for gpu in range(gpus)
        for part in range(parts)
    ]
    counters = [{"name": f"gpu-{gpu}", "counters": {"memory": {"value": str(parts)}}} for gpu in range(gpus)]
    return [
        pool(host, "gpu.example.com", devices, count=2),
        pool(host, "gpu.example.com", (), part="-counters", count=2, sharedCounters=counters),
    ]


def shares(host: str, count: int) -> Json:
    """Devices of 40Gi that several claims can use."""
    device: Json = {
        "allowMultipleAllocations": True,
        "capacity": {"memory": {"value": "40Gi", "requestPolicy": {"default": "10Gi", "validRange": {"min": "1Gi"}}}},
    }
    return pool(host, "share.example.com", [{"name": f"share-{index}", **device} for index in range(count)])


def cluster() -> list[Json]:
    """Everything that exists before any pod does."""
    gpu = 'device.driver == "gpu.example.com"'

    def model(name: str) -> str:
        return f'{gpu} && device.attributes["gpu.example.com"].model == "{name}"'

    return [
        node("a1", labels={"zone": "north", "disk": "hdd"}),
        node("a2", labels={"zone": "north", "disk": "hdd"}),
        node("h1", labels={"zone": "south", "disk": "ssd"}),
        node("l1", taints=[DEDICATED]),
        node("t1"),
        node("v1", unschedulable=True, taints=[CORDONED]),
        node("m1"),
        node("s1"),
        node("full", pods="1"),
        gpus("a1", "A100", 8, "40Gi", "535.1.0"),
        gpus("a2", "A100", 8, "40Gi", "535.1.0"),
        gpus("h1", "H100", 4, "80Gi", "550.2.0"),
        gpus("l1", "L4", 2, "24Gi", "535.1.0"),
        gpus("t1", "T4", 4, "16Gi", "470.0.0", [FIRMWARE]),
        gpus("v1", "V100", 2, "32Gi", "470.0.0"),
        gpus("full", "K80", 2, "12Gi", "470.0.0"),
        nics("h1", 2),
        *partitions("m1"),
        shares("s1", 2),
        pool("s1", "late.example.com", [{"name": "late-0"}], count=2),
        device_class("gpu", gpu),
        *(device_class(name.lower(), model(name)) for name in ("A100", "L4", "T4", "V100", "K80")),
        device_class("h100", model("H100"), "example.com/h100"),
        device_class("nic", 'device.driver == "nic.example.com"'),
        device_class("mig", 'device.driver == "mig.example.com"'),
        device_class("share", 'device.driver == "share.example.com"'),
        device_class("late", 'device.driver == "late.example.com"'),
        device_class("tpu", 'device.driver == "tpu.example.com"'),
    ]
