"""The server side of TLS, with certificates that may change while it runs.

`Certificates` promises: new connections use the files' newest usable content, clients must show a certificate of the
given authorities if any are given, and files that cannot be used (half written, mismatched) leave the previous ones
in force.
"""

from __future__ import annotations

import ssl
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)


class Certificates:
    """Certificate, key and, for mTLS, the authorities of clients. `context` is for the listener; call `check` often."""

    def __init__(self, certificate: Path, key: Path, client_ca: Path | None = None) -> None:
        """Raises OSError or ssl.SSLError when the files cannot be used."""
        self._certificate = certificate
        self._key = key
        self._client_ca = client_ca
        self._stamp = self._stamps()
        self._newest = self._load()
        self.context = self._load()
        # A handshake starts on the listener's context and continues on the newest one, which brings its own
        # certificate and authorities; authorities cannot be taken back from a context once loaded.
        self.context.sni_callback = self._switch

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

    def _switch(self, connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._newest

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self._certificate, self._key)
        # Tickets would let a client resume a session that today's authorities would refuse.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET
        if self._client_ca is not None:
            context.load_verify_locations(self._client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _stamps(self) -> tuple[tuple[int, int], ...]:
        files = (self._certificate, self._key, *((self._client_ca,) if self._client_ca else ()))
        return tuple((stat.st_mtime_ns, stat.st_size) for stat in (file.stat() for file in files))
