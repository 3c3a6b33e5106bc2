"""What this replica has and lacks at the moment, as settings are what it was asked to be.

Promises: the service writes `server` once, and `Supervision` alone writes the rest; the gate, insight and health read
it at every question.
"""

from __future__ import annotations

from dataclasses import dataclass

from dra_extender.kube.discovery import Served
from dra_extender.kube.lease import LeaderElection
from dra_extender.service.engine import Engine

NOTHING = Served("")


@dataclass(slots=True)
class Status:
    """One per service. Changes on the event loop only."""

    elects: bool = False
    """True when replicas elect a leader: a setting."""
    forwards: bool = False
    """True when calls that come here while another replica leads are forwarded to it: a setting."""
    server: str = ""
    """URL of the API server; empty until its credentials were read."""
    served: Served = NOTHING
    """What the API server was found to serve; empty until then."""
    engine: Engine | None = None
    """What decides; None while no API server has been found, and between two versions of its resource API."""
    election: LeaderElection | None = None
    """None without election, and until there is an engine."""
    missing_permissions: tuple[str, ...] = ()
    """What the API server denies, one sentence each."""
    failure: str = ""
    """Why the service has stopped working, which is a bug; empty while it works."""

    @property
    def leading(self) -> bool:
        """True when this replica holds the lease, or when replicas elect no leader."""
        return not self.elects if self.election is None else self.election.leading

    @property
    def leader(self) -> str:
        """The replica that leads, as far as this one knows; "" when there is none."""
        return "" if self.election is None else self.election.holder
