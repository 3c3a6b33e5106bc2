"""The data centre of misfits-datacentre.yaml: hardware of several vendors, as their drivers publish it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from tests.support.diagnosis.hardware import CORDONED, ROOT, device_class, node, pool

Json = dict[str, Any]

GPU: Final = "gpu.nvidia.com"
RDMA: Final = "dra.net"
VF: Final = "sriovnetwork.k8snetworkplumbingwg.io"
FPGA: Final = "fpga.intel.com"
UPLINK: Final = "uplink.example.com"
SLICES: Final = "hami.io"
FABRIC: Final = "fabric.example.com"

XID: Final = {"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoExecute"}
INFERENCE: Final = {"key": "dedicated", "value": "inference", "effect": "NoSchedule"}
NOT_READY: Final = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


def string(value: str) -> Json:
    return {"string": value}


def gpus(host: str, product: str, architecture: str, memory: str, count: int, compute: str = "9.0.0") -> list[Json]:
    """Two behind each PCIe root, four on each NUMA node."""
    return [
        {
            "name": f"gpu-{index}",
            "attributes": {
                "type": string("gpu"),
                "productName": string(product),
                "architecture": string(architecture),
                "uuid": string(f"GPU-{host}-{index}"),
                "cudaComputeCapability": {"version": compute},
                "driverVersion": {"version": "550.90.7"},
                "numaNode": {"int": index // 4},
                ROOT: string(f"pci0000:{index // 2}0"),
            },
            "capacity": {"memory": {"value": memory}},
        }
        for index in range(count)
    ]


def _tainted(devices: Sequence[Json], number: int, taint: Json) -> list[Json]:
    return [device | {"taints": [taint]} if at == number else device for at, device in enumerate(devices)]


def _cards(count: int) -> list[Json]:
    """RDMA network cards, one behind each PCIe root."""
    return [
        {
            "name": f"mlx5-{index}",
            "attributes": {"rdma": {"bool": True}, "numaNode": {"int": index // 2}, ROOT: string(f"pci0000:{index}0")},
        }
        for index in range(count)
    ]


MIG: Final = {"1g.10gb": (1, range(7)), "2g.20gb": (2, (0, 2, 4)), "3g.40gb": (4, (0, 4)), "7g.80gb": (8, (0,))}
"""By profile of an A100 with 80 GB: (slices of memory, first slice of each placement)."""


def _mig(host: str, cards: int) -> Iterator[Json]:
    """Every placement of every profile of each card. Placements that overlap exclude each other."""
    devices: list[Json] = []
    counters: list[Json] = []
    for card in range(cards):
        name = f"gpu-{card}-memory"
        counters.append({"name": name, "counters": {f"slice-{index}": {"value": "1"} for index in range(8)}})
        for profile, (size, places) in MIG.items():
            devices += [
                {
                    "name": f"gpu-{card}-mig-{profile.replace('.', '-')}-{place}",
                    "attributes": {
                        "type": string("mig"),
                        "profile": string(profile),
                        "parentUUID": string(f"GPU-{host}-{card}"),
                    },
                    "consumesCounters": [
                        {
                            "counterSet": name,
                            "counters": {f"slice-{index}": {"value": "1"} for index in range(place, place + size)},
                        }
                    ],
                }
                for place in places
            ]
    yield pool(host, GPU, devices, count=2)
    yield pool(host, GPU, (), part="-counters", count=2, sharedCounters=counters)


def _functions(host: str) -> Json:
    """Two virtual functions of each of two ports; one port has 25 Gb/s, the other 100."""
    ports = {"ens1f0": 25, "ens2f0": 100}
    return pool(
        host,
        VF,
        [
            {"name": f"{port}-vf{index}", "attributes": {"pfName": string(port), "linkSpeed": {"int": speed}}}
            for port, speed in ports.items()
            for index in range(2)
        ],
    )


def _uplink(host: str, total: str) -> Json:
    """A network interface whose bandwidth pods share."""
    policy = {"default": "1G", "validRange": {"min": "1G", "step": "1G"}}
    capacity = {"bandwidth": {"value": total, "requestPolicy": policy}}
    return pool(host, UPLINK, [{"name": "eth1", "allowMultipleAllocations": True, "capacity": capacity}])


def _sliced(host: str) -> Json:
    """A GPU of which pods share memory and cores; memory in steps of a few sizes."""
    memory = {"value": "48Gi", "requestPolicy": {"default": "12Gi", "validValues": ["12Gi", "24Gi", "48Gi"]}}
    cores = {"value": "100", "requestPolicy": {"default": "10", "validRange": {"min": "10", "step": "10"}}}
    return pool(
        host,
        SLICES,
        [{"name": "hami-0", "allowMultipleAllocations": True, "capacity": {"memory": memory, "cores": cores}}],
    )


def _fpgas(host: str) -> Json:
    return pool(
        host,
        FPGA,
        [
            {"name": f"fpga-{index}", "attributes": {"board": string("n6001"), "shell": {"version": f"2.{index}.0"}}}
            for index in range(2)
        ],
    )


def _rack() -> Json:
    """GPUs that a fabric attaches to a node of the rack once they are allocated."""
    rack = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "rack", "operator": "In", "values": ["r7"]}]}]}
    device: Json = {
        "bindsToNode": True,
        "bindingConditions": [f"{FABRIC}/attached"],
        "bindingFailureConditions": [f"{FABRIC}/failed"],
    }
    body = {
        "driver": FABRIC,
        "nodeSelector": rack,
        "pool": {"name": "rack-r7", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": f"pooled-{index}", **device} for index in range(2)],
    }
    return {
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "rack-r7"}, "spec": body,
    }  # fmt: skip


def datacentre() -> list[Json]:
    """Everything that exists before any pod does."""
    h100, a100 = ("NVIDIA H100 80GB HBM3", "Hopper", "80Gi"), ("NVIDIA A100-SXM4-40GB", "Ampere", "40Gi")
    l4 = gpus("l4-1", "NVIDIA L4", "Ada Lovelace", "24Gi", 2, "8.9.0")

    def of(driver: str, *clauses: str) -> str:
        return " && ".join((f'device.driver == "{driver}"', *clauses))

    def gpu(kind: str) -> str:
        return of(GPU, f'device.attributes["{GPU}"].type == "{kind}"')

    return [
        node("dgx-1", labels={"zone": "north", "pool": "training"}),
        node("dgx-2", labels={"zone": "north", "pool": "training"}),
        node("a100-1", labels={"zone": "south", "pool": "training"}),
        node("mig-1", labels={"zone": "south", "pool": "notebooks"}),
        node("l40s-1", labels={"zone": "south", "pool": "inference"}, taints=[INFERENCE]),
        node("l4-1", labels={"zone": "south", "pool": "inference"}),
        node("t4-1", labels={"zone": "south"}, unschedulable=True, taints=[CORDONED]),
        node("v100-1", labels={"zone": "south"}, taints=[NOT_READY]),
        node("fpga-1", labels={"zone": "north"}),
        node("edge-1", labels={"zone": "edge"}),
        node("edge-2", labels={"zone": "edge"}),
        node("rack-1", labels={"zone": "north", "rack": "r7"}),
        pool("dgx-1", GPU, gpus("dgx-1", *h100, 8)),
        pool("dgx-2", GPU, gpus("dgx-2", *h100, 8)),
        pool("dgx-1", RDMA, _cards(4)),
        pool("dgx-2", RDMA, _cards(4)),
        pool("a100-1", GPU, gpus("a100-1", *a100, 4, "8.0.0")),
        *_mig("mig-1", 2),
        pool("l40s-1", GPU, gpus("l40s-1", "NVIDIA L40S", "Ada Lovelace", "48Gi", 4, "8.9.0")),
        pool("l4-1", GPU, _tainted(l4, 1, XID)),
        pool("t4-1", GPU, gpus("t4-1", "Tesla T4", "Turing", "16Gi", 2, "7.5.0")),
        pool("v100-1", GPU, gpus("v100-1", "Tesla V100", "Volta", "32Gi", 2, "7.0.0")),
        _fpgas("fpga-1"),
        _functions("edge-1"),
        _functions("edge-2"),
        _uplink("edge-1", "100G"),
        _sliced("edge-2"),
        _rack(),
        device_class("gpu.nvidia.com", gpu("gpu"), "nvidia.com/gpu"),
        device_class("mig.nvidia.com", gpu("mig")),
        device_class("vfio.gpu.nvidia.com", gpu("vfio")),
        device_class("h100", gpu("gpu") + f' && device.attributes["{GPU}"].productName.startsWith("NVIDIA H100")'),
        *(
            device_class(name, gpu("gpu") + f' && device.attributes["{GPU}"].productName == "{product}"')
            for name, product in (
                ("a100", "NVIDIA A100-SXM4-40GB"),
                ("l40s", "NVIDIA L40S"),
                ("l4", "NVIDIA L4"),
                ("t4", "Tesla T4"),
                ("v100", "Tesla V100"),
            )
        ),
        device_class("rdma.dra.net", of(RDMA, f'device.attributes["{RDMA}"].rdma')),
        device_class("sriov", of(VF)),
        device_class("fpga", of(FPGA)),
        device_class("uplink", of(UPLINK)),
        device_class("hami", of(SLICES)),
        device_class("pooled-gpu", of(FABRIC)),
        device_class("tpu.google.com", of("tpu.google.com")),
    ]
