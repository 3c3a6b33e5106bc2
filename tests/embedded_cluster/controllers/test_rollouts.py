"""How a new template takes over."""

from __future__ import annotations

import msgspec

from embedded_cluster.cluster import EmbeddedCluster
from embedded_cluster.controllers.rollouts import REVISION
from tests.embedded_cluster.controllers.test_replicas import deployment


async def test_a_changed_template_takes_over_and_can_be_taken_back(cluster: EmbeddedCluster) -> None:
    def images() -> list[str]:
        return sorted(found["spec"]["containers"][0]["image"] for found in cluster.store.list("pods", "default"))

    def revisions() -> dict[str, int]:
        sets = cluster.store.list("replicasets", "default")
        return {found["metadata"]["annotations"][REVISION]: found["spec"]["replicas"] for found in sets}

    first = deployment(2)
    first["spec"]["strategy"] = {"type": "Recreate"}
    await cluster.apply([first])
    await cluster.wait_until(lambda: images() == ["example"] * 2)
    assert revisions() == {"1": 2}
    path = "/apis/apps/v1/namespaces/default/deployments/d"
    second = deployment(2)["spec"]["template"]
    second["spec"]["containers"][0]["image"] = "other"
    await cluster.client.patch(path, msgspec.json.encode({"spec": {"template": second}}))
    await cluster.wait_until(lambda: images() == ["other"] * 2 and cluster.settled())
    assert revisions() == {"1": 0, "2": 2}
    template = deployment(2)["spec"]["template"]
    await cluster.client.patch(path, msgspec.json.encode({"spec": {"template": template}}))
    await cluster.wait_until(lambda: images() == ["example"] * 2 and cluster.settled())
    assert revisions() == {"2": 0, "3": 2}, "the first set serves again, as the newest revision"
