"""The bind verb: one attempt per pod at a time. It answers in time, and repeated calls do no harm.

Promises
- A repeated call joins the attempt in progress for the same node, or gets the answer of the one that succeeded. A call
  for another node waits for the first attempt to end and starts a new one.
- A caller that disconnects changes nothing. An attempt that outlasts its caller goes on until it knows the outcome of
  its writes, or cannot find it out.
"""

from __future__ import annotations

import asyncio

from cachetools import TTLCache

from dra_extender.api.core import Pod
from dra_extender.api.extender import ExtenderBindingArgs, ExtenderBindingResult
from dra_extender.api.meta import parse_time
from dra_extender.plaintext import printable
from dra_extender.scheduling.bind import failure
from dra_extender.scheduling.bind.attempt import Attempt
from dra_extender.scheduling.bind.context import BindContext
from dra_extender.scheduling.bind.rollback import PendingRollbacks
from dra_extender.scheduling.outcomes import BIND_RESULTS
from dra_extender.unexpected import unexpected


class Binder:
    def __init__(self, context: BindContext, pending: PendingRollbacks, binding: dict[str, str]) -> None:
        """`binding`: by pod UID the node of each bind in progress. Only the binder writes to it."""
        self._context = context
        self._pending = pending
        self._view = view = context.view
        self._binding = binding
        self._running: dict[str, tuple[Attempt, asyncio.Task[str]]] = {}
        self._bound: TTLCache[str, str] = TTLCache(
            view.config.remembered_pods, view.config.replay_seconds, timer=view.clock.monotonic
        )

    async def bind(self, args: ExtenderBindingArgs) -> ExtenderBindingResult:
        """The answer to one call. Never raises for what is in `args` or in the cluster."""
        clock, config, count = self._view.clock, self._view.config, self._context.observer.count
        started = clock.monotonic()
        while True:
            bound = self._bound.get(args.PodUID)
            if bound is not None:
                count(BIND_RESULTS, "replayed")
                return ExtenderBindingResult(Error="" if bound == args.Node else failure.BOUND_ELSEWHERE)
            known = self._running.get(args.PodUID)
            attempt, task = known or self._start(args)
            # wait() does not cancel the attempt when this call is cancelled or out of time.
            left = started + config.bind_timeout - clock.monotonic()
            await asyncio.wait({task}, timeout=max(0.0, left))
            if not task.done():
                count(BIND_RESULTS, "late")
                return ExtenderBindingResult(Error=failure.STILL_RUNNING)
            if attempt.node == args.Node:
                count(BIND_RESULTS, attempt.result if known is None else "joined")
                error = failure.STILL_RUNNING if task.cancelled() else task.result()
                return ExtenderBindingResult(Error=printable(error))  # kube-scheduler writes it to the pod

    def _start(self, args: ExtenderBindingArgs) -> tuple[Attempt, asyncio.Task[str]]:
        config = self._view.config
        deadline = self._view.clock.monotonic() + config.bind_timeout * config.write_share
        attempt = Attempt(self._context, self._pending, args, deadline)
        task = asyncio.create_task(self._run(args.PodUID, attempt), name=f"bind {args.PodNamespace}/{args.PodName}")
        self._running[args.PodUID] = attempt, task
        self._binding[args.PodUID] = args.Node
        return attempt, task

    async def _run(self, pod_uid: str, attempt: Attempt) -> str:
        started = self._view.clock.monotonic()
        before = self._view.pods.get(pod_uid)
        try:
            error = await attempt.run()
            if not error:
                self._note_wait(before or self._view.pods.get(pod_uid))
                self._bound[pod_uid] = attempt.node
                self._context.requeue.forget(pod_uid)
            elif (usage := self._context.usage) is not None and attempt.result != "unfinished":
                usage.forget(pod_uid, attempt.live)
            return error
        except Exception as problem:
            unexpected("bind", problem)
            attempt.release()
            return failure.BROKEN
        finally:
            self._running.pop(pod_uid, None)
            self._binding.pop(pod_uid, None)
            self._context.requeue.ended(pod_uid)
            self._context.observer.took("bind", self._view.clock.monotonic() - started)

    def _note_wait(self, pod: Pod | None) -> None:
        """Report how long the pod has waited for its devices."""
        created = parse_time(pod.metadata.creation_timestamp or "") if pod is not None else None
        if pod is not None and created is not None and not pod.spec.node_name and self._view.uses_devices(pod):
            self._context.observer.waited(max(0.0, (self._view.clock.wall() - created).total_seconds()))

    async def wait(self, seconds: float) -> None:
        """Wait until the binds in progress have ended, or `seconds` are over. Cancels none."""
        if self._running:
            await asyncio.wait({task for _, task in self._running.values()}, timeout=seconds)

    async def drain(self, seconds: float) -> int:
        """Wait for binds in progress, cancel the rest after `seconds`, and return how many were cancelled."""
        await self.wait(seconds)
        pending = {task for _, task in self._running.values()}
        for task in pending:
            task.cancel()
        if pending:
            await asyncio.wait(pending)
        return len(pending)
