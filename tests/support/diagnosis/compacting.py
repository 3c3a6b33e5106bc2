"""Clusters for compaction, told in a few words: nodes with GPUs that can be shared, and pods that have some of them.

    nodes:  name -> number of GPUs, or (GPUs, fields of the node), such as `partitioned`: it has partitions
    pods:   name -> (node, devices, fields of the pod); a device is "0" for all of gpu-0, "0:500" for a part of
            it, or "0-1g-6" for a partition, of which a pod has one

A pod has one claim, made for it, and a ReplicaSet. Its fields may be `cpu`, `owner` (kind; "" = none), `shares` (name
of a claim that is used as well), and everything of its metadata and spec, `labels` and `tolerations` for example.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from bench.placement import partitions
from dra_extender.allocation.decisions import Decisions
from dra_extender.allocation.plan import Plan
from dra_extender.api.core import Node, Pod, PodDisruptionBudget
from dra_extender.api.decoding import convert
from dra_extender.api.events import Applied, Removed
from dra_extender.api.features import FeatureGates
from dra_extender.api.resource import DeviceClass, ResourceClaim, ResourceClaimStatus, ResourceSlice
from dra_extender.devices.cluster import Cluster
from dra_extender.devices.pods import Pods
from dra_extender.insight.compaction import (
    MOST_DECISIONS,
    Advice,
    Compaction,
    EvictionRules,
    request_of_claims,
    request_of_pod,
)
from dra_extender.insight.snapshot import SimulatedPod
from dra_extender.scheduling.claims import known_claims
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.extended import ResourceNames
from dra_extender.scheduling.view import View
from tests.support.placement.gpunodes import gpus
from tests.support.placement.partitionednodes import part
from tests.support.simulation.virtualtime import VirtualClock

Json = dict[str, Any]
DRIVER = "gpu.example.com"
NAMESPACE = "ns"
METADATA = ("labels", "annotations", "deletionTimestamp")

NodeTold = int | tuple[int, Json]
PodTold = tuple[str, str] | tuple[str, str, Json]


class Compacting:
    """See the module."""

    def __init__(self, nodes: Mapping[str, NodeTold], pods: Mapping[str, PodTold]) -> None:
        self.cluster = Cluster(FeatureGates())
        self.pods = Pods()
        self._serial = 0
        self.decisions = Decisions(self.cluster, share_ids=self._share)
        selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
        spec = {"selectors": [selector]}
        self.cluster.apply(Applied(convert(DeviceClass, {"metadata": {"name": "gpu"}, "spec": spec})))
        for name, told in nodes.items():
            count, fields = told if isinstance(told, tuple) else (told, {})
            self._put_node(name, count, fields)
        for name, (node, devices, *more) in pods.items():
            self._put_pod(name, node, devices.split(), more[0] if more else {})
        self.view = View(
            cluster=self.cluster,
            decisions=self.decisions,
            pods=self.pods,
            clock=VirtualClock(),
            config=SchedulingConfig(),
            resources=ResourceNames(self.cluster.classes, VirtualClock(), SchedulingConfig()),
        )

    def _share(self) -> str:
        self._serial += 1
        return f"share-{self._serial}"

    def _put_node(self, name: str, count: int, fields: Json) -> None:
        devices = [
            {"name": f"gpu-{index}", "capacity": {"milli": {"value": "1000"}}, "allowMultipleAllocations": True}
            for index in range(count)
        ]
        amounts = {"cpu": str(fields.get("cpu", 64)), "memory": "256Gi", "pods": str(fields.get("pods", 110))}
        spec = {key: value for key, value in fields.items() if key in ("taints", "unschedulable")}
        metadata = {"name": name, "labels": fields.get("labels", {})}
        self.cluster.apply(
            Applied(convert(Node, {"metadata": metadata, "spec": spec, "status": {"allocatable": amounts}}))
        )
        contents: list[Json] = [{"devices": devices}]
        if fields.get("partitioned"):
            parts = [device for gpu in range(count) for device in partitions.devices(gpu)]
            contents = [{"devices": parts}, {"sharedCounters": [partitions.counters(gpu) for gpu in range(count)]}]
        pool = {"name": name, "generation": 1, "resourceSliceCount": len(contents)}
        for number, content in enumerate(contents):
            published = {"driver": DRIVER, "pool": pool, "nodeName": name, **content}
            self.cluster.apply(
                Applied(convert(ResourceSlice, {"metadata": {"name": f"{name}-{number}"}, "spec": published}))
            )

    def _put_pod(self, name: str, node: str, devices: Sequence[str], fields: Json) -> None:
        self.pods.apply(self.pod(name, node, **fields))
        parts = [part.partition(":")[::2] for part in devices]
        profile = devices[0].split("-")[1] if "-" in devices[0] else ""
        milli = int(parts[0][1] or 1000)
        results: list[Json] = [
            {"request": "r", "driver": DRIVER, "pool": node, "device": f"gpu-{index}"} for index, _ in parts
        ]
        for result, (_, amount) in zip(results, parts, strict=True):
            if not profile:
                result |= {"shareID": self._share(), "consumedCapacity": {"milli": amount or "1000"}}
        users = [{"resource": "pods", "name": name, "uid": name}]
        users += [{"resource": "pods", "name": other, "uid": other} for other in fields.get("shares", "").split()]
        self.cluster.apply(
            Applied(
                replace(
                    part(profile, name) if profile else gpus(len(parts), milli=milli, name=name),
                    status=convert(
                        ResourceClaim,
                        {
                            "metadata": {"name": name},
                            "status": {"allocation": {"devices": {"results": results}}, "reservedFor": users},
                        },
                    ).status,
                )
            )
        )

    def pod(self, name: str, node: str = "", *, cpu: int = 1, owner: str = "ReplicaSet", shares: str = "",
            **more: Any) -> Pod:  # fmt: skip
        """A pod whose claim has its name."""
        metadata: Json = {"name": name, "namespace": NAMESPACE, "uid": name}
        metadata |= {key: value for key, value in more.items() if key in METADATA}
        if owner:
            metadata["ownerReferences"] = [{"kind": owner, "name": "owner", "uid": "owner", "controller": True}]
        spec = {key: value for key, value in more.items() if key not in METADATA}
        container = {"name": "c", "resources": {"requests": {"cpu": str(cpu)}}}
        claims = [{"name": "gpu", "resourceClaimName": name}]
        claims += [{"name": other, "resourceClaimName": other} for other in shares.split()]
        spec = {"schedulerName": "dra-scheduler", "containers": [container], "resourceClaims": claims} | spec
        return convert(Pod, {"metadata": metadata, "spec": spec | {"nodeName": node}})

    # --- questions --------------------------------------------------------------------------------------------------

    def room(
        self, count: int = 1, milli: int = 1000, pod: Json | None = None, rules: EvictionRules | None = None,
        most: int = MOST_DECISIONS,
    ) -> Advice:  # fmt: skip
        """For a claim with `count` GPUs; `pod`: fields of the pod that wants it."""
        claim = gpus(count, milli=milli)
        claim = replace(claim, metadata=replace(claim.metadata, namespace=NAMESPACE))
        request = request_of_claims(self.view, "file", [claim])
        if pod is not None:
            request = request_of_pod(SimulatedPod(self.pod("wanted", **pod), request.pod.snapshot))
        return Compaction(request, rules or EvictionRules(), most).advice()

    def named(self, key: str) -> Pod:
        pod = self.pods.named(*key.split("/"))
        assert pod is not None, key
        return pod

    def act(self, advice: Advice) -> None:
        """Do what is advised, for real: each pod loses its devices and gets others, if it still fits."""
        for move in advice.moves:
            pod = self.named(move.pod)
            claims = [replace(claim, status=ResourceClaimStatus()) for claim in known_claims(pod, self.cluster.ledger)]
            for claim in claims:
                self.cluster.apply(Removed.of(claim))
            plan = self.decisions.plan(claims, move.target)
            assert isinstance(plan, Plan), move
            for claim, allocation in zip(claims, plan.allocations, strict=True):
                self.cluster.apply(Applied(replace(claim, status=ResourceClaimStatus(allocation=allocation))))
            self.pods.apply(replace(pod, spec=replace(pod.spec, node_name=move.target)))
            assert self.cluster.ledger.violations() == ()


def told(advice: Advice) -> str:
    """`node: pod>target pod>target`, or `fits node`, or nothing."""
    if advice.fits:
        return f"fits {' '.join(advice.fits)}"
    moves = " ".join(f"{move.pod.partition('/')[2]}>{move.target}" for move in advice.moves)
    return f"{advice.node}: {moves}" if advice.node else moves


def budget(name: str, allowed: int, **labels: str) -> PodDisruptionBudget:
    return convert(
        PodDisruptionBudget,
        {
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"selector": {"matchLabels": labels}},
            "status": {"disruptionsAllowed": allowed},
        },
    )
