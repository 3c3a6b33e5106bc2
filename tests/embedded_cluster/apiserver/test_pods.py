"""What is checked of pods beside the recorded scenarios, and the warning about what is not."""

from __future__ import annotations

import pytest

from embedded_cluster.apiserver.statuses import JSON
from tests.support.embedded.client import Client, pod

PODS = "/api/v1/namespaces/default/pods"
UNVALIDATED: dict[str, JSON] = {
    "spec.volumes": {"volumes": [{"name": "v", "emptyDir": {}}]},
    "spec.affinity": {"affinity": {"podAffinity": {}}},
    "spec.containers[*].env": {"containers": [{"name": "main", "image": "a", "env": [{"name": "A"}]}]},
}


async def warnings(client: Client, method: str, path: str, body: JSON) -> list[str]:
    async with client.session.request(method, client.server.url + path, json=body) as response:
        assert response.status in (200, 201), await response.text()
        return list(response.headers.getall("Warning", []))


@pytest.mark.parametrize("field", UNVALIDATED)
async def test_fields_that_are_stored_without_validation_are_named_in_a_warning(client: Client, field: str) -> None:
    body = pod("p", spec=UNVALIDATED[field])
    expected = [f'299 - "the embedded cluster stores {field} without validation"']
    assert await warnings(client, "POST", PODS, body) == expected


async def test_templates_of_pods_have_the_same_warning(client: Client) -> None:
    template: JSON = {
        "metadata": {"labels": {"a": "b"}},
        "spec": pod("p", spec=UNVALIDATED["spec.volumes"])["spec"],
    }
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}
    (warning,) = await warnings(client, "POST", "/apis/apps/v1/namespaces/default/deployments", body)
    assert "spec.template.spec.volumes without validation" in warning


async def test_nothing_is_said_about_pods_whose_fields_are_all_checked(client: Client) -> None:
    claims = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}], "nodeSelector": {"a": "b"}}
    assert await warnings(client, "POST", PODS, pod("p", spec=claims)) == []
    assert await warnings(client, "PUT", f"{PODS}/p", await client.get(f"{PODS}/p")) == []
