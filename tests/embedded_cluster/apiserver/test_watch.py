"""What watchers are told, from where, and how a watch ends."""

from __future__ import annotations

import pytest

from embedded_cluster.apiserver import EmbeddedAPIServer
from tests.support.embedded.client import CONFIG_MAPS, MERGE, PODS, Client, config_map, pod


async def test_a_watch_tells_what_happens_in_order(client: Client) -> None:
    async with client.watch(CONFIG_MAPS) as watch:
        await client.post(CONFIG_MAPS, config_map("a"))
        await client.patch(f"{CONFIG_MAPS}/a", {"data": {"x": "1"}})
        await client.delete(f"{CONFIG_MAPS}/a")
        assert await watch.told(3) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


async def test_events_carry_the_revision_that_a_get_shows(client: Client) -> None:
    async with client.watch(CONFIG_MAPS) as watch:
        created = await client.post(CONFIG_MAPS, config_map("a"))
        event = await watch.next()
    assert event["object"] == created


async def test_a_watch_resumes_after_the_revision_it_names(client: Client) -> None:
    first = await client.post(CONFIG_MAPS, config_map("a"))
    await client.post(CONFIG_MAPS, config_map("b"))
    await client.delete(f"{CONFIG_MAPS}/a")
    async with client.watch(CONFIG_MAPS, f"resourceVersion={first['metadata']['resourceVersion']}") as watch:
        assert await watch.told(2) == [("ADDED", "b"), ("DELETED", "a")]


async def test_a_watch_without_a_revision_begins_with_what_exists(client: Client) -> None:
    await client.post(CONFIG_MAPS, config_map("a"))
    async with client.watch(CONFIG_MAPS, "resourceVersion=0") as watch:
        assert await watch.told(1) == [("ADDED", "a")]


async def test_a_watch_of_one_name_hears_of_no_other(client: Client) -> None:
    async with client.watch(f"{CONFIG_MAPS}/b") as watch:
        await client.post(CONFIG_MAPS, config_map("a"))
        await client.post(CONFIG_MAPS, config_map("b"))
        assert await watch.told(1) == [("ADDED", "b")]


async def test_a_watch_of_a_namespace_hears_of_no_other(client: Client) -> None:
    async with client.watch("/api/v1/namespaces/kube-system/configmaps") as watch:
        await client.post(CONFIG_MAPS, config_map("here"))
        await client.post("/api/v1/namespaces/kube-system/configmaps", config_map("there"))
        assert await watch.told(1) == [("ADDED", "there")]


async def test_an_object_that_leaves_and_enters_a_selector_is_deleted_and_added(client: Client) -> None:
    async with client.watch(CONFIG_MAPS, "labelSelector=in%3Dyes") as watch:
        await client.post(CONFIG_MAPS, config_map("a", labels={"in": "yes"}))
        await client.patch(f"{CONFIG_MAPS}/a", {"metadata": {"labels": {"in": "no"}}})
        await client.patch(f"{CONFIG_MAPS}/a", {"metadata": {"labels": {"in": "yes"}}})
        assert await watch.told(3) == [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "a")]


async def test_pods_can_be_watched_by_node(client: Client) -> None:
    async with client.watch("/api/v1/pods", "fieldSelector=spec.nodeName%3Dn1") as watch:
        await client.post(PODS, pod("p"))
        await client.post(f"{PODS}/p/binding", {"target": {"kind": "Node", "name": "n1"}})
        event = await watch.next()
    assert (event["type"], event["object"]["spec"]["nodeName"]) == ("ADDED", "n1")


async def test_a_forgotten_revision_is_an_error_event_that_ends_the_watch(client: Client) -> None:
    old = client.server.store.revision
    await client.post(CONFIG_MAPS, config_map("a"))
    client.server.store.forget_history()
    async with client.watch(CONFIG_MAPS, f"resourceVersion={old}") as watch:
        event = await watch.next()
        assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
        with pytest.raises(EOFError):
            await watch.next()


async def test_history_is_forgotten_beyond_the_window() -> None:
    async with EmbeddedAPIServer(window=3) as server:
        revisions = [int(server.store.create(config_map(f"c{n}"))["metadata"]["resourceVersion"]) for n in range(5)]
        collection = server.storage.collection(server.registry.stored_form("configmaps").kind)
        assert [event.stored.key[1] for event in collection.since(revisions[1])] == ["c2", "c3", "c4"]
        with pytest.raises(Exception, match="too old resource version"):
            collection.since(revisions[0])


async def test_initial_events_end_with_a_marked_bookmark(client: Client) -> None:
    await client.post(CONFIG_MAPS, config_map("a"))
    query = "resourceVersion=0&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    async with client.watch(CONFIG_MAPS, query) as watch:
        assert await watch.told(1) == [("ADDED", "a")]
        bookmark = await watch.next()
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_bookmarks_tell_how_far_other_changes_have_gone(client: Client) -> None:
    client.server.bookmark_interval = 0.05
    async with client.watch(PODS, "allowWatchBookmarks=true") as watch:
        await client.post(CONFIG_MAPS, config_map("a"))
        bookmark = await watch.next()
        while int(bookmark["object"]["metadata"]["resourceVersion"]) < client.server.store.revision:
            bookmark = await watch.next()
    assert bookmark["type"] == "BOOKMARK"


async def test_a_watch_ends_after_its_timeout(client: Client) -> None:
    async with client.watch(CONFIG_MAPS, "timeoutSeconds=1") as watch:
        with pytest.raises(EOFError):
            await watch.next()


async def test_a_watch_in_an_older_version_shows_its_form(client: Client) -> None:
    beta = "/apis/resource.k8s.io/v1beta1/resourceslices"
    async with client.watch(beta) as watch:
        body = {
            "metadata": {"name": "s"},
            "spec": {
                "driver": "d.example.com",
                "nodeName": "n1",
                "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": "a", "basic": {"attributes": {"x": {"int": 1}}}}],
            },
        }
        await client.post(beta, body)
        event = await watch.next()
    assert event["object"]["apiVersion"] == "resource.k8s.io/v1beta1"
    assert event["object"]["spec"]["devices"] == [{"name": "a", "basic": {"attributes": {"x": {"int": 1}}}}]


async def test_a_write_that_changes_nothing_makes_no_event_and_no_revision(client: Client) -> None:
    await client.post(CONFIG_MAPS, config_map("a", {"x": "1"}))
    before = client.server.store.revision
    await client.patch(f"{CONFIG_MAPS}/a", {"data": {"x": "1"}}, MERGE)
    assert client.server.store.revision == before
