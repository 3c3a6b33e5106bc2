"""What controllers of sets of pods have in common: which set to look at, pods made and deleted, statuses written.

A controller says in `sync` what is to be done for one set; a change of the set or of one of its pods leads there.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar

import msgspec

from dra_extender.api.core import ObjectReference
from dra_extender.api.decoding import encode
from dra_extender.api.errors import ApiError, ConflictError, NotFoundError
from dra_extender.api.meta import ObjectMeta
from dra_extender.kube.client import KubeClient
from dra_extender.kube.events import EventRecorder, Occurrence
from embedded_cluster.informer import Informer
from embedded_cluster.objects import FullPod
from embedded_cluster.workqueue import WorkQueue


class Owner(Protocol):
    """An object that owns pods."""

    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T", bound=Owner)


class PodController(ABC, Generic[T]):
    """Keeps the pods of all objects of one kind. `run` never returns."""

    kind: ClassVar[str]
    api_version: ClassVar[str] = "apps/v1"

    def __init__(self, client: KubeClient, owners: Informer[T], pods: Informer[FullPod], events: EventRecorder) -> None:
        """`pods` must have the index "owner"."""
        self._client = client
        self._events = events
        self._owners = owners
        self._pods = pods
        self._reported: dict[str, Mapping[str, Any]] = {}
        self.queue: WorkQueue[str] = WorkQueue(self.kind.lower(), self._sync)
        owners.subscribe(self._owner_changed)
        pods.subscribe(self._pod_changed)

    @abstractmethod
    async def sync(self, owner: T) -> None:
        """Bring the pods nearer to what the object says."""

    async def leave(self, owner: T) -> None:
        """The object is being deleted, and something still holds it."""
        return

    async def run(self) -> None:
        """Run until cancelled."""
        await asyncio.gather(self._owners.synced.wait(), self._pods.synced.wait())
        await self.queue.run()

    def forget(self, owner: T) -> None:
        """The object is gone."""
        self._reported.pop(owner.metadata.uid, None)

    def pods_of(self, owner: T) -> Sequence[FullPod]:
        return self._pods.find("owner", owner.metadata.uid)

    def _owner_changed(self, old: T | None, new: T | None) -> None:
        if new is not None:
            self.queue.add(new.metadata.key)
        elif old is not None:
            self.forget(old)

    def _pod_changed(self, old: FullPod | None, new: FullPod | None) -> None:
        pod = new or old
        owner = pod.metadata.controller if pod is not None else None
        if pod is not None and owner is not None and owner.kind == self.kind:
            self.queue.add(f"{pod.metadata.namespace}/{owner.name}")

    async def _sync(self, key: str) -> None:
        owner = self._owners.objects.get(key)
        if owner is not None:
            await (self.sync(owner) if owner.metadata.deletion_timestamp is None else self.leave(owner))

    async def create(self, owner: T, pod: Mapping[str, Any]) -> FullPod:
        """Make a pod of the object. An error is told on the object, and raised (ApiError)."""
        resource = self._pods.resource
        try:
            made = resource.decode(await self._client.create(resource.path(owner.metadata.namespace), encode(pod)))
        except ApiError as problem:
            self.tell(owner, "FailedCreate", f"Error creating: {problem.message}", "Warning")
            raise
        self._pods.observe(made)
        return made

    def tell(self, owner: T, reason: str, note: str, kind: Literal["Normal", "Warning"] = "Normal") -> None:
        """An event about the object."""
        meta = owner.metadata
        where = ObjectReference(self.kind, meta.name, meta.namespace, meta.uid, self.api_version)
        self._events.record(Occurrence(where, reason, "Sync", note, kind))

    async def delete(self, pod: FullPod) -> None:
        """Delete this pod; gone already is fine."""
        path = self._pods.resource.path(pod.metadata.namespace, pod.metadata.name)
        try:
            await self._client.delete(path, msgspec.json.encode({"preconditions": {"uid": pod.metadata.uid}}))
        except (NotFoundError, ConflictError):
            return

    async def report(self, owner: T, status: Mapping[str, Any]) -> None:
        """Write a status that was not written last; an object that is gone is fine."""
        if self._reported.get(owner.metadata.uid) == status:
            return
        path = self._owners.resource.path(owner.metadata.namespace, owner.metadata.name, "status")
        body = encode({"metadata": {"uid": owner.metadata.uid}, "status": status})
        try:
            self._owners.observe(self._owners.resource.decode(await self._client.patch(path, body)))
        except NotFoundError:
            return
        self._reported[owner.metadata.uid] = status
