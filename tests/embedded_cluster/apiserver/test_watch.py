"""What watchers are told, from where, and how a watch ends."""

from __future__ import annotations

import pytest

from embedded_cluster.apiserver import EmbeddedAPIServer
from tests.support.embedded.client import CONFIG_MAPS, PODS, Client, config_map


async def test_a_watch_of_a_namespace_hears_of_no_other(client: Client) -> None:
    async with client.watch("/api/v1/namespaces/kube-system/configmaps") as watch:
        await client.post(CONFIG_MAPS, config_map("here"))
        await client.post("/api/v1/namespaces/kube-system/configmaps", config_map("there"))
        assert await watch.told(1) == [("ADDED", "there")]


async def test_history_is_forgotten_beyond_the_window() -> None:
    async with EmbeddedAPIServer(window=3) as server:
        revisions = [int(server.store.create(config_map(f"c{n}"))["metadata"]["resourceVersion"]) for n in range(5)]
        collection = server.storage.collection(server.registry.stored_form("configmaps").kind)
        assert [event.stored.key[1] for event in collection.since(revisions[1])] == ["c2", "c3", "c4"]
        with pytest.raises(Exception, match="too old resource version"):
            collection.since(revisions[0])


async def test_bookmarks_tell_how_far_other_changes_have_gone(client: Client) -> None:
    client.server.bookmark_interval = 0.05
    async with client.watch(PODS, "allowWatchBookmarks=true") as watch:
        await client.post(CONFIG_MAPS, config_map("a"))
        bookmark = await watch.next()
        while int(bookmark["object"]["metadata"]["resourceVersion"]) < client.server.store.revision:
            bookmark = await watch.next()
    assert bookmark["type"] == "BOOKMARK"


async def test_a_watch_in_an_older_version_shows_that_version(client: Client) -> None:
    beta = "/apis/resource.k8s.io/v1beta2/resourceslices"
    async with client.watch(beta) as watch:
        body = {
            "metadata": {"name": "s"},
            "spec": {
                "driver": "d.example.com",
                "nodeName": "n1",
                "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": "a", "attributes": {"x": {"int": 1}}}],
            },
        }
        await client.post(beta, body)
        event = await watch.next()
    assert event["object"]["apiVersion"] == "resource.k8s.io/v1beta2"
    assert event["object"]["spec"]["devices"] == [{"name": "a", "attributes": {"x": {"int": 1}}}]
