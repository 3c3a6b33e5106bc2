"""All kinds of objects that are followed, as one thing with one state: synced or not, how far behind, what is wrong.

`Watches` promises: `sink` hears of every object of every kind; `on_synced` is called once, when every kind was listed;
one kind that cannot be followed does not stop the others.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from dra_extender.api.core import Pod
from dra_extender.api.meta import ObjectMeta
from dra_extender.api.partial import PartialAllocation
from dra_extender.kube.client import KubeClient
from dra_extender.kube.discovery import Served
from dra_extender.kube.mirror import Callbacks
from dra_extender.kube.reflector import Progress, Reflector
from dra_extender.kube.resources import PODS, Resource, followed

UNFINISHED_PODS = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
"""As kube-scheduler follows them: a pod that finishes counts as removed."""


class Sink(Protocol):
    """Where changes go, one at a time, on the event loop."""

    def apply(self, obj: Any, *, after_gap: bool = False) -> object:
        """A new or changed object. `after_gap`: versions of it before this one may have been missed."""

    def remove(self, obj: Any) -> object: ...

    def poison(self, kind: str, key: str, problem: str, partial: PartialAllocation | None = None) -> object:
        """An object that exists and cannot be used. `partial`: what it holds, if it is a claim."""

    def heal(self, kind: str, key: str) -> object:
        """It can be used again, or is gone."""


class Watches:
    """A reflector per kind. `run` never returns; cancel it to stop."""

    def __init__(
        self,
        client: KubeClient,
        served: Served,
        sink: Sink,
        *,
        budgets: bool = False,
        on_synced: Callable[[], object] = lambda: None,
    ) -> None:
        """`budgets`: follow PodDisruptionBudgets, too."""
        self._on_synced = on_synced
        self._synced = False
        self._reflectors = tuple(
            self._reflector(client, resource, sink) for resource in followed(served, budgets=budgets)
        )

    @property
    def synced(self) -> bool:
        """True once every kind was listed."""
        return self._synced

    def progress(self) -> Sequence[Progress]:
        return [reflector.progress() for reflector in self._reflectors]

    def longest_gap(self) -> float:
        """Seconds since the watch of the kind that is worst off was last known to work; infinite while a kind was not
        listed.
        """
        if not self._synced:
            return math.inf
        return max(reflector.behind for reflector in self._reflectors)

    @property
    def not_found(self) -> bool:
        """True when the server no longer knows some kind: its version may have been withdrawn."""
        return any(reflector.not_found for reflector in self._reflectors)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors:
                group.create_task(reflector.run(), name=f"follow {reflector.resource.plural}")

    def _reflector(self, client: KubeClient, resource: Resource[Any], sink: Sink) -> Reflector[Any]:
        kind = resource.kind
        callbacks: Callbacks[Any] = Callbacks(
            sink.apply,
            sink.remove,
            lambda name, problem: sink.poison(kind, name, problem),
            lambda name: sink.heal(kind, name),
            lambda obj: sink.apply(obj, after_gap=True),
            lambda name, problem, partial: sink.poison(kind, name, problem, partial),
        )
        pods = resource is PODS
        return Reflector(
            client,
            resource,
            callbacks,
            on_synced=self._one_synced,
            selector=UNFINISHED_PODS if pods else None,
            keep=_identity_of_pod if pods else lambda obj: obj,
        )

    def _one_synced(self) -> None:
        if not self._synced and all(reflector.synced for reflector in self._reflectors):
            self._synced = True
            self._on_synced()


def _identity_of_pod(pod: Pod) -> Pod:
    """What has to be remembered of a pod here to report its end: clusters have many pods, and others keep the rest."""
    meta = pod.metadata
    return Pod(
        metadata=ObjectMeta(
            name=meta.name, namespace=meta.namespace, uid=meta.uid, resource_version=meta.resource_version
        )
    )
