"""The pods that must not suffer: one after the other is made, bound, and deleted.

`Stream` promises: every pod it made is either bound or, after `patience` seconds, lost; it stops with none left.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

import msgspec

from dra_extender.api.errors import ApiError, NotFoundError
from dra_extender.kube.client import KubeClient
from tools.hostile.things import API, DRIVER, ORDINARY, SCHEDULER, Body, wish

PATIENCE: Final = 90.0
"""Seconds after which a pod that is not bound is lost."""
_PERIOD: Final = 0.4
_LOOK: Final = 0.2
_RUNS: Final = 0.5
"""Seconds between a pod's being bound and its end."""
_MOST: Final = 16
"""Pods that wait at the same time: more than there are devices would wait for each other."""
_TEMPLATE: Final = "ordinary"
_PODS: Final = f"/api/v1/namespaces/{ORDINARY}/pods"
_SELECTOR: Final = f"device.capacity['{DRIVER}'].memory.compareTo(quantity('10Gi')) >= 0"


def template() -> Body:
    """What ordinary pods claim: a device with some memory."""
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": wish(_SELECTOR)}]}}
    return {
        "apiVersion": API,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": _TEMPLATE, "namespace": ORDINARY},
        "spec": {"spec": spec},
    }


def pod(name: str, scheduler: str = SCHEDULER) -> Body:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": ORDINARY},
        "spec": {
            "schedulerName": scheduler,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "none"}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": _TEMPLATE}],
        },
    }


class Stream:
    """`run` it, then `finish`. `waited`: seconds until each pod that was bound was bound; `lost`: the others."""

    def __init__(self, client: KubeClient, *, patience: float = PATIENCE) -> None:
        self.waited: dict[str, float] = {}
        self.lost: list[str] = []
        self.made = 0
        self._client, self._patience = client, patience
        self._waiting: dict[str, float] = {}
        self._bound: dict[str, float] = {}
        self._clock = asyncio.get_running_loop().time

    async def run(self) -> None:
        """Make pods until cancelled."""
        due = self._clock()
        while True:
            if self._clock() >= due and len(self._waiting) < _MOST:
                due = self._clock() + _PERIOD
                await self._make()
            await self._look()
            await asyncio.sleep(_LOOK)

    async def finish(self) -> None:
        """Make no more, and wait until each is bound or lost, and all are gone."""
        while self._waiting or self._bound:
            await self._look()
            await asyncio.sleep(_LOOK)

    async def _make(self) -> None:
        name = f"ordinary-{self.made}"
        self.made += 1
        with contextlib.suppress(ApiError):  # the API server is busy with something hostile: next time
            await self._client.create(_PODS, msgspec.json.encode(pod(name)))
            self._waiting[name] = self._clock()

    async def _look(self) -> None:
        with contextlib.suppress(ApiError):
            listed: list[dict[str, Any]] = msgspec.json.decode(await self._client.get(_PODS))["items"]
            bound = {item["metadata"]["name"] for item in listed if item["spec"].get("nodeName")}
            now = self._clock()
            for name, since in list(self._waiting.items()):
                if name in bound:
                    self.waited[name] = now - since
                    self._bound[name] = now
                    del self._waiting[name]
                elif now - since > self._patience:
                    self.lost.append(name)
                    del self._waiting[name]
                    await self._delete(name)
            for name, since in list(self._bound.items()):
                if now - since > _RUNS:
                    del self._bound[name]
                    await self._delete(name)

    async def _delete(self, name: str) -> None:
        with contextlib.suppress(NotFoundError):
            await self._client.delete(f"{_PODS}/{name}", b'{"gracePeriodSeconds":0}')
