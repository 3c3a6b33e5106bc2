"""A backlog: pods that are refused and wait while others run and change, come and go.

Each change of a bound pod, and each claim that is written, makes kube-scheduler ask again about every refused pod.
`Backlog` plays that through one client, step by step: the benchmark long and by the clock, the end-to-end test shortly
and by counts. Half of the refused pods want devices that are taken (SCARCE), half want devices that are not there yet
(LATE); pods that come and go want ones of which there are enough (PLENTY).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Self

import msgspec

from dra_extender.kube.client import STRATEGIC_PATCH, KubeClient
from dra_extender.kube.resources import RESOURCE_CLAIMS, RESOURCE_SLICES
from dra_extender.scheduling.waiting import Signals
from embedded_cluster.informer import Informer
from embedded_cluster.objects import PODS, FullPod
from tests.e2e.pacing import steadily, together

SCARCE, LATE, PLENTY = "scarce", "late", "plenty"
LONGEST = 80.0
"""Seconds after which nothing is waited for any more."""
_EACH = 4
"""Devices of PLENTY per node."""
_REQUESTS = 16
"""Under way at the same time where many objects are made."""
_EVERYBODY = "everybody"

Json = dict[str, Any]


class Backlog:
    """Enter it in a namespace where pods may be made, with a device class that takes all devices of `driver`."""

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        *,
        device_class: str,
        driver: str,
        scheduler: str,
        nodes: Sequence[str],
    ) -> None:
        self.bound: dict[str, float] = {}
        """When each pod was first seen bound, by the clock of the loop."""
        self.refused: set[str] = set()
        """Pods that kube-scheduler has found no node for, so far or for ever."""
        self._client = client
        self._namespace = namespace
        self._class = device_class
        self._driver = driver
        self._scheduler = scheduler
        self._nodes = nodes
        self._holders: list[str] = []
        self._waiting: list[str] = []
        self._slices: list[str] = []
        self._signals = Signals()
        selector = {"fieldSelector": f"metadata.namespace={namespace}"}
        self._pods: Informer[FullPod] = Informer(client, PODS, selector=selector)
        self._pods.subscribe(self._seen)

    async def __aenter__(self) -> Self:
        self._watching = asyncio.create_task(self._pods.run())
        await self._pods.synced.wait()
        for node in self._nodes:
            await self._publish(PLENTY, node, _EACH)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)
        for name in self._slices:
            await self._client.delete(RESOURCE_SLICES.path(name=name))

    # --- steps, in this order

    async def occupy(self, pods: int) -> None:
        """So many pods take all scarce devices, and run. Raises TimeoutError."""
        self._holders = [f"holder-{number}" for number in range(pods)]
        for node, share in _shares(self._nodes, pods):
            await self._publish(SCARCE, node, share)
        await self._each(self._make(name, SCARCE) for name in self._holders)
        await self._until(lambda: self.bound.keys() >= set(self._holders), "the binding of all holders")

    async def wait(self, pods: int) -> None:
        """So many pods come, and are refused. Raises TimeoutError."""
        self._waiting = [f"waiting-{number}" for number in range(pods)]
        await self._each(self._make(name, (SCARCE, LATE)[index % 2]) for index, name in enumerate(self._waiting))
        await self._until(lambda: self.refused >= set(self._waiting), "the refusal of all")

    async def change(self, count: int, rate: float) -> float:
        """Update the holders (status, label, annotation in turn) at this rate. Returns the number of updates."""
        begun = _now()
        await steadily(count, rate, self._update)
        return count / (_now() - begun)

    async def pass_by(self, count: int, rate: float) -> list[float]:
        """Pods come at this rate, and go when they are bound.

        Seconds from the reply to the creation until the binding was seen; LONGEST for one that was not.
        """
        taken: list[float] = []

        async def one(number: int) -> None:
            name = f"passing-{number}"
            await self._make(name, PLENTY)
            created = _now()
            seen = await self._signals.until(lambda: name in self.bound, [name], LONGEST)
            taken.append(max(0.0, self.bound[name] - created) if seen else LONGEST)
            await self._remove(name)

        await steadily(count, rate, one)
        return taken

    async def publish(self, pods: int) -> float:
        """Late devices come for this number of waiting pods: an event that kube-scheduler does not look at. Seconds
        until all those pods are bound. Raises TimeoutError.
        """

        async def relief() -> None:
            for node, share in _shares(self._nodes, pods):
                await self._publish(LATE, node, share)

        return await self._relieved(pods, relief)

    async def free(self, pods: int) -> float:
        """Holders go, and this number of waiting pods fits. Seconds until they are bound. Raises TimeoutError."""
        leaving, self._holders = self._holders[:pods], self._holders[pods:]
        return await self._relieved(pods, lambda: self._each(map(self._remove, leaving)))

    async def _relieved(self, pods: int, relief: Callable[[], Awaitable[None]]) -> float:
        due, begun = self.served + pods, _now()
        await relief()
        await self._until(lambda: self.served >= due, f"the binding of {pods} more pods that waited")
        return _now() - begun

    @property
    def served(self) -> int:
        """How many of the pods that waited are bound by now."""
        return sum(name in self.bound for name in self._waiting)

    # --- what they consist of

    async def _publish(self, model: str, node: str, devices: int) -> None:
        name = f"{self._namespace}-{node}-{model}-{len(self._slices)}"
        self._slices.append(name)
        listed = [{"name": f"{model}-{index}", "attributes": {"model": {"string": model}}} for index in range(devices)]
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": self._driver, "nodeName": node, "pool": pool, "devices": listed}
        await self._create(RESOURCE_SLICES.path(), name, spec)

    async def _make(self, name: str, model: str) -> None:
        """A pod with a claim of the same name."""
        selector = {"cel": {"expression": f'device.attributes["{self._driver}"].model == "{model}"'}}
        request = {"name": "r", "exactly": {"deviceClassName": self._class, "selectors": [selector]}}
        await self._create(self._claim(), name, {"devices": {"requests": [request]}})
        container = {"name": "main", "image": "none", "resources": {"claims": [{"name": "devices"}]}}
        spec = {
            "schedulerName": self._scheduler,
            "containers": [container],
            "resourceClaims": [{"name": "devices", "resourceClaimName": name}],
            "terminationGracePeriodSeconds": 0,
        }
        await self._create(self._pod(), name, spec)

    async def _create(self, path: str, name: str, spec: Json) -> None:
        await self._client.create(path, msgspec.json.encode({"metadata": {"name": name}, "spec": spec}))

    async def _remove(self, name: str) -> None:
        """The pod and its claim; the device is free at once, whether there is a claim controller or not."""
        await self._client.delete(self._pod(name), msgspec.json.encode({"gracePeriodSeconds": 0}))
        await self._client.patch(self._claim(name), msgspec.json.encode({"metadata": {"finalizers": None}}))
        await self._client.delete(self._claim(name))

    async def _update(self, number: int) -> None:
        """What kubelets and controllers do to pods that run."""
        path, beat = self._pod(self._holders[number % len(self._holders)]), str(number)
        if number % 3 == 0:
            status = {"conditions": [{"type": "example.com/beat", "status": "True", "message": beat}]}
            await self._client.patch(f"{path}/status", msgspec.json.encode({"status": status}), STRATEGIC_PATCH)
        else:
            kind = "labels" if number % 3 == 1 else "annotations"
            await self._client.patch(path, msgspec.json.encode({"metadata": {kind: {"example.com/beat": beat}}}))

    def _pod(self, name: str = "") -> str:
        return PODS.path(self._namespace, name)

    def _claim(self, name: str = "") -> str:
        return RESOURCE_CLAIMS.path(self._namespace, name)

    async def _each(self, calls: Iterable[Awaitable[None]]) -> None:
        await together(calls, _REQUESTS)

    # --- looking

    def _seen(self, old: FullPod | None, new: FullPod | None) -> None:
        if new is None:
            return
        name = new.metadata.name
        if new.spec.node_name:
            if name not in self.bound:
                self.bound[name] = _now()
        elif name not in self.refused and new.condition is not None and new.condition.status == "False":
            self.refused.add(name)
        else:
            return
        self._signals.notify(name)
        self._signals.notify(_EVERYBODY)

    async def _until(self, holds: Callable[[], bool], what: str) -> None:
        if not await self._signals.until(holds, [_EVERYBODY], LONGEST):
            raise TimeoutError(f"{what} did not happen within {LONGEST:.0f} s")


def _shares(nodes: Sequence[str], count: int) -> list[tuple[str, int]]:
    """So many devices on these nodes, as evenly as possible; nodes that get none are left out."""
    shares = [(node, (count + index) // len(nodes)) for index, node in enumerate(reversed(nodes))]
    return [(node, share) for node, share in shares if share]


def _now() -> float:
    return asyncio.get_running_loop().time()
