"""Who may call the verbs, by the names in a client's certificate.

`Clients` promises: a client whose certificate has none of the allowed names hears so, and the log names it, once a
minute and no more often. Whether the certificate is genuine was settled before: TLS lets in only those of the given
authorities.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import structlog
from cachetools import TTLCache

log = structlog.get_logger(__name__)

CLIENT_NAMES = "client_names"
"""Under this key the state of a request has the names of its client (`frozenset[str]`)."""
STRANGER = "dra-extender: this client is not allowed to call the verbs: its certificate has none of the allowed names"

_REMEMBERED = 100
_SECONDS = 60.0


class Clients:
    """The clients with these names; with no names, every client."""

    def __init__(self, allowed: frozenset[str] = frozenset(), clock: Callable[[], float] = time.monotonic) -> None:
        self._allowed = allowed
        self._reported: TTLCache[frozenset[str], None] = TTLCache(_REMEMBERED, _SECONDS, timer=clock)

    def refusal(self, state: Mapping[str, Any]) -> str:
        """Why the client of a request with this state may not call the verbs; empty when it may."""
        if not self._allowed:
            return ""
        names: frozenset[str] = state.get(CLIENT_NAMES, frozenset())
        if names & self._allowed:
            return ""
        if names not in self._reported:
            self._reported[names] = None
            log.warning("a client is not allowed", names=sorted(names), allowed=sorted(self._allowed))
        return STRANGER


def certified_names(certificate: Mapping[str, Any] | None) -> frozenset[str]:
    """The common names, DNS names and URIs of a client's certificate, as ssl.SSLObject.getpeercert lays it out; none
    where the client has shown no certificate.
    """
    return frozenset(_names(certificate or {}))


def _names(certificate: Mapping[str, Any]) -> Iterator[str]:
    for relative in certificate.get("subject", ()):
        yield from (value for kind, value in relative if kind == "commonName")
    yield from (value for kind, value in certificate.get("subjectAltName", ()) if kind in ("DNS", "URI"))
