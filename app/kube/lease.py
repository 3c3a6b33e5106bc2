"""Which replica leads, by a Lease of coordination.k8s.io.

Promises: at most one holder renews at a time as far as clocks run at about the same speed; `leading` turns false no
later than `renew_deadline` after the last renewal that succeeded, even when the event loop was stopped meanwhile,
which is before another replica may take over (`lease_duration`). Times of other replicas are never compared with
ours: a lease counts as expired when we have seen it unchanged for its whole duration. Leading is for order; double
allocation is prevented elsewhere.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec
import structlog

from app.api.errors import ApiError, ConflictError, NotFoundError
from app.api.meta import Object, ObjectMeta
from app.api.times import format_micro_time
from app.kube.client import KubeClient

log = structlog.get_logger(__name__)

GROUP_VERSION = "coordination.k8s.io/v1"


class LeaseSettings(msgspec.Struct, frozen=True):
    """Names and times, in seconds; lease_duration > renew_deadline > retry_period."""

    namespace: str
    name: str
    identity: str
    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0


class LeaseSpec(Object, frozen=True, gc=False):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Object, frozen=True, gc=False):
    metadata: ObjectMeta
    spec: LeaseSpec = LeaseSpec()


class LeaderElection:
    """One candidate. `run` competes until cancelled, `release` gives the lease back and ends the candidacy."""

    def __init__(
        self,
        client: KubeClient,
        settings: LeaseSettings,
        *,
        on_change: Callable[[bool], object] = lambda _leading: None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._settings = settings
        self._on_change = on_change
        self._clock = clock
        self._now = now
        self._reported = False
        self._retired = False
        self._turn = asyncio.Lock()
        self._renewed_at: float | None = None
        self._observed: tuple[str, str, float] = ("", "", 0.0)  # holder, resourceVersion, when first seen so
        self._root = f"/apis/{GROUP_VERSION}/namespaces/{settings.namespace}/leases"

    @property
    def leading(self) -> bool:
        """True while we hold the lease, by our own clock."""
        renewed = self._renewed_at
        return renewed is not None and self._clock() - renewed < self._settings.renew_deadline

    @property
    def holder(self) -> str:
        """Who was last seen holding it; empty when it was free."""
        return self._observed[0]

    async def run(self) -> None:
        """Compete until cancelled."""
        while True:
            await self.step()
            await asyncio.sleep(self._settings.retry_period * random.uniform(0.8, 1.2))

    async def step(self) -> None:
        """One attempt to acquire or renew; failures leave things as they are until the deadline passes."""
        async with self._turn:
            if self._retired:
                return
            try:
                await self._try()
            except ApiError as problem:
                log.warning("lease not renewed" if self.leading else "lease not read", problem=problem.message)
            self._report()

    async def release(self) -> None:
        """Give the lease back so that another replica can have it at once, and stop competing. Never raises ApiError.

        It waits for a step under way: a renewal that overtook the release would keep the lease from everybody.
        """
        async with self._turn:
            self._retired = True
            if self._renewed_at is None:
                return
            self._renewed_at = None
            self._report()
            try:
                lease = await self._read()
                if lease is not None and lease.spec.holder_identity == self._settings.identity:
                    await self._write(lease, holder="", duration=1)
            except ApiError as problem:
                log.warning("lease not released", problem=problem.message)

    async def _try(self) -> None:
        started = self._clock()
        lease = await self._read()
        if lease is None:
            lease = Lease(ObjectMeta(name=self._settings.name, namespace=self._settings.namespace))
        elif not self._may_take(lease):
            self._renewed_at = None
            return
        try:
            written = await self._write(lease, self._settings.identity, round(self._settings.lease_duration))
        except ConflictError:
            return  # another was faster, or our own lost reply; the next step reads who it was
        self._renewed_at = started  # not later than what the server recorded
        self._observe(written)

    def _may_take(self, lease: Lease) -> bool:
        """Ours, free, or seen unchanged for its whole duration."""
        self._observe(lease)
        holder, _, since = self._observed
        if not holder or holder == self._settings.identity:
            return True
        return self._clock() - since > (lease.spec.lease_duration_seconds or self._settings.lease_duration)

    def _observe(self, lease: Lease) -> None:
        holder, version = lease.spec.holder_identity or "", lease.metadata.resource_version
        if (holder, version) != self._observed[:2]:
            self._observed = (holder, version, self._clock())

    async def _read(self) -> Lease | None:
        try:
            data = await self._client.get(
                f"{self._root}/{self._settings.name}", timeout=self._settings.retry_period * 2
            )
        except NotFoundError:
            return None
        return _decode(data)

    async def _write(self, lease: Lease, holder: str, duration: int) -> Lease:
        """Create or replace; the resourceVersion that was read is the precondition."""
        moment = format_micro_time(self._now())
        same = lease.spec.holder_identity == holder
        spec = LeaseSpec(
            holder_identity=holder,
            lease_duration_seconds=duration,
            acquire_time=lease.spec.acquire_time if same and lease.spec.acquire_time else moment,
            renew_time=moment,
            lease_transitions=(lease.spec.lease_transitions or 0) + (0 if same else 1),
        )
        body = msgspec.json.encode(
            {"apiVersion": GROUP_VERSION, "kind": "Lease", "metadata": lease.metadata, "spec": spec}
        )
        timeout = self._settings.retry_period * 2
        if not lease.metadata.resource_version:
            return _decode(await self._client.create(self._root, body, timeout=timeout))
        return _decode(await self._client.replace(f"{self._root}/{self._settings.name}", body, timeout=timeout))

    def _report(self) -> None:
        leading = self.leading
        if leading != self._reported:
            self._reported = leading
            log.info("leading" if leading else "not leading", identity=self._settings.identity, holder=self.holder)
            self._on_change(leading)


def _decode(data: bytes) -> Lease:
    try:
        return msgspec.json.decode(data, type=Lease)
    except (msgspec.DecodeError, ValueError) as problem:
        raise ApiError(0, "Malformed", f"lease: {problem}") from None
