"""What people may ask about the cluster, answered from what the verbs decide on.

`Insight` promises: a standby answers as well as a leader, because it follows the cluster too; asking changes nothing.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from dra_extender.api.core import Pod
from dra_extender.http.reports import Problem
from dra_extender.scheduling.preemption.terms import PreemptionTerms
from dra_extender.scheduling.view import View
from dra_extender.service.engine import Engine
from dra_extender.service.gate import UNREACHED
from dra_extender.service.problems import problems
from dra_extender.service.status import Status


class Insight:
    """The service as `http.insight.desk` asks it: everything but `unknown` only once `unknown` is empty."""

    def __init__(self, status: Status) -> None:
        self._status = status

    def unknown(self) -> str:
        """Why nothing can be said about the cluster; empty when it can."""
        engine = self._status.engine
        if engine is None:
            return UNREACHED
        return "" if engine.watches.synced else engine.following.unavailable()

    @property
    def view(self) -> View:
        """What questions may read."""
        return self._engine.extender.view

    def terms(self, pod: Pod) -> PreemptionTerms | None:
        """On what terms the pod may preempt others; None: preemption is off."""
        return self._engine.extender.terms(pod)

    def problems(self) -> Generator[None, None, Sequence[Problem]]:
        """What is wrong, and what to do about each, in small steps."""
        engine = self._engine
        yield from engine.cluster.inventory.check_pools()
        return list(
            problems(
                engine.cluster,
                engine.extender.problems,
                engine.audit.current,
                self._status.missing_permissions,
            )
        )

    @property
    def _engine(self) -> Engine:
        if self._status.engine is None:
            raise RuntimeError(UNREACHED)
        return self._status.engine
