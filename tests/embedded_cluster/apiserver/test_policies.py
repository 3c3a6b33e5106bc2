"""Admission policies are enforced or refused; tests/contract/scenarios/policies.yaml holds them to a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from embedded_cluster import manifests
from embedded_cluster.apiserver import EmbeddedAPIServer
from embedded_cluster.demo.language import POLICIES
from tests.support.chart.policypods import PODS
from tests.support.chart.release import pod
from tests.support.embedded.client import CONFIG_MAPS, Client, config_map

SHIPPED = Path(__file__).parents[3] / "manifests" / "policies"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}


def policy(**spec: Any) -> dict[str, Any]:
    body = {"matchConstraints": {"resourceRules": [RULE]}, "validations": [{"expression": "false"}], **spec}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "p"},
        "spec": body,
    }


def binding(*actions: str) -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "b"},
        "spec": {"policyName": "p", "validationActions": list(actions)},
    }


@pytest.fixture
async def server() -> AsyncIterator[EmbeddedAPIServer]:
    async with EmbeddedAPIServer(seed=1, language=POLICIES) as running:
        yield running


@pytest.fixture
async def client(server: EmbeddedAPIServer) -> AsyncIterator[Client]:
    async with aiohttp.ClientSession(headers={"User-Agent": "test/1"}) as session:
        yield Client(server, session)


@pytest.fixture
def shipped(server: EmbeddedAPIServer) -> None:
    """The policies of the manifests, a namespace that is exempt, and a class."""
    for file in sorted(SHIPPED.glob("*need*.yaml")):
        for manifest in manifests.read(file):
            server.store.create(manifest)
    labels = {"dra-extender.dev/in-tree": "true"}
    server.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "in-tree", "labels": labels}})
    for name, spec in (("gpu", {"extendedResourceName": "example.com/gpu"}), ("plain", {})):
        body = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}
        server.store.create(body)


@pytest.mark.parametrize("name", PODS)
@pytest.mark.usefixtures("shipped")
async def test_the_shipped_policies_do_as_on_a_real_cluster(client: Client, name: str) -> None:
    scheduler, spec, words = PODS[name]
    for namespace, refused in (("default", bool(words)), ("in-tree", False)):
        path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
        code, said = await client.request("POST", path, pod("trial", scheduler, namespace, **spec))
        assert (code, words in said.get("message", "")) == ((422, True) if refused else (201, not words))


REFUSED = {
    "audit annotations": (policy(auditAnnotations=[{"key": "a", "valueExpression": "'a'"}]), "spec.auditAnnotations"),
    "the authorizer": (
        policy(validations=[{"expression": "authorizer.path('/x').check('get').allowed()"}]),
        "spec.validations[0].expression",
    ),
}
ELSEWHERE: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "mutatingadmissionpolicies": ("MutatingAdmissionPolicy", {"spec": {}}, "spec", "write the fields"),
    "mutatingadmissionpolicybindings": ("MutatingAdmissionPolicyBinding", {"spec": {}}, "spec", "write the fields"),
    "mutatingwebhookconfigurations": ("MutatingWebhookConfiguration", {}, "webhooks", "ValidatingAdmissionPolicy"),
    "validatingwebhookconfigurations": ("ValidatingWebhookConfiguration", {}, "webhooks", "ValidatingAdmissionPolicy"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_what_of_a_policy_is_not_evaluated_is_refused_with_its_field(client: Client, name: str) -> None:
    body, field = REFUSED[name]
    code, said = await client.request("POST", f"{ADMISSION}/validatingadmissionpolicies", body)
    assert (code, [cause["field"] for cause in said["details"]["causes"]]) == (422, [field])
    assert "the embedded API server" in said["message"]


@pytest.mark.parametrize("plural", ELSEWHERE)
async def test_what_would_change_or_ask_is_known_and_refused_with_a_remedy(client: Client, plural: str) -> None:
    kind, body, field, remedy = ELSEWHERE[plural]
    meta = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "x"}}
    code, said = await client.request("POST", f"{ADMISSION}/{plural}", {**meta, **body})
    assert (code, said["details"]["causes"][0]["field"]) == (422, field)
    assert remedy in said["message"]
    assert (await client.get(f"{ADMISSION}/{plural}"))["items"] == []


async def test_without_a_language_policies_are_refused() -> None:
    async with EmbeddedAPIServer() as server, aiohttp.ClientSession() as session:
        code, said = await Client(server, session).request("POST", f"{ADMISSION}/validatingadmissionpolicies", policy())
    assert (code, said["details"]["causes"][0]["field"]) == (422, "spec")
    assert "started without an expression language" in said["message"]


async def test_a_note_stands_in_the_audit(client: Client, server: EmbeddedAPIServer) -> None:
    server.store.create(policy(validations=[{"expression": "true"}, {"expression": "false", "message": "no"}]))
    server.store.create(binding("Audit"))
    code, _ = await client.request("POST", CONFIG_MAPS, config_map("a"))
    (served,) = server.audit.find("create", "configmaps")
    (note,) = orjson.loads(served.annotations["validation.policy.admission.k8s.io/validation_failure"])
    assert (code, note["policy"], note["binding"], note["message"], note["expressionIndex"]) == (201, "p", "b", "no", 1)


async def test_a_policy_that_changes_counts_at_once(client: Client, server: EmbeddedAPIServer) -> None:
    server.store.create(binding("Deny"))
    stored = server.store.create(policy())
    refused, _ = await client.request("POST", CONFIG_MAPS, config_map("a"))
    stored["spec"]["validations"] = [{"expression": "true"}]
    server.store.update(stored)
    accepted, _ = await client.request("POST", CONFIG_MAPS, config_map("a"))
    assert (refused, accepted) == (422, 201)


async def test_policies_do_not_lock_themselves_in(client: Client, server: EmbeddedAPIServer) -> None:
    everything = {**RULE, "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}
    server.store.create(policy(matchConstraints={"resourceRules": [everything]}))
    server.store.create(binding("Deny"))
    refused, _ = await client.request("POST", CONFIG_MAPS, config_map("a"))
    code, _ = await client.request("DELETE", f"{ADMISSION}/validatingadmissionpolicybindings/b")
    accepted, _ = await client.request("POST", CONFIG_MAPS, config_map("a"))
    assert (refused, code, accepted) == (422, 200, 201)
