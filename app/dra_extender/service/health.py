"""What the service says about itself to probes and to `/version`.

Promises: live as long as the work can go on, whatever the API server does; ready while this replica could decide and
calls that come to it are answered. The checks beside it name who leads, and each kind of objects that is not followed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dra_extender.http.health import Check
from dra_extender.service.gate import Gate
from dra_extender.service.status import Status


class Health:
    """The service as `dra_extender.http.health` asks it."""

    def __init__(self, status: Status, gate: Gate) -> None:
        self._status = status
        self._gate = gate

    def live(self) -> Sequence[Check]:
        failure = self._status.failure
        return [Check(name="tasks", ok=not failure, problem=failure)]

    def ready(self) -> Sequence[Check]:
        reason = self._gate.unready()
        engine = self._status.engine
        return [
            Check(name="verbs", ok=not reason, problem=reason),
            *self._leader(),
            *(engine.following.checks() if engine is not None else ()),
        ]

    def _leader(self) -> Iterator[Check]:
        """A standby is fine where calls are forwarded."""
        status, leads = self._status, self._gate.leads()
        if status.elects:
            said = "" if leads else f"{status.leader or 'nobody'} leads"
            yield Check(name="leader", ok=leads or status.forwards, problem=said)

    @property
    def kubernetes(self) -> tuple[str, str, str]:
        """Version of the API server, version of its resource API, and its URL."""
        status = self._status
        return status.served.server_version, status.served.version, status.server
