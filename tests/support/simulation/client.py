"""The ports of one service: each operation awaits before and after its commit, and fails as it is told.

Faults come before or after the commit, or with a commit that arrives late. A killed client never returns from anything.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from app.api.core import Pod
from app.api.decoding import convert, to_builtins
from app.api.errors import (
    ApiError,
    ConflictError,
    NotFoundError,
    OutcomeUnknownError,
    RejectedError,
    ThrottledError,
    UnreachableError,
)
from app.api.meta import Object
from app.api.resource import (
    FINALIZER,
    AllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
)
from tests.support.simulation.api import Api

When = Literal["before", "after", "late"]

TIMEOUT = 10.0
"""Seconds after which a call is given up, as `--api-timeout` says."""
_OUTAGE: list[ApiError] = [
    UnreachableError(0, "Unreachable"),
    OutcomeUnknownError(0, "Timeout"),
    OutcomeUnknownError(503, "ServiceUnavailable"),
    ThrottledError(429, "TooManyRequests"),
]


class Fault(msgspec.Struct):
    """The `skip`+1st call of `operation` fails with `error`; "late": the commit comes `delay` seconds afterwards."""

    operation: str
    error: ApiError
    when: When = "before"
    skip: int = 0
    times: int = 1
    delay: float = 0.5

    def fresh(self) -> ApiError:
        """The error to raise: one that is raised again and again would keep the frames of all those times alive."""
        return type(self.error)(self.error.status, self.error.reason, self.error.message)


class Client:
    """The ports of one service. Each operation awaits before and after its commit."""

    def __init__(self, api: Api, latency: float = 0.001) -> None:
        self.api = api
        self.latency = latency
        self.faults: list[Fault] = []
        self.calls: list[str] = []
        self.events: list[tuple[str, str]] = []
        self.rings = 0
        self.kill_at: tuple[int, When] | None = None
        """(number of the call, when): from then on nothing this client does has any effect, and nothing returns."""
        self.kill_on: tuple[str, When] | None = None
        """The same for the next call of an operation."""
        self.down_until = 0.0
        """Until then (seconds of the loop) the server cannot be reached, answers nothing, or answers nonsense."""
        self.dead = False
        self.hit: Counter[str] = Counter()
        """How often which fault has come, in words."""

    def fail(
        self,
        operation: str,
        error: ApiError,
        when: When = "before",
        *,
        skip: int = 0,
        times: int = 1,
        delay: float = 0.5,
    ) -> None:
        self.faults.append(Fault(operation, error, when, skip, times, delay))

    async def _call(self, operation: str, commit: Callable[[], Any]) -> Any:
        number = len(self.calls)
        self.calls.append(operation)
        fault = self._fault(operation) or await self._outage(operation, number)
        await self._pause(number, operation, "before")
        hook = self.api.hooks.pop(operation, None)
        if hook is not None:
            hook()
        if fault is not None and fault.when == "before":
            raise fault.fresh()
        if fault is not None and fault.when == "late":
            asyncio.get_running_loop().call_later(fault.delay, self._commit_late, commit)
            raise fault.fresh()
        result = commit()
        await self._pause(number, operation, "after")
        if fault is not None:
            raise fault.fresh()
        return result

    @staticmethod
    def _commit_late(commit: Callable[[], Any]) -> None:
        try:
            commit()
        except ApiError:
            return

    def _fault(self, operation: str) -> Fault | None:
        for fault in self.faults:
            if fault.operation in (operation, "*") and fault.times > 0:
                if fault.skip > 0:
                    fault.skip -= 1
                    continue
                fault.times -= 1
                self.hit[f"{fault.error.status or ''} {fault.error.reason} {fault.when}".strip()] += 1
                return fault
        return None

    async def _outage(self, operation: str, number: int) -> Fault | None:
        """What a call runs into while the server is down: no connection, silence, or a proxy that answers instead."""
        if asyncio.get_running_loop().time() >= self.down_until:
            return None
        error = _OUTAGE[number % len(_OUTAGE)]
        self.hit[f"outage: {error.reason}"] += 1
        if error.reason == "Timeout":
            await asyncio.sleep(TIMEOUT)
        return Fault(operation, error)

    async def _pause(self, number: int, operation: str, when: When) -> None:
        if not self.dead and (self.kill_at == (number, when) or self.kill_on == (operation, when)):
            self.dead = True
            self.hit[f"killed {when} {operation}"] += 1
        if self.dead:
            await asyncio.get_running_loop().create_future()
        await asyncio.sleep(self.latency / 2)
        if self.dead:
            await asyncio.get_running_loop().create_future()

    # claims

    def _stored(self, claim: ResourceClaim) -> ResourceClaim:
        stored: ResourceClaim | None = self.api.objects.get((ResourceClaim, claim.metadata.key))
        if stored is None:
            raise NotFoundError(404, "NotFound", claim.metadata.key)
        if stored.metadata.uid != claim.metadata.uid:
            raise RejectedError(422, "Invalid", "uid")
        if stored.metadata.resource_version != claim.metadata.resource_version:
            raise ConflictError(409, "Conflict", "resourceVersion")
        return stored

    def _put_status(self, stored: ResourceClaim, status: ResourceClaimStatus, operation: str) -> ResourceClaim:
        before = stored.status
        if before.allocation is not None and status.allocation is not None and before.allocation != status.allocation:
            raise RejectedError(422, "Invalid", "allocation is immutable")
        if status.reserved_for and status.allocation is None:
            raise RejectedError(422, "Invalid", "reservedFor without allocation")
        uids = [entry.uid for entry in status.reserved_for]
        if len(uids) > 256 or len(set(uids)) != len(uids):
            raise RejectedError(422, "Invalid", "reservedFor")
        if status == before:
            return stored
        changed: ResourceClaim = self.api.put(msgspec.structs.replace(stored, status=status), operation)
        return changed

    async def read_claim(self, namespace: str, name: str) -> ResourceClaim | None:
        result: ResourceClaim | None = await self._call(
            "read_claim", lambda: self.api.objects.get((ResourceClaim, f"{namespace}/{name}"))
        )
        return result

    async def add_finalizer(self, claim: ResourceClaim) -> ResourceClaim:
        def commit() -> ResourceClaim:
            stored = self._stored(claim)
            meta = msgspec.structs.replace(stored.metadata, finalizers=(*claim.metadata.finalizers, FINALIZER))
            changed: ResourceClaim = self.api.put(msgspec.structs.replace(stored, metadata=meta), "add_finalizer")
            return changed

        result: ResourceClaim = await self._call("add_finalizer", commit)
        return result

    async def remove_finalizer(self, claim: ResourceClaim) -> ResourceClaim:
        def commit() -> ResourceClaim:
            stored = self._stored(claim)
            rest = tuple(name for name in stored.metadata.finalizers if name != FINALIZER)
            meta = msgspec.structs.replace(stored.metadata, finalizers=rest)
            if meta.deletion_timestamp and not rest:
                self.api.drop(stored, "remove_finalizer")
                return stored
            changed: ResourceClaim = self.api.put(msgspec.structs.replace(stored, metadata=meta), "remove_finalizer")
            return changed

        result: ResourceClaim = await self._call("remove_finalizer", commit)
        return result

    async def write_status(
        self,
        claim: ResourceClaim,
        *,
        allocation: AllocationResult | UnsetType | None = UNSET,
        reserved_for: Sequence[ResourceClaimConsumerReference],
    ) -> ResourceClaim:
        def commit() -> ResourceClaim:
            stored = self._stored(claim)
            kept = stored.status.allocation if isinstance(allocation, UnsetType) else allocation
            status = msgspec.structs.replace(stored.status, allocation=kept, reserved_for=tuple(reserved_for))
            return self._put_status(stored, status, "write_status")

        result: ResourceClaim = await self._call("write_status", commit)
        return result

    async def annotate(self, claim: ResourceClaim, annotations: Mapping[str, str]) -> ResourceClaim:
        def commit() -> ResourceClaim:
            stored = self._stored(claim)
            meta = msgspec.structs.replace(stored.metadata, annotations={**stored.metadata.annotations, **annotations})
            changed: ResourceClaim = self.api.put(msgspec.structs.replace(stored, metadata=meta), "annotate")
            return changed

        result: ResourceClaim = await self._call("annotate", commit)
        return result

    async def deallocate(self, claim: ResourceClaim) -> ResourceClaim:
        result: ResourceClaim = await self._call(
            "deallocate", lambda: self._put_status(self._stored(claim), ResourceClaimStatus(), "deallocate")
        )
        return result

    async def create_claim(self, namespace: str, body: Mapping[str, Any]) -> ResourceClaim:
        def commit() -> ResourceClaim:
            claim = convert(ResourceClaim, to_builtins(body))
            if (ResourceClaim, claim.metadata.key) in self.api.objects:
                raise ConflictError(409, "AlreadyExists", claim.metadata.key)
            meta = msgspec.structs.replace(claim.metadata, uid=f"uid-created-{self.api.version}")
            created: ResourceClaim = self.api.put(msgspec.structs.replace(claim, metadata=meta), "create_claim")
            return created

        result: ResourceClaim = await self._call("create_claim", commit)
        return result

    async def delete_claim(self, claim: ResourceClaim) -> None:
        def commit() -> None:
            try:
                stored = self._stored(claim)
            except NotFoundError:
                return
            self.api.delete_claim(stored)

        await self._call("delete_claim", commit)

    # pods

    async def read_pod(self, namespace: str, name: str) -> Pod | None:
        result: Pod | None = await self._call("read_pod", lambda: self.api.objects.get((Pod, f"{namespace}/{name}")))
        return result

    async def bind_pod(self, namespace: str, name: str, uid: str, node: str) -> None:
        def commit() -> None:
            pod: Pod | None = self.api.objects.get((Pod, f"{namespace}/{name}"))
            if pod is None:
                raise NotFoundError(404, "NotFound", name)
            if pod.metadata.uid != uid or pod.spec.node_name or pod.metadata.deletion_timestamp:
                raise ConflictError(409, "Conflict", name)
            self.api.put(msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node)), "bind")

        await self._call("bind_pod", commit)

    async def patch_pod_status(self, pod: Pod, status: Mapping[str, Any]) -> None:
        def commit() -> None:
            stored: Pod | None = self.api.objects.get((Pod, pod.metadata.key))
            if stored is None:
                raise NotFoundError(404, "NotFound", pod.metadata.key)
            if stored.metadata.uid != pod.metadata.uid:
                raise ConflictError(409, "Conflict", pod.metadata.key)
            merged = convert(Pod, to_builtins(stored) | {"status": to_builtins(stored.status) | to_builtins(status)})
            self.api.put(merged, "patch_pod_status")

        await self._call("patch_pod_status", commit)

    # telling

    def record_event(self, regarding: Object, kind: str, reason: str, note: str, *, action: str = "Scheduling") -> None:
        self.events.append((reason, note))

    async def ring(self) -> None:
        await self._call("ring", lambda: None)
        self.rings += 1
