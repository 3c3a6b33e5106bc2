"""One replica as a machine: the real Extender, which is given its inputs one by one, and says what it asks.

Deterministic: the same inputs in the same order lead to the same state. So a state need not be copied (it is impossible
to copy a suspended coroutine): it is reached again by its inputs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any
from unittest import mock

import structlog

from dra_extender.allocation.decisions import Decisions
from dra_extender.api.core import Pod
from dra_extender.api.errors import SetBackError
from dra_extender.api.events import Applied, Removed
from dra_extender.api.extender import ExtenderBindingArgs
from dra_extender.api.features import FeatureGates
from dra_extender.api.resource import ResourceClaim
from dra_extender.devices.cluster import Cluster
from dra_extender.scheduling.bind import claimwrite
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.extender import Extender
from dra_extender.scheduling.handle import Runtime
from tests.support.simulation.objects import KubernetesObject
from tests.support.simulation.virtualtime import START
from tools.exploration.likeness import Likeness, Tokens
from tools.exploration.ports import Ports, Request
from tools.exploration.steploop import StepLoop

KINDS = (ResourceClaim, Pod)


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

    def waited(self, *args: Any, **more: Any) -> None: ...


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
    """`take` an input: `show`, `list`, `reply`, `bind`, `fire` or `chores_due`. Each runs on until everything waits.

    A list that shows that the server was set back restarts it, as `service.supervision` does: it loses what it knew and
    what was under way.
    """

    def __init__(
        self,
        name: str,
        objects: Sequence[KubernetesObject],
        config: SchedulingConfig,
        tokens: Tokens,
        aged: float,
        set_backs: bool,
    ) -> None:
        self.answers: dict[str, str] = {}
        """What binds have answered, by the name they were started under."""
        self.restarts = 0
        self._config = config
        self._set_backs = set_backs
        self._tokens = tokens
        self.loop = StepLoop()  # type: ignore[abstract] # of a loop, as much as is used
        self.ports = Ports()
        self._name = name
        self._marks = 0
        self._binds: dict[str, asyncio.Task[Any]] = {}
        self._chores: asyncio.Task[Any] | None = None
        self._observer, self._clock = _Silent(), _Clock(self.loop)
        with self.loop.running():
            self._start(objects)
        self.loop.now = aged

    def _start(self, objects: Sequence[KubernetesObject]) -> None:
        self._shown: dict[tuple[type, str], KubernetesObject] = {}
        self._complete: dict[type, int] = {}
        self._cluster = Cluster(FeatureGates())
        self._decisions = Decisions(self._cluster, share_ids=lambda: "no shares here")
        runtime = Runtime(config=self._config, clock=self._clock, observer=self._observer)
        self.extender = Extender(self._cluster, self._decisions, self.ports, runtime=runtime)
        self._act = self.extender.binder._context
        self.extender._sweeper.start()
        for obj in objects:
            self._bring(obj)
        self._likeness = self._describe(self._tokens)

    def _restart(self, objects: Sequence[KubernetesObject]) -> None:
        """What is under way ends without another request; the calls of bind are answered."""
        self.ports.waiting.clear()
        self.answers |= dict.fromkeys(self._binds, "the server was set back")
        running = [task for _, task in self.extender.binder._running.values()]
        for task in (*running, *self._binds.values(), *filter(None, [self._chores])):
            task.cancel()
        self.loop.run_ready()
        for timer in self.loop.timers():
            timer.cancel()
        self._binds, self._chores = {}, None
        self.restarts += 1
        self._start(objects)

    # --- inputs -----------------------------------------------------------------------------------------------------

    def take(self, verb: str, *args: Any) -> None:
        """One input."""
        _Marks.of = self
        with self.loop.running():
            getattr(self, "_" + verb)(*args)
            self.loop.run_ready()

    def _show(self, obj: KubernetesObject, removed: bool) -> None:
        """The next event of a watch."""
        self._complete[type(obj)] = max(obj.metadata.version, self._complete.get(type(obj), 0))
        if not removed:
            self._bring(obj)
        else:
            self._drop(obj)

    def _list(self, kind: type, shown: Sequence[Sequence[KubernetesObject]], versions: Sequence[int]) -> None:
        """A watch had broken, and this is what there is now: claims and pods."""
        continuity, objects, version = self._cluster.continuity, shown[KINDS.index(kind)], versions[KINDS.index(kind)]
        continuity.begin_list(kind.__name__)
        try:
            for obj in objects:
                continuity.listed(obj, self._complete.get(kind, 0))
            continuity.end_list(kind.__name__, version)
        except SetBackError:
            self._restart([obj for of_kind in shown for obj in of_kind])
            self._complete |= zip(KINDS, versions, strict=True)
            return
        self._complete[kind] = max(version, self._complete.get(kind, 0))
        now = {(kind, obj.metadata.key): obj for obj in objects}
        for key, obj in now.items():
            known = self._shown.get(key)
            if known is not None and known.metadata.uid != obj.metadata.uid:
                self._drop(known)
            if known is None or known.metadata.resource_version != obj.metadata.resource_version:
                self._bring(obj, after_gap=True)
        for key, obj in list(self._shown.items()):
            if key[0] is kind and key not in now:
                self._drop(obj)

    def _drop(self, obj: KubernetesObject) -> None:
        if self._shown.pop((type(obj), obj.metadata.key), None) is not None:
            self.extender.apply(Removed.of(obj))

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

    def _chores_due(self, seconds: float) -> None:
        """The sweeper's round, after `seconds`."""
        self.loop.now += seconds
        self._chores = self.loop.create_task(self._sweep(), name="chores")

    def _unfinished_due(self) -> None:
        """A round with the binds that could not take everything back, when none of them has to wait any longer."""
        self.loop.now += self.extender.view.config.max_backoff_seconds
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
            len(extender.view.binding),
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
            "handle": self.extender._handle,
            "view": view,
            "ports": self.ports,
            "event_handler": act.event_handler,
            "signals": act.event_handler.signals,
            "requeue": act.requeue,
            "reservations": act.tentative_plans,
            "clearer": act.clearer,
            "resources": act.event_handler.resources,
            "observer": self._observer,
            "clock": self._clock,
            "config": view.config,
            "cluster": view.cluster,
            "ledger": view.cluster.ledger,
            "pods": view.pods,
            "locks": act.locks,
            "decisions": self._decisions,
            "binder": self.extender.binder,
            "sweeper": self.extender._sweeper,
            "idle": act.event_handler.idle,
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
        ledger: Any = self._cluster.ledger
        extender: Any = self.extender
        event_handler: Any = self._act.event_handler
        assert not len(extender.tentative_plans.all())
        pods = dict(vars(self._cluster.pods))
        newest = pods.pop("newest"), ledger.newest, self._complete, self.restarts
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
            pods,
            newest if self._set_backs else (),  # in one history every written version is above these
            event_handler.idle._idle,
            event_handler.idle.unseen,
            dict(self.extender.view.binding),
            set(self.extender.view.clearing),
            extender.binder._running,
            dict(extender.binder._bound.items()),
            dict(extender._sweeper._offered.items()),
            vars(extender.pending_rollbacks),
            extender._clearer._backoffs,
            extender._clearer._refused,
        )


def _is_pause(timer: asyncio.TimerHandle) -> bool:
    """True for a sleep, after which something is repeated; false for a limit to what is waited for."""
    return "set_result" in repr(timer)
