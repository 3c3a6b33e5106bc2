"""Server-side apply beside the recorded scenarios: shared fields, keyed lists, fields that lose their last owner."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from embedded_cluster.apiserver import fieldset
from embedded_cluster.apiserver.schema import schema
from tests.support.embedded.client import CLAIMS, CONFIG_MAPS, JSON, PODS, Client, claim, config_map, pod

A = f"{CONFIG_MAPS}/a"


def owners(obj: JSON) -> dict[str, Any]:
    return {entry["manager"]: entry["fieldsV1"] for entry in obj["metadata"].get("managedFields", [])}


async def test_the_same_value_is_shared(client: Client) -> None:
    await client.apply(A, config_map("a", {"x": "1"}), "one")
    code, shared = await client.apply(A, config_map("a", {"x": "1"}), "two")
    assert code == 200
    assert owners(shared) == {"one": {"f:data": {"f:x": {}}}, "two": {"f:data": {"f:x": {}}}}


async def test_a_field_its_last_owner_stops_sending_is_removed(client: Client) -> None:
    await client.apply(A, config_map("a", {"x": "1", "y": "1"}), "one")
    await client.apply(A, config_map("a", {"y": "1"}), "two")
    _, left = await client.apply(A, config_map("a"), "one")
    assert left["data"] == {"y": "1"}


async def test_an_update_takes_what_it_changes(client: Client) -> None:
    await client.apply(A, config_map("a", {"x": "1", "y": "1"}), "one")
    changed = await client.patch(f"{A}?fieldManager=editor", {"data": {"x": "2"}})
    assert owners(changed) == {"one": {"f:data": {"f:y": {}}}, "editor": {"f:data": {"f:x": {}}}}
    code, _ = await client.apply(A, config_map("a", {"x": "1", "y": "1"}), "one")
    assert code == 409


async def test_items_of_keyed_lists_have_owners_of_their_own(client: Client) -> None:
    path = f"{PODS}/p/status"
    await client.post(PODS, pod("p"))

    def condition(kind: str) -> JSON:
        status = {"conditions": [{"type": kind, "status": "True"}]}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "status": status}

    await client.apply(path, condition("example.com/a"), "one")
    _, both = await client.apply(path, condition("example.com/b"), "two")
    assert [c["type"] for c in both["status"]["conditions"]] == ["example.com/a", "example.com/b"]
    empty = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "status": {}}
    _, left = await client.apply(path, empty, "one")
    assert [c["type"] for c in left["status"]["conditions"]] == ["example.com/b"]


async def test_finalizers_are_a_set_of_many_owners(client: Client) -> None:
    await client.post(CLAIMS, claim("c"))
    path = f"{CLAIMS}/c"

    def holding(*finalizers: str) -> JSON:
        head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
        return {**head, "metadata": {"name": "c", "finalizers": list(finalizers)}}

    await client.apply(path, holding("example.com/a"), "one")
    await client.apply(path, holding("example.com/b"), "two")
    _, left = await client.apply(path, holding(), "one")
    assert left["metadata"]["finalizers"] == ["example.com/b"]


async def test_status_is_applied_through_its_subresource_only(client: Client) -> None:
    await client.post(PODS, pod("p"))
    config = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"a": "b"}}}
    _, main = await client.apply(f"{PODS}/p", {**config, "status": {"phase": "Failed"}}, "one")
    assert (main["status"]["phase"], main["metadata"]["labels"]) == ("Pending", {"a": "b"})


async def test_writes_in_process_leave_owners_alone(client: Client) -> None:
    created = client.server.store.create(config_map("a", {"x": "1"}))
    assert "managedFields" not in created["metadata"]


# sets of fields

SHAPE = schema("V1ConfigMap").shape
data = st.dictionaries(st.sampled_from("abcd"), st.sampled_from("12"), max_size=4)
config = data.map(lambda found: {"data": found} if found else {})


@given(config, config)
def test_what_is_written_and_what_is_gone_follow_from_the_difference(old: JSON, new: JSON) -> None:
    written, gone = fieldset.changes(old, new, SHAPE)
    before, after = old.get("data", {}), new.get("data", {})
    changed = {f".data.{key}" for key, value in after.items() if before.get(key) != value}
    lost = {f".data.{key}" for key in before if key not in after}
    assert set(fieldset.paths(written or {})) - {".data"} == changed
    assert set(fieldset.paths(gone or {})) - {".data"} == lost


@given(config, config)
def test_sets_of_fields_are_sets(left: JSON, right: JSON) -> None:
    a, b = fieldset.of_object(left, SHAPE), fieldset.of_object(right, SHAPE)
    paths_a, paths_b = set(fieldset.paths(a)), set(fieldset.paths(b))
    assert set(fieldset.paths(fieldset.difference(a, b) or {})) == paths_a - paths_b
    assert set(fieldset.paths(fieldset.intersection(a, b) or {})) == paths_a & paths_b
    if a and b:
        assert set(fieldset.paths(fieldset.union(a, b))) == paths_a | paths_b
