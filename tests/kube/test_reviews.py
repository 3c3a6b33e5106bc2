"""What is asked about users, and what counts as an answer."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web

from dra_extender.api.errors import ApiError
from dra_extender.kube.access import AccessDecision, Reviews, UserInfo
from dra_extender.kube.client import KubeClient
from tests.support.kube.scripted import ScriptedServer

TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
USER = UserInfo("jane", "u1", ("dev", "system:authenticated"), {"scopes": ("read",)})
SAID = {"username": "jane", "uid": "u1", "groups": ["dev", "system:authenticated"], "extra": {"scopes": ["read"]}}


@pytest.mark.parametrize(
    ("said", "want"),
    [
        ({"authenticated": True, "user": SAID, "audiences": ["https://kubernetes"]}, USER),
        ({"authenticated": True, "user": {"username": "jane"}}, UserInfo("jane")),
        ({"authenticated": False, "user": SAID}, None),
        ({"user": {}, "error": "[invalid bearer token, token lookup failed]"}, None),
        ({"authenticated": True, "user": {}}, None),
        ({"authenticated": True}, None),
        ({}, None),
    ],
)
async def test_a_token_is_whose_the_api_server_says_it_is(
    server: ScriptedServer, client: KubeClient, said: dict[str, Any], want: UserInfo | None
) -> None:
    server.on("POST", TOKENS, (201, {"status": said}))
    assert await Reviews(client).user_of("secret") == want
    assert server.asked[0].json["spec"] == {"token": "secret"}


@pytest.mark.parametrize(
    ("said", "want"),
    [
        ({"allowed": True, "reason": "RBAC: allowed"}, AccessDecision(True, "RBAC: allowed")),
        ({"allowed": False, "denied": True, "reason": "no"}, AccessDecision(False, "no")),
        ({}, AccessDecision()),
    ],
)
async def test_a_user_may_what_the_api_server_says(
    server: ScriptedServer, client: KubeClient, said: dict[str, Any], want: AccessDecision
) -> None:
    server.on("POST", ACCESS, (201, {"status": said}))
    assert await Reviews(client).may(USER, "get", "/metrics") == want
    spec = server.asked[0].json["spec"]
    assert spec == {
        "user": "jane",
        "uid": "u1",
        "groups": ["dev", "system:authenticated"],
        "extra": {"scopes": ["read"]},
        "nonResourceAttributes": {"verb": "get", "path": "/metrics"},
    }


@pytest.mark.parametrize(
    "answer", [b"nonsense", b'{"status": {"authenticated": "secret", "allowed": "secret"}}', b"[]"]
)
async def test_an_answer_that_cannot_be_read_is_an_error_without_its_text(
    server: ScriptedServer, client: KubeClient, answer: bytes
) -> None:
    async def reply(_: web.Request) -> web.Response:
        return web.Response(status=201, body=answer, content_type="application/json")

    for path in (TOKENS, ACCESS):
        server.on("POST", path, reply)
    for question in (Reviews(client).user_of("secret"), Reviews(client).may(USER, "get", "/metrics")):
        with pytest.raises(ApiError, match=r"^the answer to a review cannot be decoded$"):
            await question


async def test_a_server_that_refuses_the_question_is_an_error(server: ScriptedServer, client: KubeClient) -> None:
    for path in (TOKENS, ACCESS):
        server.on("POST", path, (403, {"reason": "Forbidden"}))
    for question in (Reviews(client).user_of("secret"), Reviews(client).may(USER, "get", "/metrics")):
        with pytest.raises(ApiError):
            await question
