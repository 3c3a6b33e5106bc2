"""Where the API server is found and as whom we come, from files and service accounts on disk."""

from __future__ import annotations

import asyncio
import ssl
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml
from aiohttp import web

from dra_extender.api.errors import OutcomeUnknownError, UnreachableError
from dra_extender.kube import credentials
from dra_extender.kube.client import KubeClient
from dra_extender.kube.credentials import ClientSettings, CredentialsError, load


@pytest.fixture(autouse=True)
def nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def kubeconfig(path: Path, server: str, user: dict[str, Any] | None = None, **cluster: Any) -> Path:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "one",
        "contexts": [
            {"name": "one", "context": {"cluster": "c", "user": "u"}},
            {"name": "two", "context": {"cluster": "other", "user": "u"}},
        ],
        "clusters": [
            {"name": "c", "cluster": {"server": server, **cluster}},
            {"name": "other", "cluster": {"server": "http://other:1"}},
        ],
        "users": [{"name": "u", "user": user or {}}],
    }
    path.write_text(yaml.safe_dump(config))
    return path


async def test_a_plain_address_needs_nothing_else() -> None:
    found = await load(ClientSettings(server="http://127.0.0.1:8001/"))
    assert (found.server, await found.authorization()) == ("http://127.0.0.1:8001", None)


async def test_a_token_of_a_kubeconfig_is_sent(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", "http://127.0.0.1:1", {"token": "abc"})
    found = await load(ClientSettings(kubeconfig=str(path)))
    assert (found.server, await found.authorization()) == ("http://127.0.0.1:1", "Bearer abc")


async def test_the_context_and_the_address_can_be_chosen(tmp_path: Path) -> None:
    path = str(kubeconfig(tmp_path / "config", "http://127.0.0.1:1"))
    assert (await load(ClientSettings(kubeconfig=path, context="two"))).server == "http://other:1"
    with pytest.raises(CredentialsError, match=r"config: context three does not exist; it has: one, two$"):
        await load(ClientSettings(kubeconfig=path, context="three"))
    assert (await load(ClientSettings(kubeconfig=path, server="http://127.0.0.1:2"))).server == "http://127.0.0.1:2"


async def test_the_environment_names_several_files_that_are_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = kubeconfig(tmp_path / "config", "http://127.0.0.1:1")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'missing'}:{path}")
    assert (await load(ClientSettings())).server == "http://127.0.0.1:1"


async def test_a_token_file_is_read_again_when_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    path = kubeconfig(tmp_path / "config", "http://127.0.0.1:1", {"tokenFile": str(token)})
    found = await load(ClientSettings(kubeconfig=str(path)))
    token.write_text("second\n")
    assert await found.authorization() == "Bearer first"
    monkeypatch.setattr(credentials, "REFRESH_PERIOD", -1.0)
    assert await found.authorization() == "Bearer second"


async def test_a_request_does_not_wait_for_new_credentials_longer_than_its_time(tmp_path: Path) -> None:
    """The next request goes on with the old token, and later ones with the new one: the refresh is not ended."""
    ready = asyncio.Event()

    async def refresh() -> None:
        await ready.wait()
        client.credentials._configuration.api_key["BearerToken"] = "Bearer new"

    path = kubeconfig(tmp_path / "config", "http://127.0.0.1:1", {"token": "abc"})
    async with await KubeClient.connect(ClientSettings(kubeconfig=str(path), timeout=0.01)) as client:
        client.credentials._refresh = refresh
        client.credentials._refreshed -= credentials.REFRESH_PERIOD + 1.0
        with pytest.raises(OutcomeUnknownError):
            await client.get("/")
        with pytest.raises(UnreachableError):
            await client.get("/")
        assert await client.credentials.authorization() == "Bearer abc"
        ready.set()
        await client.credentials.refresh()
        assert await client.credentials.authorization() == "Bearer new"


async def test_a_token_that_cannot_be_refreshed_stays_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    path = kubeconfig(tmp_path / "config", "http://127.0.0.1:1", {"tokenFile": str(token)})
    found = await load(ClientSettings(kubeconfig=str(path)))
    token.unlink()
    monkeypatch.setattr(credentials, "REFRESH_PERIOD", -1.0)
    assert await found.authorization() == "Bearer first"


async def test_an_exec_plugin_gives_the_token(tmp_path: Path) -> None:
    plugin = tmp_path / "plugin"
    plugin.write_text(
        '#!/bin/sh\necho \'{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",'
        '"status":{"token":"from-plugin"}}\'\n'
    )
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}}
    path = kubeconfig(tmp_path / "config", "http://127.0.0.1:1", user)
    assert await (await load(ClientSettings(kubeconfig=str(path)))).authorization() == "Bearer from-plugin"


async def test_a_pods_service_account_is_used_and_its_token_refreshed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kubernetes_asyncio.config import incluster_config

    ca, token = trustme.CA(), tmp_path / "token"
    ca.cert_pem.write_to_path(tmp_path / "ca.crt")
    token.write_text("first")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setattr(incluster_config, "TOKEN_REFRESH_PERIOD", incluster_config.datetime.timedelta(seconds=-1))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    found = await load(ClientSettings())
    assert (found.server, await found.authorization()) == ("https://10.0.0.1:443", "Bearer first")
    token.write_text("second")
    await found.refresh()
    assert await found.authorization() == "Bearer second"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "does not exist; set --kubeconfig"),
        ("{", "kubeconfig"),
        ("a: b", "kubeconfig"),
        ("current-context: x\ncontexts: []\nclusters: []\nusers: []", "Expected object with name x"),
    ],
)
async def test_a_bad_kubeconfig_is_named_with_its_problem(tmp_path: Path, content: str | None, problem: str) -> None:
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)
    with pytest.raises(CredentialsError, match=problem) as caught:
        await load(ClientSettings(kubeconfig=str(path)))
    assert str(path) in str(caught.value)


async def test_nothing_configured_at_all_is_an_error_that_says_what_to_set() -> None:
    with pytest.raises(CredentialsError, match="--kubeconfig or KUBECONFIG, or --server"):
        await load(ClientSettings())


class SecureServer:
    """An HTTPS server that wants a client certificate of its CA and answers with the client's common name."""

    def __init__(self, directory: Path) -> None:
        self.ca = trustme.CA()
        self.directory = directory
        self.ca.cert_pem.write_to_path(directory / "ca.crt")
        self.url = ""

    def issue(self, name: str) -> dict[str, Any]:
        issued = self.ca.issue_cert(common_name=name)
        issued.cert_chain_pems[0].write_to_path(self.directory / "client.crt")
        issued.private_key_pem.write_to_path(self.directory / "client.key")
        return {
            "client-certificate": str(self.directory / "client.crt"),
            "client-key": str(self.directory / "client.key"),
        }

    async def answer(self, request: web.Request) -> web.Response:
        assert request.transport is not None
        subject = request.transport.get_extra_info("peercert")["subject"]
        # A new connection for every request, so that each shows the certificate in use.
        return web.json_response(dict(pair[0] for pair in subject)["commonName"], headers={"Connection": "close"})


@pytest.fixture
async def secure(tmp_path: Path) -> AsyncIterator[SecureServer]:
    made = SecureServer(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    made.ca.issue_cert("api.example.com").configure_cert(context)
    made.ca.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    app = web.Application()
    app.router.add_get("/", made.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    made.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


async def test_client_certificates_work_and_are_read_again_when_they_change(
    secure: SecureServer, tmp_path: Path
) -> None:
    cluster = {"certificate-authority": str(tmp_path / "ca.crt"), "tls-server-name": "api.example.com"}
    path = kubeconfig(tmp_path / "config", secure.url, secure.issue("first"), **cluster)
    async with await KubeClient.connect(ClientSettings(kubeconfig=str(path))) as client:
        assert await client.get("/") == b'"first"'
        secure.issue("second")
        await client.credentials.refresh()
        assert await client.get("/") == b'"second"'


async def test_a_new_authority_is_trusted_after_it_was_written(secure: SecureServer, tmp_path: Path) -> None:
    cluster = {"certificate-authority": str(tmp_path / "server.crt"), "tls-server-name": "api.example.com"}
    trustme.CA().cert_pem.write_to_path(tmp_path / "server.crt")
    path = kubeconfig(tmp_path / "config", secure.url, secure.issue("first"), **cluster)
    async with await KubeClient.connect(ClientSettings(kubeconfig=str(path))) as client:
        with pytest.raises(UnreachableError, match="certificate"):
            await client.get("/")
        secure.ca.cert_pem.write_to_path(tmp_path / "server.crt")
        await client.credentials.refresh()
        assert await client.get("/") == b'"first"'


async def test_a_server_with_another_name_or_authority_is_not_trusted(secure: SecureServer, tmp_path: Path) -> None:
    user = secure.issue("first")
    path = kubeconfig(tmp_path / "config", secure.url, user, **{"certificate-authority": str(tmp_path / "ca.crt")})
    async with await KubeClient.connect(ClientSettings(kubeconfig=str(path))) as client:
        with pytest.raises(UnreachableError, match="certificate"):
            await client.get("/")
