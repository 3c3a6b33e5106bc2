"""Which clients may call the verbs."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import trustme
from structlog.testing import capture_logs

from dra_extender.http.authorization import CLIENT_NAMES, CLIENT_NOT_ALLOWED, AllowedClients, certified_names
from dra_extender.http.server import HttpServer, ServerCertificates
from tests.support.http.certificates import write_certificate
from tests.support.http.served import Served, serving

VERBS = ("/scheduler/filter", "/scheduler/prioritize", "/scheduler/preempt", "/scheduler/bind", "/advisor/prioritize")
CALL = {"Pod": {"metadata": {}, "spec": {}}, "NodeNames": ["n1"], "NodeNameToMetaVictims": {}}
BIND = {"PodName": "p", "PodNamespace": "default", "PodUID": "u", "Node": "n1"}


@pytest.mark.parametrize(
    ("certificate", "names"),
    [
        (None, set()),
        ({}, set()),
        ({"subject": ((("commonName", "s"),),)}, {"s"}),
        ({"subject": ((("organizationName", "s"),), (("commonName", "a"), ("commonName", "b")))}, {"a", "b"}),
        ({"subjectAltName": (("DNS", "s.example.com"), ("URI", "spiffe://x/s"))}, {"s.example.com", "spiffe://x/s"}),
        ({"subjectAltName": (("IP Address", "10.0.0.1"), ("email", "s@example.com"), ("DNS", "s"))}, {"s"}),
        ({"issuer": ((("commonName", "ca"),),), "subject": ()}, set()),
    ],
)
def test_a_client_is_called_by_its_common_name_dns_names_and_uris(
    certificate: dict[str, Any] | None, names: set[str]
) -> None:
    assert certified_names(certificate) == names


@pytest.mark.parametrize(
    ("allowed", "names", "refused"),
    [
        (set(), {"anybody"}, False),
        (set(), set(), False),
        ({"s"}, {"s"}, False),
        ({"s", "t"}, {"t", "more"}, False),
        ({"s"}, {"S"}, True),
        ({"s"}, {"s.example.com"}, True),
        ({"*"}, {"s"}, True),
        ({"s"}, set(), True),
    ],
)
def test_a_client_is_allowed_by_any_of_its_names_exactly(allowed: set[str], names: set[str], refused: bool) -> None:
    clients = AllowedClients(frozenset(allowed))
    assert clients.refusal({CLIENT_NAMES: frozenset(names)}) == (CLIENT_NOT_ALLOWED if refused else "")


def test_a_request_without_names_is_not_from_an_allowed_client() -> None:
    assert AllowedClients(frozenset({"s"})).refusal({}) == CLIENT_NOT_ALLOWED


def test_the_log_names_a_stranger_once_a_minute() -> None:
    now = 0.0
    clients = AllowedClients(frozenset({"s"}), clock=lambda: now)
    with capture_logs() as lines:
        for _ in range(1000):
            clients.refusal({CLIENT_NAMES: frozenset({"t"})})
        assert [(line["names"], line["allowed"]) for line in lines] == [(["t"], ["s"])]
        now = 61.0
        clients.refusal({CLIENT_NAMES: frozenset({"t"})})
        assert len(lines) == 2


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
async def server(served: Served, authority: trustme.CA, tmp_path: Path) -> AsyncIterator[HttpServer]:
    app = served.application(clients=AllowedClients(frozenset({"dra-scheduler"})))
    certificates = ServerCertificates(*write_certificate(tmp_path, authority))
    async with serving(app, tls=lambda: certificates.newest) as made:
        yield made


async def call(server: HttpServer, authority: trustme.CA, name: str, path: str) -> tuple[int, Any]:
    """Status and body of one verb, called by the client with this common name."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    authority.issue_cert("client.example.com", common_name=name).configure_cert(context)
    url = f"https://localhost:{server.port}{path}"
    body = BIND if path.endswith("/bind") else CALL
    async with aiohttp.ClientSession() as session, session.post(url, json=body, ssl=context) as reply:
        return reply.status, await reply.json()


@pytest.mark.parametrize("path", VERBS)
async def test_a_client_of_another_name_gets_403_from_every_verb_and_no_decision(
    served: Served, server: HttpServer, authority: trustme.CA, path: str
) -> None:
    served.unavailable = "not the leader"
    assert await call(server, authority, "web", path) == (403, {"detail": CLIENT_NOT_ALLOWED})
    assert served.verbs.asked == []
    verb = "advise" if path.startswith("/advisor") else path.rpartition("/")[2]
    counted = f'dra_extender_verb_requests_total{{result="forbidden",verb="{verb}"}} 1.0'
    assert counted in served.metrics.exposition().decode().splitlines()


@pytest.mark.parametrize("path", VERBS)
async def test_an_allowed_client_is_answered(
    served: Served, server: HttpServer, authority: trustme.CA, path: str
) -> None:
    assert (await call(server, authority, "dra-scheduler", path))[0] == 200
    assert len(served.verbs.asked) == 1
