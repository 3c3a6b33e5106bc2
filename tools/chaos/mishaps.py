"""What goes wrong in a chaotic world between the services, their API server and their clocks."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from dra_extender.api.core import Pod
from dra_extender.api.errors import (
    ApiError,
    ConflictError,
    OutcomeUnknownError,
    RejectedError,
    ThrottledError,
    UndecodableError,
    UnreachableError,
)
from dra_extender.api.resource import ResourceClaim
from tests.support.simulation.api import Backup
from tests.support.simulation.client import When
from tests.support.simulation.virtualtime import VirtualClock
from tests.support.simulation.watch import KINDS
from tests.support.simulation.world import Service, World
from tools.chaos.strangers import Strangers

FORWARD = ("add_finalizer", "write_status", "bind_pod", "annotate", "create_claim", "patch_pod_status")
EVICTIONS = ("try_evict_pod", "evict_pod")
BACKWARD = ("deallocate", "delete_claim", "remove_finalizer")
READS = ("read_claim", "read_pod")
FAULTS: list[tuple[ApiError, tuple[When, ...]]] = [
    (ConflictError(409, "Conflict"), ("before",)),
    (ThrottledError(429, "TooManyRequests"), ("before",)),
    (RejectedError(403, "Forbidden"), ("before",)),
    (UnreachableError(0, "Unreachable"), ("before",)),
    (OutcomeUnknownError(500, "InternalError"), ("before", "after", "late")),
    (OutcomeUnknownError(0, "Timeout"), ("before", "after", "late")),
    (UndecodableError(0, "Malformed"), ("after",)),
]
WITHOUT_REPLY = ("bind_pod", "patch_pod_status", "delete_claim", *EVICTIONS)
"""Nobody looks at what the server says when these have succeeded."""
PERMISSIONS = (
    ("read_pod",),
    ("read_claim",),
    ("write_status", "deallocate"),
    ("add_finalizer", "remove_finalizer", "annotate"),
    ("bind_pod",),
    ("create_claim", "delete_claim"),
    ("patch_pod_status", *EVICTIONS),
    ("read_pod", "read_claim", *FORWARD, *BACKWARD),
)
"""What a role allows or does not, as a whole."""
GAPS = [0.0, 0.1, 3.0, 25.0, 100.0]
_AROUND: list[When] = ["before", "after"]


class Mishaps:
    """Each method is one kind of trouble for one of `services` (or all), a live list."""

    def __init__(
        self,
        world: World,
        dice: random.Random,
        services: Sequence[Service],
        replace: Callable[[int], Awaitable[None]],
        strangers: Strangers | None,
    ) -> None:
        self.counts: Counter[str] = Counter()
        """How often which trouble has come, in words; the services count what happened at their calls and watches."""
        self._world = world
        self._dice = dice
        self._services = services
        self._replace = replace
        self._strangers = strangers
        self._backup: Backup | None = None
        self.clocks: list[VirtualClock] = []
        """Of all replicas."""

    def _one(self) -> Service:
        return self._dice.choice(self._services)

    def fault(self) -> None:
        """Some of the next calls of an operation fail; a write may be carried out up to most of a minute later."""
        error, times = self._dice.choice(FAULTS)
        writes = (*FORWARD, *BACKWARD, *EVICTIONS)
        operations: tuple[str, ...] = writes if isinstance(error, ConflictError) else (*writes, *READS, "requeue")
        if isinstance(error, UndecodableError):
            operations = tuple(name for name in (*writes, *READS) if name not in WITHOUT_REPLY)
        delay = self._dice.random() * (50.0 if self._dice.random() < 0.2 else 5.0)
        when, hits = self._dice.choice(times), self._dice.choice([1, 2, 3, 30])
        self._one().client.fail(self._dice.choice(operations), error, when, times=hits, delay=delay)

    def trip_watch(self) -> None:
        """The watch of one kind or of all kinds breaks, and starts over some time later."""
        watch = self._one().watch
        kinds = KINDS if self._dice.random() < 0.4 else (self._dice.choice([Pod, ResourceClaim, *KINDS]),)
        watch.disconnect(kinds)
        asyncio.get_running_loop().call_later(self._dice.choice(GAPS), watch.reconnect, kinds)

    def outage(self) -> None:
        """For half a minute to two minutes one replica, or every replica, cannot reach the API server."""
        seconds, loop = 30 + self._dice.random() * 90, asyncio.get_running_loop()
        whole = self._dice.random() < 0.5
        self.counts["outage of the API server" if whole else "outage for one replica"] += 1
        for service in list(self._services) if whole else [self._one()]:
            service.client.down_until = loop.time() + seconds
            service.watch.disconnect()
            loop.call_later(seconds + self._dice.random() * 5, service.watch.reconnect)

    def forbid(self) -> None:
        """Somebody takes a permission away from one replica, or from all, and gives it back some time later."""
        self.counts["permission taken away"] += 1
        until = asyncio.get_running_loop().time() + self._dice.choice([1.0, 10.0, 100.0]) * (1 + self._dice.random())
        permission = self._dice.choice(PERMISSIONS)
        for service in list(self._services) if self._dice.random() < 0.5 else [self._one()]:
            service.client.forbidden |= dict.fromkeys(permission, until)

    def spoil_claim(self) -> None:
        """Somebody writes into a claim what cannot be decoded, and corrects it later."""
        api = self._world.api
        if not (claims := api.all(ResourceClaim)):
            return
        self.counts["claim unreadable"] += 1
        claim = self._dice.choice(claims)
        api.spoil(claim)
        asyncio.get_running_loop().call_later(self._dice.choice([0.5, 10.0, 60.0]), api.mend, claim)

    def jump(self) -> None:
        """The time of day of a replica is set."""
        self.counts["clock set"] += 1
        self._dice.choice(self.clocks).offset += self._dice.choice([-3600.0, -5.0, 5.0, 3600.0])

    def clock(self) -> VirtualClock:
        """Of the next replica: an hour off or not, and a second a minute too fast or slow."""
        hours, drift = self._dice.choice([-1, 0, 0, 1]), self._dice.uniform(-0.02, 0.02)
        self.clocks.append(VirtualClock(3600.0 * hours, drift))
        return self.clocks[-1]

    def pause(self) -> None:
        """A replica stops for up to ten minutes, which is longer than any bind takes: now, or when it is about to send
        a request.
        """
        self.counts["replica paused"] += 1
        service, seconds = self._one(), self._dice.choice([1.0, 30.0, 300.0, 600.0])
        operation = self._dice.choice((*FORWARD, *["bind_pod"] * 6, *BACKWARD, *READS, *EVICTIONS, ""))
        if operation:
            service.client.before[operation] = partial(service.pause, seconds)
        else:
            service.pause(seconds)

    def set_back(self) -> None:
        """Somebody takes a backup, or restores the pods and claims of the last one. A replica that lists again
        notices that and is replaced; until then it goes on with what it knows.
        """
        api, loop = self._world.api, asyncio.get_running_loop()
        backup, self._backup = self._backup, api.backup()
        if backup is None:
            return
        self._backup = None
        self.counts["API server set back"] += 1
        down = loop.time() + self._dice.random() * 2
        for service in self._services:
            service.watch.disconnect()
            service.client.down_until = down
            loop.call_at(down + self._dice.random() * 3, service.watch.reconnect)
        api.set_back(backup, Pod, ResourceClaim)

    def depose(self) -> None:
        """A replica loses the lease for a while."""
        self.counts["replica deposed"] += 1
        extender = self._one().extender
        extender.leading = lambda: False
        asyncio.get_running_loop().call_later(self._dice.random() * 3, setattr, extender, "leading", lambda: True)

    def intrude(self) -> None:
        """A stranger allocates: now, or in the moment before one of our writes is looked at."""
        if self._strangers is None:
            return
        self.counts["foreign allocation"] += 1
        if self._dice.random() < 0.5:
            self._strangers.allocate()
        else:
            self._world.api.hooks[self._dice.choice(FORWARD[:3])] = self._strangers.allocate

    async def kill(self) -> None:
        """Now, or around the next call of some operation."""
        index = self._dice.randrange(len(self._services))
        service = self._services[index]
        if self._dice.random() < 0.7:
            operation = self._dice.choice((*FORWARD, *FORWARD[:3], *BACKWARD, *READS, *EVICTIONS))
            service.client.kill_on = (operation, self._dice.choice(_AROUND))
        else:
            service.client.hit["killed " + ("during a bind" if len(service.extender.view.binding) else "at rest")] += 1
            await self._replace(index)

    async def end(self) -> None:
        """No more trouble of the old kinds for anybody."""
        for index, service in enumerate(self._services):
            service.watch.reconnect()
            if not service.watch.alive:
                await self._replace(index)
        self._world.api.hooks.clear()
        for claim in self._world.api.all(ResourceClaim):
            self._world.api.mend(claim)
        for service in self._services:
            service.client.faults.clear()
            service.client.before.clear()
            service.client.kill_at = service.client.kill_on = None
            service.client.down_until = 0.0
            service.client.forbidden.clear()
            service.watch.reconnect()
            service.extender.leading = lambda: True
