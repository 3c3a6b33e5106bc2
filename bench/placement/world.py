"""A cluster with the nodes of a workload, and pods put into it through the verbs of the extender.

Each GPU is a device that allows multiple allocations, with 1000 milli; a pod with GPUs has one claim. Only the API
server is left out: what a bind would write is applied at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from random import Random
from typing import Any, Final, cast

import msgspec

from bench.placement import partitions
from bench.placement.trace import PARTITIONED, WHOLE, Job, Machine
from dra_extender.allocation.budget import UNLIMITED
from dra_extender.allocation.decisions import Decisions
from dra_extender.api.core import Node, Pod
from dra_extender.api.decoding import convert
from dra_extender.api.events import Applied, ClusterEvent, Removed
from dra_extender.api.extender import ExtenderArgs
from dra_extender.api.features import FeatureGates
from dra_extender.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from dra_extender.devices.cluster import Cluster
from dra_extender.placement.learner import PlacementLearner
from dra_extender.placement.podshape import PodShape
from dra_extender.placement.policies import PlacementStrategy
from dra_extender.scheduling.extender import Extender
from dra_extender.scheduling.feasibility import NodeAllocation, allocate, pre_filter
from dra_extender.scheduling.handle import Runtime
from dra_extender.scheduling.ports import Ports

DRIVER = "gpu.example.com"
CLASS = "gpu"
NAMESPACE = "bench"
RACK: Final = "topology.example.com/rack"
_NONE: Final[Mapping[str, str]] = {}


class Nobody:
    """Stands for the API server, which nothing here calls."""

    def __getattr__(self, name: str) -> Any:
        async def refuse(*args: object) -> None:
            raise AssertionError(f"{name} of the API server is asked")

        return refuse


class Time:
    """The clock of this process."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> datetime:
        return datetime.now(UTC)


class World:
    """Nodes by position. Names begin with a random number, so that ties are settled in another order each time."""

    def __init__(self, machines: Sequence[Machine], strategy: PlacementStrategy, random: Random) -> None:
        order = random.sample(range(len(machines)), len(machines))
        self.names = [f"{place:04d}-{machine.name}" for place, machine in zip(order, machines, strict=True)]
        self._positions = {name: position for position, name in enumerate(self.names)}
        cluster = Cluster(FeatureGates())
        self.learner = PlacementLearner(cluster, strategy)
        self.placement = self.learner.placement
        decisions = Decisions(cluster, share_ids=self._share_id)
        runtime = Runtime(clock=Time())
        self.extender = Extender(cluster, decisions, cast(Ports, Nobody()), runtime=runtime, placement=self.learner)
        self.watcher: Callable[[ClusterEvent], object] = lambda event: None
        """Called with each event after it was applied."""
        self._numbers = 0
        self._shares = 0
        self._specs: dict[Job, Any] = {}
        self._apply(
            Applied(
                convert(
                    DeviceClass,
                    {
                        "metadata": {"name": CLASS},
                        "spec": {"selectors": [_selector("device.driver == 'gpu.example.com'")]},
                    },
                )
            )
        )
        for name, machine in zip(self.names, machines, strict=True):
            self._apply(Applied(node_of(name, machine)))
            for item in slices_of(name, machine):
                self._apply(Applied(item))

    def _apply(self, event: ClusterEvent) -> None:
        self.extender.apply(event)
        self.watcher(event)

    @property
    def evaluations(self) -> int:
        """How often states of a node were compared."""
        return sum(ranking.evaluations for ranking in self.placement.rankings.values())

    def _share_id(self) -> str:
        self._shares += 1
        return f"share-{self._shares}"

    # --- one pod ----------------------------------------------------------------------------------------------------

    def arrive(self, job: Job, annotations: Mapping[str, str] = _NONE) -> Pod:
        """A pod comes, with its claim."""
        self._numbers += 1
        name = f"pod-{self._numbers}"
        if job.gpus:
            self._apply(Applied(self._claim(name, job)))
        pod = self._pod(name, job, annotations)
        self._apply(Applied(pod))
        return pod

    def example(self, job: Job, name: str = "example") -> tuple[Pod, tuple[ResourceClaim, ...]]:
        """Such a pod and its claims, which do not come."""
        return self._pod(name, job, _NONE), (self._claim(name, job),) if job.gpus else ()

    def shape(self, job: Job) -> PodShape:
        """What such a pod looks like to a policy."""
        found = self.placement.shape(*self.example(job), UNLIMITED)
        assert found is not None, job
        return found

    async def fits(self, pod: Pod, nodes: Sequence[int]) -> list[int]:
        """Those of the nodes on which it can have its devices, as `filter` says."""
        result = await self.extender.filter(ExtenderArgs(pod, tuple([self.names[node] for node in nodes])))
        if result.Error:
            raise RuntimeError(result.Error)
        return [self._positions[name] for name in result.NodeNames]

    async def favourite(self, pod: Pod, nodes: Sequence[int]) -> int | None:
        """The only one with the best score of `prioritize`; None when it has no favourite."""
        scores = await self.extender.prioritize(ExtenderArgs(pod, tuple([self.names[node] for node in nodes])))
        best = max(item.Score for item in scores)
        if not best:
            return None
        (found,) = [item.Host for item in scores if item.Score == best]
        return self._positions[found]

    def bind(self, pod: Pod, node: int) -> None:
        """The pod runs there from now on."""
        view, name = self.extender.view.with_pod(pod), self.names[node]
        decision = allocate(view, pre_filter(view, pod), name)
        if not isinstance(decision, NodeAllocation):
            raise RuntimeError(f"{pod.metadata.name} does not fit on {name}: {decision}")
        reserved = [{"resource": "pods", "name": pod.metadata.name, "uid": pod.metadata.uid}]
        for claim, allocation in zip(decision.pending, decision.allocations, strict=True):
            self._numbers += 1
            status = msgspec.structs.replace(
                claim.status,
                allocation=allocation,
                reserved_for=convert(type(claim.status), {"reservedFor": reserved}).reserved_for,
            )
            metadata = msgspec.structs.replace(claim.metadata, resource_version=str(self._numbers))
            self._apply(Applied(msgspec.structs.replace(claim, metadata=metadata, status=status)))
        self._apply(Applied(msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=name))))

    def leave(self, pod: Pod) -> None:
        """The pod is gone, with its claim."""
        self._apply(Removed.of(pod))
        for entry in pod.spec.resource_claims:
            claim = self.extender.view.ledger.get(NAMESPACE, entry.resource_claim_name or "")
            if claim is not None:
                self._apply(Removed.of(claim))

    def _claim(self, name: str, job: Job) -> ResourceClaim:
        kind = job._replace(cpu=0, memory=0)
        spec = self._specs.get(kind)
        if spec is None:
            spec = self._specs[kind] = convert(
                ResourceClaim, {"metadata": {"name": "", "namespace": ""}, "spec": spec_of(job)}
            ).spec
        metadata = {"name": name, "namespace": NAMESPACE, "uid": f"claim-{name}", "resourceVersion": str(self._numbers)}
        return msgspec.structs.replace(convert(ResourceClaim, {"metadata": metadata}), spec=spec)

    def _pod(self, name: str, job: Job, annotations: Mapping[str, str]) -> Pod:
        metadata: dict[str, Any] = {"name": name, "namespace": NAMESPACE, "uid": name}
        metadata |= {"resourceVersion": str(self._numbers), "annotations": dict(annotations)}
        requests = {"cpu": f"{job.cpu}m", "memory": f"{job.memory}Mi"}
        spec: dict[str, Any] = {"containers": [{"name": "c", "resources": {"requests": requests}}]}
        if job.gpus:
            spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": name}]
        return convert(Pod, {"metadata": metadata, "spec": spec})


def _selector(expression: str) -> dict[str, Any]:
    return {"cel": {"expression": expression}}


def spec_of(job: Job) -> dict[str, Any]:
    exactly: dict[str, Any] = {"deviceClassName": CLASS, "allocationMode": "ExactCount", "count": job.gpus}
    if job.profile:
        exactly["selectors"] = [_selector(f'device.attributes["{DRIVER}"].profile == "{job.profile}"')]
    else:
        exactly["capacity"] = {"requests": {"milli": str(job.milli)}}
    if job.models:
        listed = ", ".join(f'"{model}"' for model in job.models)
        exactly["selectors"] = [_selector(f'device.attributes["{DRIVER}"].model in [{listed}]')]
    return {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}


def node_of(name: str, machine: Machine) -> Node:
    amounts = {"cpu": f"{machine.cpu}m", "memory": f"{machine.memory}Mi", "pods": "1001"}
    labels = {RACK: machine.rack} if machine.rack else {}
    return convert(Node, {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": amounts}})


def slices_of(name: str, machine: Machine) -> Iterator[ResourceSlice]:
    """What a driver publishes for the node."""
    gpus = range(machine.gpus)
    if machine.model == PARTITIONED:
        yield _slice(name, 0, 2, {"devices": [device for gpu in gpus for device in partitions.devices(gpu)]})
        yield _slice(name, 1, 2, {"sharedCounters": [partitions.counters(gpu) for gpu in gpus]})
    else:
        yield _slice(name, 0, 1, {"devices": [_gpu(gpu, machine.model) for gpu in gpus]})


def _gpu(number: int, model: str) -> dict[str, Any]:
    return {
        "name": f"gpu-{number}",
        "attributes": {"model": {"string": model}},
        "capacity": {"milli": {"value": str(WHOLE)}},
        "allowMultipleAllocations": True,
    }


def _slice(name: str, number: int, count: int, content: dict[str, Any]) -> ResourceSlice:
    pool = {"name": name, "generation": 1, "resourceSliceCount": count}
    metadata = {"name": f"{name}-{number}", "uid": f"{name}-{number}", "resourceVersion": "1"}
    return convert(
        ResourceSlice, {"metadata": metadata, "spec": {"driver": DRIVER, "pool": pool, "nodeName": name, **content}}
    )
