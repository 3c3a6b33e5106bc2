"""The ports of one service: each operation awaits before and after its commit, and fails when a test asks for it.

Faults come before or after the commit, or with a commit that arrives late. A killed client never returns from anything.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from dra_extender.api.core import Pod
from dra_extender.api.decoding import convert, to_builtins
from dra_extender.api.errors import (
    ApiError,
    ConflictError,
    DisruptionBudgetError,
    NotFoundError,
    OutcomeUnknownError,
    RejectedError,
    ThrottledError,
    UndecodableError,
    UnreachableError,
)
from dra_extender.api.resource import (
    FINALIZER,
    AllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
)
from tests.support.simulation import strategy
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
        self.event_namespaces: list[str] = []
        """Of the objects of these events."""
        self.requeues = 0
        self.kill_at: tuple[int, When] | None = None
        """(number of the call, when): from then on nothing this client does has any effect, and nothing returns."""
        self.kill_on: tuple[str, When] | None = None
        """The same for the next call of an operation."""
        self.before: dict[str, Callable[[], object]] = {}
        """Called once, before the next call of the named operation of this client is sent."""
        self.paused_until = 0.0
        """Until then (seconds of the loop) nothing is sent. See `Service.pause`."""
        self.down_until = 0.0
        """Until then (seconds of the loop) the server cannot be reached, answers nothing, or answers nonsense."""
        self.forbidden: dict[str, float] = {}
        """Operations that the server refuses, each until then."""
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
        number, restores = len(self.calls), self.api.restores
        self.calls.append(operation)
        fault = self._fault(operation) or self._refusal(operation) or await self._outage(operation, number)
        await self._pause(number, operation, "before")
        self.before.pop(operation, lambda: None)()
        while (left := self.paused_until - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(left)
        hook = self.api.hooks.pop(operation, None)
        if hook is not None:
            hook()
        if operation == "bind_pod" and restores != self.api.restores:
            raise UnreachableError(0, "Unreachable")  # docs/reliability.md says what can happen otherwise
        if fault is not None and fault.when == "before":
            raise fault.fresh()
        if fault is not None and fault.when == "late":
            asyncio.get_running_loop().call_later(fault.delay, self._commit_late, commit, self.api.restores)
            raise fault.fresh()
        result = commit()
        await self._pause(number, operation, "after")
        if fault is not None:
            raise fault.fresh()
        return result

    def _commit_late(self, commit: Callable[[], Any], restores: int) -> None:
        """Unless the server was set back in between: it knows nothing of the request."""
        try:
            if self.api.restores == restores:
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

    def _refusal(self, operation: str) -> Fault | None:
        if asyncio.get_running_loop().time() >= self.forbidden.get(operation, 0.0):
            return None
        self.hit[f"not permitted: {operation}"] += 1
        return Fault(operation, RejectedError(403, "Forbidden"))

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

    def die(self) -> None:
        """As a killed process: see `kill_at`."""
        self.dead = True

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

    async def _change(self, operation: str, change: Callable[[], ResourceClaim]) -> ResourceClaim:
        """Store what `change` makes of a claim. What changes nothing makes no version; what was kept only by its last
        finalizer is gone.
        """

        def commit() -> ResourceClaim:
            changed = change()
            stored = self.api.objects[ResourceClaim, changed.metadata.key]
            if changed == stored:
                return changed
            if changed.metadata.deletion_timestamp and not changed.metadata.finalizers:
                self.api.drop(stored, operation)
                return changed
            result: ResourceClaim = self.api.put(changed, operation)
            if (ResourceClaim, result.metadata.key) in self.api.unreadable:
                raise UndecodableError(0, "Malformed", "claim")
            return result

        result: ResourceClaim = await self._call(operation, commit)
        return result

    async def read_claim(self, namespace: str, name: str) -> ResourceClaim | None:
        def read() -> ResourceClaim | None:
            key = ResourceClaim, f"{namespace}/{name}"
            if key in self.api.unreadable:
                self.hit["read of an undecodable claim"] += 1
                raise UndecodableError(0, "Malformed", "claim")
            return self.api.objects.get(key)

        result: ResourceClaim | None = await self._call("read_claim", read)
        return result

    async def add_finalizer(self, claim: ResourceClaim) -> ResourceClaim:
        def change() -> ResourceClaim:
            return strategy.with_finalizer(self._stored(claim), FINALIZER)

        return await self._change("add_finalizer", change)

    async def remove_finalizer(self, claim: ResourceClaim) -> ResourceClaim:
        def change() -> ResourceClaim:
            stored = self._stored(claim)
            rest = tuple(name for name in stored.metadata.finalizers if name != FINALIZER)
            return strategy.with_metadata(stored, finalizers=rest)

        return await self._change("remove_finalizer", change)

    async def write_status(
        self,
        claim: ResourceClaim,
        *,
        allocation: AllocationResult | UnsetType | None = UNSET,
        reserved_for: Sequence[ResourceClaimConsumerReference],
    ) -> ResourceClaim:
        def change() -> ResourceClaim:
            stored = self._stored(claim)
            kept = stored.status.allocation if isinstance(allocation, UnsetType) else allocation
            status = msgspec.structs.replace(stored.status, allocation=kept, reserved_for=tuple(reserved_for))
            return strategy.with_status(stored, status)

        return await self._change("write_status", change)

    async def annotate(self, claim: ResourceClaim, annotations: Mapping[str, str]) -> ResourceClaim:
        def change() -> ResourceClaim:
            stored = self._stored(claim)
            return strategy.with_metadata(stored, annotations={**stored.metadata.annotations, **annotations})

        return await self._change("annotate", change)

    async def deallocate(self, claim: ResourceClaim) -> ResourceClaim:
        return await self._change(
            "deallocate", lambda: strategy.with_status(self._stored(claim), ResourceClaimStatus())
        )

    async def create_claim(self, namespace: str, body: Mapping[str, Any]) -> ResourceClaim:
        def commit() -> ResourceClaim:
            claim = strategy.with_defaults(convert(ResourceClaim, to_builtins(body)))
            claim = strategy.with_metadata(claim, namespace=namespace, uid=f"uid-created-{self.api.version}")
            if (ResourceClaim, claim.metadata.key) in self.api.objects:
                raise ConflictError(409, "AlreadyExists", claim.metadata.key)
            created: ResourceClaim = self.api.put(claim, "create_claim")
            return created

        result: ResourceClaim = await self._call("create_claim", commit)
        return result

    async def delete_claim(self, claim: ResourceClaim) -> None:
        def commit() -> None:
            try:
                stored = self._stored(claim)
            except NotFoundError:
                return
            except RejectedError as error:  # a deletion has preconditions of its own
                raise ConflictError(409, "Conflict", error.message) from None
            self.api.delete_claim(stored)

        await self._call("delete_claim", commit)

    # pods

    async def read_pod(self, namespace: str, name: str) -> Pod | None:
        result: Pod | None = await self._call("read_pod", lambda: self.api.objects.get((Pod, f"{namespace}/{name}")))
        return result

    async def bind_pod(self, namespace: str, name: str, uid: str, version: str, node: str) -> None:
        def commit() -> None:
            pod: Pod | None = self.api.objects.get((Pod, f"{namespace}/{name}"))
            if pod is None:
                raise NotFoundError(404, "NotFound", name)
            other = pod.metadata.uid != uid or version not in ("", pod.metadata.resource_version)
            if other or pod.spec.node_name or pod.metadata.deletion_timestamp:
                raise ConflictError(409, "Conflict", name)
            scheduled = strategy.is_scheduled(pod)
            spec = msgspec.structs.replace(scheduled.spec, node_name=node)
            self.api.put(msgspec.structs.replace(scheduled, spec=spec), "bind")

        await self._call("bind_pod", commit)

    def _store_more(self, name: str) -> None:
        """Raises OutcomeUnknownError: what the API server answers when etcd refuses the size of an object."""
        if name in self.api.too_large:
            raise OutcomeUnknownError(500, "", "etcdserver: request is too large")

    async def patch_pod_status(
        self, pod: Pod, status: Mapping[str, Any], *, version: str = "", ahead: bool = False
    ) -> Pod:
        named = status.get("nominatedNodeName") or ""
        operation = "patch_pod_status" if not ahead else "nominate_pod" if named else "withdraw_pod"

        def commit() -> Pod:
            self._store_more(pod.metadata.name)
            stored: Pod | None = self.api.objects.get((Pod, pod.metadata.key))
            if stored is None:
                raise NotFoundError(404, "NotFound", pod.metadata.key)
            if stored.metadata.uid != pod.metadata.uid:
                raise RejectedError(422, "Invalid", "uid")
            if version not in ("", stored.metadata.resource_version):
                raise ConflictError(409, "Conflict", pod.metadata.key)
            patched = strategy.with_pod_status(stored, to_builtins(status))
            if ahead and named:
                self.api.nominated_ahead[pod.metadata.uid] = named
            return self.api.put(patched, operation) if patched != stored else stored

        result: Pod = await self._call("nominate_pod" if ahead else "patch_pod_status", commit)
        return result

    async def nominated_ahead(self, pod: Pod) -> str:
        def read() -> str:
            stored: Pod | None = self.api.objects.get((Pod, pod.metadata.key))
            named = stored.status.nominated_node_name if stored is not None else ""
            return named if named == self.api.nominated_ahead.get(pod.metadata.uid) else ""

        result: str = await self._call("nominated_ahead", read)
        return result

    async def evict_pod(self, pod: Pod, *, dry_run: bool = False) -> None:
        def commit() -> None:
            stored: Pod | None = self.api.objects.get((Pod, pod.metadata.key))
            if stored is None:
                raise NotFoundError(404, "NotFound", pod.metadata.key)
            if stored.metadata.name in self.api.protected:
                raise DisruptionBudgetError(429, "TooManyRequests", "the pod's disruption budget")
            if stored.metadata.uid != pod.metadata.uid:
                raise ConflictError(409, "Conflict", "uid")
            if not dry_run and stored.metadata.name in self.api.kept:
                raise OutcomeUnknownError(500, "InternalError", "a webhook failed")
            if not dry_run:
                self.api.evict(stored)

        await self._call("try_evict_pod" if dry_run else "evict_pod", commit)

    # telling

    def record_event(
        self, regarding: Pod | ResourceClaim, kind: str, reason: str, note: str, *, action: str = "Scheduling"
    ) -> None:
        self.events.append((reason, note))
        self.api.tell(regarding.metadata.namespace, [note])
        self.event_namespaces.append(regarding.metadata.namespace)

    async def requeue(self) -> None:
        await self._call("requeue", lambda: None)
        self.requeues += 1
