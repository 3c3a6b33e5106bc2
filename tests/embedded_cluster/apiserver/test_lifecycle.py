"""Objects come and go: names, preconditions, finalizers, grace, owners, namespaces."""

from __future__ import annotations

import asyncio

import pytest

from embedded_cluster.apiserver import EmbeddedAPIServer, StatusError
from tests.support.embedded.client import (
    CLAIMS,
    CONFIG_MAPS,
    PODS,
    SLICES,
    Client,
    claim,
    config_map,
    pod,
    resource_slice,
)
from tests.support.patience import LONGEST

NAMESPACES = "/api/v1/namespaces"


async def gone(client: Client, path: str) -> None:
    """Wait until there is nothing at `path`."""
    async with asyncio.timeout(LONGEST):
        while (await client.request("GET", path))[0] != 404:
            await asyncio.sleep(0)


def owned(owner: dict[str, object]) -> list[dict[str, object]]:
    metadata = owner["metadata"]
    assert isinstance(metadata, dict)
    return [{"apiVersion": "v1", "kind": owner["kind"], "name": metadata["name"], "uid": metadata["uid"]}]


async def test_the_same_seed_generates_the_same_names_and_uids(client: Client) -> None:
    async with EmbeddedAPIServer(seed=5) as one, EmbeddedAPIServer(seed=5) as two:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "a-"}}
        first, second = one.store.create(body)["metadata"], two.store.create(body)["metadata"]
    assert (first["name"], first["uid"]) == (second["name"], second["uid"])


async def test_the_store_is_as_strict_as_http(client: Client) -> None:
    with pytest.raises(StatusError, match="exactly one of"):
        broken = claim("c")
        broken["spec"]["devices"]["requests"] = [{"name": "a"}]
        client.server.store.create(broken)
    with pytest.raises(StatusError, match="no matches for kind"):
        client.server.store.create({"apiVersion": "v9", "kind": "Pod", "metadata": {"name": "p"}})


async def test_the_store_reads_what_http_wrote_and_the_other_way_round(client: Client) -> None:
    store = client.server.store
    await client.post(CONFIG_MAPS, config_map("a", {"x": "1"}))
    found = store.get("configmaps", "a", "default")
    assert found is not None
    found["data"] = {"x": "2"}
    store.update(found)
    assert (await client.get(f"{CONFIG_MAPS}/a"))["data"] == {"x": "2"}
    store.delete("configmaps", "a", "default")
    assert store.get("configmaps", "a", "default") is None
    assert store.count("configmaps") == 0
    assert [event.type for event in store.history("configmaps")] == ["ADDED", "MODIFIED", "DELETED"]


async def test_many_objects_are_created_at_once(client: Client) -> None:
    assert client.server.store.create_all(resource_slice(f"s{n}", f"n{n}", devices=8) for n in range(50)) == 50
    assert len((await client.get(SLICES))["items"]) == 50
    assert [s["metadata"]["name"] for s in client.server.store.list("resourceslices", fields="spec.nodeName=n7")] == [
        "s7"
    ]


async def test_dependents_go_with_their_owner(client: Client) -> None:
    owner = await client.post(PODS, pod("owner"))
    await client.post(CLAIMS, claim("dependent", ownerReferences=owned(owner)))
    await client.post(CLAIMS, claim("bystander"))
    await client.delete(f"{PODS}/owner")
    await gone(client, f"{CLAIMS}/dependent")
    assert await client.get(f"{CLAIMS}/bystander")


async def test_dependents_with_a_finalizer_are_only_marked(client: Client) -> None:
    owner = await client.post(PODS, pod("owner"))
    await client.post(CLAIMS, claim("held", ownerReferences=owned(owner), finalizers=["example.com/keep"]))
    async with client.watch(f"{CLAIMS}/held") as watch:
        await client.delete(f"{PODS}/owner")
        event = await watch.next()
    assert event["object"]["metadata"]["deletionTimestamp"]


async def test_an_object_with_a_dead_owner_is_collected(client: Client) -> None:
    references = [{"apiVersion": "v1", "kind": "Pod", "name": "gone", "uid": "00000000-0000-0000-0000-000000000000"}]
    await client.post(CLAIMS, claim("late", ownerReferences=references))
    await gone(client, f"{CLAIMS}/late")
    assert (await client.get(CLAIMS))["items"] == []


async def test_an_object_with_one_living_owner_stays(client: Client) -> None:
    one, two = await client.post(PODS, pod("one")), await client.post(PODS, pod("two"))
    await client.post(CLAIMS, claim("c", ownerReferences=owned(one) + owned(two)))
    await client.delete(f"{PODS}/one")
    client.server.garbage.collect()
    assert await client.get(f"{CLAIMS}/c")
    await client.delete(f"{PODS}/two")
    await gone(client, f"{CLAIMS}/c")


async def test_orphans_lose_their_owner_and_stay(client: Client) -> None:
    owner = await client.post(PODS, pod("owner"))
    await client.post(CLAIMS, claim("c", ownerReferences=owned(owner)))
    await client.delete(f"{PODS}/owner", {"propagationPolicy": "Orphan"})
    client.server.garbage.collect()
    assert "ownerReferences" not in (await client.get(f"{CLAIMS}/c"))["metadata"]


async def test_a_foreground_deletion_waits_for_the_dependents(client: Client) -> None:
    owner = await client.post(CONFIG_MAPS, config_map("owner"))
    await client.post(CLAIMS, claim("c", ownerReferences=owned(owner), finalizers=["example.com/keep"]))
    await client.delete(f"{CONFIG_MAPS}/owner", {"propagationPolicy": "Foreground"})
    client.server.garbage.collect()
    assert (await client.get(f"{CONFIG_MAPS}/owner"))["metadata"]["finalizers"] == ["foregroundDeletion"]
    await client.patch(f"{CLAIMS}/c", {"metadata": {"finalizers": None}})
    await gone(client, f"{CONFIG_MAPS}/owner")


async def test_a_namespace_takes_its_contents_along(client: Client) -> None:
    await client.post(NAMESPACES, {"metadata": {"name": "team"}})
    await client.post(f"{NAMESPACES}/team/configmaps", config_map("a", finalizers=["example.com/keep"]))
    marked = await client.delete(f"{NAMESPACES}/team")
    assert marked["status"]["phase"] == "Terminating"
    client.server.garbage.collect()
    code, answer = await client.request("POST", f"{NAMESPACES}/team/configmaps", config_map("b"))
    assert (code, answer["details"]["causes"][0]["reason"]) == (403, "NamespaceTerminating")
    await client.patch(f"{NAMESPACES}/team/configmaps/a", {"metadata": {"finalizers": None}})
    await gone(client, f"{NAMESPACES}/team")


async def test_a_large_namespace_is_emptied_at_once(client: Client) -> None:
    store = client.server.store
    await client.post(NAMESPACES, {"metadata": {"name": "team"}})
    store.create_all(config_map(f"c{number}", namespace="team") for number in range(500))
    await client.delete(f"{NAMESPACES}/team")
    await gone(client, f"{NAMESPACES}/team")
    assert store.count("configmaps") == 0


async def test_namespaces_that_everybody_expects_are_there(client: Client) -> None:
    names = {item["metadata"]["name"] for item in (await client.get(NAMESPACES))["items"]}
    assert {"default", "kube-system", "kube-public", "kube-node-lease"} <= names


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"text"', b"\xff\xfe", b"null", b'{"metadata": []}'])
async def test_bodies_that_are_no_object_are_refused(client: Client, body: bytes) -> None:
    code, answer = await client.request("POST", CONFIG_MAPS, body)
    assert (code, answer["kind"]) == (400, "Status")


async def test_a_body_that_is_too_large_is_refused(client: Client) -> None:
    code, answer = await client.request("POST", CONFIG_MAPS, b" " * (4 * 1024 * 1024))
    assert (code, answer["reason"]) == (413, "RequestEntityTooLarge")
