"""The device taint eviction controller: deletes pods whose devices got a NoExecute taint that they do not tolerate.

A pod gets its condition and its event before it is deleted, and is deleted once. The controller cancels a deletion when
the taint, the claim or the pod changes in time. When a pod is due follows from pure functions.

Source: Kubernetes 1.36, pkg/controller/devicetainteviction/device_taint_eviction.go.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal, NamedTuple

import msgspec

from dra_extender.api.core import ObjectReference
from dra_extender.api.decoding import encode
from dra_extender.api.errors import ConflictError, NotFoundError
from dra_extender.api.meta import format_time, parse_time
from dra_extender.api.resource import (
    DeviceID,
    DeviceRequestAllocationResult,
    DeviceTaint,
    DeviceTaintRule,
    DeviceToleration,
    ResourceClaim,
    ResourceSlice,
)
from dra_extender.kube.client import STRATEGIC_PATCH, KubeClient
from dra_extender.kube.events import Event, EventRecorder
from embedded_cluster.informer import Informer, RateLimitedQueue
from embedded_cluster.objects import FullPod
from embedded_cluster.podclaims import Lookup, owns, recorded

NO_EXECUTE = "NoExecute"

TaintsOf = Callable[[DeviceID], Iterable[DeviceTaint]]


def slice_taints(slices: Iterable[ResourceSlice]) -> dict[DeviceID, tuple[DeviceTaint, ...]]:
    """NoExecute taints by device, from the slices of the newest generation of each pool."""
    newest: dict[tuple[str, str], int] = {}
    kept = list(slices)
    for part in kept:
        pool = (part.spec.driver, part.spec.pool.name)
        newest[pool] = max(newest.get(pool, 0), part.spec.pool.generation)
    found: dict[DeviceID, tuple[DeviceTaint, ...]] = {}
    for part in kept:
        spec = part.spec
        if spec.pool.generation != newest[spec.driver, spec.pool.name]:
            continue
        for device in spec.devices:
            taints = tuple(taint for taint in device.taints if taint.effect == NO_EXECUTE)
            if taints:
                found[spec.driver, spec.pool.name, device.name] = taints
    return found


def rule_selects(rule: DeviceTaintRule, device: DeviceID) -> bool:
    """Compares the names in the allocation, so that devices that are no longer published are selected too."""
    selector = rule.spec.device_selector
    if selector is None:
        return False
    wanted = (selector.driver, selector.pool, selector.device)
    return all(want is None or want == have for want, have in zip(wanted, device, strict=True))


def tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    """For eviction the effect must be named: an empty one, which tolerates everything at allocation, does not count."""
    if toleration.effect != NO_EXECUTE or (toleration.key and toleration.key != taint.key):
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


def device_eviction(result: DeviceRequestAllocationResult, taints: Iterable[DeviceTaint]) -> float | None:
    """Seconds since the epoch at which one allocated device ends its consumers; None when its taints do not."""
    times = [_eviction(result.tolerations, taint) for taint in taints if taint.effect == NO_EXECUTE]
    return min((time for time in times if time is not None), default=None)


def _eviction(tolerations: Sequence[DeviceToleration], taint: DeviceTaint) -> float | None:
    seconds = []
    for toleration in tolerations:
        if tolerates(toleration, taint):
            if toleration.toleration_seconds is None:
                return None
            seconds.append(max(toleration.toleration_seconds, 0))
    added = parse_time(taint.time_added or "")
    return (added.timestamp() if added is not None else 0.0) + min(seconds, default=0)


def claim_eviction(claim: ResourceClaim, taints_of: TaintsOf) -> float | None:
    """The earliest over the devices of an allocated claim, adminAccess included; None when nothing evicts."""
    results = claim.allocation.devices.results if claim.allocation is not None else ()
    times = [device_eviction(result, taints_of(result.id)) for result in results]
    return min((time for time in times if time is not None), default=None)


def pod_eviction(pod: FullPod, lookup: Lookup, taints_of: TaintsOf) -> float | None:
    """When the pod must go; None when it may stay. Claims for extended resources are not considered upstream either."""
    if not pod.spec.node_name or pod.status.phase in ("Succeeded", "Failed"):
        return None
    times = []
    for entry in pod.spec.resource_claims:
        name = entry.resource_claim_name or recorded(pod, entry.name)[1]
        claim = lookup(pod.metadata.namespace, name) if name else None
        if claim is None or not claim.reserved_for(pod.metadata.uid):
            continue
        if entry.resource_claim_template_name and not owns(pod, claim):
            continue
        times.append(claim_eviction(claim, taints_of))
    return min((time for time in times if time is not None), default=None)


def rule_condition(rule: DeviceTaintRule, pending: Mapping[str, int], evicted: int, now: str) -> dict[str, str]:
    """The EvictionInProgress condition of a rule. `pending`: namespace -> pods that still have to go."""
    waiting = sum(pending.values())
    if rule.spec.taint.effect == "None":
        status, reason, message = "False", "NoEffect", ""
    elif rule.spec.taint.effect != NO_EXECUTE:
        status, reason, message = "False", "OtherEffect", ""
    elif waiting:
        status, reason = "True", "PodsPendingEviction"
        pods = f"{waiting} pod{'s need' if waiting > 1 else ' needs'}"
        message = f"{pods} to be evicted in {len(pending)} different namespace{'s' if len(pending) > 1 else ''}."
    else:
        status, reason, message = "False", "Completed" if evicted else "NotStarted", ""
    if evicted:
        message = f"{message} {evicted} pod{'s' if evicted > 1 else ''} evicted since starting the controller.".strip()
    return {
        "type": "EvictionInProgress",
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": now,
    }


CONTROLLER = "DeviceTaintManager"


class EvictionTask(NamedTuple):
    """A pod that may have to go, or a rule (without namespace) whose condition may have to change."""

    kind: Literal["pod", "rule"]
    namespace: str
    name: str


class EvictionController:
    """`rules` is None where DeviceTaintRules are not served. `run` never returns."""

    def __init__(
        self,
        client: KubeClient,
        pods: Informer[FullPod],
        claims: Informer[ResourceClaim],
        slices: Informer[ResourceSlice],
        rules: Informer[DeviceTaintRule] | None,
        events: EventRecorder,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._pods = pods
        self._claims = claims
        self._slices = slices
        self._rules = rules
        self._events = events
        self._now = now
        self._taints: dict[DeviceID, tuple[DeviceTaint, ...]] = {}
        self._pending: dict[str, float] = {}
        self._evicted: set[str] = set()
        self._evicted_by: Counter[str] = Counter()
        self._reported: dict[str, tuple[str, str, str]] = {}
        self.queue = RateLimitedQueue("eviction", self._sync)
        slices.subscribe(self._slice_changed)
        claims.subscribe(self._claim_changed)
        pods.subscribe(self._pod_changed)
        if rules is not None:
            rules.subscribe(self._rule_changed)

    async def run(self) -> None:
        """Run until cancelled."""
        informers = (self._pods, self._claims, self._slices, *((self._rules,) if self._rules is not None else ()))
        await asyncio.gather(*(informer.synced.wait() for informer in informers))
        await self.queue.run()

    @property
    def pending(self) -> dict[str, float]:
        """Pods that will have to go: UID -> seconds since the epoch."""
        return dict(self._pending)

    # --- what to look at

    def _slice_changed(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        part = new or old
        if part is None or not any(_tainted(candidate) for candidate in (old, new)):
            return
        pool = (part.spec.driver, part.spec.pool.name)
        self._forget(pool)
        self._taints |= slice_taints(self._slices.find("pool", "/".join(pool)))
        self._look_at_all()

    def _forget(self, pool: tuple[str, str]) -> None:
        for device in [device for device in self._taints if device[:2] == pool]:
            del self._taints[device]

    def _rule_changed(self, old: DeviceTaintRule | None, new: DeviceTaintRule | None) -> None:
        if old is None or new is None or old.spec != new.spec:
            self._look_at_all()
            if new is not None:
                self.queue.add(_rule_task(new))

    def _claim_changed(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        claim = new or old
        if claim is not None and (self._taints or self._active_rules()):
            for pod in self._pods.find("claim", claim.metadata.key):
                self.queue.add(_pod_task(pod))

    def _pod_changed(self, old: FullPod | None, new: FullPod | None) -> None:
        if new is not None and new.spec.resource_claims and (self._taints or self._active_rules()):
            self.queue.add(_pod_task(new))
        elif new is None and old is not None and self._pending.pop(old.metadata.uid, None) is not None:
            self._look_at_rules()

    def _look_at_all(self) -> None:
        for claim in self._claims.objects.values():
            if claim.status.reserved_for:
                for pod in self._pods.find("claim", claim.metadata.key):
                    self.queue.add(_pod_task(pod))

    def _active_rules(self) -> list[DeviceTaintRule]:
        rules = self._rules.objects.values() if self._rules is not None else ()
        return [rule for rule in rules if rule.spec.taint.effect == NO_EXECUTE]

    def _taints_of(self, device: DeviceID) -> list[DeviceTaint]:
        of_rules = [rule.spec.taint for rule in self._active_rules() if rule_selects(rule, device)]
        return [*self._taints.get(device, ()), *of_rules]

    # --- what to do

    async def _sync(self, task: EvictionTask) -> None:
        if task.kind == "rule":
            await self._report(task.name)
            return
        pod = self._pods.get(task.namespace, task.name)
        if pod is None or pod.metadata.deletion_timestamp is not None or pod.metadata.uid in self._evicted:
            return
        due = pod_eviction(pod, self._claims.get, self._taints_of)
        if due is None:
            if self._pending.pop(pod.metadata.uid, None) is not None:
                self._record(pod, "Cancelling deletion")
                self._look_at_rules()
            return
        left = due - self._now().timestamp()
        if left > 0:
            self._pending[pod.metadata.uid] = due
            self.queue.add_after(task, left)
        else:
            await self._evict(pod)
        self._look_at_rules()

    async def _evict(self, pod: FullPod) -> None:
        """Say why, then delete: only this very pod, and only once."""
        self._record(pod, "Marking for deletion")
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByDeviceTaintManager",
            "message": "Device Taint manager: deleting due to NoExecute taint",
            "lastTransitionTime": self._stamp(),
        }
        resource = self._pods.resource
        uid = {"uid": pod.metadata.uid}
        marked = encode({"metadata": uid, "status": {"conditions": [condition]}})
        try:
            path = resource.path(pod.metadata.namespace, pod.metadata.name, "status")
            await self._client.patch(path, marked, STRATEGIC_PATCH)
            path = resource.path(pod.metadata.namespace, pod.metadata.name)
            await self._client.delete(path, msgspec.json.encode({"preconditions": uid}))
        except (NotFoundError, ConflictError):
            return  # gone, or another pod of that name
        finally:
            self._pending.pop(pod.metadata.uid, None)
        self._evicted.add(pod.metadata.uid)
        for rule in self._responsible(pod):
            self._evicted_by[rule.metadata.uid] += 1

    def _responsible(self, pod: FullPod) -> list[DeviceTaintRule]:
        claims = [claim for claim in self._claims.objects.values() if claim.reserved_for(pod.metadata.uid)]
        devices = [result.id for claim in claims if claim.allocation for result in claim.allocation.devices.results]
        return [rule for rule in self._active_rules() if any(rule_selects(rule, device) for device in devices)]

    def _look_at_rules(self) -> None:
        for rule in self._active_rules():
            self.queue.add(_rule_task(rule))

    async def _report(self, name: str) -> None:
        """Bring the condition of a rule up to date."""
        rule = self._rules.objects.get(name) if self._rules is not None else None
        if rule is None or self._rules is None:
            return
        pending: Counter[str] = Counter()
        for pod in self._pods.objects.values():
            if pod.metadata.uid in self._pending and rule in self._responsible(pod):
                pending[pod.metadata.namespace] += 1
        condition = rule_condition(rule, pending, self._evicted_by[rule.metadata.uid], self._stamp())
        reported = (condition["status"], condition["reason"], condition["message"])
        if self._reported.get(rule.metadata.uid) == reported:
            return
        body = encode({"metadata": {"uid": rule.metadata.uid}, "status": {"conditions": [condition]}})
        try:
            await self._client.patch(self._rules.resource.path(name=name, subresource="status"), body)
        except NotFoundError:
            return
        self._reported[rule.metadata.uid] = reported

    def _record(self, pod: FullPod, note: str) -> None:
        where = ObjectReference("Pod", pod.metadata.name, pod.metadata.namespace, pod.metadata.uid, "v1")
        self._events.record(Event(where, "DeviceTaintManagerEviction", "Evict", note))

    def _stamp(self) -> str:
        return format_time(self._now())


def _pod_task(pod: FullPod) -> EvictionTask:
    return EvictionTask("pod", pod.metadata.namespace, pod.metadata.name)


def _rule_task(rule: DeviceTaintRule) -> EvictionTask:
    return EvictionTask("rule", "", rule.metadata.name)


def _tainted(part: ResourceSlice | None) -> bool:
    return part is not None and any(
        taint.effect == NO_EXECUTE for device in part.spec.devices for taint in device.taints
    )
