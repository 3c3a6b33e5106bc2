"""The resourceclaim controller: claims from templates, reservations that are no longer needed, deallocation, deletion.

Level triggered: what changed only says where to look; `claimrules` decides from the present state what to write. Like
the real one it deallocates in two writes, the status first and then the finalizer.
"""

from __future__ import annotations

import asyncio
from typing import Literal, NamedTuple

import msgspec
from cachetools import LRUCache

from dra_extender.api.core import ObjectReference, Pod
from dra_extender.api.decoding import encode
from dra_extender.api.errors import ApiError, NotFoundError
from dra_extender.api.meta import ObjectMeta
from dra_extender.api.resource import FINALIZER, ResourceClaim, ResourceClaimConsumerReference
from dra_extender.kube.client import STRATEGIC_PATCH, KubeClient
from dra_extender.kube.events import Event, EventRecorder
from embedded_cluster.controllers import claimrules
from embedded_cluster.controllers.claimrules import ClaimAction, DeleteClaim, RemoveFinalizer, StatusWrite
from embedded_cluster.informer import Informer, RateLimitedQueue
from embedded_cluster.objects import ClaimTemplate, FullPod
from embedded_cluster.podclaims import has_claims, known_names

KNOWN_DELETED = 500
"""How many deleted pods are remembered, as in Kubernetes."""


class ClaimTask(NamedTuple):
    """A pod to get its claims, or a claim to be cleaned up."""

    kind: Literal["pod", "claim"]
    namespace: str
    name: str


class ClaimController:
    """Works on pods and claims that the informers show. `run` never returns."""

    def __init__(
        self,
        client: KubeClient,
        pods: Informer[FullPod],
        claims: Informer[ResourceClaim],
        templates: Informer[ClaimTemplate],
        events: EventRecorder,
    ) -> None:
        """`pods` must have the indexes "claim" and "template", `claims` the index "owner" (see controllers.py)."""
        self._client = client
        self._pods = pods
        self._claims = claims
        self._templates = templates
        self._events = events
        self._deleted: LRUCache[str, None] = LRUCache(KNOWN_DELETED)
        self.queue = RateLimitedQueue("resourceclaim", self._sync, workers=8)
        pods.subscribe(self._pod_changed)
        claims.subscribe(self._claim_changed)
        templates.subscribe(self._template_changed)

    async def run(self) -> None:
        """Run until cancelled, from when everything has been listed: before that, missing objects only look missing."""
        await asyncio.gather(*(informer.synced.wait() for informer in (self._pods, self._claims, self._templates)))
        await self.queue.run()

    # --- what to look at

    def _pod_changed(self, old: FullPod | None, new: FullPod | None) -> None:
        pod = new or old
        if pod is None or not has_claims(pod):
            return
        if new is None:
            self._deleted[pod.metadata.uid] = None
        if new is None or new.finished:
            for name in known_names(pod):
                self.queue.add(ClaimTask("claim", pod.metadata.namespace, name))
        if new is not None:
            self._look_at(new)

    def _claim_changed(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        claim = new or old
        if claim is None:
            return
        if new is not None:
            self.queue.add(ClaimTask("claim", claim.metadata.namespace, claim.metadata.name))
        for pod in self._pods.find("claim", claim.metadata.key):
            self._look_at(pod)

    def _template_changed(self, old: ClaimTemplate | None, new: ClaimTemplate | None) -> None:
        if new is not None:
            for pod in self._pods.find("template", new.metadata.key):
                self._look_at(pod)

    def _look_at(self, pod: FullPod) -> None:
        if claimrules.needs_work(pod, self._claims.get, self._claims.find("owner", pod.metadata.uid)):
            self.queue.add(ClaimTask("pod", pod.metadata.namespace, pod.metadata.name))

    async def _sync(self, task: ClaimTask) -> None:
        if task.kind == "pod":
            pod = self._pods.get(task.namespace, task.name)
            if pod is not None and pod.metadata.deletion_timestamp is None and not pod.finished:
                await self._sync_pod(pod)
        else:
            claim = self._claims.get(task.namespace, task.name)
            if claim is not None:
                await self._sync_claim(claim)

    # --- pods

    async def _sync_pod(self, pod: FullPod) -> None:
        owned = self._claims.find("owner", pod.metadata.uid)
        found: dict[str, str] = {}
        for want in claimrules.wanted_claims(pod, self._claims.get, owned):
            try:
                found[want.entry] = want.claim or await self._create(pod, want.entry, want.template)
            except ApiError as problem:
                self._report(pod, f"PodResourceClaim {want.entry}: {problem.message}")
                raise
        recorded = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
        if any(recorded.get(entry) != claim for entry, claim in found.items()):
            await self._record(pod, found)
        for claim in claimrules.unreserved(pod, self._claims.get):
            me = ResourceClaimConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)
            await self._write_status(claim, StatusWrite((*claim.status.reserved_for, me), deallocate=False))

    async def _create(self, pod: FullPod, entry: str, template_name: str) -> str:
        template = self._templates.get(pod.metadata.namespace, template_name)
        if template is None:
            missing = f'resourceclaimtemplate.resource.k8s.io "{template_name}" not found'
            raise NotFoundError(404, "NotFound", f'resource claim template "{template_name}": {missing}')
        resource = self._claims.resource
        body = claimrules.instantiate(pod, entry, template, resource.api_version)
        created = resource.decode(await self._client.create(resource.path(pod.metadata.namespace), encode(body)))
        self._claims.observe(created)
        return created.metadata.name

    async def _record(self, pod: FullPod, found: dict[str, str]) -> None:
        """Name the claims in the pod's status; entries are merged by name."""
        statuses = [{"name": entry, "resourceClaimName": claim} for entry, claim in found.items()]
        body = encode({"metadata": {"uid": pod.metadata.uid}, "status": {"resourceClaimStatuses": statuses}})
        path = self._pods.resource.path(pod.metadata.namespace, pod.metadata.name, "status")
        reply = await self._client.patch(path, body, STRATEGIC_PATCH)
        self._pods.observe(self._pods.resource.decode(reply))

    # --- claims

    async def _sync_claim(self, claim: ResourceClaim) -> None:
        staying = [
            consumer for consumer in claim.status.reserved_for if await self._still_needs(claim.metadata, consumer)
        ]
        for action in claimrules.clean_up(claim, staying, owner_done=self._owner_done(claim)):
            claim = await self._carry_out(action, claim)

    async def _still_needs(self, claim: ObjectMeta, consumer: ResourceClaimConsumerReference) -> bool:
        cached = self._pods.get(claim.namespace, consumer.name)
        standing = claimrules.standing(consumer, cached, known_deleted=consumer.uid in self._deleted)
        if standing == "ask":
            try:
                path = self._pods.resource.path(claim.namespace, consumer.name)
                live: Pod = self._pods.resource.decode(await self._client.get(path))
            except NotFoundError:
                return False
            return live.metadata.uid == consumer.uid
        return standing == "keep"

    def _owner_done(self, claim: ResourceClaim) -> bool:
        """True when the owning pod is here and is another one or done; gone pods are the collector's job."""
        owner = claim.metadata.controller
        if owner is None or owner.kind != "Pod" or owner.api_version != "v1":
            return False
        pod = self._pods.get(claim.metadata.namespace, owner.name)
        return pod is not None and (pod.metadata.uid != owner.uid or pod.finished)

    async def _carry_out(self, action: ClaimAction, claim: ResourceClaim) -> ResourceClaim:
        if isinstance(action, StatusWrite):
            return await self._write_status(claim, action)
        if isinstance(action, RemoveFinalizer):
            if claim.allocation is not None or FINALIZER not in claim.metadata.finalizers:
                return claim
            rest = [name for name in claim.metadata.finalizers if name != FINALIZER]
            return await self._patch(claim, {"metadata": _at(claim.metadata) | {"finalizers": rest or None}})
        if isinstance(action, DeleteClaim):
            options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": claim.metadata.uid}}
            path = self._claims.resource.path(claim.metadata.namespace, claim.metadata.name)
            try:
                await self._client.delete(path, msgspec.json.encode(options))
            except NotFoundError:
                pass
        return claim

    async def _write_status(self, claim: ResourceClaim, write: StatusWrite) -> ResourceClaim:
        status: dict[str, object] = {"reservedFor": write.reserved_for or None}
        if write.deallocate:
            status["allocation"] = None
        return await self._patch(claim, {"metadata": _at(claim.metadata), "status": status}, "status")

    async def _patch(self, claim: ResourceClaim, body: dict[str, object], subresource: str = "") -> ResourceClaim:
        resource = self._claims.resource
        path = resource.path(claim.metadata.namespace, claim.metadata.name, subresource)
        written = resource.decode(await self._client.patch(path, encode(body)))
        gone = written.metadata.deletion_timestamp is not None and not written.metadata.finalizers
        if not gone:  # the last finalizer of a deleted claim went: the reply is its last state, not one to remember
            self._claims.observe(written)
        return written

    def _report(self, pod: FullPod, note: str) -> None:
        self._events.record(
            Event(
                ObjectReference("Pod", pod.metadata.name, pod.metadata.namespace, pod.metadata.uid, "v1"),
                "FailedResourceClaimCreation",
                "CreateResourceClaim",
                note,
                "Warning",
            )
        )


def _at(metadata: ObjectMeta) -> dict[str, object]:
    """The preconditions of a write: this object, at this version."""
    return {"uid": metadata.uid, "resourceVersion": metadata.resource_version}
