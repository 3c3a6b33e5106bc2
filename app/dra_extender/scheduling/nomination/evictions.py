"""Evicting victims: dry run, condition, eviction and event.

Promises: victims are evicted only through the Eviction API, with the UID of the chosen pod, so that no budget is
violated. A victim gets the condition DisruptionTarget with the reason PreemptionByScheduler, as from kube-scheduler:
while such a pod terminates, kube-scheduler does not clear the preemptor's nomination.

Rules: Kubernetes 1.36, PreemptPod of pkg/scheduler/framework/preemption/executor.go. One difference: the API server
replaces the reason when it evicts the pod, so the condition is written again while the pod terminates.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog
from cachetools import LRUCache

from dra_extender.api.core import Pod
from dra_extender.api.errors import ApiError, ConflictError, DisruptionBudgetError, NotFoundError, is_passing
from dra_extender.api.meta import format_time
from dra_extender.api.resource import DeviceID
from dra_extender.plaintext import printable
from dra_extender.scheduling.outcomes import PREEMPTION_VICTIMS, VictimResult
from dra_extender.scheduling.ports import Observer, Ports
from dra_extender.scheduling.preemption.terms import for_devices, known_to
from dra_extender.scheduling.view import View
from dra_extender.scheduling.waiting import Pauses

log = structlog.get_logger(__name__)

TARGET = "DisruptionTarget"
PREEMPTED = "PreemptionByScheduler"
REMEMBERED = 10_000


class Evictions:
    """Evicts victims, and remembers which of them could not be evicted or did not terminate."""

    def __init__(self, view: View, ports: Ports, observer: Observer) -> None:
        self._view = view
        self._ports = ports
        self._observer = observer
        self._pauses: Pauses[str] = Pauses(view.clock, view.config)
        self._refused: LRUCache[str, bool] = LRUCache(REMEMBERED)
        self._evicted: LRUCache[str, bool] = LRUCache(REMEMBERED)
        self._stuck: LRUCache[str, bool] = LRUCache(REMEMBERED)

    async def forbidden(self, victims: Sequence[Pod]) -> Pod | None:
        """The first victim that a budget protects now. Raises ApiError."""
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
        """UIDs of pods whose eviction the API server refused lately, for example by an admission webhook."""
        return frozenset(uid for uid in self._refused if not self._pauses.over(uid))

    @property
    def stuck(self) -> frozenset[str]:
        """UIDs of victims that were evicted long ago and are still there."""
        return frozenset(uid for uid in self._stuck if self._view.pods.get(uid) is not None)

    def give_up(self, victim: Pod) -> None:
        """The victim did not terminate in time: do not wait for it any more."""
        self._stuck[victim.metadata.uid] = True

    def may_try(self, victim: Pod) -> bool:
        """False for a while after a failure."""
        return self._pauses.over(victim.metadata.uid)

    def evicted(self, victim_uid: str) -> bool:
        """True when the API server accepted the eviction."""
        return victim_uid in self._evicted

    async def evict(self, victim: Pod, preemptor: Pod, node: str, devices: Sequence[DeviceID]) -> bool:
        """Evict the victim. False when a budget forbids it or the API server refuses: try again later."""
        uid = victim.metadata.uid
        try:
            await self.write_condition(victim)
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
        self._evicted[uid] = True
        self._observer.count(PREEMPTION_VICTIMS, "evicted")
        log.info("evicted", pod=victim.metadata.key, preemptor=preemptor.metadata.key, node=node)
        reader = self._view.config.reader(victim.metadata.namespace)
        names = ["/".join(device) for device in devices]
        note = f"preempted by {known_to(reader, preemptor)} on node {node}{for_devices(names)}"
        self._ports.record_event(victim, "Normal", "Preempted", note, action="Preempting")
        return True

    async def write_condition(self, victim: Pod) -> None:
        """Write the condition DisruptionTarget. Raises ApiError."""
        if any(item.type == TARGET and item.reason == PREEMPTED for item in victim.status.conditions):
            return
        condition = {
            "type": TARGET,
            "status": "True",
            "reason": PREEMPTED,
            "message": f"{printable(victim.spec.scheduler_name)}: preempting to accommodate a higher priority pod",
            "lastTransitionTime": format_time(self._view.clock.wall()),
        }
        await self._ports.patch_pod_status(victim, {"conditions": [condition]})

    async def write_condition_again(self, victim: Pod) -> None:
        """Write the condition once more while the victim terminates: the API server may have replaced the reason."""
        if not self.may_try(victim):
            return
        try:
            await self.write_condition(victim)
        except (NotFoundError, ConflictError):
            return
        except ApiError as error:
            log.info("the condition of a terminating pod was not written", pod=victim.metadata.key, error=repr(error))
        self._pauses.failed(victim.metadata.uid)
