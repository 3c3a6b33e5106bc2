"""Who may read the insight of a running service, asked of the API server."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import trustme

from dra_extender.service.service import Service
from embedded_cluster import RequestFault
from embedded_cluster.apiserver.access import Attributes
from tests.support.http.certificates import write_certificate
from tests.support.patience import until
from tests.support.service.world import StartService, World

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
READER = "system:serviceaccount:default:reader"
PAGES = ("/metrics", "/openapi.json", "/insight/devices", "/insight/problems")


def only_the_reader_reads(asked: Attributes) -> bool:
    return not asked.path or asked.user == READER


@pytest.fixture(autouse=True)
def roles(world: World) -> None:
    """Paths are granted to the account `reader` alone."""
    world.api.access.policy = only_the_reader_reads
    for name in ("reader", "other"):
        metadata = {"name": name, "namespace": "default"}
        world.store.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})


async def token(world: World, account: str) -> str:
    """A token of the account, as `kubectl create token` gets one."""
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{world.api.url}{ACCOUNTS}/{account}/token", json={"spec": {}}) as reply,
    ):
        issued: str = (await reply.json())["status"]["token"]
        return issued


async def status(service: Service, path: str, shown: str = "", tls: Any = True) -> int:
    headers = {"Authorization": f"Bearer {shown}"} if shown else {}
    async with (
        aiohttp.ClientSession() as session,
        session.get(service.insight_url + path, headers=headers, ssl=tls) as reply,
    ):
        return reply.status


async def test_pages_are_for_users_whom_the_api_server_knows_and_allows(
    world: World, start_service: StartService
) -> None:
    shown = {"": 401, "garbage": 401, await token(world, "other"): 403, await token(world, "reader"): 200}
    for separate in ("", "127.0.0.1:0"):
        async with start_service(insight_authorization=True, insight_listen=separate) as service:
            for page in PAGES:
                assert {each: await status(service, page, each) for each in shown} == shown
            assert [await status(service, probe) for probe in ("/livez", "/readyz")] == [200, 200]


async def test_without_the_setting_nobody_shows_a_token(world: World, service: Service) -> None:
    assert {await status(service, page) for page in PAGES} == {200}
    assert world.api.audit.find(resource="tokenreviews") == []


async def test_when_the_api_server_cannot_be_asked_probes_are_answered_and_nobody_reads(
    world: World, start_service: StartService
) -> None:
    shown = await token(world, "reader")
    async with start_service(insight_authorization=True) as service:
        world.api.faults.add(RequestFault(resource="tokenreviews", status=500))
        assert await status(service, "/metrics", shown) == 503
        assert await status(service, "/livez") == 200


async def test_a_service_that_may_not_ask_is_not_ready_and_says_so(world: World, start_service: StartService) -> None:
    world.api.access.policy = lambda asked: asked.resource != "tokenreviews"
    shown = await token(world, "reader")
    async with start_service(wait=False, insight_authorization=True) as service:
        await until(lambda: service.replica.missing)
        assert str(service.replica.missing[0]).startswith("create tokenreviews")
        assert await status(service, "/readyz") == 503
        assert await status(service, "/metrics", shown) == 503


async def test_tokens_travel_over_tls_where_there_is_a_certificate_and_probes_need_none(
    world: World, start_service: StartService, tmp_path: Path
) -> None:
    ca = trustme.CA()
    names = ("tls_cert", "tls_key", "tls_client_ca")
    files = map(str, write_certificate(tmp_path, ca, "127.0.0.1"))
    secure: dict[str, Any] = dict(zip(names, files, strict=True))
    shown = await token(world, "reader")
    async with start_service(insight_authorization=True, insight_listen="127.0.0.1:0", **secure) as service:
        assert service.insight_url.startswith("https://")
        trust = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))  # and no certificate of the client's own
        assert await status(service, "/readyz", tls=trust) == 200
        assert [await status(service, "/metrics", each, trust) for each in ("", shown)] == [401, 200]


@pytest.mark.parametrize(("path", "found"), [("/insight/whatif", 200), ("/v1/simulate", 400)])
async def test_whoever_may_get_a_question_with_a_body_may_post_it(
    world: World, start_service: StartService, path: str, found: int
) -> None:
    verbs: list[str] = []

    def noted(asked: Attributes) -> bool:
        verbs.extend([asked.verb] if asked.path else [])
        return only_the_reader_reads(asked)

    world.api.access.policy = noted
    async with start_service(insight_authorization=True) as service, aiohttp.ClientSession() as session:
        for account, want in (("reader", found), ("other", 403)):
            headers = {"Authorization": f"Bearer {await token(world, account)}"}
            async with session.post(f"{service.insight_url}{path}", json={}, headers=headers) as reply:
                assert reply.status == want
    assert verbs == ["get", "get"]
