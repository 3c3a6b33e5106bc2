"""One replica as a machine: the real Extender, which is given its inputs one by one, and says what it asks.

Deterministic: the same inputs in the same order lead to the same state. So a state need not be copied (it is impossible
to copy a suspended coroutine): it is reached again by its inputs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any
from unittest import mock

import msgspec
import structlog
from msgspec import UNSET, UnsetType

from dra_extender.allocation.decisions import Decisions
from dra_extender.api.core import Pod
from dra_extender.api.errors import ApiError
from dra_extender.api.events import Applied, Removed
from dra_extender.api.extender import ExtenderBindingArgs
from dra_extender.api.features import FeatureGates
from dra_extender.api.resource import AllocationResult, ResourceClaim, ResourceClaimConsumerReference
from dra_extender.devices.cluster import Cluster
from dra_extender.scheduling.bind import claimwrite
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.extender import Extender
from dra_extender.scheduling.handle import Runtime
from tests.support.simulation.objects import KubernetesObject
from tests.support.simulation.virtualtime import START
from tools.exploration.likeness import Likeness, Tokens
from tools.exploration.steploop import StepLoop


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

    async def bind_pod(self, namespace: str, name: str, uid: str, node: str) -> None:
        await self._ask("bind_pod", namespace, name, uid, node)

    async def patch_pod_status(
        self, pod: Pod, status: Mapping[str, Any], annotations: Mapping[str, str | None] | None = None
    ) -> None:
        raise AssertionError("nothing is said of pods here")

    async def evict_pod(self, pod: Pod, *, dry_run: bool = False) -> None:
        raise AssertionError("nobody is evicted here")

    async def nominate_pod(self, pod: Pod, node: str | None) -> None:
        raise AssertionError("nobody is nominated here")

    async def nominated_ahead(self, pod: Pod) -> str:
        raise AssertionError("nobody is nominated here")

    def record_event(self, *args: Any, **named: Any) -> None:
        """For people."""

    async def requeue(self) -> None:
        raise AssertionError("no requeue is triggered here")


class _Clock:
    def __init__(self, loop: StepLoop) -> None:
        self._loop = loop

    def monotonic(self) -> float:
        return self._loop.now

    def wall(self) -> datetime:
        return START + timedelta(seconds=self._loop.now)


class _Silent:
    def count(self, *args: Any) -> None: ...

    def took(self, *args: Any) -> None: ...

    def waited(self, *args: Any) -> None: ...


class _Marks:
    """Instead of the module `uuid`: what marks claims is drawn at random, and here counted by the replica that runs."""

    of: Replica

    @classmethod
    def uuid4(cls) -> _Marks:
        return cls()

    @property
    def hex(self) -> str:
        return self.of.mark()


@contextmanager
def determined() -> Iterator[None]:
    """Within it replicas draw nothing at random, and log nothing."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        with mock.patch.object(claimwrite, "uuid", _Marks):
            yield
    finally:
        structlog.configure(**before)


class Replica:
    """`take` an input: `show`, `list`, `reply`, `bind`, `fire` or `chores_due`. Each runs on until everything waits."""

    def __init__(
        self, name: str, objects: Sequence[KubernetesObject], config: SchedulingConfig, tokens: Tokens, aged: float
    ) -> None:
        self.answers: dict[str, str] = {}
        """What binds have answered, by the name they were started under."""
        self.loop = StepLoop()  # type: ignore[abstract] # of a loop, as much as is used
        self.ports = Ports()
        self._name = name
        self._marks = 0
        self._binds: dict[str, asyncio.Task[Any]] = {}
        self._chores: asyncio.Task[Any] | None = None
        self._shown: dict[tuple[type, str], KubernetesObject] = {}
        cluster = Cluster(FeatureGates())
        self._observer, self._clock = _Silent(), _Clock(self.loop)
        self._decisions = Decisions(cluster, share_ids=lambda: "no shares here")
        with self.loop.running():
            runtime = Runtime(config=config, clock=self._clock, observer=self._observer)
            self.extender = Extender(cluster, self._decisions, self.ports, runtime=runtime)
            self._act = self.extender._binder._context
            self.extender._sweeper.start()
            for obj in objects:
                self._bring(obj)
        self.loop.now = aged
        self._likeness = self._describe(tokens)

    # --- inputs -----------------------------------------------------------------------------------------------------

    def take(self, verb: str, *args: Any) -> None:
        """One input."""
        _Marks.of = self
        with self.loop.running():
            getattr(self, "_" + verb)(*args)
            self.loop.run_ready()

    def _show(self, obj: KubernetesObject, removed: bool) -> None:
        """The next event of a watch."""
        if not removed:
            self._bring(obj)
        elif self._shown.pop((type(obj), obj.metadata.key), None) is not None:
            self.extender.apply(Removed.of(obj))

    def _list(self, kind: type, objects: Sequence[KubernetesObject]) -> None:
        """A watch had broken, and this is what there is now."""
        now = {(kind, obj.metadata.key): obj for obj in objects}
        for key, obj in now.items():
            known = self._shown.get(key)
            if known is not None and known.metadata.uid != obj.metadata.uid:
                self._show(known, True)
            if known is None or known.metadata.resource_version != obj.metadata.resource_version:
                self._bring(obj, after_gap=True)
        for key, obj in list(self._shown.items()):
            if key[0] is kind and key not in now:
                self._show(obj, True)

    def _bring(self, obj: KubernetesObject, *, after_gap: bool = False) -> None:
        self._shown[type(obj), obj.metadata.key] = obj
        self.extender.apply(Applied(obj, "list" if after_gap else "watch"))

    def _reply(self, number: int, result: Any) -> None:
        self.ports.reply(number, result)

    def _bind(self, call: str, pod: Pod, node: str) -> None:
        meta = pod.metadata
        args = ExtenderBindingArgs(PodName=meta.name, PodNamespace=meta.namespace, PodUID=meta.uid, Node=node)

        async def ask() -> None:
            self.answers[call] = (await self.extender.bind(args)).Error
            del self._binds[call]

        self._binds[call] = self.loop.create_task(ask(), name=call)

    def _fire(self) -> None:
        """The next timer."""
        self.loop.fire()

    def _chores_due(self) -> None:
        """The sweeper's round, a moment later."""
        self.loop.now += 0.001
        self._chores = self.loop.create_task(self._sweep(), name="chores")

    def _unfinished_due(self) -> None:
        """A round with the binds that could not take everything back, when none of them has to wait any longer."""
        self.loop.now += self.extender.view.config.again_most_seconds
        self._chores = self.loop.create_task(self._go_on(), name="unfinished")

    async def _go_on(self) -> None:
        await self.extender.pending_rollbacks.work()
        self._chores = None

    async def _sweep(self) -> None:
        await self.extender._sweeper.work()
        self._chores = None

    def mark(self) -> str:
        """A new one, in the same order whenever the same happens."""
        self._marks += 1
        return f"{self._name}{self._marks}"

    # --- what it is in ----------------------------------------------------------------------------------------------

    @property
    def requests(self) -> tuple[tuple[int, Request], ...]:
        return tuple((number, request) for number, (request, _) in self.ports.waiting.items())

    @property
    def idle(self) -> bool:
        """True when nothing is under way: no bind, no chore, no hold, no work on a claim."""
        view = self.extender.view
        extender = self.extender
        busy = (
            self._binds,
            self._chores,
            extender.binds_in_progress,
            extender.pending_rollbacks,
            view.binding,
            view.clearing,
        )
        return not any(busy) and not view.cluster.ledger.holds()

    @property
    def unfinished(self) -> bool:
        """There are binds that could not take everything back, and nothing else goes on."""
        waits = self.ports.waiting or self._chores or any(_is_pause(timer) for timer in self.loop.timers())
        return bool(self.extender.pending_rollbacks) and not waits

    @property
    def may_sweep(self) -> bool:
        """No round of the sweeper is under way."""
        return self._chores is None

    @property
    def pauses(self) -> tuple[bool, bool]:
        """(a timer may fire: a pause is over, or would be if the timers before it fired; the next timer is a limit)"""
        timers = self.loop.timers()
        pause = [timer for timer in timers if _is_pause(timer)]
        return bool(pause), bool(timers) and not _is_pause(timers[0])

    def _describe(self, tokens: Tokens) -> Likeness:
        act, view = self._act, self.extender.view
        shared = {
            "act": act,
            "view": view,
            "ports": self.ports,
            "holds": act.holds,
            "event_handler": act.event_handler,
            "signals": act.signals,
            "requeue": act.requeue,
            "reservations": act.tentative_plans,
            "clearer": act.clearer,
            "resources": act.resources,
            "observer": self._observer,
            "clock": self._clock,
            "config": view.config,
            "cluster": view.cluster,
            "ledger": view.cluster.ledger,
            "pods": view.pods,
            "locks": act.locks,
            "decisions": self._decisions,
            "binder": self.extender._binder,
            "sweeper": self.extender._sweeper,
            "idle": act.event_handler.idle,
            "unseen": act.event_handler.unseen,
            "loop": self.loop,
            "replica": self,
            "extender": self.extender,
            "unfinished": self.extender.pending_rollbacks,
            "sweeping": self.extender._unblocker,
            "binding": view.binding,
            "clearing": view.clearing,
            "features": view.features,
        }
        self._shared = shared
        return Likeness({id(obj): name for name, obj in shared.items()}, tokens)

    def likeness(self) -> Hashable:
        """Equal for two states of this replica that go on alike."""
        ledger: Any = self._act.holds.ledger
        extender: Any = self.extender
        event_handler: Any = self._act.event_handler
        assert not len(extender.tentative_plans)
        return self._likeness.of(
            self.loop.now,
            self.loop.timers(),
            self._marks,
            {key: obj.metadata.resource_version for key, obj in self._shown.items()},
            self.answers,
            self.ports.waiting,
            self._binds,
            self._chores,
            ledger._records,
            ledger._by_name,
            ledger._deleted,
            vars(event_handler.cluster.pods),
            event_handler.idle._idle,
            event_handler.unseen._since,
            dict(self.extender.view.binding),
            set(self.extender.view.clearing),
            extender._binder._running,
            dict(extender._binder._bound.items()),
            dict(extender._sweeper._offered.items()),
            vars(extender.pending_rollbacks),
            extender._clearer._pauses,
            extender._clearer._refused,
        )


def _is_pause(timer: asyncio.TimerHandle) -> bool:
    """True for a sleep, after which something is repeated; false for a limit to what is waited for."""
    return "set_result" in repr(timer)
