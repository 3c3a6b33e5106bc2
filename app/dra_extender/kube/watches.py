"""The watches of all kinds that decisions read, and whether they work.

`Watches` promises: `apply` gets the events of every kind, one at a time; `on_synced` is called once, after the first
list of every kind; a kind whose watch fails does not stop the others.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence

from dra_extender.api.events import ClusterEvent
from dra_extender.kube.client import KubeClient
from dra_extender.kube.knownobjects import Continuity, SetAsideReason
from dra_extender.kube.reflector import Progress, Reflector
from dra_extender.kube.resources import PODS, Served, watched_kinds

UNFINISHED_PODS = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
"""As kube-scheduler's informer: a pod that finishes counts as removed."""


class Watches:
    """A reflector per kind. `run` never returns; cancel it to stop. It raises SetBackError, in a group, only."""

    def __init__(
        self,
        client: KubeClient,
        served: Served,
        apply: Callable[[ClusterEvent], object],
        *,
        budgets: bool = False,
        on_synced: Callable[[], object] = lambda: None,
        continuity: Continuity | None = None,
        set_aside: SetAsideReason = lambda key: "",
    ) -> None:
        """`budgets`: watch PodDisruptionBudgets, too. `set_aside`: see `KnownObjects`."""
        self._on_synced = on_synced
        self._synced = False
        self._reflectors = tuple(
            Reflector(
                client,
                resource,
                apply,
                on_synced=self._one_synced,
                selector=UNFINISHED_PODS if resource is PODS else None,
                continuity=continuity,
                set_aside=set_aside,
            )
            for resource in watched_kinds(served, budgets=budgets)
        )

    @property
    def synced(self) -> bool:
        """True after the first list of every kind."""
        return self._synced

    def progress(self) -> Sequence[Progress]:
        return [reflector.progress() for reflector in self._reflectors]

    def longest_gap(self) -> float:
        """The largest `behind` of all kinds; infinite before the first list of every kind."""
        if not self._synced:
            return math.inf
        return max(reflector.behind for reflector in self._reflectors)

    @property
    def not_found(self) -> bool:
        """True when the API server does not serve a kind: its version may have been withdrawn."""
        return any(reflector.not_found for reflector in self._reflectors)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors:
                group.create_task(reflector.run(), name=f"watch {reflector.resource.plural}")

    def _one_synced(self) -> None:
        if not self._synced and all(reflector.synced for reflector in self._reflectors):
            self._synced = True
            self._on_synced()
