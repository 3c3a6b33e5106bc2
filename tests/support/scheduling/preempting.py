"""Situations for preemption, told in a few words: nodes with devices, pods that have some of them, and a preemptor.

A situation is plain data (see tests/scheduling/preemption/situations.yaml):

    nodes:      node -> number of devices d0, d1, ..., or a list of devices as in a ResourceSlice (names are added)
    counters:   node -> counter -> value, of the node's pool
    network:    a pool "net" of devices that every node sees: number or list
    pods:       name -> priority, node, has (devices on the node, or "pool/device"), and more, see `Situation._pod`
    claims:     name -> of (consumers), has, and more: claims that are not of one pod alone; selector: their only node
    budgets:    name -> allowed, selects (labels), disrupted
    groups:     PodGroup -> disruptionMode; the `group` of a pod names it, the `gang` of a pod is [name, size]
    preemptor:  priority, wants (a number of devices or requests), and more of the pod
    nominated:  claim -> devices, "node/device", that are kept for a pod of higher priority
    stuck:      names of pods that do not go
    rules:      scheduler_names and violate_budgets of `PreemptionTerms`
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from dra_extender.allocation.budget import WorkBudget
from dra_extender.allocation.decisions import Decisions
from dra_extender.api.core import Node, Pod, PodDisruptionBudget
from dra_extender.api.decoding import convert
from dra_extender.api.events import Applied
from dra_extender.api.features import FeatureGates
from dra_extender.api.groups import GANG, GANG_SIZE
from dra_extender.api.resource import AllocationResult, DeviceClass, ResourceClaim, ResourceSlice
from dra_extender.api.scheduling import PodGroup
from dra_extender.devices.cluster import Cluster
from dra_extender.devices.overlay import Planned
from dra_extender.devices.pods import Pods
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.extended import ResourceNames
from dra_extender.scheduling.preemption.budgets import BudgetsByNamespace
from dra_extender.scheduling.preemption.evaluator import PreemptionEvaluator
from dra_extender.scheduling.preemption.terms import NoPreemption, Preemption, PreemptionTerms
from dra_extender.scheduling.view import View
from tests.support.simulation.virtualtime import START

Json = Mapping[str, Any]
Told = dict[str, Any]

DRIVER = "gpu"
GROUP = "scheduling.k8s.io"


class Moment:
    """A clock for what takes no time."""

    def monotonic(self) -> float:
        return 0.0

    def wall(self) -> datetime:
        return START


class Situation:
    """The cluster of a situation, the question, and its answer."""

    def __init__(self, told: Json) -> None:
        self._told = told
        self.cluster = cluster = Cluster(FeatureGates.parse(told.get("gates", "")))
        self.pods = Pods()
        serial = iter(range(10**9))
        self.decisions = Decisions(cluster, share_ids=lambda: f"share-{next(serial)}")
        self.binding: dict[str, str] = {}
        self.clearing: set[str] = set()
        self._claims: dict[str, tuple[Json, dict[str, Any]]] = {}
        self._put_classes(told.get("classes", {}))
        counters = told.get("counters", {})
        for node, devices in told.get("nodes", {}).items():
            self.cluster.apply(Applied(convert(Node, {"metadata": {"name": node}})))
            self._publish(node, {"nodeName": node}, devices, counters.get(node))
        if "network" in told:
            self._publish("net", {"allNodes": True}, told["network"], None)
        for name, mode in told.get("groups", {}).items():
            group = {"metadata": {"name": name, "namespace": "ns"}, "spec": {"disruptionMode": mode}}
            self.cluster.apply(Applied(convert(PodGroup, group)))
        for name, pod in told.get("pods", {}).items():
            self._put_pod(name, pod)
        for name, claim in told.get("claims", {}).items():
            self._put_claim(name, claim, claim.get("of", ()))
        self.preemptor = self._preemptor(told.get("preemptor", {}))
        resources = ResourceNames(cluster.classes, Moment(), SchedulingConfig())
        for device_class in cluster.classes.values():
            resources.class_seen(device_class)
        kept = tuple(_planned(name, devices) for name, devices in told.get("nominated", {}).items())
        self.view = View(
            cluster=cluster,
            decisions=self.decisions,
            pods=self.pods,
            clock=Moment(),
            config=SchedulingConfig(),
            resources=resources,
            binding=self.binding,
            clearing=self.clearing,
            kept=lambda pod: kept,
        )
        rules = told.get("rules", {})
        self.terms = PreemptionTerms(
            preemptor=self.preemptor,
            budgets=by_namespace(_budget(name, budget) for name, budget in told.get("budgets", {}).items()),
            stuck=frozenset(map(_uid, told.get("stuck", ()))),
            scheduler_names=frozenset(rules.get("scheduler_names", ())),
            violate_budgets=rules.get("violate_budgets", True),
        )

    @property
    def nodes(self) -> Sequence[str]:
        """Where the preemptor lacks nothing but devices."""
        return tuple(self._told.get("candidates") or self._told.get("nodes", ()))

    def found(self, budget: WorkBudget | None = None) -> Preemption | NoPreemption:
        """The answer."""
        return PreemptionEvaluator(self.terms, self.nodes).evaluate(
            self.view if budget is None else self.view.with_budget(budget)
        )

    def text(self) -> str:
        """The answer in a few words."""
        return self.told(self.found())

    @staticmethod
    def told(found: Preemption | NoPreemption) -> str:
        """`node: victim victim!`, where ! marks a violated budget, or why no pod is preempted."""
        if isinstance(found, NoPreemption):
            return f"{found.why} {found.node}".strip()
        marks = [victim.pod.metadata.name + "!" * victim.violates_budget for victim in found.victims]
        return f"{found.node}: {' '.join(marks)}"

    # --- what there is ----------------------------------------------------------------------------------------------

    def _put_classes(self, classes: Mapping[str, str]) -> None:
        """`any` selects every device; others by extended resource name."""
        for name, resource in {"any": "", **classes}.items():
            spec = {"extendedResourceName": resource} if resource else {}
            self.cluster.apply(Applied(convert(DeviceClass, {"metadata": {"name": name}, "spec": spec})))

    def _publish(self, pool: str, where: Json, devices: int | Sequence[Json], counters: Json | None) -> None:
        listed: Sequence[Json] = [{}] * devices if isinstance(devices, int) else devices
        named = [{"name": f"d{index}", **device} for index, device in enumerate(listed)]
        spec = {"driver": DRIVER, "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1 + bool(counters)}}
        self._put_slice(pool, {**spec, **where, "devices": named})
        if counters:
            values = {name: {"value": str(value)} for name, value in counters.items()}
            self._put_slice(
                f"{pool}-counters", {**spec, **where, "sharedCounters": [{"name": "c", "counters": values}]}
            )

    def _put_slice(self, name: str, spec: Json) -> None:
        self.cluster.apply(Applied(convert(ResourceSlice, {"metadata": {"name": name}, "spec": spec})))

    def _put_pod(self, name: str, told: Json) -> None:
        """Besides, `has` gives the pod a claim of its own, with `admin` for admin access, or `shares` of devices by
        device and amount.
        """
        self.pods.apply(pod_of(name, told))
        if "has" in told or "shares" in told:
            self._put_claim(f"{name}-claim", told, [name], default=str(told.get("node", "")))

    def _put_claim(self, name: str, told: Json, consumers: Iterable[str], default: str = "") -> None:
        pool = told.get("pool", default)
        results: list[Json] = [_result(pool, device, told) for device in told.get("has", ())]
        for device, amount in told.get("shares", {}).items():
            share = {"shareID": f"{name}-{device}", "consumedCapacity": {"memory": str(amount)}}
            results.append({**_result(pool, device, told), **share})
        status: dict[str, Any] = {"reservedFor": [_consumer(consumer) for consumer in consumers]}
        if results:
            status["allocation"] = {"devices": {"results": results}}
        if "selector" in told:
            field = {"key": "metadata.name", "operator": "In", "values": [told["selector"]]}
            status["allocation"]["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        spec = {"devices": {"requests": list(told.get("requests", ()))}}
        self.put_claim(name, spec, status, owner=told.get("owner", ""))

    def put_claim(self, name: str, spec: Json, status: Json, owner: str = "") -> ResourceClaim:
        """A claim as the watch brings it."""
        metadata: dict[str, Any] = {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1"}
        if owner:
            metadata["ownerReferences"] = [
                {"apiVersion": "v1", "kind": "Pod", "name": owner, "uid": _uid(owner), "controller": True}
            ]
        claim = convert(ResourceClaim, {"metadata": metadata, "spec": spec, "status": status})
        self.cluster.apply(Applied(claim))
        return claim

    def _preemptor(self, told: Json) -> Pod:
        """`wants` devices of the class any in one claim, or in several; `claims` that are there already besides."""
        names = list(told.get("claims", ()))
        wants = told.get("wants", 0 if names or "containers" in told else 1)
        for index, wish in enumerate(wants if isinstance(wants, list) else [wants] if wants else []):
            name = f"wanted-{index}"
            self.put_claim(name, {"devices": _devices(wish)}, {})
            names.append(name)
        pod = pod_of("preemptor", {"priority": 10, **told, "claims": names})
        self.pods.apply(pod)
        return pod


def pod_of(name: str, told: Json) -> Pod:
    """A pod of the namespace ns. `deleted`: it is terminating; `overdue`: for an hour longer than it may."""
    metadata: dict[str, Any] = {"name": name, "namespace": "ns", "uid": _uid(name), "labels": told.get("labels", {})}
    metadata["annotations"] = told.get("annotations", {})
    if "gang" in told:
        metadata["annotations"] = dict(zip((GANG, GANG_SIZE), map(str, told["gang"]), strict=True))
    if told.get("deleted"):
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if told.get("overdue"):
        metadata["deletionTimestamp"] = "2025-12-31T23:00:00Z"
    spec = {
        "nodeName": told.get("node", ""),
        "schedulerName": told.get("scheduler", "ours"),
        "priority": told.get("priority", 0),
        "preemptionPolicy": told.get("policy", ""),
        "containers": list(told.get("containers", ())),
        "schedulingGroup": {"podGroupName": told.get("group", "")},
        "resourceClaims": [
            {"name": f"c{index}", "resourceClaimName": claim} for index, claim in enumerate(told.get("claims", ()))
        ],
    }
    status = {"phase": told.get("phase", "Running"), "nominatedNodeName": told.get("nominated", "")}
    if "started" in told:
        status["startTime"] = f"2026-01-01T00:00:{told['started']:02}Z"
    return convert(Pod, {"metadata": metadata, "spec": spec, "status": status})


def _uid(pod: str) -> str:
    return f"uid-{pod}"


def _consumer(name: str) -> Json:
    """A pod; `podgroups/NAME` and the like are something else."""
    resource, _, rest = name.rpartition("/")
    if resource:
        return {"apiGroup": GROUP, "resource": resource, "name": rest, "uid": _uid(rest)}
    return {"resource": "pods", "name": name, "uid": _uid(name)}


def _result(pool: str, device: str, told: Json) -> Json:
    other, _, name = device.rpartition("/")
    found = {"request": "r", "driver": DRIVER, "pool": other or pool, "device": name}
    return {**found, "adminAccess": True} if told.get("admin") else found


def _devices(wish: int | Json) -> Json:
    if not isinstance(wish, int):
        return wish
    exactly = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": wish}
    return {"requests": [{"name": "r", "exactly": exactly}]}


def _budget(name: str, told: Json) -> PodDisruptionBudget:
    selects = told.get("selects")
    spec = {} if selects is None else {"selector": {"matchLabels": selects}}
    disrupted = dict.fromkeys(told.get("disrupted", ()), "2026-01-01T00:00:00Z")
    status = {"disruptionsAllowed": told.get("allowed", 0), "disruptedPods": disrupted}
    metadata = {"name": name, "namespace": told.get("namespace", "ns")}
    return convert(PodDisruptionBudget, {"metadata": metadata, "spec": spec, "status": status})


def _planned(name: str, devices: Sequence[str]) -> Planned:
    claim = convert(ResourceClaim, {"metadata": {"name": name, "namespace": "ns", "uid": name}})
    results = [_result("", device, {}) for device in devices]
    return claim, convert(AllocationResult, {"devices": {"results": results}})


def by_namespace(budgets: Iterable[PodDisruptionBudget]) -> BudgetsByNamespace:
    """The index of these budgets."""
    namespaces: dict[str, dict[str, PodDisruptionBudget]] = {}
    for budget in budgets:
        namespaces.setdefault(budget.metadata.namespace, {})[budget.metadata.key] = budget
    return BudgetsByNamespace(namespaces)


def sharing(nodes: int, pods: int, wants: int) -> Told:
    """Nodes with a device, a small share of which each pod has. The preemptor wants this part of its 1000."""
    told: Told = {"gates": "DRAConsumableCapacity=true", "nodes": {}, "pods": {}}
    device = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "1000"}}}
    for node in (f"n{number}" for number in range(nodes)):
        told["nodes"][node] = [device]
        told["pods"].update({f"{node}-p{each}": {"node": node, "shares": {"d0": 1}} for each in range(pods)})
    exactly = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": 1}
    exactly["capacity"] = {"requests": {"memory": str(wants)}}
    told["preemptor"] = {"priority": 100, "wants": [{"requests": [{"name": "r", "exactly": exactly}]}]}
    return told
