"""Ending a victim: whether it may be, the condition that says why, the eviction, and what people are told.

Promises: only through the Eviction API and for the very pod that was chosen, so that no budget is violated. A victim
has the condition DisruptionTarget with the reason PreemptionByScheduler, as kube-scheduler gives it: as long as such a
pod is going, kube-scheduler leaves the preemptor's nomination alone.

Rules: Kubernetes 1.36, PreemptPod of pkg/scheduler/framework/preemption/executor.go. Different from there: the API
server gives an evicted pod a reason of its own, so the condition is written once more when the pod is going.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog
from cachetools import LRUCache

from dra_extender.api.core import Pod
from dra_extender.api.errors import ApiError, ConflictError, DisruptionBudgetError, NotFoundError, is_passing
from dra_extender.api.resource import DeviceID
from dra_extender.api.times import format_time
from dra_extender.scheduling.outcomes import PREEMPTION_VICTIMS, VictimResult
from dra_extender.scheduling.pauses import Pauses
from dra_extender.scheduling.ports import Observer, Ports
from dra_extender.scheduling.preemption.result import for_devices, known_to
from dra_extender.scheduling.view import View

log = structlog.get_logger(__name__)

TARGET = "DisruptionTarget"
PREEMPTED = "PreemptionByScheduler"
REMEMBERED = 10_000


class Evictions:
    """One per service."""

    def __init__(self, view: View, ports: Ports, observer: Observer) -> None:
        self._view = view
        self._ports = ports
        self._observer = observer
        self._pauses: Pauses[str] = Pauses(view.clock, view.config)
        self._refused: LRUCache[str, bool] = LRUCache(REMEMBERED)
        self._told: LRUCache[str, bool] = LRUCache(REMEMBERED)
        self._stuck: LRUCache[str, bool] = LRUCache(REMEMBERED)

    async def forbidden(self, victims: Sequence[Pod]) -> Pod | None:
        """The first of them that a budget keeps from being evicted now. Raises ApiError."""
        for victim in victims:
            try:
                await self._ports.evict_pod(victim, dry_run=True)
            except DisruptionBudgetError:
                self._observer.count(PREEMPTION_VICTIMS, "forbidden")
                return victim
            except (NotFoundError, ConflictError):
                continue
            except ApiError as error:
                if not is_passing(error):
                    self._refused[victim.metadata.uid] = True
                    self._pauses.failed(victim.metadata.uid)
                raise
        return None

    @property
    def refused(self) -> frozenset[str]:
        """UIDs of pods that the API server did not let us evict a while ago: an admission webhook, for example."""
        return frozenset(uid for uid in self._refused if not self._pauses.over(uid))

    @property
    def stuck(self) -> frozenset[str]:
        """UIDs of victims that were told to go long ago and are still there."""
        return frozenset(uid for uid in self._stuck if self._view.pods.get(uid) is not None)

    def give_up(self, victim: Pod) -> None:
        """Nothing more is expected of the victim, which is not gone in time."""
        self._stuck[victim.metadata.uid] = True

    def may_try(self, victim: Pod) -> bool:
        """False for a while after it has failed."""
        return self._pauses.over(victim.metadata.uid)

    def told(self, victim_uid: str) -> bool:
        """True when the API server has accepted the eviction."""
        return victim_uid in self._told

    async def evict(self, victim: Pod, preemptor: Pod, node: str, devices: Sequence[DeviceID]) -> bool:
        """Tell the victim to go. False when a budget forbids it, or the API server does not let us: then later."""
        uid = victim.metadata.uid
        try:
            await self.explain(victim)
            await self._ports.evict_pod(victim)
        except (NotFoundError, ConflictError):
            return True
        except ApiError as error:
            result: VictimResult = "forbidden" if isinstance(error, DisruptionBudgetError) else "failed"
            self._pauses.failed(uid)
            self._observer.count(PREEMPTION_VICTIMS, result)
            log.warning("a pod was not evicted, will try again", pod=victim.metadata.key, error=repr(error))
            return False
        self._pauses.forget(uid)
        self._told[uid] = True
        self._observer.count(PREEMPTION_VICTIMS, "evicted")
        log.info("evicted", pod=victim.metadata.key, preemptor=preemptor.metadata.key, node=node)
        note = f"preempted by {known_to(victim, preemptor)} on node {node}{for_devices(devices)}"
        self._ports.record_event(victim, "Normal", "Preempted", note, action="Preempting")
        return True

    async def explain(self, victim: Pod) -> None:
        """Give the victim the condition that says why it goes. Raises ApiError."""
        if any(item.type == TARGET and item.reason == PREEMPTED for item in victim.status.conditions):
            return
        condition = {
            "type": TARGET,
            "status": "True",
            "reason": PREEMPTED,
            "message": f"{victim.spec.scheduler_name}: preempting to accommodate a higher priority pod",
            "lastTransitionTime": format_time(self._view.clock.wall()),
        }
        await self._ports.patch_pod_status(victim, {"conditions": [condition]})

    async def explain_again(self, victim: Pod) -> None:
        """The victim is going, and the API server may have put a reason of its own in place of ours. Once is enough:
        nothing depends on it for long.
        """
        if not self.may_try(victim):
            return
        try:
            await self.explain(victim)
        except (NotFoundError, ConflictError):
            return
        except ApiError as error:
            log.info("a condition of a pod that is going was not written", pod=victim.metadata.key, error=repr(error))
        self._pauses.failed(victim.metadata.uid)
