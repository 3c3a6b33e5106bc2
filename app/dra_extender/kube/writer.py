"""Every write that the extender makes, each one request with its preconditions.

`Writer` promises: a write changes a claim only at the UID and resourceVersion of the decision, and binds a pod only
under its UID. A patch contains only the fields that change, so fields of newer API versions survive. Replies are
structs. All errors are in `api.errors`: a lost reply raises `OutcomeUnknownError`, a reply that cannot be decoded
`UndecodableError`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar

import msgspec

from dra_extender.api.core import ObjectReference, Pod, PodStatus
from dra_extender.api.decoding import DecodeError, encode, to_builtins
from dra_extender.api.errors import NotFoundError, UndecodableError
from dra_extender.api.meta import Object
from dra_extender.api.resource import FINALIZER, AllocationResult, ResourceClaim, ResourceClaimConsumerReference
from dra_extender.kube.client import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, KubeClient
from dra_extender.kube.events import Event, EventRecorder
from dra_extender.kube.resources import PODS, RESOURCE_CLAIMS, Resource

T = TypeVar("T")

NOMINATOR = "dra-extender-nominator"
"""Field manager of early nominations."""

REQUEUE_ANNOTATION = "dra-extender.dev/requeued"


class _Managed(Object, frozen=True):
    manager: str = ""
    fields: dict[str, Any] = msgspec.field(default={}, name="fieldsV1")


class _ManagedMeta(Object, frozen=True):
    uid: str = ""
    managed_fields: tuple[_Managed, ...] = ()


class _NominatedPod(Object, frozen=True):
    """The fields of a pod that show which client has nominated it."""

    metadata: _ManagedMeta = _ManagedMeta()
    status: PodStatus = PodStatus()


_nominated = msgspec.json.Decoder(_NominatedPod)


class RequeueClaim(msgspec.Struct, frozen=True):
    """The requeue trigger: a claim that no pod uses. kube-scheduler retries refused pods when it changes."""

    namespace: str
    name: str


class Writer:
    """Writes claims, pods and events through one client, as `scheduling.ports.Ports` describes."""

    def __init__(self, client: KubeClient, events: EventRecorder, requeue_claim: RequeueClaim) -> None:
        self._client = client
        self._events = events
        self._requeue_claim = requeue_claim

    # --- claims

    async def add_finalizer(self, claim: ResourceClaim) -> ResourceClaim:
        """Protect the claim from deletion; the claim controller deallocates only claims that carry the finalizer.

        Must come before the status write: finalizers sent through /status are dropped silently.
        """
        finalizers = [*claim.metadata.finalizers, FINALIZER]
        return await self._patch(claim, {"metadata": _preconditions(claim) | {"finalizers": finalizers}})

    async def remove_finalizer(self, claim: ResourceClaim) -> ResourceClaim:
        finalizers = [finalizer for finalizer in claim.metadata.finalizers if finalizer != FINALIZER]
        return await self._patch(claim, {"metadata": _preconditions(claim) | {"finalizers": finalizers}})

    async def write_status(
        self,
        claim: ResourceClaim,
        *,
        allocation: AllocationResult | msgspec.UnsetType | None = msgspec.UNSET,
        reserved_for: Sequence[ResourceClaimConsumerReference],
    ) -> ResourceClaim:
        """Allocation and reservations in one write. UNSET keeps the stored allocation, None clears it.

        A new allocation is sent as a JSON patch: the API server removes nulls from merge patches, also within lists,
        and the opaque parameters of drivers in the allocation may contain nulls.
        """
        if isinstance(allocation, AllocationResult):
            steps = [
                {"op": "replace", "path": "/metadata/uid", "value": claim.metadata.uid},
                {"op": "replace", "path": "/metadata/resourceVersion", "value": claim.metadata.resource_version},
                {"op": "add", "path": "/status/allocation", "value": allocation},
                {"op": "add", "path": "/status/reservedFor", "value": list(reserved_for)},
            ]
            return await self._patch(claim, steps, "status", JSON_PATCH)
        status: dict[str, Any] = {"reservedFor": list(reserved_for)}
        if allocation is None:
            status["allocation"] = None
        return await self._patch(claim, {"metadata": _preconditions(claim), "status": status}, "status")

    async def annotate(self, claim: ResourceClaim, annotations: Mapping[str, str]) -> ResourceClaim:
        return await self._patch(claim, {"metadata": _preconditions(claim) | {"annotations": dict(annotations)}})

    async def deallocate(self, claim: ResourceClaim) -> ResourceClaim:
        cleared = {"allocation": None, "reservedFor": None, "devices": None}
        return await self._patch(claim, {"metadata": _preconditions(claim), "status": cleared}, "status")

    async def read_claim(self, namespace: str, name: str) -> ResourceClaim | None:
        try:
            return _decoded(RESOURCE_CLAIMS, await self._client.get(RESOURCE_CLAIMS.path(namespace, name)))
        except NotFoundError:
            return None

    async def create_claim(self, namespace: str, body: Mapping[str, Any]) -> ResourceClaim:
        whole = {"apiVersion": RESOURCE_CLAIMS.api_version, "kind": "ResourceClaim", **body}
        return _decoded(RESOURCE_CLAIMS, await self._client.create(RESOURCE_CLAIMS.path(namespace), encode(whole)))

    async def delete_claim(self, claim: ResourceClaim) -> None:
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": _preconditions(claim)}
        try:
            await self._client.delete(
                RESOURCE_CLAIMS.path(claim.metadata.namespace, claim.metadata.name), msgspec.json.encode(options)
            )
        except NotFoundError:
            return

    # --- pods

    async def bind_pod(self, namespace: str, name: str, uid: str, version: str, node: str) -> None:
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"namespace": namespace, "name": name, "uid": uid, "resourceVersion": version},
            "target": {"kind": "Node", "name": node},
        }
        await self._client.create(PODS.path(namespace, name, "binding"), msgspec.json.encode(binding))

    async def read_pod(self, namespace: str, name: str) -> Pod | None:
        try:
            return _decoded(PODS, await self._client.get(PODS.path(namespace, name)))
        except NotFoundError:
            return None

    async def patch_pod_status(
        self, pod: Pod, status: Mapping[str, Any], *, version: str = "", ahead: bool = False
    ) -> Pod:
        """`ahead`: an early nomination. metadata.managedFields has its field manager until another client changes or
        clears the field, as a binding does.
        """
        metadata = {"uid": pod.metadata.uid} | ({"resourceVersion": version} if version else {})
        data = await self._client.request(
            "PATCH",
            PODS.path(pod.metadata.namespace, pod.metadata.name, "status"),
            params={"fieldManager": NOMINATOR} if ahead else None,
            body=msgspec.json.encode({"metadata": metadata, "status": to_builtins(status)}),
            content_type=STRATEGIC_PATCH,
        )
        return _decoded(PODS, data)

    async def nominated_ahead(self, pod: Pod) -> str:
        """The node that a nomination `ahead` has set and no other client has changed; empty without one."""
        try:
            data = await self._client.get(PODS.path(pod.metadata.namespace, pod.metadata.name))
        except NotFoundError:
            return ""
        try:
            found = _nominated.decode(data)
        except (msgspec.DecodeError, ValueError) as problem:
            raise UndecodableError(0, "Malformed", str(problem)) from None
        same = found.metadata.uid == pod.metadata.uid
        ours = any(
            entry.manager == NOMINATOR and "f:nominatedNodeName" in entry.fields.get("f:status", {})
            for entry in found.metadata.managed_fields
        )
        return found.status.nominated_node_name if same and ours else ""

    async def evict_pod(self, pod: Pod, *, dry_run: bool = False) -> None:
        meta = pod.metadata
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": meta.name, "namespace": meta.namespace},
            "deleteOptions": {"preconditions": {"uid": meta.uid}},
        }
        await self._client.request(
            "POST",
            PODS.path(meta.namespace, meta.name, "eviction"),
            params={"dryRun": "All"} if dry_run else None,
            body=msgspec.json.encode(eviction),
            repeat_when_throttled=False,
        )

    # --- reporting

    def record_event(
        self,
        regarding: Pod | ResourceClaim,
        kind: Literal["Normal", "Warning"],
        reason: str,
        note: str,
        *,
        action: str = "Scheduling",
    ) -> None:
        resource: Resource[Any] = PODS if isinstance(regarding, Pod) else RESOURCE_CLAIMS
        reference = ObjectReference(
            kind=resource.kind,
            api_version=resource.api_version,
            namespace=regarding.metadata.namespace,
            name=regarding.metadata.name,
            uid=regarding.metadata.uid,
        )
        self._events.record(Event(reference, reason, action, note, kind))

    async def requeue(self) -> None:
        """Annotate the requeue claim; create it if it does not exist."""
        target = self._requeue_claim
        annotations = {REQUEUE_ANNOTATION: datetime.now(UTC).isoformat(timespec="microseconds")}
        body = msgspec.json.encode({"metadata": {"annotations": annotations}})
        try:
            await self._client.patch(RESOURCE_CLAIMS.path(target.namespace, target.name), body)
        except NotFoundError:
            claim = {"metadata": {"name": target.name, "annotations": annotations}, "spec": {"devices": {}}}
            await self.create_claim(target.namespace, claim)

    async def _patch(
        self, claim: ResourceClaim, body: Any, subresource: str = "", kind: str = MERGE_PATCH
    ) -> ResourceClaim:
        path = RESOURCE_CLAIMS.path(claim.metadata.namespace, claim.metadata.name, subresource)
        return _decoded(RESOURCE_CLAIMS, await self._client.patch(path, encode(body), kind))


def _preconditions(claim: ResourceClaim) -> dict[str, Any]:
    """The preconditions: this claim, at this version."""
    return {"uid": claim.metadata.uid, "resourceVersion": claim.metadata.resource_version}


def _decoded(resource: Resource[T], data: bytes) -> T:
    """The object in a reply. UndecodableError says nothing about what is stored now."""
    try:
        return resource.decode(data)
    except DecodeError as problem:
        raise UndecodableError(0, "Malformed", str(problem)) from None
