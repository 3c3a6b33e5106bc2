"""Forms of objects: versions, canonical values, columns, ages, field names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedded_cluster.apiserver import EmbeddedAPIServer, conversion, names, printers, topology
from embedded_cluster.apiserver.kinds import RESOURCE_VERSIONS, registry
from embedded_cluster.apiserver.registry import ServedResource
from embedded_cluster.apiserver.schema import schema
from tests.support.embedded.client import CLAIMS, SLICES, Client, claim, pod, resource_slice

every_resource = pytest.mark.parametrize(
    "resource",
    registry(RESOURCE_VERSIONS).resources,
    ids=lambda resource: f"{resource.api_version} {resource.kind.kind}",
)
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


@pytest.mark.parametrize(
    "resource", registry(RESOURCE_VERSIONS).resources, ids=lambda r: f"{r.api_version} {r.kind.kind}"
)
def test_every_kind_has_a_schema_with_metadata(resource: ServedResource) -> None:
    admitted, unknown = schema(resource.model).admit({"metadata": {"name": "x", "labels": {}}, "nonsense": 1})
    assert (admitted, unknown) == ({"metadata": {"name": "x"}}, ["nonsense"])


@pytest.mark.parametrize("versions", [(), ("v2",), ("v1", "v1beta1")])
def test_versions_that_do_not_exist_are_refused(versions: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="versions of resource"):
        registry(versions)


async def test_a_server_serves_only_the_versions_it_was_told(client: Client) -> None:
    async with EmbeddedAPIServer(versions=["v1beta2"]) as server:
        only = Client(server, client.session)
        assert (await only.request("GET", "/apis/resource.k8s.io/v1/resourceslices"))[0] == 404
        body = {**resource_slice("s"), "apiVersion": "resource.k8s.io/v1beta2"}
        created = await only.post("/apis/resource.k8s.io/v1beta2/resourceslices", body)
        assert created["apiVersion"] == "resource.k8s.io/v1beta2"


async def test_nulls_and_empty_lists_are_not_stored(client: Client) -> None:
    body = claim("c", labels={}, annotations=None, finalizers=[], creationTimestamp=None)
    body["spec"]["devices"]["constraints"] = None
    created = await client.post(CLAIMS, body)
    assert {"labels", "annotations", "finalizers"}.isdisjoint(created["metadata"])
    assert list(created["spec"]["devices"]) == ["requests"]


async def test_times_that_an_event_does_not_tell_are_null_for_kubectl_sorts_by_what_is_there(client: Client) -> None:
    here = "/apis/events.k8s.io/v1/namespaces/default/events"
    told = {"name": "e", "namespace": "default"}
    regarding = {"kind": "Pod", "namespace": "default", "name": "p", "apiVersion": "v1"}
    body = {
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": told, "regarding": regarding, "note": "Once",
        "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "example.com/test",
        "reportingInstance": "t-1", "action": "Binding", "reason": "Tried", "type": "Normal",
    }  # fmt: skip
    created = await client.post(here, body)
    assert (created["deprecatedFirstTimestamp"], created["deprecatedLastTimestamp"]) == (None, None)
    core = await client.get("/api/v1/namespaces/default/events/e")
    assert (core["firstTimestamp"], core["lastTimestamp"]) == (None, None)
    assert core["eventTime"] == body["eventTime"]


def test_events_survive_the_way_to_the_events_group_and_back() -> None:
    event = {"apiVersion": "v1", "kind": "Event", "involvedObject": {"kind": "Pod"}, "message": "m", "count": 2}
    other = conversion.EVENTS.from_stored(event)
    assert (other["regarding"], other["note"], other["deprecatedCount"]) == ({"kind": "Pod"}, "m", 2)
    assert {**conversion.EVENTS.to_stored(other), "apiVersion": "v1"} == event


def test_every_listed_list_exists_in_a_model() -> None:
    import kubernetes_asyncio.client.models as models

    known: dict[str, set[str]] = {}
    for name in dir(models):
        model = getattr(models, name)
        if hasattr(model, "attribute_map"):
            known.setdefault(topology.base_name(name), set()).update(model.attribute_map.values())
    listed = {*topology.LISTS, *topology.QUANTITIES, *topology.ATOMIC_MAPS, *topology.STRATEGIES}
    assert [pair for pair in sorted(listed) if pair[1] not in known.get(pair[0], ())] == []
    assert [name for name in sorted(topology.ATOMIC_STRUCTS) if name not in known] == []


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (200, "3m20s"),
        (600, "10m"),
        (3 * 3600, "3h"),
        (5 * 3600 + 120, "5h2m"),
        (10 * 3600, "10h"),
        (50 * 3600, "2d2h"),
        (12 * 86400, "12d"),
        (800 * 86400, "2y70d"),
        (9 * 365 * 86400, "9y"),
    ],
)
def test_ages_are_shown_as_kubectl_shows_them(seconds: float, shown: str) -> None:
    assert printers.duration(seconds) == shown


@pytest.mark.parametrize(
    "resource", registry(RESOURCE_VERSIONS).resources, ids=lambda r: f"{r.api_version} {r.kind.kind}"
)
async def test_a_table_row_has_a_cell_for_every_column(client: Client, resource: ServedResource) -> None:
    root = f"/apis/{resource.api_version}" if resource.kind.group else f"/api/{resource.version}"
    namespace = "/namespaces/default" if resource.kind.namespaced else ""
    await client.post(SLICES, resource_slice("s"))
    client.server.store.create(pod("p"))
    client.server.store.create(claim("c"))
    table = await client.get(f"{root}{namespace}/{resource.kind.plural}", accept=TABLE)
    assert table["kind"] == "Table"
    assert all(len(row["cells"]) == len(table["columnDefinitions"]) for row in table["rows"])


@given(st.text("abAB01-._/ ", max_size=70))
def test_label_values_and_names_are_told_apart_as_kubernetes_does(text: str) -> None:
    if names.dns_label(text) is None:
        assert names.dns_subdomain(text) is None
        assert names.label_value(text) is None
    if names.dns_subdomain(text) is None:
        assert names.path_segment(text) is None
    assert names.label_value(text) is None or text != ""
