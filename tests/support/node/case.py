"""One test's part of real nodes: a namespace, a driver and a device class of its own, and what its containers print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.e2e.case import Case
from tests.e2e.ground import Ground
from tests.e2e.space import Body
from tests.support.node import image
from tests.support.node.driver import Driver
from tests.support.node.node import Node

MAIN = "main"


class NodeCase(Case):
    """Pods run, with the devices that a driver prepares. Everything of them is gone after `tear_down`."""

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground)
        self._drivers: list[Driver] = []

    def tear_down(self) -> None:
        self.ground.delete(f"/apis/apps/v1/namespaces/{self.name}/deployments")
        self.ground.delete(f"{self._path}/pods")
        try:
            self.ground.eventually(lambda: not self.ground.get(f"{self._path}/pods")["items"], "the end of pods")
        finally:
            for driver in self._drivers:
                driver.stop()
        slices = "/apis/resource.k8s.io/v1/resourceslices"
        self.ground.delete(f"{slices}?fieldSelector=spec.driver%3D{self.driver}")
        super().tear_down()

    def driver_on(self, node: Node, instance: str = "") -> Driver:
        """One more driver, or instance of it; not started, but stopped at the end."""
        made = Driver(node.place, self.driver, instance)
        self._drivers.append(made)
        return made

    def serve(self, node: Node, *devices: str | Body, counters: Sequence[Body] = (), instance: str = "") -> Driver:
        """Start a driver with these devices: a name is a device without anything else."""
        made = self.driver_on(node, instance)
        made.start(slices_of(*devices, counters=counters))
        self.until_published(len(devices))
        return made

    def published(self) -> list[Body]:
        """The devices of this test's driver, as the API server has them."""
        return [device for spec in self._slices() for device in spec.get("devices", ())]

    def generations(self) -> list[int]:
        """Those of the pools that this test's driver publishes, one for each slice."""
        return [spec["pool"]["generation"] for spec in self._slices()]

    def _slices(self) -> list[Body]:
        slices = "/apis/resource.k8s.io/v1/resourceslices"
        items = self.ground.get(f"{slices}?fieldSelector=spec.driver%3D{self.driver}")["items"]
        return [item["spec"] for item in items]

    def until_published(self, number: int) -> None:
        self.ground.eventually(lambda: len(self.published()) == number, f"{number} devices of {self.driver}")

    def container(self, claims: Sequence[str]) -> Body:
        resources = {"resources": {"claims": [{"name": claim} for claim in claims]}} if claims else {}
        return {"name": MAIN, "image": image.NAME, "imagePullPolicy": "Never", **resources}

    def pod(self, name: str, *claims: str, **more: Any) -> Body:
        """As in `Case`; it has a second to end, so that kubelet reports that it has."""
        return super().pod(name, *claims, **{"terminationGracePeriodSeconds": 1, **more})

    def events(self, reason: str) -> list[str]:
        """The messages of the events with this reason."""
        path = f"/api/v1/namespaces/{self.name}/events?fieldSelector=reason%3D{reason}"
        return [event["message"] for event in self.ground.get(path)["items"]]

    def lines(self, node: Node, pod: str) -> list[str]:
        """What its container has printed, once it has printed everything."""
        uid = self.stored_pod(pod)["metadata"]["uid"]

        def printed() -> list[str]:
            lines = node.output(self.name, pod, uid)
            return lines if "end" in lines else []

        return self.ground.eventually(printed, f"output of {pod}")

    def environment(self, node: Node, pod: str) -> dict[str, str]:
        """The variables that its container has."""
        pairs = (line.partition("=") for line in self.lines(node, pod))
        return {name: value for name, equals, value in pairs if equals}

    def devices_in(self, node: Node, pod: str, request: str = "r") -> list[str]:
        """The devices that the driver has given to the container for a request; once the pod runs."""
        self.until_runs(pod)
        return self.environment(node, pod).get(f"device_{request}", "").split()


def slices_of(*devices: str | Body, counters: Sequence[Body] = ()) -> list[Body]:
    """DriverResources; counters are a slice of their own."""
    named = [{"name": device} if isinstance(device, str) else device for device in devices]
    return [*([{"sharedCounters": list(counters)}] if counters else []), {"devices": named}]
