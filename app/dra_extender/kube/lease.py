"""Which replica leads, by a Lease of coordination.k8s.io.

Promises: at most one holder renews at a time as far as clocks run at about the same speed; `leading` turns false no
later than `renew_deadline` after the last renewal that succeeded, even if the event loop was stopped,
which is before another replica may take over (`lease_duration`). Times of other replicas are never compared with
ours: a lease counts as expired when we have seen it unchanged for its whole duration. A lease that is given back or
expires is taken at once, by a candidate that is fit to lead, and every candidate knows who leads and where. Leading is
for order; double allocation is prevented elsewhere.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import msgspec
import structlog

from dra_extender.api.errors import ApiError, ConflictError, NotFoundError
from dra_extender.api.meta import Object, ObjectMeta, format_micro_time
from dra_extender.kube.client import KubeClient, decoded

log = structlog.get_logger(__name__)

GROUP_VERSION = "coordination.k8s.io/v1"
ADDRESS = "dra-extender.dev/address"
"""Annotation of the lease: where its holder serves the verbs to the other replicas."""
UNFIT_PERIOD: Final = 0.1
"""Seconds between two looks whether a candidate that is not fit to lead has become so. No request is made."""
AFTER_EXPIRY: Final = 0.01
"""So many seconds later than it expires a lease has expired for certain."""


class LeaseSettings(msgspec.Struct, frozen=True):
    """Names and times, in seconds; lease_duration > renew_deadline > retry_period. `address` is the URL at which this
    candidate serves the verbs to the others; empty when it does not.
    """

    namespace: str
    name: str
    identity: str
    address: str = ""
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

    @property
    def holder(self) -> str:
        return self.spec.holder_identity or ""


class _LeaseEvent(Object, frozen=True):
    """One line of a watch."""

    type: str
    object: Lease


@dataclass(eq=False)
class LeaderElection:
    """One candidate. `run` competes until cancelled, `release` gives the lease back and ends the candidacy.

    `fit` tells whether it could do the work: a candidate that is not does not take the lease, and gives it back.
    """

    _client: KubeClient
    _settings: LeaseSettings
    on_change: Callable[[bool], object] = lambda _leading: None
    fit: Callable[[], bool] = lambda: True
    clock: Callable[[], float] = time.monotonic
    released: bool = False
    """True once `release` was called: this candidate will not lead again."""
    _reported: bool = False
    _renewed_at: float | None = None
    _seen: Lease = field(default_factory=lambda: Lease(ObjectMeta()))
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _free: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._seen_since = self.clock()
        self._root = f"/apis/{GROUP_VERSION}/namespaces/{self._settings.namespace}/leases"

    @property
    def leading(self) -> bool:
        """True while we hold the lease, by our own clock."""
        renewed = self._renewed_at
        return renewed is not None and self.clock() - renewed < self._settings.renew_deadline

    @property
    def holder(self) -> str:
        """Who was last seen holding it; empty when it was free."""
        return self._seen.holder

    @property
    def address(self) -> str:
        """Where another replica that was last seen holding it serves the verbs; empty when there is none, or it does
        not say.
        """
        other = self.holder not in ("", self._settings.identity)
        return self._seen.metadata.annotations.get(ADDRESS, "") if other else ""

    def annotation(self, name: str) -> str:
        """An annotation of the lease as last seen; empty without one."""
        return self._seen.metadata.annotations.get(name, "")

    async def news(self) -> None:
        """Until another holder is seen, or none."""
        await self._news.wait()

    async def run(self) -> None:
        """Compete until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow(), name="watch of the lease")
            while True:
                self._free.clear()
                await self.step()
                try:
                    async with asyncio.timeout(self._pause()):
                        await self._free.wait()
                except TimeoutError:
                    pass  # still held

    async def step(self) -> None:
        """One attempt to acquire or renew; failures leave things as they are until the deadline passes. Once released,
        it is a look at who leads.
        """
        async with self._turn:
            try:
                if self.released:
                    await self.look()
                else:
                    await (self._try() if self.fit() else self._give_back())
            except ApiError as problem:
                log.warning("lease not renewed" if self.leading else "lease not read", problem=problem.message)
            self._report()

    async def release(self) -> None:
        """Give the lease back so that another replica can have it at once, and stop competing. Never raises ApiError.

        It waits for a step under way: a renewal that overtook the release would keep the lease from everybody.
        """
        async with self._turn:
            self.released = True
            try:
                await self._give_back()
            except ApiError as problem:
                log.warning("lease not released", problem=problem.message)

    async def _give_back(self) -> None:
        if self._renewed_at is None:
            return
        self._renewed_at = None
        self._report()
        try:
            self._observe(await self._write(self._seen, holder="", duration=1))
        except ConflictError:  # it has been taken, or annotated
            lease = await self._read()
            if lease.holder == self._settings.identity:
                self._observe(await self._write(lease, holder="", duration=1))

    def _pause(self) -> float:
        """Seconds until the next step, unless the lease is free before."""
        if self.released:
            return self._settings.retry_period
        if not self.fit():
            return UNFIT_PERIOD
        pause = self._settings.retry_period * random.uniform(0.8, 1.2)
        if self.leading:
            return pause
        left = self._seen_since + self._duration(self._seen) - self.clock() + AFTER_EXPIRY
        return min(pause, left) if left > 0 else pause

    async def _follow(self) -> None:
        """See changes when they happen, until cancelled. Without it, nothing but `step` sees them, a little later."""
        watched = {"watch": "true", "fieldSelector": f"metadata.name={self._settings.name}"}
        while True:
            try:
                async for line in self._client.stream(self._root, watched):
                    self._changed(line)
            except ApiError as problem:
                log.debug("lease not watched", problem=problem.message)
            await asyncio.sleep(self._settings.retry_period)

    def _changed(self, line: bytes) -> None:
        """One event of the watch. Raises ApiError when it cannot be read."""
        event = decoded(_LeaseEvent, line, "watch of leases")
        if event.type == "DELETED":
            self._free.set()
        elif event.type in ("ADDED", "MODIFIED") and event.object.metadata.version >= self._seen.metadata.version:
            self._observe(event.object)
            if not event.object.holder:
                self._free.set()

    async def look(self) -> None:
        """Read the lease. Raises ApiError."""
        self._observe(await self._read())

    async def _try(self) -> None:
        started = self.clock()
        known_free = self._seen.metadata.resource_version and not self._seen.holder
        lease = self._seen if known_free else await self._read()
        if lease.metadata.resource_version and not self._may_take(lease):
            self._renewed_at = None
            return
        self._report()  # another replica may have led and released the lease since
        try:
            written = await self._write(lease, self._settings.identity, round(self._settings.lease_duration))
        except (ConflictError, NotFoundError):  # another was faster, our own reply was lost, or the lease was deleted
            await self.look()
            return
        self._renewed_at = started  # not later than what the server recorded
        self._observe(written)

    def _may_take(self, lease: Lease) -> bool:
        """Ours, free, or seen unchanged for its whole duration."""
        self._observe(lease)
        if lease.holder in ("", self._settings.identity):
            return True
        return self.clock() - self._seen_since > self._duration(lease)

    def _duration(self, lease: Lease) -> float:
        return lease.spec.lease_duration_seconds or self._settings.lease_duration

    def _observe(self, lease: Lease) -> None:
        before, self._seen = self._seen, lease
        if before.holder != lease.holder:
            self._news.set()
            self._news = asyncio.Event()
        if (before.holder, before.metadata.resource_version) != (lease.holder, lease.metadata.resource_version):
            self._seen_since = self.clock()

    async def _read(self) -> Lease:
        """The lease; one to be created, with the annotations as last seen, if it does not exist. Raises ApiError."""
        name, namespace, seen = self._settings.name, self._settings.namespace, self._seen.metadata.annotations
        try:
            data = await self._client.get(f"{self._root}/{name}", timeout=self._settings.retry_period * 2)
        except NotFoundError:
            return Lease(ObjectMeta(name=name, namespace=namespace, annotations=seen))
        return decoded(Lease, data, "lease")

    async def _write(self, lease: Lease, holder: str, duration: int) -> Lease:
        """Create or replace; the resourceVersion that was read is the precondition."""
        moment = format_micro_time(datetime.now(UTC))
        annotations = {name: value for name, value in lease.metadata.annotations.items() if name != ADDRESS}
        if holder and self._settings.address:
            annotations[ADDRESS] = self._settings.address
        metadata = msgspec.structs.replace(lease.metadata, annotations=annotations)
        same = lease.spec.holder_identity == holder
        spec = LeaseSpec(
            holder_identity=holder,
            lease_duration_seconds=duration,
            acquire_time=lease.spec.acquire_time if same and lease.spec.acquire_time else moment,
            renew_time=moment,
            lease_transitions=(lease.spec.lease_transitions or 0) + (0 if same else 1),
        )
        body = msgspec.json.encode({"apiVersion": GROUP_VERSION, "kind": "Lease", "metadata": metadata, "spec": spec})
        timeout = self._settings.retry_period * 2
        if not lease.metadata.resource_version:
            data = await self._client.create(self._root, body, timeout=timeout)
        else:
            data = await self._client.replace(f"{self._root}/{self._settings.name}", body, timeout=timeout)
        return decoded(Lease, data, "lease")

    def _report(self) -> None:
        leading = self.leading
        if leading != self._reported:
            self._reported = leading
            log.info("leading" if leading else "not leading", identity=self._settings.identity, holder=self.holder)
            self.on_change(leading)


async def annotate(client: KubeClient, settings: LeaseSettings, annotations: Mapping[str, str]) -> None:
    """Annotate the lease, also when another replica holds it. Raises ApiError."""
    metadata = {"name": settings.name, "namespace": settings.namespace, "annotations": annotations}
    body = msgspec.json.encode({"apiVersion": GROUP_VERSION, "kind": "Lease", "metadata": metadata})
    root = f"/apis/{GROUP_VERSION}/namespaces/{settings.namespace}/leases"
    try:
        await client.patch(f"{root}/{settings.name}", body)
    except NotFoundError:
        await client.create(root, body)
