"""Controllers of sets of pods: what they have in common, and ReplicaSets.

`PodController` finds out which set to look at, creates and deletes pods, and writes statuses; a subclass says in `sync`
what a set needs. The rules are pure functions.

Rules: Kubernetes 1.36, pkg/controller/controller_utils.go (FilterActivePods, ActivePods, ComputeHash),
pkg/controller/replicaset and apimachinery/pkg/util/intstr. Different from there: the ranking of pods ignores which
other pods run on a node, and the hash is another one.
"""

from __future__ import annotations

import asyncio
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

import msgspec

from dra_extender.api.core import ObjectReference
from dra_extender.api.decoding import encode
from dra_extender.api.errors import ApiError, ConflictError, NotFoundError
from dra_extender.api.meta import ObjectMeta
from dra_extender.kube.client import KubeClient
from dra_extender.kube.events import Event, EventRecorder
from embedded_cluster.informer import Informer, RateLimitedQueue
from embedded_cluster.objects import FullPod, PodTemplate, ReplicaSet, controlled_by

HASH_LABEL: Final = "pod-template-hash"


def active(pods: Iterable[FullPod]) -> list[FullPod]:
    """Those that have not ended and are not being deleted."""
    return [pod for pod in pods if pod.metadata.deletion_timestamp is None and not pod.finished]


def template_hash(template: PodTemplate) -> str:
    """What pods are made from as a short text, metadata included, without the label that carries the text."""
    labels = {key: value for key, value in template.metadata.labels.items() if key != HASH_LABEL}
    content = labels, template.metadata.annotations, msgspec.json.decode(template.spec)
    # Equal templates may be written with their fields in another order.
    return hashlib.sha256(msgspec.json.encode(content, order="sorted")).hexdigest()[:10]


def scaled(amount: int | str, total: int, *, up: bool) -> int:
    """A number of pods, or a percentage of a total, which is rounded `up` or down."""
    if isinstance(amount, int):
        return amount
    percent = int(amount.removesuffix("%")) * total
    return -(-percent // 100) if up else percent // 100


def pod_of(kind: str, owner: ObjectMeta, template: PodTemplate) -> dict[str, Any]:
    """A pod that the controller of `owner` makes from a template, ready to be encoded."""
    metadata = {
        "generateName": f"{owner.name}-",
        "namespace": owner.namespace,
        "labels": dict(template.metadata.labels),
        "annotations": dict(template.metadata.annotations),
        "ownerReferences": [controlled_by(kind, owner)],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template.spec}


class Owner(Protocol):
    """An object that owns pods."""

    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T", bound=Owner)


class PodController(ABC, Generic[T]):
    """Keeps the pods of all objects of one kind. `run` never returns."""

    kind: ClassVar[str]

    def __init__(self, client: KubeClient, owners: Informer[T], pods: Informer[FullPod], events: EventRecorder) -> None:
        """`pods` must have the index "owner"."""
        self._client = client
        self._events = events
        self._owners = owners
        self._pods = pods
        self._reported: dict[str, Mapping[str, Any]] = {}
        self.queue: RateLimitedQueue[str] = RateLimitedQueue(self.kind.lower(), self._sync)
        owners.subscribe(self._owner_changed)
        pods.subscribe(self._pod_changed)

    @abstractmethod
    async def sync(self, owner: T) -> None:
        """Bring the pods nearer to what the object says."""

    async def run(self) -> None:
        """Run until cancelled."""
        await asyncio.gather(self._owners.synced.wait(), self._pods.synced.wait())
        await self.queue.run()

    def pods_of(self, owner: T) -> Sequence[FullPod]:
        return self._pods.find("owner", owner.metadata.uid)

    def _owner_changed(self, old: T | None, new: T | None) -> None:
        if new is not None:
            self.queue.add(new.metadata.key)
        elif old is not None:
            self._reported.pop(old.metadata.uid, None)

    def _pod_changed(self, old: FullPod | None, new: FullPod | None) -> None:
        pod = new or old
        owner = pod.metadata.controller if pod is not None else None
        if pod is not None and owner is not None and owner.kind == self.kind:
            self.queue.add(f"{pod.metadata.namespace}/{owner.name}")

    async def _sync(self, key: str) -> None:
        owner = self._owners.objects.get(key)
        if owner is not None and owner.metadata.deletion_timestamp is None:
            await self.sync(owner)

    async def create(self, owner: T, pod: Mapping[str, Any]) -> None:
        """Make a pod of the object. An error becomes an event about the object, and is raised (ApiError)."""
        resource, meta = self._pods.resource, owner.metadata
        try:
            made = resource.decode(await self._client.create(resource.path(meta.namespace), encode(pod)))
        except ApiError as problem:
            where = ObjectReference(self.kind, meta.name, meta.namespace, meta.uid, "apps/v1")
            note = f"Error creating: {problem.message}"
            self._events.record(Event(where, "FailedCreate", "Sync", note, "Warning"))
            raise
        self._pods.observe(made)

    async def delete(self, pod: FullPod) -> None:
        """Delete this pod; a pod that is gone already is not an error."""
        path = self._pods.resource.path(pod.metadata.namespace, pod.metadata.name)
        try:
            await self._client.delete(path, msgspec.json.encode({"preconditions": {"uid": pod.metadata.uid}}))
        except (NotFoundError, ConflictError):
            return

    async def report(self, owner: T, status: Mapping[str, Any]) -> None:
        """Write the status unless it was the last one written; an object that is gone is not an error."""
        if self._reported.get(owner.metadata.uid) == status:
            return
        path = self._owners.resource.path(owner.metadata.namespace, owner.metadata.name, "status")
        body = encode({"metadata": {"uid": owner.metadata.uid}, "status": status})
        try:
            self._owners.observe(self._owners.resource.decode(await self._client.patch(path, body)))
        except NotFoundError:
            return
        self._reported[owner.metadata.uid] = status


# ReplicaSets


def _deletion_order(pod: FullPod) -> tuple[bool, bool, int]:
    """Sorts the pods to delete first to the front: not bound, then not running, then the newest."""
    return bool(pod.spec.node_name), pod.status.phase == "Running", -pod.metadata.version


def plan(owner: ReplicaSet, pods: Sequence[FullPod]) -> tuple[int, list[FullPod]]:
    """How many pods to make, and which to delete."""
    alive = active(pods)
    surplus = len(alive) - owner.spec.replicas
    if surplus <= 0:
        return -surplus, []
    return 0, sorted(alive, key=_deletion_order)[:surplus]


def status(owner: ReplicaSet, pods: Sequence[FullPod]) -> dict[str, Any]:
    """The status of the set for these pods."""
    alive = active(pods)
    ready = sum(1 for pod in alive if pod.status.phase == "Running")
    return {
        "observedGeneration": owner.metadata.generation,
        "replicas": len(alive),
        "fullyLabeledReplicas": len(alive),
        "readyReplicas": ready,
        "availableReplicas": ready,
    }


class ReplicaController(PodController[ReplicaSet]):
    """Keeps ReplicaSets at their number of pods."""

    kind = "ReplicaSet"

    async def sync(self, owner: ReplicaSet) -> None:
        missing, surplus = plan(owner, self.pods_of(owner))
        for _ in range(missing):
            await self.create(owner, pod_of(self.kind, owner.metadata, owner.spec.template))
        for pod in surplus:
            await self.delete(pod)
        await self.report(owner, status(owner, self.pods_of(owner)))
