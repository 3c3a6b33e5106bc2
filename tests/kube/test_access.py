"""Which permissions are missing, in words; what is asked about users, and what counts as an answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from aiohttp import web

from dra_extender.api.errors import ApiError, RejectedError
from dra_extender.kube.access import (
    BINDING,
    EXTENDED_RESOURCES,
    READERS,
    AccessDecision,
    Permission,
    Reviews,
    UserInfo,
    missing_permissions,
    permissions_for_lease,
    permissions_for_reading,
    permissions_for_waking,
)
from dra_extender.kube.client import KubeClient
from dra_extender.kube.resources import Served
from tests.support.kube.scripted import ScriptedServer

SERVED = Served(taint_rules="v1alpha3")
PATH = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def allow(server: ScriptedServer, allowed: Callable[[dict[str, str]], bool]) -> None:
    async def answer(request: web.Request) -> web.Response:
        asked = msgspec.json.decode(await request.read())["spec"]["resourceAttributes"]
        return web.json_response({"status": {"allowed": allowed(asked)}}, status=201)

    server.on("POST", PATH, answer)


async def test_nothing_is_missing_when_all_is_allowed(server: ScriptedServer, client: KubeClient) -> None:
    allow(server, lambda asked: True)
    permissions = permissions_for_reading(SERVED) + BINDING + permissions_for_lease("dra-system", "lease")
    assert await missing_permissions(client, permissions) == []
    assert len(server.asked) == len(permissions)


async def test_a_missing_permission_is_named_with_its_purpose(server: ScriptedServer, client: KubeClient) -> None:
    allow(server, lambda asked: asked["subresource"] != "binding" or asked["resource"] != "resourceclaims")
    assert [str(each) for each in await missing_permissions(client, BINDING)] == [
        "patch resourceclaims/binding.resource.k8s.io in the whole cluster (ClusterRole): "
        "needed to allocate and reserve claims on Kubernetes 1.36 and newer"
    ]


async def test_a_namespaced_permission_is_asked_for_in_its_namespace(
    server: ScriptedServer, client: KubeClient
) -> None:
    allow(server, lambda asked: asked["namespace"] != "dra-system")
    missing = await missing_permissions(client, permissions_for_lease("dra-system", "lease"))
    assert len(missing) == 5
    assert str(missing[0]) == "create leases.coordination.k8s.io in namespace dra-system: needed to elect a leader"
    names = [asked.json["spec"]["resourceAttributes"]["name"] for asked in server.asked]
    assert sorted(names) == ["", "lease", "lease", "lease", "lease"], "creation cannot be granted by name, the rest is"


async def test_a_server_without_authorization_allows_everything(client: KubeClient) -> None:
    assert await missing_permissions(client, BINDING) == []


async def test_not_even_being_allowed_to_ask_is_an_error(server: ScriptedServer, client: KubeClient) -> None:
    server.on("POST", PATH, (403, {"reason": "Forbidden"}))
    with pytest.raises(RejectedError):
        await missing_permissions(client, BINDING)


def granted(permission: Permission, rules: list[Any]) -> bool:
    target = permission.resource + (f"/{permission.subresource}" if permission.subresource else "")
    return any(
        permission.group in rule.get("apiGroups", ())
        and target in rule["resources"]
        and permission.verb in rule["verbs"]
        for rule in rules
    )


def test_the_shipped_manifests_grant_every_permission_that_is_asked_for() -> None:
    files = (Path(__file__).parents[2] / "manifests" / "rbac").glob("*.yaml")
    documents = [found for path in files for found in yaml.safe_load_all(path.read_text()) if found]
    everywhere = [rule for found in documents if found["kind"] == "ClusterRole" for rule in found["rules"]]
    anywhere = [rule for found in documents for rule in found.get("rules", ())]
    permissions = permissions_for_reading(SERVED) + BINDING + EXTENDED_RESOURCES
    permissions += READERS
    assert [str(permission) for permission in permissions if not granted(permission, everywhere)] == []
    namespaced = permissions_for_waking("dra-system") + permissions_for_lease("dra-system", "dra-extender")
    assert [str(permission) for permission in namespaced if not granted(permission, anywhere)] == []


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
    assert await Reviews(client).may(USER, {"verb": "get", "path": "/metrics"}) == want
    spec = server.asked[0].json["spec"]
    assert spec == {
        "user": "jane",
        "uid": "u1",
        "groups": ["dev", "system:authenticated"],
        "extra": {"scopes": ["read"]},
        "nonResourceAttributes": {"verb": "get", "path": "/metrics"},
    }


async def test_a_user_may_be_asked_about_for_a_resource(server: ScriptedServer, client: KubeClient) -> None:
    server.on("POST", ACCESS, (201, {"status": {"allowed": True}}))
    pod = {"verb": "get", "resource": "pods", "namespace": "team-a", "name": "p"}
    assert (await Reviews(client).may(USER, pod)).allowed
    assert server.asked[0].json["spec"]["resourceAttributes"] == pod


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
    for question in (Reviews(client).user_of("secret"), Reviews(client).may(USER, {"verb": "get", "path": "/metrics"})):
        with pytest.raises(ApiError, match=r"^the answer to a review cannot be decoded$"):
            await question


async def test_a_server_that_refuses_the_question_is_an_error(server: ScriptedServer, client: KubeClient) -> None:
    for path in (TOKENS, ACCESS):
        server.on("POST", path, (403, {"reason": "Forbidden"}))
    for question in (Reviews(client).user_of("secret"), Reviews(client).may(USER, {"verb": "get", "path": "/metrics"})):
        with pytest.raises(ApiError):
            await question
