"""Who led, one after the other: every state of the lease that the API server stored."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from dra_extender.api.decoding import decode
from dra_extender.api.meta import parse_time
from dra_extender.kube.client import KubeClient
from dra_extender.kube.lease import Lease, LeaseSpec
from dra_extender.kube.resources import Resource
from embedded_cluster.informer import Informer


def _lease(data: bytes | msgspec.Raw) -> Lease:
    return decode(Lease, bytes(data))


LEASES: Resource[Lease] = Resource("coordination.k8s.io", "v1", "leases", "Lease", _lease)


class Takeover(NamedTuple):
    """The lease went from one holder to another: `released` when it was given back between, else it had expired.

    `lapse`: seconds, as the holders wrote them, from the last renewal to the takeover. `duration`: after how many it
    expires.
    """

    before: str
    after: str
    released: bool
    lapse: float
    duration: float


class Leadership:
    """`run` it as a task. `takeovers` are in their order; the first holder took over from no one."""

    def __init__(self, client: KubeClient, namespace: str, name: str) -> None:
        self.takeovers: list[Takeover] = []
        self.leader = ""
        self._held = LeaseSpec()
        self._released = False
        selector = {"fieldSelector": f"metadata.namespace={namespace},metadata.name={name}"}
        self._leases: Informer[Lease] = Informer(client, LEASES, selector=selector)
        self._leases.subscribe(self._changed)

    async def run(self) -> None:
        await self._leases.run()

    def _changed(self, _: Lease | None, lease: Lease | None) -> None:
        if lease is None:
            return
        if not lease.holder:
            self._released = True
            return
        if self.leader not in ("", lease.holder):
            lapse = _seconds(lease.spec.acquire_time) - _seconds(self._held.renew_time)
            duration = float(self._held.lease_duration_seconds or 0)
            self.takeovers.append(Takeover(self.leader, lease.holder, self._released, lapse, duration))
        self.leader, self._held, self._released = lease.holder, lease.spec, False


def _seconds(text: str | None) -> float:
    moment = parse_time(text or "")
    assert moment is not None, f"{text!r} is no time"
    return moment.timestamp()
