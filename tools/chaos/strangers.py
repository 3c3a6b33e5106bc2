"""Another allocator in the same cluster, like the in-tree plugin of another scheduler.

Most of the time it takes what is free in the API server at this moment, which is then its own: we yield. Sometimes it
is as late as its watch and takes what is stored as ours; that is an intrusion, noted so that it does not count as our
violation.
"""

from __future__ import annotations

import random

import msgspec

from dra_extender.api.core import Node, Pod
from dra_extender.api.decoding import convert
from dra_extender.api.resource import (
    FINALIZER,
    AllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
    ResourceSlice,
)
from tests.support.simulation.api import devices
from tests.support.simulation.objects import make_claim, make_pod
from tests.support.simulation.world import World

STRANGER = "default-scheduler"
LATE = 0.15


class Strangers:
    """`allocate` once or often; `leave` ends what intrudes."""

    def __init__(self, world: World, dice: random.Random) -> None:
        self._api = world.api
        self._dice = dice
        self._serial = 0

    def allocate(self) -> None:
        """A pod with a claim, allocated, reserved and bound."""
        holders = {device: claim for claim in self._api.all(ResourceClaim) for device in devices(claim)}
        late = self._dice.random() < LATE
        found = [device for device in self._published() if late or device not in holders]
        if not found:
            return
        driver, pool, name = found[0] if self._dice.random() < 0.7 else self._dice.choice(found)
        self._serial += 1
        short = f"f{self._serial}"
        result = {"request": "r", "driver": driver, "pool": pool, "device": name}
        allocation = convert(AllocationResult, {"devices": {"results": [result]}})
        bare = make_claim(short, pod=short)
        reserved = ResourceClaimConsumerReference(resource="pods", name=short, uid=f"uid-{short}")
        claim = msgspec.structs.replace(
            bare,
            metadata=msgspec.structs.replace(bare.metadata, finalizers=(FINALIZER,)),
            status=ResourceClaimStatus(allocation=allocation, reserved_for=(reserved,)),
        )
        for holder in [found for found in self._api.all(ResourceClaim) if (driver, pool, name) in devices(found)]:
            self._api.intrusions |= {
                (holder.metadata.uid, claim.metadata.uid),
                (claim.metadata.uid, holder.metadata.uid),
            }
        self._api.put(make_pod(short, short, schedulerName=STRANGER))
        self._api.put(claim, "stranger")
        self._api.put(make_pod(short, short, schedulerName=STRANGER, node=pool), "stranger")

    def _published(self) -> list[tuple[str, str, str]]:
        nodes = {node.name for node in self._api.all(Node)}
        return [
            (part.spec.driver, part.spec.pool.name, device.name)
            for part in self._api.all(ResourceSlice)
            for device in part.spec.devices
            if part.spec.pool.name in nodes - {"n3"}
        ]

    def leave(self) -> None:
        """Somebody deletes the pods of strangers whose devices are in two claims."""
        doubles = set(self._api.doubles())
        for pod in self._api.all(Pod):
            claim = self._api.objects.get((ResourceClaim, pod.metadata.key))
            if pod.spec.scheduler_name == STRANGER and claim is not None and devices(claim) & doubles:
                self._api.delete_pod(pod.metadata.name)
