"""Who may do what, and what the audit remembers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import aiohttp
import pytest

from embedded_cluster.apiserver import Access, Attributes, EmbeddedAPIServer
from embedded_cluster.apiserver.access import DEFAULT_USER
from tests.support.embedded.client import CLAIMS, PODS, Client, claim

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def only_reading(asked: Attributes) -> bool:
    return (
        asked.user == DEFAULT_USER or asked.verb in ("get", "list", "watch") or asked.target == "resourceclaims/status"
    )


@pytest.fixture
async def limited() -> AsyncIterator[Client]:
    """A client whose user may read everything and write the status of claims."""
    access = Access(only_reading, {"secret": "reader"})
    async with EmbeddedAPIServer(access=access) as server:
        server.store.create(claim("c"))
        async with aiohttp.ClientSession(headers={"Authorization": "Bearer secret"}) as session:
            yield Client(server, session)


async def test_without_a_policy_everything_is_allowed(client: Client) -> None:
    review = {"spec": {"resourceAttributes": {"verb": "delete", "resource": "nodes"}}}
    assert (await client.post(REVIEWS, review))["status"] == {"allowed": True}


@pytest.mark.parametrize(
    ("verb", "subresource", "allowed"), [("list", "", True), ("create", "", False), ("update", "status", True)]
)
async def test_a_review_says_what_the_policy_says(limited: Client, verb: str, subresource: str, allowed: bool) -> None:
    limited.server.access.policy = lambda asked: asked.resource == REVIEWS.rpartition("/")[2] or only_reading(asked)
    attributes = {"verb": verb, "group": "resource.k8s.io", "resource": "resourceclaims", "subresource": subresource}
    answer = await limited.post(REVIEWS, {"spec": {"resourceAttributes": attributes}})
    assert answer["status"]["allowed"] == allowed


async def test_the_audit_tells_who_did_what(client: Client) -> None:
    await client.post(CLAIMS, claim("c"))
    await client.patch(f"{CLAIMS}/c/status", {"status": {}})
    await client.request("GET", f"{PODS}/none")
    assert [(s.verb, s.resource, s.name, s.user_agent, s.code) for s in client.server.audit] == [
        ("create", "resourceclaims", "", "test/1", 201),
        ("patch", "resourceclaims/status", "c", "test/1", 200),
        ("get", "pods", "none", "test/1", 404),
    ]
    assert [served.code for served in client.server.audit.find("get", "pods", "none")] == [404]
    client.server.audit.clear()
    assert (len(client.server.audit), client.server.audit.total) == (0, 3)


# --- tokens


TOKENS = "/api/v1/namespaces/default/serviceaccounts/prometheus/token"
TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCOUNT = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "prometheus", "namespace": "default"}}


async def owner(client: Client, token: str) -> str:
    """The name of the user who has the token; empty when nobody has."""
    found: str = (await client.post(TOKEN_REVIEWS, {"spec": {"token": token}}))["status"]["user"].get("username", "")
    return found


async def issued(client: Client, **spec: object) -> str:
    token: str = (await client.post(TOKENS, {"spec": spec}))["status"]["token"]
    return token


async def test_a_token_is_that_of_its_account_for_requests_too(client: Client) -> None:
    client.server.store.create(ACCOUNT)
    name = "system:serviceaccount:default:prometheus"
    token = await issued(client)
    assert await owner(client, token) == name
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as session:
        await Client(client.server, session).get(PODS)
    assert list(client.server.audit)[-1].user == name


async def test_a_token_ends_with_its_time_and_with_its_account() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    async with EmbeddedAPIServer(clock=lambda: now) as server, aiohttp.ClientSession() as session:
        client = Client(server, session)
        server.store.create(ACCOUNT)
        short, long = await issued(client, expirationSeconds=600), await issued(client, expirationSeconds=7200)
        now += timedelta(seconds=600)
        assert [bool(await owner(client, token)) for token in (short, long)] == [False, True]
        server.store.delete("serviceaccounts", "prometheus", "default")
        server.store.create(ACCOUNT)
        assert not await owner(client, long), "another account of the same name"


async def test_tokens_that_the_test_names_are_known_to_reviews(limited: Client) -> None:
    limited.server.access.policy = lambda _asked: True
    assert (await owner(limited, "secret"), await owner(limited, "other")) == ("reader", "")
