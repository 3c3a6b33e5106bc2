"""The scheduler loop: one pod after another finds a node, while earlier ones are being bound.

As kube-scheduler 1.36 with DynamicResources disabled (or enabled at preEnqueue only): watches feed queue and cache,
attempts are serial, binds are concurrent and without limit, and pods learn by condition and event what became of them.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from dra_extender.api.core import requested
from dra_extender.api.errors import ApiError
from dra_extender.api.resource import EXTENDED_RESOURCE_CLASS_PREFIX, DeviceClass, ResourceClaim
from dra_extender.kube.client import KubeClient
from dra_extender.kube.resources import DEVICE_CLASSES, RESOURCE_CLAIMS
from embedded_cluster.informer import Informer
from embedded_cluster.objects import NODES, PODS, FullNode, FullPod
from embedded_cluster.podclaims import Unready, claims
from embedded_cluster.scheduler.attempt import AttemptError, Attempts, FeasibleNode, UnschedulablePod
from embedded_cluster.scheduler.cache import Cache, PodRecord, pod_records
from embedded_cluster.scheduler.calls import CallError, ExtenderCall, Extenders, wire_form
from embedded_cluster.scheduler.config import SchedulerConfig
from embedded_cluster.scheduler.queue import Item, SchedulingQueue, Wakeup, node_wakeup, pod_wakeup
from embedded_cluster.scheduler.reports import Reports

_FLUSH_PERIOD = 30.0


class Scheduler:
    """Schedules the pods that name it. `run` never returns; `close` when it has been cancelled."""

    def __init__(
        self,
        client: KubeClient,
        config: SchedulerConfig,
        *,
        pop_from_backoff: bool = True,
        seed: int | None = None,
        on_call: Callable[[ExtenderCall], object] = lambda call: None,
    ) -> None:
        """`pop_from_backoff`: the feature gate SchedulerPopFromBackoffQ."""
        self.config = config
        self.attempts: Counter[str] = Counter()
        """Attempts by the UID of the pod."""
        self.extenders = Extenders(config.extenders, on_call)
        self._client = client
        self._pods: Informer[PodRecord] = Informer(client, pod_records())
        self._nodes: Informer[FullNode] = Informer(client, NODES)
        self._claims: Informer[ResourceClaim] = Informer(client, RESOURCE_CLAIMS)
        self._classes: Informer[DeviceClass] = Informer(client, DEVICE_CLASSES)
        self._cache = Cache()
        self._ready = asyncio.Event()
        self.queue: SchedulingQueue[PodRecord] = SchedulingQueue(
            time.monotonic,
            gate=self._may_be_tried,
            initial_backoff=config.pod_initial_backoff_seconds,
            max_backoff=config.pod_max_backoff_seconds,
            pop_from_backoff=pop_from_backoff,
            on_ready=self._ready.set,
        )
        self._attempts = Attempts(
            self._cache,
            self.extenders,
            percentage=config.percentage_of_nodes_to_score,
            by_claim=self._by_claim,
            chance=random.Random(seed),
        )
        self._reports = Reports(client, config.scheduler_names)
        self._bindings: set[asyncio.Task[None]] = set()
        self._trying = False
        self._pods.subscribe(self._pod_changed)
        self._nodes.subscribe(self._node_changed)
        self._claims.subscribe(lambda old, new: self._wake(Wakeup("claim")))
        self._classes.subscribe(lambda old, new: self._wake(Wakeup("class")))

    @property
    def informers(self) -> Sequence[Informer[Any]]:
        """What it knows of the cluster."""
        return self._pods, self._nodes, self._claims, self._classes

    def idle(self) -> bool:
        """True when every pod it knows waits for something to happen: none is tried, bound or backing off."""
        return not self._trying and not self._bindings and all(i.place == "unschedulable" for i in self.queue.items())

    @property
    def binding(self) -> int:
        """How many pods are being bound."""
        return len(self._bindings)

    async def run(self) -> None:
        """Run until cancelled, from when everything has been listed."""
        async with asyncio.TaskGroup() as group:
            for informer in self.informers:
                group.create_task(informer.run())
            for recorder in self._reports.recorders:
                group.create_task(recorder.run())
            for informer in (self._nodes, self._claims, self._classes, self._pods):
                await informer.synced.wait()
            group.create_task(self._flush())
            while True:
                await self.step()

    async def close(self) -> None:
        """Give up what is being bound, as a scheduler that is stopped does."""
        for task in tuple(self._bindings):
            task.cancel()
        await asyncio.gather(*self._bindings, return_exceptions=True)
        await self.extenders.close()

    async def step(self) -> None:
        """One attempt for the next pod; waits until there is a pod."""
        self._ready.clear()
        item = self.queue.pop()
        if item is None:
            await self._wait()
            return
        self._trying = True
        try:
            await self._attempt(item)
        finally:
            self._trying = False

    async def _wait(self) -> None:
        due = self.queue.next_due()
        timeout = None if due is None else max(due - time.monotonic(), 0.0)
        try:
            await asyncio.wait_for(self._ready.wait(), timeout)
        except TimeoutError:
            pass

    async def _flush(self) -> None:
        while True:
            await asyncio.sleep(_FLUSH_PERIOD)
            self.queue.flush()

    # --- what the watches bring

    def _pod_changed(self, old: PodRecord | None, new: PodRecord | None) -> None:
        self._place(old, new)
        before, after = (record.pod if record is not None else None for record in (old, new))
        if (wakeup := pod_wakeup(before, after)) is not None:
            self._wake(wakeup)

    def _place(self, old: PodRecord | None, new: PodRecord | None) -> None:
        """Bring queue and cache up to date with one pod."""
        record = new or old
        if record is None:
            return
        uid = record.metadata.uid
        if new is None or new.pod.status.phase in ("Succeeded", "Failed"):
            self.queue.remove(uid)
            self._cache.gone(uid)
        elif new.pod.spec.node_name:
            self.queue.remove(uid)
            self._cache.bound(new.pod)
        elif new.pod.spec.scheduler_name in self.config.scheduler_names:
            if uid in self.queue:
                self.queue.update(uid, new, Wakeup("own pod"))
            elif not self._cache.assumed(uid):
                self.queue.add(uid, new, new.pod.spec.priority)

    def _node_changed(self, old: FullNode | None, new: FullNode | None) -> None:
        self._cache.node_changed(old, new)
        if (wakeup := node_wakeup(old, new)) is not None:
            self._wake(wakeup)

    def _wake(self, wakeup: Wakeup) -> None:
        self.queue.wake(wakeup)

    def _may_be_tried(self, record: PodRecord) -> bool:
        """preEnqueue: scheduling gates, and claims that do not exist yet."""
        if record.pod.spec.scheduling_gates:
            return False
        try:
            found = list(claims(record.pod, self._claims.get))
        except Unready:
            return False
        return all(claim.metadata.deletion_timestamp is None for claim in found)

    def _by_claim(self, resource: str) -> bool:
        """True when a DeviceClass provides this extended resource, so that nodes need not offer it."""
        if resource.startswith(EXTENDED_RESOURCE_CLASS_PREFIX):
            return self._classes.get("", resource.removeprefix(EXTENDED_RESOURCE_CLASS_PREFIX)) is not None
        if "/" not in resource:
            return False
        return any(found.spec.extended_resource_name == resource for found in self._classes.objects.values())

    # --- attempts

    async def _attempt(self, item: Item[PodRecord]) -> None:
        record = item.pod
        if record.metadata.deletion_timestamp is not None:
            self.queue.remove(item.uid)
            return
        self.attempts[item.uid] += 1
        outcome = await self._attempts.run(record.pod, wire_form(record.raw))
        if isinstance(outcome, FeasibleNode):
            if item.uid not in self.queue:
                return  # deleted, or bound by another client, during the attempt
            self._cache.assume(record.pod, outcome.node, outcome.asked)
            self.queue.binding(item.uid)
            task = asyncio.create_task(self._bind(record, outcome.node))
            self._bindings.add(task)
            task.add_done_callback(self._bindings.discard)
        else:
            await self._unsuccessful(record, outcome)

    async def _bind(self, record: PodRecord, node: str) -> None:
        """Let an extender bind the pod, or bind it."""
        pod = record.pod
        try:
            binders = self.extenders.with_verb("bind")
            if binders:
                await self.extenders.bind(binders[0], pod, node)
            else:
                await self._bind_myself(pod, node)
        except (CallError, ApiError) as problem:
            if self._cache.forget(pod.metadata.uid):
                self._wake(Wakeup("bound pod gone"))
            await self._unsuccessful(record, AttemptError(str(problem)))
            return
        self.queue.remove(pod.metadata.uid)
        self._reports.scheduled(pod, node)

    async def _bind_myself(self, pod: FullPod, node: str) -> None:
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"namespace": pod.metadata.namespace, "name": pod.metadata.name, "uid": pod.metadata.uid},
            "target": {"kind": "Node", "name": node},
        }
        path = PODS.path(pod.metadata.namespace, pod.metadata.name, "binding")
        await self._client.create(path, msgspec.json.encode(binding))

    async def _unsuccessful(self, record: PodRecord, outcome: UnschedulablePod | AttemptError) -> None:
        """Put the pod back into the queue, report why, and make room for it if that was decided."""
        uid = record.metadata.uid
        nominated: str | None = ""
        victims: tuple[FullPod, ...] = ()
        if isinstance(outcome, UnschedulablePod):
            nominated, victims, reason = outcome.nominated, outcome.victims, "Unschedulable"
            self.queue.refused(uid, outcome.refusers)
        else:
            reason = "SchedulerError"
            self.queue.failed(uid)
        if nominated is not None:
            self._cache.nominate(record.pod, nominated, requested(record.pod))
        current = self._pods.objects.get(record.metadata.key)
        if current is None or current.metadata.uid != uid:
            self.queue.remove(uid)
            self._cache.gone(uid)
            return
        for victim in victims:
            await self._reports.evict(victim, current.pod, nominated or "")
        await self._reports.unscheduled(current.pod, reason, outcome.message, nominated)
