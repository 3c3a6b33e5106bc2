"""Both sides of TLS, with certificates that may change while they are in use.

`Certificates` (of the listener) and `PeerCertificates` (of the client of other replicas) promise: new connections use
the files' newest usable content, the other side must show a certificate of the given authorities if any are given, and
files that cannot be used (half written, mismatched) leave the previous ones in force.
"""

from __future__ import annotations

import ssl
from abc import ABC, abstractmethod
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)


class _Files(ABC):
    """Certificate, key and the authorities of the other side, if they are known. Call `check` often."""

    def __init__(self, certificate: Path, key: Path, authorities: Path | None = None) -> None:
        """Raises OSError or ssl.SSLError when the files cannot be used."""
        self._certificate = certificate
        self._key = key
        self._authorities = authorities
        self._stamp = self._stamps()
        self._newest = self._load()

    @abstractmethod
    def _load(self) -> ssl.SSLContext:
        """A context of the files as they are. Raises OSError or ssl.SSLError."""

    def check(self) -> bool:
        """Look whether the files changed and use them if they can be used. Returns whether they were exchanged."""
        try:
            stamp = self._stamps()
            if stamp == self._stamp:
                return False
            self._newest = self._load()
        except (OSError, ssl.SSLError) as problem:
            log.warning("new certificate cannot be used, the old one stays in use", problem=str(problem))
            return False
        self._stamp = stamp
        log.info("certificate reloaded", file=str(self._certificate))
        return True

    def _stamps(self) -> tuple[tuple[int, int], ...]:
        files = (self._certificate, self._key, *((self._authorities,) if self._authorities else ()))
        return tuple((stat.st_mtime_ns, stat.st_size) for stat in (file.stat() for file in files))


class Certificates(_Files):
    """Those of a listener, which takes `context`; with authorities its clients must show a certificate."""

    def __init__(self, certificate: Path, key: Path, authorities: Path | None = None) -> None:
        """Raises OSError or ssl.SSLError when the files cannot be used."""
        super().__init__(certificate, key, authorities)
        self.context = self._load()
        # A handshake starts on the listener's context and continues on the newest one, which brings its own
        # certificate and authorities; authorities cannot be taken back from a context once loaded.
        self.context.sni_callback = self._switch

    def _switch(self, connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._newest

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self._certificate, self._key)
        # Tickets would let a client resume a session that today's authorities would refuse.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET
        if self._authorities is not None:
            context.load_verify_locations(self._authorities)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


class PeerCertificates(_Files):
    """What a replica shows to another, and whom it believes; `newest` is for the next connection."""

    @property
    def newest(self) -> ssl.SSLContext:
        return self._newest

    def _load(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self._authorities)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self._certificate, self._key)
        return context
