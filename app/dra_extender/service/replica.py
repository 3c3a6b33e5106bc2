"""What this replica has, whether it may decide, and the verbs, probes and questions that depend on both.

`Replica` promises: `unavailable` names the first reason against a decision, in words for people; while it is empty,
`running` decides. `unready` is for kubelet: a replica that could decide is ready, even if another
replica leads, provided that calls are forwarded to the leader. A replica that is shutting down is not ready, and
answers calls until `close`; it never opens again. The process is live as long as the work can continue, whatever the
API server does.

A standby answers questions as the leader does, because it watches the cluster too. A question changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dra_extender.api.core import Pod
from dra_extender.insight.problems import Check, ClusterProblem, cluster_problems
from dra_extender.insight.shadow import ShadowReport
from dra_extender.kube.access import Permission
from dra_extender.kube.lease import LeaderElection
from dra_extender.kube.resources import Served
from dra_extender.scheduling.outcomes import Reading
from dra_extender.scheduling.preemption.terms import PreemptionTerms
from dra_extender.scheduling.turns import Turns
from dra_extender.scheduling.view import View
from dra_extender.service.engine import Engine
from dra_extender.unexpected import counts

SHUTTING_DOWN = "shutting down"
SHADOW = "shadow mode: this service decides nothing; GET /insight/shadow reports what it would have done"
BEGINS = "the record of shadow mode begins: the service copies the state of the cluster"
UNREACHED = "the API server has not been reached yet"
NOT_SERVED = Served()


@dataclass(slots=True, eq=False)
class Replica:
    """One per service. `Supervision` sets the public fields except the settings. Event loop only."""

    elects: bool = False
    """Setting: replicas elect a leader."""
    forwards: bool = False
    """Setting: calls that arrive here while another replica leads are forwarded to it."""
    served: Served = NOT_SERVED
    """What the API server serves; empty until it answers."""
    engine: Engine | None = None
    """None until the API server answers, and between two versions of its resource API."""
    election: LeaderElection | None = None
    """None without leader election, and until there is an engine."""
    missing: Sequence[Permission] = ()
    """Permissions that the API server denies."""
    set_backs: int = 0
    """How often the API server has shown an older state than before."""
    last_set_back: str = ""
    """What it has shown the last time."""
    failure: str = ""
    """Why the service stopped working, which is a bug; empty while it works."""
    leaving: bool = False
    """Shutdown has begun: not ready, and no decisions where another replica can lead instead."""
    _closed: bool = False

    def close(self) -> None:
        """Refuse all further calls."""
        self.leaving = self._closed = True

    def unavailable(self) -> str:
        """Why this replica may not decide now; empty when it may."""
        shadow = SHADOW if self.engine is not None and self.engine.strategy is not None else ""
        return SHUTTING_DOWN if self._closed else shadow or self._unfit() or self._standby()

    def unready(self) -> str:
        """Why calls should not arrive here; empty when this replica could decide and calls are answered."""
        if self.leaving:
            return SHUTTING_DOWN
        return self._unfit() or ("" if self.forwards else self._standby())

    def could_lead(self) -> bool:
        """True when this replica could lead. During shutdown it keeps the lease until it hands over."""
        return not self._unfit()

    @property
    def leading(self) -> bool:
        """True when this replica holds the lease, or without leader election."""
        return not self.elects if self.election is None else self.election.leading

    def leads(self) -> bool:
        """True when this replica decides, if it is fit."""
        return self.leading and not (self.leaving and self.elects)

    def leader(self) -> str:
        """The URL of another replica that leads; empty when no other leads, or the leader has no address."""
        return "" if self.election is None else self.election.address

    async def news(self) -> None:
        """Wait until another replica leads, or none does. Returns at once without leader election."""
        if self.election is not None:
            await self.election.news()

    def _standby(self) -> str:
        return "" if self.leads() else f"standby: {self._leader_name} leads"

    @property
    def _leader_name(self) -> str:
        return "nobody" if self.election is None else self.election.holder or "nobody"

    def _unfit(self) -> str:
        """Why this replica could not decide, even as the leader."""
        if self.failure:
            return f"failed: {self.failure}"
        if self.engine is None:
            return UNREACHED
        if required := [each for each in self.missing if not each.optional]:
            return f"permission missing: {required[0]}"
        return self.engine.watch_health.unavailable() or self.engine.warming

    @property
    def running(self) -> Engine:
        """The engine. Raises RuntimeError before the API server has answered."""
        if self.engine is None:
            raise RuntimeError(UNREACHED)
        return self.engine

    def live(self) -> Sequence[Check]:
        return [Check("tasks", not self.failure, self.failure)]

    def ready(self) -> Sequence[Check]:
        """The verbs first, then the leader, then each watched kind."""
        reason = self.unready()
        checks = [Check("verbs", not reason, reason)]
        if self.elects:  # a standby is ready if it forwards calls
            leads = self.leads()
            checks.append(Check("leader", leads or self.forwards, "" if leads else f"{self._leader_name} leads"))
        return [*checks, *(self.engine.watch_health.checks() if self.engine is not None else ())]

    def readings(self) -> Iterator[Reading]:
        """The metrics that are read at a scrape; those of the engine once there is one."""
        yield Reading("ready", float(not self.unready()))
        yield Reading("leader", float(self.leading))
        yield Reading("set_backs_total", self.set_backs)
        if self.engine is not None:
            yield from self.engine.readings()
        for place, number in counts().items():
            yield Reading("unexpected_errors_total", number, (place,))

    def unknown(self) -> str:
        """Why the present state of the cluster is not known; empty when it is. A standby knows it."""
        return UNREACHED if self.engine is None else self.engine.watch_health.unavailable()

    @property
    def view(self) -> View:
        return self.running.extender.view

    def terms(self, pod: Pod) -> PreemptionTerms | None:
        return self.running.extender.terms(pod)

    def shadow(self) -> Turns[ShadowReport] | str:
        record = self.running.shadow
        if self.running.strategy is None:
            return "no record: start the service with --mode shadow"
        began = record is not None and record.found.since
        return self._standby() or (record.report(self.running.audit.reported) if record and began else BEGINS)

    def problems(self) -> Turns[Sequence[ClusterProblem]]:
        engine = self.running
        yield from engine.cluster.inventory.check_pools()
        extender, violations = engine.extender, engine.audit.current
        missing = map(str, self.missing)
        unfinished, set_aside, set_back = extender.problems, extender.set_aside.problems, self.last_set_back
        return list(cluster_problems(engine.cluster, unfinished, violations, missing, set_back, set_aside))
