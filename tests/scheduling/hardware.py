"""The devices of a chaotic world, how they change, and what is true of them whatever an allocator thinks.

n1 and n2 have three devices each, n3 partitions of one device (counters) and a device that is shared (capacity).
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from app.api.core import Pod
from app.api.decoding import convert
from app.api.resource import AllocatedDeviceStatus, DeviceClass, DeviceID, ResourceClaim, ResourceSlice
from tests.scheduling.api import Api
from tests.scheduling.objects import DRIVER, Json, make_class, make_node, make_slice
from tests.scheduling.world import World

GPU = "example.com/gpu"
FRESH_SECONDS = 60.0
"""A decision may be so old when it is stored: lag and gaps of the watch, a bind, a write that arrives late."""
PARTS = {"whole": 3, "part-1": 1, "part-2": 1, "part-3": 1}
UNITS = 3
MEMORY = 2


class Hardware:
    """Slices and classes, changed by `change`, put in order by `restore`; `report` is what the driver says."""

    def __init__(self, world: World, dice: random.Random) -> None:
        self.world = world
        self._dice = dice
        self._generation = 1
        self._conditions = dice.random() < 0.4
        self._offered: dict[DeviceID, float] = {}
        world.add(make_class(resource=GPU), *(make_node(name) for name in ("n1", "n2", "n3")))
        for node in ("n1", "n2"):
            world.add(make_slice(node, [self._device(node, name) for name in "abc"]))
        for part in _partitioned():
            world.add(part)

    def _device(self, node: str, name: str, *, tainted: bool = False) -> Json:
        device: Json = {"name": name, "attributes": {"model": {"string": "old" if name == "a" else "new"}}}
        if self._conditions and name == "c":
            device |= {"bindingConditions": ["ready"], "bindingFailureConditions": ["bad"]}
        if tainted:
            device["taints"] = [{"key": "broken", "effect": "NoSchedule"}]
        return device

    @staticmethod
    def request() -> Json:
        return {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}

    def share_request(self) -> Json:
        return self.request() | {"capacity": {"requests": {"memory": "1"}}}

    # --- changes ----------------------------------------------------------------------------------------------------

    def change(self) -> None:
        """Devices vanish, appear and get taints, in a new generation; or the class changes or goes."""
        self._note()
        choice = self._dice.random()
        if choice < 0.7:
            node = self._dice.choice(["n1", "n2"])
            names = [name for name in "abc" if self._dice.random() < 0.8]
            self._publish(node, [self._device(node, name, tainted=self._dice.random() < 0.1) for name in names])
        elif choice < 0.8:
            self.world.api.drop(make_class())
        else:
            self._classify(self._dice.choice(["", "new"]))

    def restore(self) -> None:
        self._note()
        for node in ("n1", "n2"):
            self._publish(node, [self._device(node, name) for name in "abc"])
        self._classify("")

    def _publish(self, node: str, devices: list[Json]) -> None:
        self._generation += 1
        self.world.add(make_slice(node, devices, generation=self._generation))

    def _classify(self, model: str) -> None:
        spec: Json = {"extendedResourceName": GPU}
        if model:
            expression = f'device.attributes["{DRIVER}"].model == "{model}"'
            spec["selectors"] = [{"cel": {"expression": expression}}]
        self.world.add(convert(DeviceClass, {"metadata": {"name": "gpu", "uid": "class-gpu"}, "spec": spec}))

    def report(self, *, well: bool = False) -> None:
        """The driver says of allocated devices that they are ready, or, unless `well`, that some are broken."""
        for claim in self.world.api.all(ResourceClaim):
            results = claim.allocation.devices.results if claim.allocation is not None else ()
            waited = [result for result in results if result.binding_conditions]
            if not waited or claim.status.devices or not (well or self._dice.random() < 0.6):
                continue
            kind = "ready" if well or self._dice.random() < 0.8 else "bad"
            entries = [
                {
                    "driver": r.driver,
                    "pool": r.pool,
                    "device": r.device,
                    "conditions": [{"type": kind, "status": "True"}],
                }
                for r in waited
            ]
            told = tuple(convert(AllocatedDeviceStatus, entry) for entry in entries)
            self.world.api.set_status(claim.metadata.name, devices=told)

    # --- what is true -----------------------------------------------------------------------------------------------

    def offered(self) -> set[DeviceID]:
        """Devices that a claim of the class gpu may get now, were they free."""
        classes = {found.metadata.name: found for found in self.world.api.all(DeviceClass)}
        if "gpu" not in classes:
            return set()
        picky = bool(classes["gpu"].spec.selectors)
        found = set()
        for part in self.world.api.all(ResourceSlice):
            for device in part.spec.devices:
                new = (attribute := device.attributes.get("model")) is not None and attribute.string == "new"
                if not device.taints and (new or not picky):
                    found.add((part.spec.driver, part.spec.pool.name, device.name))
        return found

    def _note(self) -> None:
        now = asyncio.get_running_loop().time()
        self._offered.update(dict.fromkeys(self.offered(), now))

    def was_offered(self, device: DeviceID) -> bool:
        """Now or a moment ago."""
        now = asyncio.get_running_loop().time()
        return device in self.offered() or now - self._offered.get(device, -FRESH_SECONDS - 1) <= FRESH_SECONDS

    def overdrawn(self, counts: Callable[[ResourceClaim], bool]) -> list[str]:
        """What the claims that count use more of than there is."""
        used: Counter[str] = Counter()
        parts = set()
        for claim in self.world.api.all(ResourceClaim):
            for result in claim.allocation.devices.results if claim.allocation is not None and counts(claim) else ():
                if result.device in PARTS:
                    parts.add(result.device)
                elif result.device == "multi":
                    used["memory"] += result.consumed_capacity["memory"].nano // 10**9
        used["units"] = sum(PARTS[name] for name in parts)
        limits = {"memory": MEMORY, "units": UNITS}
        return [f"{name}: {amount} used of {limits[name]}" for name, amount in used.items() if amount > limits[name]]

    def room_for(self, pod: Pod) -> str:
        """A node on which the pod's only claim, one for some devices and nothing else, certainly fits; or nothing."""
        if len(pod.spec.resource_claims) != 1:
            return ""
        claim = self.world.api.objects.get(
            (ResourceClaim, f"default/{pod.spec.resource_claims[0].resource_claim_name}")
        )
        if claim is None or claim.allocation is not None or len(claim.spec.devices.requests) != 1:
            return ""
        exactly = claim.spec.devices.requests[0].exactly
        if exactly is None or exactly.selectors or exactly.capacity is not None:
            return ""
        taken = {device for other in self.world.api.all(ResourceClaim) for device in _all_devices(other)}
        free = Counter(pool for driver, pool, name in self.offered() if (driver, pool, name) not in taken)
        return next((node for node in ("n1", "n2") if free[node] >= exactly.count), "")


class Rules:
    """What `Api` does not check by itself."""

    def __init__(self, world: World, hardware: Hardware) -> None:
        self._api: Api = world.api
        self._hardware = hardware

    def judge(self, operation: str, before: Any, after: Any) -> str:
        if isinstance(after, ResourceClaim) and operation in ("write_status", "deallocate") and before is not None:
            return self._judge_write(before, after)
        if isinstance(after, Pod) and operation == "bind":
            return self._judge_binding(after)
        return ""

    def _judge_write(self, before: ResourceClaim, after: ResourceClaim) -> str:
        name, bound = after.metadata.name, {pod.metadata.uid for pod in self._api.all(Pod) if pod.spec.node_name}
        lost = {entry.uid for entry in before.status.reserved_for} - {entry.uid for entry in after.status.reserved_for}
        if lost & bound:
            return f"{name}: reservation of bound pods removed: {lost & bound}"
        if before.allocation is not None or after.allocation is None:
            return ""
        results = after.allocation.devices.results
        asked = [request.name for request in after.spec.devices.requests]
        order = [asked.index(result.request) for result in results]
        if order != sorted(order) or len(results) > 32:
            return f"{name}: results {order}"
        stale = [result.id for result in results if not self._hardware.was_offered(result.id)]
        return f"{name}: got {stale}, which nobody offers" if stale else ""

    def _judge_binding(self, pod: Pod) -> str:
        bound = {known.metadata.uid for known in self._api.all(Pod) if known.spec.node_name}
        wrong = self._hardware.overdrawn(lambda claim: any(entry.uid in bound for entry in claim.status.reserved_for))
        for claim in self._api.all(ResourceClaim):
            if claim.reserved_for(pod.metadata.uid) and not _ready(claim):
                wrong.append(f"bound before the devices of {claim.metadata.name} were ready")
        return f"{pod.metadata.name}: {'; '.join(wrong)}" if wrong else ""


def _ready(claim: ResourceClaim) -> bool:
    told = {
        (entry.driver, entry.pool, entry.device, condition.type)
        for entry in claim.status.devices
        for condition in entry.conditions
        if condition.status == "True"
    }
    results = claim.allocation.devices.results if claim.allocation is not None else ()
    return all((*result.id, kind) in told for result in results for kind in result.binding_conditions)


def _all_devices(claim: ResourceClaim) -> list[DeviceID]:
    return [result.id for result in claim.allocation.devices.results] if claim.allocation is not None else []


def _partitioned() -> list[ResourceSlice]:
    pool = {"name": "n3", "generation": 1, "resourceSliceCount": 2}
    model = {"model": {"string": "new"}}
    devices: list[Json] = [
        {
            "name": name,
            "attributes": model,
            "consumesCounters": [{"counterSet": "card", "counters": {"units": {"value": str(units)}}}],
        }
        for name, units in PARTS.items()
    ]
    devices.append(
        {
            "name": "multi",
            "attributes": model,
            "allowMultipleAllocations": True,
            "capacity": {"memory": {"value": str(MEMORY)}},
        }
    )
    counters = [{"name": "card", "counters": {"units": {"value": str(UNITS)}}}]
    specs: list[Json] = [{"sharedCounters": counters}, {"devices": devices}]
    return [
        convert(
            ResourceSlice,
            {
                "metadata": {"name": f"slice-n3-{index}", "uid": f"uid-slice-n3-{index}"},
                "spec": {"driver": DRIVER, "pool": pool, "nodeName": "n3", **spec},
            },
        )
        for index, spec in enumerate(specs)
    ]
