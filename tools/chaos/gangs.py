"""Gangs in a chaotic world, and what must hold for them.

Gangs of two to four pods, each with a claim of its own, are placed by one scheduler, which calls the replica that
leads: `pod by pod` (filter, bind, the next one), or in a `cycle` of the group as kube-scheduler does (filter for all
members in order, then all binds at once if enough have a node). Pods without a gang are still scheduled by
all replicas.

- S15 devices that a plan of a replica holds are written to no other claim by this replica: `oversee`.
- L8 when peace has lasted: a gang of which some members run, and others exist, does not wait while the devices for them
  are free; no plan is held for a gang that has no member bound: `check`.
"""

from __future__ import annotations

import random
from typing import Any, Protocol

from dra_extender.api.core import Pod
from dra_extender.api.extender import ExtenderArgs
from dra_extender.api.groups import GANG, GANG_SIZE, GroupKey, group_of
from dra_extender.api.resource import ResourceClaim
from tests.support.simulation.api import Api
from tests.support.simulation.objects import make_claim, make_pod
from tests.support.simulation.strategy import with_metadata
from tests.support.simulation.world import Service, World
from tools.chaos.hardware import Hardware
from tools.chaos.workload import Workload


class Chaotic(Protocol):
    """What gangs need of `Chaos`."""

    world: World
    services: list[Service]
    workload: Workload
    hardware: Hardware
    refused: dict[str, tuple[int, Pod]]

    async def schedule(self, service: Service, pod: Pod) -> None: ...

    def refuse(self, pod: Pod, requeued: int) -> None: ...

    def is_ready(self, service: Service) -> bool: ...

    def exists(self, pod: Pod) -> bool: ...

    def waits(self, pod: Pod) -> bool: ...

    def requeues(self) -> int: ...


class Gangs:
    """One per run. `on`: gangs arrive. `cycles`: they are placed in cycles of the group. `leader`: the replica that is
    called for them.
    """

    def __init__(self, chaos: Chaotic, seed: int) -> None:
        self._chaos = chaos
        self._api = chaos.world.api
        self._lots = random.Random(f"gangs {seed}")
        self.on = self._lots.random() < 0.5
        self.cycles = self._lots.random() < 0.5
        self.leader = 0
        self._serial = 0
        often = self._lots.choice([4.0, 12.0]) if self.on else 0.0
        self.weights = {"add gang": often, "replace member": often / 3, "new leader": often / 6}

    # --- what happens -------------------------------------------------------------------------------------------------

    def add(self) -> None:
        """The pods of a gang, most of them at once; some never exist."""
        self._serial += 1
        name, size = f"g{self._serial}", self._lots.choice([2, 2, 3, 4])
        priority = self._chaos.workload.priority(name)
        there = size if self._lots.random() < 0.9 else size - 1
        for index in range(there):
            pod, count = f"{name}-{index}", self._lots.choice([1, 1, 1, 2])
            self._api.put(make_claim(pod, count=count, pod=pod if self._lots.random() < 0.5 else ""))
            made = make_pod(pod, pod, priority=priority)
            self._api.put(with_metadata(made, annotations={GANG: name, GANG_SIZE: str(size)}))

    def replace_member(self) -> None:
        """A member is deleted and created again."""
        members = [pod for pod in self._api.all(Pod) if is_member(pod)]
        if members:
            self._chaos.workload.replace_pod(self._lots.choice(members))

    def elect(self) -> None:
        """Another replica leads, and requeues the pods that the old one has refused."""
        self.leader = self._lots.randrange(len(self._chaos.services))
        self._chaos.refused.clear()

    def _members(self, key: GroupKey | None) -> list[Pod]:
        found = [pod for pod in self._api.all(Pod) if group_of(pod) == key]
        return [pod for pod in found if not pod.metadata.deletion_timestamp and not pod.finished]

    async def schedule(self, pod: Pod) -> None:
        """One cycle for the gang of the pod; or one after the other for its pods that wait, or for this pod only."""
        chaos, service = self._chaos, self._chaos.services[self.leader]
        waiting = [each for each in self._members(group_of(pod)) if not each.spec.node_name]
        if self.cycles:
            await self._cycle(service, waiting)
            return
        for each in waiting if self._lots.random() < 0.7 else [pod]:
            if chaos.exists(each) and not chaos.waits(each):
                await chaos.schedule(service, each)
                await chaos.world.settle(self._lots.choice([0.0, 0.001, 0.01]))

    async def _cycle(self, service: Service, waiting: list[Pod]) -> None:
        chaos = self._chaos
        if not waiting or not chaos.is_ready(service):
            return
        key, requeued, nodes = group_of(waiting[0]), chaos.requeues(), chaos.hardware.nodes()
        chosen: list[tuple[Pod, str]] = []
        names = tuple(node for node in nodes if self._lots.random() < 0.98)
        failed = False
        for pod in waiting:
            answer = await service.extender.filter(ExtenderArgs(Pod=pod, NodeNames=names))
            failed = failed or bool(answer.Error)
            if answer.NodeNames:
                chosen.append((pod, self._lots.choice(answer.NodeNames)))
        size = int(waiting[0].metadata.annotations[GANG_SIZE])
        bound = sum(bool(each.spec.node_name) for each in self._members(key))
        if chosen and len(chosen) + bound >= size:
            for pod, node in chosen:
                service.spawn(service.bind(pod, node))
        elif not failed and len(names) == len(nodes):
            for pod in waiting:
                chaos.refuse(pod, requeued)

    # --- what must hold -----------------------------------------------------------------------------------------------

    def oversee(self, service: Service) -> None:
        """What the service writes into claims is compared with the plans that it has."""
        report_what_is_held(service, self._api)

    def check(self) -> list[str]:
        """What is wrong when peace has lasted."""
        wrong: list[str] = []
        keys = {group_of(pod) for pod in self._api.all(Pod) if is_member(pod)}
        for key in keys:
            members = self._members(key)
            waiting = [pod for pod in members if not pod.spec.node_name]
            size = int(members[0].metadata.annotations[GANG_SIZE]) if members else 0
            if len(waiting) == 1 < size == len(members) and (node := self._chaos.hardware.room_for(waiting[0])):
                wrong.append(f"{waiting[0].metadata.name} is the last one of {key}, and {node} has room")
            for service in self._chaos.services:
                plan = service.extender.gangs.plans.get(key) if key is not None else None
                if plan is not None and plan.places and len(waiting) == len(members):
                    wrong.append(f"a plan of {key} is held, and no member is bound")
        return wrong


def report_what_is_held(service: Service, api: Api) -> None:
    """From now on a write of the service that gives away what a plan of it holds is a violation."""
    write = service.client.write_status

    async def checked(claim: ResourceClaim, **given: Any) -> ResourceClaim:
        results = getattr(given.get("allocation"), "devices", None)
        used = {result.id for result in results.results} if results is not None else set()
        users = [service.extender.view.pods.get(each.uid) for each in given.get("reserved_for", ())]
        api.violations += held_for_others(
            service, claim, used, next((pod for pod in users if pod is not None), _NOBODY)
        )
        return await write(claim, **given)

    service.client.write_status = checked  # type: ignore[method-assign] # the same arguments


def held_for_others(service: Service, claim: ResourceClaim, used: set[tuple[str, str, str]], pod: Pod) -> list[str]:
    """Devices that go to this claim of the pod, and that a plan of the service holds for another claim without an
    allocation.
    """
    ledger, wrong = service.extender.view.ledger, []
    for planned, allocation in service.extender.gangs.plans.kept_from(pod):
        uid = planned.metadata.uid
        known = ledger.by_uid(uid)
        if uid == claim.metadata.uid or ledger.held(uid) or known is None or known.allocation is not None:
            continue
        both = used & {result.id for result in allocation.devices.results if result.share_id is None}
        wrong += [f"{claim.metadata.name} gets {device}, which is held for {planned.metadata.name}" for device in both]
    return wrong


def is_member(pod: Pod) -> bool:
    return GANG in pod.metadata.annotations


_NOBODY = make_pod("nobody")
