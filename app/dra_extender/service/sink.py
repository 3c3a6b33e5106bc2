"""What the watches bring, passed on to everybody it concerns.

`ClusterSink` promises: every change reaches the state of the cluster and scheduling, in order; the audit hears of what
the change shows as soon as the whole cluster is known. An object that cannot be read is logged, and nothing stops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog

from dra_extender.api.partial import PartialAllocation
from dra_extender.devices.cluster import Cluster
from dra_extender.scheduling.extender import Extender
from dra_extender.service.audit import AllocationAudit

log = structlog.get_logger(__name__)


class ClusterSink:
    """One per engine. `known` is true once every kind was listed."""

    def __init__(self, cluster: Cluster, extender: Extender, audit: AllocationAudit, known: Callable[[], bool]) -> None:
        self._cluster = cluster
        self._extender = extender
        self._audit = audit
        self._known = known

    def apply(self, obj: Any, *, after_gap: bool = False) -> None:
        self._extender.apply(obj, after_gap=after_gap)
        if self._known():  # before that, the audit's first look has everything
            for claim in self._extender.claims_in_use(obj):
                self._audit.notice(self._cluster.ledger.violations_of(claim))

    def remove(self, obj: Any) -> None:
        self._extender.remove(obj)

    def poison(self, kind: str, key: str, problem: str, partial: PartialAllocation | None = None) -> None:
        known = {} if partial is None else {"devices": len(partial.results), "all_devices_known": partial.complete}
        log.warning("object left out", kind=kind, name=key, problem=problem, **known)
        self._extender.poison(kind, key, problem, partial)

    def heal(self, kind: str, key: str) -> None:
        log.info("object usable again", kind=kind, name=key)
        self._extender.heal(kind, key)
