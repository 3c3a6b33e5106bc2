"""An embedded cluster and the real service."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from dra_extender.api.resource import DeviceRequestAllocationResult, ResourceClaim
from dra_extender.service.service import Service
from dra_extender.service.settings import Settings
from embedded_cluster.cluster import SCHEDULER_NAMES, EmbeddedCluster
from embedded_cluster.objects import FullPod
from embedded_cluster.scheduler import ExtenderCall
from tests.support.service.readiness import until_ready


class Flow:
    """A cluster whose pods get their devices from a service that can be killed and started again on the same port."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        self.calls: list[ExtenderCall] = []
        self.service: Service | None = None
        self._listen = "127.0.0.1:0"

    async def start(self, **settings: Any) -> Service:
        """Start the service (again) and wait until it may decide."""
        service = Service(
            Settings(
                server=self.cluster.url,
                listen=self._listen,
                scheduler_names=",".join(SCHEDULER_NAMES),
                shutdown_grace=1.0,
                **settings,
            )
        )
        await service.start()
        self.service = service
        self._listen = service.url.removeprefix("http://")
        await until_ready(service)
        return service

    async def schedule(self, *, pop_from_backoff: bool = True) -> None:
        """Start the scheduler."""
        assert self.service is not None
        await self.cluster.schedule_with(self.service.url, pop_from_backoff=pop_from_backoff, on_call=self.calls.append)

    async def kill(self) -> None:
        """End the service as a crash would."""
        assert self.service is not None
        await self.service.kill()

    async def stop(self) -> None:
        await self.cluster.stop_scheduler()
        if self.service is not None:
            await self.service.stop()

    def pod(self, namespace: str, name: str) -> FullPod:
        found = self.cluster.pod(namespace, name)
        assert found is not None, f"no pod {namespace}/{name}"
        return found

    def reason(self, namespace: str, name: str) -> tuple[str, str]:
        """Reason and message of PodScheduled, empty when it is not False."""
        told = self.pod(namespace, name).condition
        return (told.reason, told.message) if told is not None and told.status == "False" else ("", "")

    def claim(self, namespace: str, name: str) -> ResourceClaim:
        found = self.cluster.claim(namespace, name)
        assert found is not None, f"no claim {namespace}/{name}"
        return found

    def results(self, namespace: str, claim: str) -> Sequence[DeviceRequestAllocationResult]:
        """What is allocated to a claim; nothing while it is not allocated."""
        allocation = self.claim(namespace, claim).allocation
        return allocation.devices.results if allocation is not None else ()

    def devices(self, namespace: str, claim: str) -> list[str]:
        """node/device of an allocated claim."""
        return [f"{result.pool}/{result.device}" for result in self.results(namespace, claim)]

    def wrong(self) -> list[str]:
        """What violates an invariant now."""
        return self.cluster.audit()


@asynccontextmanager
async def flowing(cluster: EmbeddedCluster) -> AsyncIterator[Flow]:
    """The service and the scheduler of the cluster running; at the end nothing is wrong with it."""
    running = Flow(cluster)
    await running.start()
    await running.schedule()
    yield running
    await running.stop()
    cluster.check()
    assert running.wrong() == []
