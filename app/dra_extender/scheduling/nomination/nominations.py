"""Nominations by preemption: devices kept for preemptors until they are bound or give up.

Promises
- In every verb, devices kept for a pod count as in use for all pods except those of higher priority. This holds for
  each device separately, also for a device that is free already while other victims are still terminating. Without
  nominations, no device is kept and no decision costs more.
- The condition `PREEMPTING` and status.nominatedNodeName are written in one request before the first victim is evicted.
  Users who may only write pods cannot write either, so the next leader relies on them.
- Both are removed when the nomination has ended. The removal is retried until it succeeds. It is written at the version
  of the pod, as is a node that is named again: a node that kube-scheduler nominated in between is left alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import structlog

from dra_extender.api.core import Pod
from dra_extender.api.errors import ApiError, ConflictError, is_passing
from dra_extender.api.groups import group_of
from dra_extender.api.meta import format_time
from dra_extender.api.resource import DeviceID, ResourceClaim
from dra_extender.devices.overlay import Planned
from dra_extender.scheduling.noderules import ResourcesInUse, Wants
from dra_extender.scheduling.ports import Ports
from dra_extender.scheduling.view import View
from dra_extender.scheduling.waiting import Backoffs

log = structlog.get_logger(__name__)

FORBIDDEN: Final = 403
PREEMPTING: Final = "dra-extender.dev/Preempting"
"""Condition of pods that preemption has nominated for status.nominatedNodeName."""


def is_preempting(pod: Pod) -> bool:
    """True when preemption has nominated the pod, whichever replica did."""
    return any(condition.type == PREEMPTING for condition in pod.status.conditions)


class Nomination(msgspec.Struct, frozen=True, kw_only=True):
    """The node on which victims are evicted for a pod, and the plans that are kept for it. A gang has one nomination,
    in the name of one of its pods.
    """

    pod: Pod
    """The pod as it was when it was nominated."""
    node: str
    nodes: Mapping[str, str] = {}
    """By UID of each pod of a gang: its node."""
    victims: tuple[str, ...]
    """UIDs of pods."""
    plans: tuple[Planned, ...]
    until: float
    """When the nomination ends at the latest, monotonic seconds."""
    claims: tuple[str, ...] = ()
    """UIDs of claims that are free once the victims are gone."""
    devices: Mapping[str, Sequence[DeviceID]] = {}
    """By UID of a victim: the devices that the pod needs of it, where known."""
    freed: float | None = None
    """Since when all victims are gone, monotonic seconds."""

    @property
    def by_pod(self) -> Mapping[str, str]:
        """By UID of each nominated pod: its node."""
        return self.nodes or {self.pod.metadata.uid: self.node}

    def is_for(self, pod: Pod) -> bool:
        """True for a nominated pod, and for every pod of its gang."""
        own = group_of(self.pod) if self.nodes else None
        return pod.metadata.uid in self.by_pod or (own is not None and own == group_of(pod))

    def suits(self, view: View, usage: ResourcesInUse) -> bool:
        """False when a rule of their nodes keeps its waiting pods away even once the victims are gone."""
        by_node, leaving = dict[str, list[Wants]](), set(self.victims)
        for uid, name in self.by_pod.items():
            if (pod := view.pods.get(uid)) is not None and not pod.spec.node_name:
                by_node.setdefault(name, []).append(Wants(pod))
                leaving.add(uid)
        nodes = ((view.cluster.nodes.get(name), wants) for name, wants in by_node.items())
        return all(node is not None and usage.suits(node, wants, leaving) for node, wants in nodes)

    def promised(self) -> Iterator[tuple[str, bool]]:
        """The claims that are promised to the pod, as (UID, True when the claim is to be deallocated first)."""
        yield from ((uid, True) for uid in self.claims)
        yield from ((claim.metadata.uid, False) for claim, _ in self.plans)


class Nominations:
    """By UID of the pod that is nominated, and by promised claim."""

    def __init__(self) -> None:
        self._by_pod: dict[str, Nomination] = {}
        self._promised: dict[tuple[str, bool], dict[str, Nomination]] = {}
        """The nominations that a claim is promised to, by UID of their first pod."""

    def put(self, nomination: Nomination) -> None:
        """Add a nomination. It replaces those of its pods."""
        uid = nomination.pod.metadata.uid
        for nominated in nomination.by_pod:
            self.drop(nominated)
        self._by_pod |= dict.fromkeys(nomination.by_pod, nomination)
        for key in nomination.promised():
            self._promised.setdefault(key, {})[uid] = nomination

    def drop(self, pod_uid: str) -> None:
        nomination = self._by_pod.get(pod_uid)
        if nomination is None:
            return
        for uid in nomination.by_pod:
            self._by_pod.pop(uid, None)
        for key in nomination.promised():
            others = self._promised.get(key, {})
            others.pop(nomination.pod.metadata.uid, None)
            if not others:
                self._promised.pop(key, None)

    def get(self, pod_uid: str) -> Nomination | None:
        return self._by_pod.get(pod_uid)

    def clear(self) -> None:
        """Remove all, when another replica has led in between."""
        self._by_pod.clear()
        self._promised.clear()

    def kept_from(self, pod: Pod) -> Sequence[Planned]:
        """The plans kept for other pods whose priority is not lower. Linear in all plans that are kept."""
        return [
            plan
            for nomination in self
            if nomination.pod.spec.priority >= pod.spec.priority and not nomination.is_for(pod)
            for plan in nomination.plans
        ]

    def promises(self, claim: ResourceClaim, pod: Pod) -> bool:
        """True when the claim will be deallocated, or allocated on the nominated node, for another pod whose priority
        is not lower. Looks only at the nominations that concern the claim.
        """
        others = self._promised.get((claim.metadata.uid, claim.allocation is not None), {}).values()
        return any(each.pod.spec.priority >= pod.spec.priority and not each.is_for(pod) for each in others)

    def __contains__(self, pod_uid: str) -> bool:
        return pod_uid in self._by_pod

    def __iter__(self) -> Iterator[Nomination]:
        return iter([each for uid, each in self._by_pod.items() if uid == each.pod.metadata.uid])

    def __len__(self) -> int:
        return len(self._by_pod)


class NominationRecords:
    """Writes nominations to the API server and removes them."""

    def __init__(self, view: View, ports: Ports) -> None:
        self._view = view
        self._ports = ports
        self._leftovers: dict[str, str] = {}
        """By UID of pods whose nomination has ended: its node."""
        self._backoffs: Backoffs[str] = Backoffs(view.clock, view.config)

    async def write(self, nomination: Nomination) -> None:
        """Write condition and nominated node to each pod that is still there. Raises ApiError."""
        condition = {
            "type": PREEMPTING,
            "status": "True",
            "reason": "PodsEvicted",
            "message": "pods of lower priority are evicted for this pod or its gang",
            "lastTransitionTime": format_time(self._view.clock.wall()),
        }
        for uid, node in nomination.by_pod.items():
            self._leftovers.pop(uid, None)
            pod = self._view.pods.get(uid)
            if pod is not None:
                await self._ports.patch_pod_status(pod, {"nominatedNodeName": node, "conditions": [condition]})

    async def name_again(self, nomination: Nomination, pod: Pod) -> None:
        """Write the nominated node again when kube-scheduler has cleared it at the end of an earlier attempt."""
        uid = pod.metadata.uid
        if pod.status.nominated_node_name or not self._backoffs.over(uid):
            return
        self._backoffs.failed(uid)
        try:
            status = {"nominatedNodeName": nomination.by_pod[uid]}
            await self._ports.patch_pod_status(pod, status, version=pod.metadata.resource_version)
        except ApiError as error:
            log.info("a nominated node was not written, will try again", pod=pod.metadata.key, error=repr(error))

    def ended(self, nomination: Nomination) -> None:
        for uid, node in nomination.by_pod.items():
            self.erase(uid, node)

    def erase(self, uid: str, node: str) -> None:
        """The nomination has ended: remove it from the pod."""
        self._backoffs.forget(uid)
        self._leftovers.setdefault(uid, node)

    def clear(self) -> None:
        """Forget what is still to be removed, when another replica has led in between and may have nominated."""
        self._leftovers.clear()

    async def work(self) -> None:
        """Remove what is still on pods."""
        for uid, node in list(self._leftovers.items()):
            pod = self._view.pods.get(uid)
            if pod is None:
                del self._leftovers[uid]
            elif self._backoffs.over(uid):
                await self._erase(pod, node)

    async def _erase(self, pod: Pod, node: str) -> None:
        uid = pod.metadata.uid
        status: dict[str, Any] = {"conditions": [{"type": PREEMPTING, "$patch": "delete"}]}
        if pod.status.nominated_node_name in ("", node):
            status["nominatedNodeName"] = None
        try:
            await self._ports.patch_pod_status(pod, status, version=pod.metadata.resource_version)
        except ApiError as error:
            if is_passing(error) or error.status == FORBIDDEN or isinstance(error, ConflictError):
                self._backoffs.failed(uid)
                return
        self._leftovers.pop(uid, None)
        self._backoffs.forget(uid)
