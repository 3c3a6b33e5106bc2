"""The controllers and the kubelet stand-in of the embedded cluster, on one shared set of informers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from dra_extender.api.core import Pod
from dra_extender.api.errors import ConflictError, NotFoundError
from dra_extender.api.meta import ObjectMeta
from dra_extender.api.resource import DeviceTaintRule, ResourceClaim, ResourceSlice
from dra_extender.kube.client import KubeClient
from dra_extender.kube.events import EventRecorder
from dra_extender.kube.knownobjects import Named
from dra_extender.kube.resources import RESOURCE_CLAIMS, RESOURCE_SLICES, Served, device_taint_rules
from embedded_cluster.controllers.claims import ClaimController
from embedded_cluster.controllers.daemons import DaemonController
from embedded_cluster.controllers.eviction import EvictionController
from embedded_cluster.controllers.podsets import ReplicaController
from embedded_cluster.controllers.rollouts import RolloutController
from embedded_cluster.driver import Driver, DriverPods, Fabric
from embedded_cluster.informer import Informer, RateLimitedQueue
from embedded_cluster.kubelet import Kubelet
from embedded_cluster.objects import (
    CLAIM_TEMPLATES,
    DAEMON_SETS,
    DEPLOYMENTS,
    NODES,
    PODS,
    REPLICA_SETS,
    ClaimTemplate,
    DaemonSet,
    Deployment,
    FullNode,
    FullPod,
    ReplicaSet,
)
from embedded_cluster.podclaims import known_names


class NodeGarbage:
    """Deletes the pods of deleted nodes at once: no kubelet is left to end them. `pods` must have the index "node"."""

    def __init__(self, client: KubeClient, nodes: Informer[FullNode], pods: Informer[FullPod]) -> None:
        self._client = client
        self._nodes = nodes
        self._pods = pods
        self.queue = RateLimitedQueue("podgc", self._sync)
        nodes.subscribe(self._node_changed)
        pods.subscribe(self._pod_changed)

    async def run(self) -> None:
        """Run until cancelled."""
        await asyncio.gather(self._nodes.synced.wait(), self._pods.synced.wait())
        await self.queue.run()

    def _node_changed(self, old: FullNode | None, new: FullNode | None) -> None:
        if old is not None and new is None:
            for pod in self._pods.find("node", old.name):
                self.queue.add(pod.metadata.key)

    def _pod_changed(self, old: FullPod | None, new: FullPod | None) -> None:
        if new is not None and new.spec.node_name and self._nodes.get("", new.spec.node_name) is None:
            self.queue.add(new.metadata.key)

    async def _sync(self, key: str) -> None:
        pod = self._pods.objects.get(key)
        if pod is None or not pod.spec.node_name:
            return
        if self._nodes.get("", pod.spec.node_name) is not None or not await self._is_gone(pod.spec.node_name):
            return
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.metadata.uid}}
        path = self._pods.resource.path(pod.metadata.namespace, pod.metadata.name)
        try:
            await self._client.delete(path, msgspec.json.encode(options))
        except (NotFoundError, ConflictError):
            return

    async def _is_gone(self, node: str) -> bool:
        """True when the API server does not know it either: a new node may be seen after its first pod."""
        try:
            await self._client.get(self._nodes.resource.path("", node))
        except NotFoundError:
            return True
        return False


class Known:
    """What the controllers know of the cluster: a copy of each kind that one of them reads."""

    def __init__(self, client: KubeClient, served: Served) -> None:
        self.pods: Informer[FullPod] = Informer(
            client, PODS, indexes={"claim": claims_of, "template": templates_of, "owner": owner_of, "node": node_of}
        )
        self.claims: Informer[ResourceClaim] = Informer(client, RESOURCE_CLAIMS, indexes={"owner": owner_of})
        self.slices: Informer[ResourceSlice] = Informer(client, RESOURCE_SLICES, indexes={"pool": pool_of})
        self.rules: Informer[DeviceTaintRule] | None = (
            Informer(client, device_taint_rules(served.taint_rules)) if served.taint_rules else None
        )
        self.templates: Informer[ClaimTemplate] = Informer(client, CLAIM_TEMPLATES)
        self.nodes: Informer[FullNode] = Informer(client, NODES)
        self.deployments: Informer[Deployment] = Informer(client, DEPLOYMENTS)
        self.sets: Informer[ReplicaSet] = Informer(client, REPLICA_SETS, indexes={"owner": owner_of})
        self.daemon_sets: Informer[DaemonSet] = Informer(client, DAEMON_SETS)

    @property
    def informers(self) -> Sequence[Informer[Any]]:
        return [each for each in vars(self).values() if isinstance(each, Informer)]


class Controllers:
    """Everything but API server and scheduler. `run` never returns."""

    def __init__(self, client: KubeClient, served: Served, driver: Driver, *, fabric_delay: float = 1.0) -> None:
        known = Known(client, served)
        self.informers = known.informers
        self.pods, self.claims, self.slices, self.rules = known.pods, known.claims, known.slices, known.rules
        self._recorders: list[EventRecorder] = []

        def events(controller: str) -> EventRecorder:
            self._recorders.append(EventRecorder(client, "embedded", controller=controller))
            return self._recorders[-1]

        pods, claims, nodes, sets = known.pods, known.claims, known.nodes, known.sets
        self.claim_controller = ClaimController(client, pods, claims, known.templates, events("resource_claim"))
        self.rollouts = RolloutController(client, known.deployments, sets)
        self.replicas = ReplicaController(client, sets, pods, events("replicaset-controller"))
        self.daemons = DaemonController(client, known.daemon_sets, pods, nodes, events("daemonset-controller"))
        self.driver_pods = DriverPods(driver, pods, nodes)
        self.nodegarbage = NodeGarbage(client, nodes, pods)
        self.kubelet = Kubelet(client, pods, claims, events("kubelet"))
        taint_events = events("device-taint-eviction")
        self.eviction = EvictionController(client, pods, claims, known.slices, known.rules, taint_events)
        self.fabric = Fabric(driver, claims, delay=fabric_delay)
        self._actors = (
            self.claim_controller,
            self.rollouts,
            self.replicas,
            self.daemons,
            self.driver_pods,
            self.nodegarbage,
            self.kubelet,
            self.eviction,
            self.fabric,
        )

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self.informers:
                group.create_task(informer.run())
            for recorder in self._recorders:
                group.create_task(recorder.run())
            for actor in self._actors:
                group.create_task(actor.run())

    def idle(self) -> bool:
        """True when nothing is left to do for what they know. What waits for its time does not count."""
        return all(actor.queue.idle() for actor in self._actors)

    async def synced(self) -> None:
        """Wait until everything has been listed once."""
        await asyncio.gather(*(informer.synced.wait() for informer in self.informers))


def claims_of(pod: Pod) -> Iterable[str]:
    """The keys of the pod's claims that are known by name."""
    return [f"{pod.metadata.namespace}/{name}" for name in known_names(pod)]


def templates_of(pod: Pod) -> Iterable[str]:
    """The keys of the pod's claim templates."""
    names = (entry.resource_claim_template_name for entry in pod.spec.resource_claims)
    return [f"{pod.metadata.namespace}/{name}" for name in names if name]


def node_of(pod: Pod) -> Iterable[str]:
    """The node that the pod is bound to."""
    return [pod.spec.node_name] if pod.spec.node_name else []


def owner_of(obj: Named) -> Iterable[str]:
    """The UID of the controller owner."""
    meta: ObjectMeta = obj.metadata
    return [meta.controller.uid] if meta.controller is not None else []


def pool_of(part: ResourceSlice) -> Iterable[str]:
    """Driver and pool of a slice."""
    return [f"{part.spec.driver}/{part.spec.pool.name}"]
