"""The addresses that the service listens on: one for the verbs, and one for insight if the settings name one.

`Listeners` promises: all of them listen or none does; a certificate is reloaded when its files change; the verbs can be
stopped before the rest, so the service can report that it is shutting down.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Final

from starlette.types import ASGIApp

from dra_extender.http.forwarding import PeerTLS
from dra_extender.http.protocol import ConnectionLimitReport, ConnectionLimits
from dra_extender.http.server import HttpServer
from dra_extender.http.tls import PeerCertificates, ServerCertificates
from dra_extender.service.settings import Settings
from dra_extender.service.validation import split_address

CERTIFICATE_PERIOD: Final = 5.0


class Listeners:
    """`url` and `insight_url` are known after `start`; they are equal unless insight has an address of its own."""

    def __init__(self, settings: Settings, report: ConnectionLimitReport) -> None:
        self.url = ""
        self.insight_url = ""
        self._settings = settings
        self._report = report
        self._certificates: list[ServerCertificates | PeerCertificates] = []
        self._servers: list[HttpServer] = []

    async def start(self, verbs: ASGIApp, insight: ASGIApp | None) -> None:
        """Serve `verbs`, over TLS if there is a certificate; and `insight`, over TLS if its clients send tokens. Raises
        OSError, and ssl.SSLError when the certificate cannot be used.
        """
        settings = self._settings
        try:
            self._listen(verbs, settings.listen, self._tls(settings.tls_client_ca))
            self.url = self.insight_url = self._servers[0].url
            if insight is not None:
                self._listen(insight, settings.insight_listen, self._tls() if settings.insight_authorization else None)
                self.insight_url = self._servers[1].url
            for server in self._servers:
                await server.start()
        except BaseException:
            for server in self._servers:
                await server.stop(0)
            raise

    @property
    def port(self) -> int:
        """The port of the verbs, after `start`."""
        return self._servers[0].port

    def peer(self) -> PeerTLS:
        """TLS to other replicas: this one shows its server certificate and trusts the authorities of its clients."""
        settings = self._settings
        if not (settings.tls_cert and settings.tls_key):
            return PeerTLS(lambda: None)
        certificates = PeerCertificates(settings.tls_cert, settings.tls_key, settings.tls_client_ca)
        self._certificates.append(certificates)
        return PeerTLS(lambda: certificates.newest, settings.peer_name)

    async def stop_verbs(self, seconds: float) -> None:
        """Accept no more calls of the verbs. Running ones may take this long."""
        for server in self._servers[:1]:
            await server.stop(seconds)

    async def stop(self, seconds: float) -> None:
        """Stop everything else. Running requests may take this long."""
        for server in self._servers[1:]:
            await server.stop(seconds)

    async def kill(self) -> None:
        """End at once, as a crash would: running requests get no response."""
        for server in self._servers:
            await server.kill()

    async def renew_certificate(self) -> None:
        """Reload changed certificates until cancelled. Returns when there are none."""
        while self._certificates:
            await asyncio.sleep(CERTIFICATE_PERIOD)
            for certificates in self._certificates:
                certificates.check()

    def _tls(self, client_ca: Path | None = None) -> ssl.SSLContext | None:
        """TLS of a listener; with `client_ca` clients must show a certificate. None without a server certificate."""
        settings = self._settings
        if not (settings.tls_cert and settings.tls_key):
            return None
        certificates = ServerCertificates(settings.tls_cert, settings.tls_key, client_ca)
        self._certificates.append(certificates)
        return certificates.context

    def _listen(self, app: ASGIApp, address: str, tls: ssl.SSLContext | None) -> None:
        host, port = split_address(address)
        limits = ConnectionLimits(
            request_seconds=self._settings.request_timeout,
            idle_seconds=self._settings.keep_alive,
            connections=self._settings.max_connections,
        )
        self._servers.append(HttpServer(app, host, port, tls=tls, limits=limits, report=self._report))
