"""TLS of the listener and of calls to other replicas, with certificates that may change while in use.

Promises: new connections use the newest usable content of the files; if authorities are given, the other side must
show a certificate from them; files that cannot be used (half written, mismatched) leave the previous ones in force.
"""

from __future__ import annotations

import ssl
from abc import ABC, abstractmethod
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)


class _CertificateFiles(ABC):
    """Certificate, key, and the authorities of the other side, if given. Call `check` every few seconds."""

    def __init__(self, certificate: Path, key: Path, authorities: Path | None = None) -> None:
        """Raises OSError or ssl.SSLError when the files cannot be used."""
        self._certificate = certificate
        self._key = key
        self._authorities = authorities
        self._stamp = self._stamps()
        self.newest = self._load()
        """A context with the newest usable content."""

    @abstractmethod
    def _load(self) -> ssl.SSLContext:
        """A context with the current content of the files. Raises OSError or ssl.SSLError."""

    def check(self) -> bool:
        """Reload changed files. True when they were reloaded; unusable files are logged."""
        try:
            stamp = self._stamps()
            if stamp == self._stamp:
                return False
            self.newest = self._load()
        except (OSError, ssl.SSLError) as problem:
            log.warning("new certificate cannot be used, the old one stays in use", problem=str(problem))
            return False
        self._stamp = stamp
        log.info("certificate reloaded", file=str(self._certificate))
        return True

    def _stamps(self) -> tuple[tuple[int, int], ...]:
        files = (self._certificate, self._key, *((self._authorities,) if self._authorities else ()))
        return tuple((stat.st_mtime_ns, stat.st_size) for stat in (file.stat() for file in files))


class ServerCertificates(_CertificateFiles):
    """For a listener, which uses `context`. With authorities, clients must show a certificate."""

    def __init__(self, certificate: Path, key: Path, authorities: Path | None = None) -> None:
        """Raises OSError or ssl.SSLError when the files cannot be used."""
        super().__init__(certificate, key, authorities)
        self.context = self._load()
        # A handshake starts with the listener's context and continues with the newest one, which has its own
        # certificate and authorities: authorities cannot be removed from a context.
        self.context.sni_callback = self._switch

    def _switch(self, connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self.newest

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self._certificate, self._key)
        # A ticket would let a client resume a session that the current authorities would refuse.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET
        if self._authorities is not None:
            context.load_verify_locations(self._authorities)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


class PeerCertificates(_CertificateFiles):
    """For calls to other replicas, which use `newest` for the next connection."""

    def _load(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self._authorities)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self._certificate, self._key)
        return context
