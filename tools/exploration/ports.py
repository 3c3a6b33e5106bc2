"""The ports of one replica that is explored: what it asks, and the replies that the explorer gives it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from dra_extender.api.core import Pod
from dra_extender.api.errors import ApiError
from dra_extender.api.resource import AllocationResult, ResourceClaim, ResourceClaimConsumerReference


class Request(msgspec.Struct, frozen=True):
    """One call of a port: the method of `tests.support.simulation.client.Client` with its arguments."""

    operation: str
    args: tuple[Any, ...]
    named: tuple[tuple[str, Any], ...] = ()


class Ports:
    """The ports of one replica: every call waits for the reply that the explorer gives it."""

    def __init__(self) -> None:
        self.waiting: dict[int, tuple[Request, asyncio.Future[Any]]] = {}

    async def _ask(self, operation: str, *args: Any, **named: Any) -> Any:
        number = next(number for number in range(1_000) if number not in self.waiting)
        future = asyncio.get_running_loop().create_future()
        self.waiting[number] = Request(operation, args, tuple(named.items())), future
        return await future

    def reply(self, number: int, result: Any) -> None:
        _, future = self.waiting.pop(number)
        if isinstance(result, ApiError):
            future.set_exception(type(result)(result.status, result.reason, result.message))
        else:
            future.set_result(result)

    async def read_claim(self, namespace: str, name: str) -> ResourceClaim | None:
        found: ResourceClaim | None = await self._ask("read_claim", namespace, name)
        return found

    async def add_finalizer(self, claim: ResourceClaim) -> ResourceClaim:
        written: ResourceClaim = await self._ask("add_finalizer", claim)
        return written

    async def remove_finalizer(self, claim: ResourceClaim) -> ResourceClaim:
        written: ResourceClaim = await self._ask("remove_finalizer", claim)
        return written

    async def write_status(
        self,
        claim: ResourceClaim,
        *,
        allocation: AllocationResult | UnsetType | None = UNSET,
        reserved_for: Sequence[ResourceClaimConsumerReference],
    ) -> ResourceClaim:
        given = {} if isinstance(allocation, UnsetType) else {"allocation": allocation}
        written: ResourceClaim = await self._ask("write_status", claim, reserved_for=tuple(reserved_for), **given)
        return written

    async def annotate(self, claim: ResourceClaim, annotations: Mapping[str, str]) -> ResourceClaim:
        written: ResourceClaim = await self._ask("annotate", claim, dict(annotations))
        return written

    async def deallocate(self, claim: ResourceClaim) -> ResourceClaim:
        written: ResourceClaim = await self._ask("deallocate", claim)
        return written

    async def create_claim(self, namespace: str, body: Mapping[str, Any]) -> ResourceClaim:
        raise AssertionError("no claims are created here")

    async def delete_claim(self, claim: ResourceClaim) -> None:
        await self._ask("delete_claim", claim)

    async def read_pod(self, namespace: str, name: str) -> Pod | None:
        found: Pod | None = await self._ask("read_pod", namespace, name)
        return found

    async def bind_pod(self, namespace: str, name: str, uid: str, version: str, node: str) -> None:
        await self._ask("bind_pod", namespace, name, uid, version, node)

    async def patch_pod_status(
        self, pod: Pod, status: Mapping[str, Any], *, version: str = "", ahead: bool = False
    ) -> Pod:
        patched: Pod = await self._ask("patch_pod_status", pod, dict(status), version=version)
        return patched

    async def evict_pod(self, pod: Pod, *, dry_run: bool = False) -> None:
        raise AssertionError("nobody is evicted here")

    async def nominated_ahead(self, pod: Pod) -> str:
        raise AssertionError("nobody is nominated here")

    def record_event(self, *args: Any, **named: Any) -> None:
        """For people."""

    async def requeue(self) -> None:
        raise AssertionError("no requeue is triggered here")
