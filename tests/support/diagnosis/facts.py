"""A cluster as raw objects: what devices match a request, and which rules keep them from it.

It knows what `mixed` generates: string attributes, devices of one node, one counter set per pool.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dra_extender.insight.why.statements import Requested
from tests.support.diagnosis.scene import Scene

Json = dict[str, Any]
ID = tuple[str, str, str]
_GIBI = 2**30
ATTRIBUTE = re.compile(r'device\.attributes\["([^"]+)"\]\.(\w+) == "([^"]*)"$')
DRIVER = re.compile(r'device\.driver == "([^"]*)"$')


class Device(NamedTuple):
    """A device of a node as its slice publishes it."""

    id: ID
    body: Mapping[str, Any]

    def attribute(self, name: str) -> str | None:
        found = self.body.get("attributes", {}).get(name)
        return found["string"] if found is not None else None


def holds(clause: str, device: Device) -> bool | None:
    """None if the clause cannot be evaluated, because the device does not have the attribute."""
    if match := DRIVER.match(clause):
        return device.id[0] == match[1]
    match = ATTRIBUTE.match(clause)
    assert match is not None, clause
    value = device.attribute(match[2]) if device.id[0] == match[1] else None
    return None if value is None else value == match[3]


class Facts:
    """A cluster as JSON, and the pod that an answer is about."""

    def __init__(self, scene: Scene, pod: str) -> None:
        documents = scene.documents
        self.features = scene.features
        self.served = scene.config.scheduler_names
        self.objects = {(item["kind"], item["metadata"]["name"]): item for item in documents}
        self.pod = self.objects["Pod", pod]
        self.nodes = [item["metadata"]["name"] for item in documents if item["kind"] == "Node"]
        self.slices = [item["spec"] for item in documents if item["kind"] == "ResourceSlice"]
        self.claims = [item for item in documents if item["kind"] == "ResourceClaim"]
        self.results = [
            (claim["metadata"]["name"], result)
            for claim in self.claims
            for result in claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
        ]
        self.shared = {id_of(result) for _, result in self.results if result.get("shareID")}
        self.owned = {
            id_of(result) for _, result in self.results if not result.get("shareID") and not result.get("adminAccess")
        }

    def devices(self, node: str) -> list[Device]:
        """Of complete pools."""
        found = [spec for spec in self.slices if spec["nodeName"] == node]
        published = Counter((spec["driver"], spec["pool"]["name"]) for spec in found)
        return [
            Device((spec["driver"], spec["pool"]["name"], body["name"]), body)
            for spec in found
            if published[spec["driver"], spec["pool"]["name"]] == spec["pool"]["resourceSliceCount"]
            for body in spec.get("devices", ())
        ]

    def cpu_used(self, node: str) -> int:
        """By the pods on the node."""
        pods = [item["spec"] for (kind, _), item in self.objects.items() if kind == "Pod"]
        containers = [each for spec in pods if spec.get("nodeName") == node for each in spec["containers"]]
        return sum(int(each.get("resources", {}).get("requests", {}).get("cpu", "0")) for each in containers)

    # --- requests -----------------------------------------------------------------------------------------------------

    def wanted(self, requested: Requested) -> Json:
        """The request, or its alternative, of the claim."""
        if requested.claim not in {f"default/{item['metadata']['name']}" for item in self.claims}:
            return {"deviceClassName": requested.class_name, "count": requested.wanted}
        claim = self.objects["ResourceClaim", requested.claim.partition("/")[2]]
        name, _, alternative = requested.request.partition("/")
        request = next(item for item in claim["spec"]["devices"]["requests"] if item["name"] == name)
        if not alternative:
            found: Json = request["exactly"]
            return found
        return next(item for item in request["firstAvailable"] if item["name"] == alternative)

    def of_class(self, wanted: Json, node: str) -> list[Device]:
        selectors = self.objects["DeviceClass", wanted["deviceClassName"]]["spec"]["selectors"]
        return [device for device in self.devices(node) if satisfies(selectors, device)]

    def matching(self, wanted: Json, node: str) -> list[Device]:
        on = self.features.DRADeviceBindingConditions
        devices = [each for each in self.of_class(wanted, node) if on or not each.body.get("bindingConditions")]
        return [device for device in devices if satisfies(wanted.get("selectors", ()), device)]

    def failing(self, wanted: Json) -> list[Device]:
        """Devices for which a selector of the class or of the request cannot be evaluated."""
        selectors = self.objects["DeviceClass", wanted["deviceClassName"]]["spec"]["selectors"]
        every = [device for node in self.nodes for device in self.devices(node)]
        failing = [device for device in every if satisfies(selectors, device) is None]
        return failing + [
            device
            for device in every
            if satisfies(selectors, device) and satisfies(wanted.get("selectors", ()), device) is None
        ]

    def lost(self, wanted: Json, device: Device) -> set[str]:
        """The rules that keep the device from the request now."""
        admin = bool(wanted.get("adminAccess"))
        rules = {"in use"} if device.id in self.owned and not admin else set()
        tolerations, on = wanted.get("tolerations", ()), self.features.DRADeviceTaints
        if on and not all(any(_tolerates(each, taint) for each in tolerations) for taint in _taints(device)):
            rules.add("taint")
        if self.lacks_capacity(wanted, device):
            rules.add("capacity")
        if not self.features.DRAPartitionableDevices:
            rules |= {"counters"} if charges(device.body) else set()
        elif not admin and any(amount > self.counter_left(device, name) for name, amount in charges(device.body)):
            rules.add("counters")
        return rules

    def lacks_capacity(self, wanted: Json, device: Device, *, empty: bool = False) -> bool:
        """Too little capacity is left; with `empty`: too little even if no claim used the device."""
        names = wanted.get("capacity", {}).get("requests", {})
        if any(name not in device.body.get("capacity", {}) for name in names):
            return True
        total = gibi(device.body.get("capacity", {}).get("memory", {}).get("value", "0Gi"))
        return (total if empty else self.capacity_left(device)) < self.asked(wanted, device)

    def asked(self, wanted: Json, device: Device) -> int:
        """Of memory, in GiB."""
        requests = wanted.get("capacity", {}).get("requests", {})
        if "memory" in requests:
            return gibi(requests["memory"])
        policy = device.body.get("capacity", {}).get("memory", {}).get("requestPolicy", {})
        return gibi(policy["default"]) if "default" in policy else 0

    def capacity_left(self, device: Device) -> int:
        value = device.body.get("capacity", {}).get("memory", {}).get("value", "0Gi")
        used = (result.get("consumedCapacity", {}) for _, result in self.results if id_of(result) == device.id)
        return gibi(value) - sum(gibi(each["memory"]) for each in used if "memory" in each)

    def counter_left(self, device: Device, counter: str) -> int:
        specs = [s for s in self.slices if (s["driver"], s["pool"]["name"]) == device.id[:2]]
        sets = [each for spec in specs for each in spec.get("sharedCounters", ())]
        total = sum(int(each["counters"][counter]["value"]) for each in sets if counter in each["counters"])
        bodies = (body for spec in specs for body in spec.get("devices", ()))
        used = (b for b in bodies if (*device.id[:2], b["name"]) in self.owned)
        return total - sum(amount for body in used for name, amount in charges(body) if name == counter)

    def free(self, wanted: Json, node: str) -> list[Device]:
        return [device for device in self.matching(wanted, node) if not self.lost(wanted, device)]

    def enough(self, requested: Requested, node: str) -> bool:
        """Enough devices match, in use or not."""
        found = len(self.matching(self.wanted(requested), node))
        return found >= (1 if requested.all else requested.wanted)

    def through_devices(self, node: str) -> Iterator[tuple[str, Json]]:
        """The request for the extended resource of the pod, if a class provides it."""
        amounts = self.pod["spec"]["containers"][0].get("resources", {}).get("requests", {})
        for name, amount in amounts.items():
            for (kind, class_name), item in self.objects.items():
                known = kind == "DeviceClass" and item["spec"].get("extendedResourceName") == name
                if known and self.features.DRAExtendedResource:
                    yield "", {"name": "r", "exactly": {"deviceClassName": class_name, "count": int(amount)}}

    def incomplete(self, node: str) -> set[str]:
        """The names of pools of which not all slices are published."""
        found = Counter(spec["pool"]["name"] for spec in self.slices if spec["nodeName"] == node)
        counts = {spec["pool"]["name"]: spec["pool"]["resourceSliceCount"] for spec in self.slices}
        return {name for name, number in found.items() if number != counts[name]}

    def is_shared(self, device: Device) -> bool:
        return self.features.DRAConsumableCapacity and bool(device.body.get("allowMultipleAllocations"))

    def requests(self) -> Iterator[tuple[str, Json]]:
        """(claim, request) of the pod's claims that are not allocated"""
        for entry in self.pod["spec"]["resourceClaims"]:
            claim = self.objects.get(("ResourceClaim", entry.get("resourceClaimName")))
            if claim is not None and "allocation" not in claim.get("status", {}):
                for request in claim["spec"]["devices"]["requests"]:
                    yield claim["metadata"]["name"], request


def id_of(result: Json) -> ID:
    return result["driver"], result["pool"], result["device"]


def satisfies(selectors: Sequence[Json], device: Device) -> bool | None:
    """None if a selector cannot be evaluated."""
    for each in selectors:
        found = [holds(clause, device) for clause in each["cel"]["expression"].split(" && ")]
        if not all(found):
            return False if False in found else None
    return True


def _taints(device: Device) -> list[Json]:
    return [taint for taint in device.body.get("taints", ()) if taint["effect"] in ("NoSchedule", "NoExecute")]


def _tolerates(toleration: Json, taint: Json) -> bool:
    return bool(toleration["key"] == taint["key"]) and toleration.get("effect", taint["effect"]) == taint["effect"]


def charges(body: Mapping[str, Any]) -> list[tuple[str, int]]:
    found = (each["counters"] for each in body.get("consumesCounters", ()))
    return [(name, int(amount["value"])) for counters in found for name, amount in counters.items()]


def gibi(text: str) -> int:
    return int(text.removesuffix("Gi")) if text.endswith("Gi") else int(text) // _GIBI
