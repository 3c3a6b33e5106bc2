"""Where the service listens: one address for the verbs, and one of its own for insight where the settings name one.

`Listeners` promises: all of them listen or none does; the certificate is exchanged when its files change; the verbs
can be stopped before the rest, so that a service that shuts down can still say so.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

from fastapi import FastAPI

from dra_extender.http.crowds import Crowds
from dra_extender.http.forwarding import Peer
from dra_extender.http.protocol import ConnectionLimits
from dra_extender.http.server import HttpServer
from dra_extender.http.tls import Certificates, PeerCertificates
from dra_extender.service.addresses import split_address
from dra_extender.service.settings import Settings

CERTIFICATE_PERIOD = 5.0


class Listeners:
    """The URLs are known once `start` has begun to listen; `insight_url` is that of the verbs unless it is separate."""

    def __init__(self, settings: Settings, crowds: Crowds) -> None:
        self.url = ""
        self.insight_url = ""
        self._settings = settings
        self._crowds = crowds
        self._certificates: list[Certificates | PeerCertificates] = []
        self._servers: list[HttpServer] = []

    async def start(self, verbs: FastAPI, insight: FastAPI | None) -> None:
        """Serve `verbs` over TLS where there is a certificate, and `insight` where its readers show tokens, which
        nobody else may see. Raises OSError, and ssl.SSLError when the certificate cannot be used.
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
                await server.stop()
            raise

    @property
    def port(self) -> int:
        """Of the verbs, once they are served."""
        return self._servers[0].port

    def peer(self) -> Peer:
        """How this replica asks another: it shows the certificate with which it serves, and believes the authorities of
        its clients.
        """
        settings = self._settings
        if not (settings.tls_cert and settings.tls_key):
            return Peer(lambda: None)
        certificates = PeerCertificates(settings.tls_cert, settings.tls_key, settings.tls_client_ca)
        self._certificates.append(certificates)
        return Peer(lambda: certificates.newest, settings.peer_name)

    async def stop_verbs(self, seconds: float) -> None:
        """No new calls; those that run may end within these seconds."""
        for server in self._servers[:1]:
            await server.stop(seconds)

    async def stop(self, seconds: float) -> None:
        """Everything else: questions that run may end within these seconds."""
        for server in self._servers[1:]:
            await server.stop(seconds)

    async def kill(self) -> None:
        """End at once, as a crash would: running requests get no answer."""
        for server in self._servers:
            await server.kill()

    async def renew_certificate(self) -> None:
        """Look for a new certificate again and again, until cancelled. Returns when there is none to renew."""
        while self._certificates:
            await asyncio.sleep(CERTIFICATE_PERIOD)
            for certificates in self._certificates:
                certificates.check()

    def _tls(self, client_ca: Path | None = None) -> ssl.SSLContext | None:
        """For a listener whose clients show a certificate if these authorities are given; None without our own."""
        settings = self._settings
        if not (settings.tls_cert and settings.tls_key):
            return None
        certificates = Certificates(settings.tls_cert, settings.tls_key, client_ca)
        self._certificates.append(certificates)
        return certificates.context

    def _listen(self, app: FastAPI, address: str, tls: ssl.SSLContext | None) -> None:
        host, port = split_address(address)
        settings = self._settings
        limits = ConnectionLimits(
            request_seconds=settings.request_timeout,
            idle_seconds=settings.keep_alive,
            connections=settings.max_connections,
        )
        server = HttpServer(
            app,
            host,
            port,
            tls=tls,
            keep_alive=settings.keep_alive,
            grace=settings.shutdown_grace,
            limits=limits,
            crowds=self._crowds,
        )
        self._servers.append(server)
