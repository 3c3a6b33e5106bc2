"""The devices of a chaotic world, how they change, and what is true of them whatever an allocator thinks.

n1 and n2 have three devices each, n3 partitions of one device (counters) and a device that is shared (capacity).
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from dra_extender.api.core import Node, Pod
from dra_extender.api.decoding import convert
from dra_extender.api.resource import AllocatedDeviceStatus, DeviceClass, DeviceID, ResourceClaim, ResourceSlice
from tests.support.simulation.api import Api, claim_names
from tests.support.simulation.objects import DRIVER, Json, KubernetesObject, make_class, make_node, make_slice
from tests.support.simulation.world import World

GPU = "example.com/gpu"
NODES = ("n1", "n2", "n3")
FRESH_SECONDS = 110.0
"""A decision may be so old when it is stored: half a minute without a watch, a bind, a write that arrives late."""
PARTS = {"whole": 3, "part-1": 1, "part-2": 1, "part-3": 1}
UNITS = 3
MEMORY = 2
ONLY_NEW = f'device.attributes["{DRIVER}"].model == "new"'
BROKEN = "device.((("


class Hardware:
    """Nodes, slices and classes: changed by `change` and `lose`, put in order by `restore`; `report` is what the driver
    says.
    """

    def __init__(self, world: World, dice: random.Random) -> None:
        self.world = world
        self.counts: Counter[str] = Counter()
        """How often what has changed, in words."""
        self._dice = dice
        self._generations: dict[str, int] = {}
        self._lost: set[str] = set()
        self._conditions = dice.random() < 0.4
        self._past: list[tuple[float, list[Any], list[Any]]] = []
        """(time, classes, slices) that were readable until then."""
        world.add(make_class(resource=GPU))
        for node in NODES:
            self._arrive(node)

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

    # --- slices and classes -----------------------------------------------------------------------------------------

    def change(self) -> None:
        """Something that drivers or administrators do to slices or the class."""
        what = self._dice.choices(list(_CHANGES), list(_CHANGES.values()))[0]
        self.counts[what] += 1
        self._note()
        match what:
            case "devices changed":
                self._publish(self._a_node(), self._some_devices())
            case "pool half published":
                self._publish_in_two(self._a_node(), self._some_devices())
            case "pool with a device twice":
                self._publish_in_two(self._a_node(), self._some_devices(), twice=True)
            case "slice unreadable":
                self._spoil(ResourceSlice)
            case "class unreadable":
                self._spoil(DeviceClass)
            case "class gone":
                self.world.api.drop(make_class())
            case "class broken":
                self._classify(BROKEN)
            case _:
                self._classify(self._dice.choice(["", ONLY_NEW]))

    def _a_node(self) -> str:
        return self._dice.choice(["n1", "n2"])

    def _some_devices(self) -> list[str]:
        return [name for name in "abc" if self._dice.random() < 0.8]

    def _spoil(self, kind: type[KubernetesObject]) -> None:
        """Write an object that cannot be decoded, and mend it later."""
        api = self.world.api
        if not (objects := api.all(kind)):
            return
        obj = self._dice.choice(objects)
        api.spoil(obj)

        def mend() -> None:
            if (kind, obj.metadata.key) in api.unreadable:
                api.put(obj)

        asyncio.get_running_loop().call_later(self._dice.choice([0.5, 10.0, 60.0]), mend)

    def _made(self, node: str, names: Iterable[str], *, faultless: bool = False) -> list[str | Json]:
        return [self._device(node, name, tainted=not faultless and self._dice.random() < 0.1) for name in names]

    def _publish(self, node: str, names: Iterable[str], *, faultless: bool = False) -> None:
        """A new generation in one slice. What older generations had besides is taken away after that."""
        if node in self._lost:
            return
        generation = self._next_generation(node)
        self.world.add(make_slice(node, self._made(node, names, faultless=faultless), generation=generation))
        self.world.api.drop(make_slice(node, [], part="-more"))

    def _publish_in_two(self, node: str, names: list[str], *, twice: bool = False) -> None:
        """A new generation in two slices, the second one some time later."""
        if node in self._lost:
            return
        generation, cut = self._next_generation(node), self._dice.randrange(len(names) + 1)
        first, rest = names[:cut], [*names[:cut], *names[cut:]] if twice else names[cut:]
        self.world.add(make_slice(node, self._made(node, first), generation=generation, count=2, part="-more"))

        def finish() -> None:
            if self._generations[node] == generation and node not in self._lost:
                self._note()
                self.world.add(make_slice(node, self._made(node, rest), generation=generation, count=2))

        asyncio.get_running_loop().call_later(self._dice.choice([0.01, 1.0, 20.0]), finish)

    def _next_generation(self, node: str) -> int:
        self._generations[node] += 1
        return self._generations[node]

    def _classify(self, expression: str) -> None:
        spec: Json = {"extendedResourceName": GPU}
        if expression:
            spec["selectors"] = [{"cel": {"expression": expression}}]
        self.world.add(convert(DeviceClass, {"metadata": {"name": "gpu", "uid": "class-gpu"}, "spec": spec}))

    # --- nodes ------------------------------------------------------------------------------------------------------

    def lose(self) -> None:
        """A node is deleted: its slices go soon, its pods later, and it comes back, perhaps before that."""
        node = self._dice.choice(NODES)
        if node in self._lost:
            return
        self.counts["node gone"] += 1
        self._note()
        self._lost.add(node)
        api, loop = self.world.api, asyncio.get_running_loop()
        api.drop(make_node(node))
        loop.call_later(self._dice.random() * 3, self._collect, node)
        loop.call_later(5 + self._dice.random() * 40, self._evict, node)
        loop.call_later(self._dice.choice([0.5, 10.0, 60.0]), self._return, node)

    def _collect(self, node: str) -> None:
        if node in self._lost:
            self._note()
            for part in self.world.api.all(ResourceSlice):
                if part.spec.node_name == node:
                    self.world.api.drop(part)

    def _evict(self, node: str) -> None:
        if node in self._lost:
            for pod in self.world.api.all(Pod):
                if pod.spec.node_name == node:
                    self.world.api.delete_pod(pod.metadata.key)

    def _return(self, node: str) -> None:
        if node in self._lost:
            self._collect(node)
            self._lost.discard(node)
            self._arrive(node)

    def _arrive(self, node: str) -> None:
        """The driver knows nothing of earlier generations."""
        self._generations[node] = 0
        self.world.add(make_node(node))
        if node == "n3":
            self.world.add(*_partitioned())
        else:
            self._publish(node, "abc", faultless=True)

    def restore(self) -> None:
        self._note()
        for node in NODES:
            self._return(node)
        for node in ("n1", "n2"):
            self._publish(node, "abc", faultless=True)
        self.world.add(*_partitioned())
        self._classify("")

    # --- drivers ----------------------------------------------------------------------------------------------------

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
            self.world.api.set_status(claim.metadata.key, devices=told)

    # --- what is true -----------------------------------------------------------------------------------------------

    def offered(self) -> set[DeviceID]:
        """Devices that a claim of the class gpu may get now, were they free."""
        api = self.world.api
        return offered(_readable(api, DeviceClass), _readable(api, ResourceSlice))

    def _note(self) -> None:
        """What is there until now. Call it before every change."""
        now, api = asyncio.get_running_loop().time(), self.world.api
        self._past = [state for state in self._past if now - state[0] <= FRESH_SECONDS]
        self._past.append((now, _readable(api, DeviceClass), _readable(api, ResourceSlice)))

    def was_offered(self, device: DeviceID) -> bool:
        """Now or a moment ago. Classes and slices are watched apart, so either may be older than the other."""
        if device in self.offered():
            return True
        now, api = asyncio.get_running_loop().time(), self.world.api
        states = [state for state in self._past if now - state[0] <= FRESH_SECONDS]
        states.append((now, _readable(api, DeviceClass), _readable(api, ResourceSlice)))
        return any(device in offered(classes, slices) for _, classes, _ in states for _, _, slices in states)

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
        names = claim_names(pod)
        if len(names) != 1:
            return ""
        claim = self.world.api.objects.get((ResourceClaim, f"{pod.metadata.namespace}/{names[0]}"))
        if claim is None or claim.allocation is not None or len(claim.spec.devices.requests) != 1:
            return ""
        exactly = claim.spec.devices.requests[0].exactly
        if exactly is None or exactly.selectors or exactly.capacity is not None or claim.metadata.deletion_timestamp:
            return ""
        taken = {device for other in self.world.api.all(ResourceClaim) for device in all_devices(other)}
        free = Counter(pool for driver, pool, name in self.offered() if (driver, pool, name) not in taken)
        return next((node for node in ("n1", "n2") if free[node] >= exactly.count), "")

    def nodes(self) -> list[str]:
        return [node.metadata.name for node in self.world.api.all(Node)]


_CHANGES = {
    "devices changed": 45,
    "pool half published": 12,
    "pool with a device twice": 4,
    "slice unreadable": 5,
    "class unreadable": 6,
    "class gone": 8,
    "class broken": 5,
    "class changed": 15,
}


def _readable(api: Api, kind: type) -> list[Any]:
    return [obj for (known, key), obj in api.objects.items() if known is kind and (known, key) not in api.unreadable]


def offered(classes: Iterable[DeviceClass], slices: Iterable[ResourceSlice]) -> set[DeviceID]:
    """The devices that a claim of the class gpu may get, from these objects and nothing else: those of the newest
    generation of each pool, if all its slices are there and no device is there twice.
    """
    found = next((known for known in classes if known.metadata.name == "gpu"), None)
    expressions = [selector.cel.expression for selector in found.spec.selectors if selector.cel] if found else [BROKEN]
    if BROKEN in expressions:
        return set()
    pools: dict[tuple[str, str], list[ResourceSlice]] = {}
    for part in slices:
        pools.setdefault((part.spec.driver, part.spec.pool.name), []).append(part)
    ids: set[DeviceID] = set()
    for pool, parts in pools.items():
        newest = max(part.spec.pool.generation for part in parts)
        parts = [part for part in parts if part.spec.pool.generation == newest]
        devices = [device for part in parts for device in part.spec.devices]
        whole = all(part.spec.pool.resource_slice_count == len(parts) for part in parts)
        if not whole or len({device.name for device in devices}) != len(devices):
            continue
        for device in devices:
            model = device.attributes.get("model")
            if not device.taints and (not expressions or (model is not None and model.string == "new")):
                ids.add((*pool, device.name))
    return ids


def all_devices(claim: ResourceClaim) -> list[DeviceID]:
    return [result.id for result in claim.allocation.devices.results] if claim.allocation is not None else []


def _partitioned() -> list[ResourceSlice]:
    pool = {"name": "n3", "generation": 1, "resourceSliceCount": 3}
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
    specs: list[Json] = [{"sharedCounters": counters}, {"devices": devices[:2]}, {"devices": devices[2:]}]
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
