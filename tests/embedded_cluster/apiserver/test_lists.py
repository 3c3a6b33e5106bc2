"""Lists: pages that show one state, selectors, older revisions."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embedded_cluster.apiserver.kinds import registry
from embedded_cluster.apiserver.selectors import parse
from embedded_cluster.apiserver.statuses import StatusError
from embedded_cluster.apiserver.storage import Storage, Stored
from tests.support.embedded.client import CONFIG_MAPS, JSON, Client, config_map
from tests.support.examples import examples


def names(listed: JSON) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]


async def test_a_page_of_a_forgotten_state_has_expired(client: Client) -> None:
    for name in "abc":
        await client.post(CONFIG_MAPS, config_map(name))
    first = await client.get(f"{CONFIG_MAPS}?limit=2")
    await client.post(CONFIG_MAPS, config_map("d"))
    client.server.store.forget_history()
    code, answer = await client.request("GET", f"{CONFIG_MAPS}?limit=2&continue={first['metadata']['continue']}")
    assert (code, answer["reason"]) == (410, "Expired")


@pytest.mark.parametrize(
    ("selector", "matching"),
    [
        ("", "abc"),
        ("x=1", "a"),
        ("x==1", "a"),
        ("x!=1", "bc"),
        ("x", "ab"),
        ("!x", "c"),
        ("x in (1, 2)", "ab"),
        ("x notin (1)", "bc"),
        ("x>1", "b"),
        ("x<2", "a"),
        ("x in (1,2),y=z", "b"),
        ("example.com/role=r", "c"),
    ],
)
def test_labels_select(selector: str, matching: str) -> None:
    labels = {"a": {"x": "1"}, "b": {"x": "2", "y": "z"}, "c": {"example.com/role": "r"}}
    items = [
        Stored(("", name), {"metadata": {"name": name, "labels": found}}, 1, b"", {}) for name, found in labels.items()
    ]
    chosen = parse(selector, "", frozenset()).choose(items)
    assert "".join(item.key[1] for item in chosen) == matching


@pytest.mark.parametrize(("labels", "fields"), [("a===b", ""), ("a in b", ""), ("(", ""), ("", "nope=1"), ("", "x")])
def test_selectors_that_make_no_sense_are_refused(labels: str, fields: str) -> None:
    with pytest.raises(StatusError) as refused:
        parse(labels, fields, frozenset({"metadata.name"}))
    assert refused.value.code == 400


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), max_size=25))
def test_every_past_state_can_be_listed(steps: list[tuple[str, bool]]) -> None:
    storage = Storage(registry())
    kind = registry().stored_form("configmaps").kind
    collection = storage.collection(kind)
    states = {storage.revision: [s.body for s in collection.sorted()]}
    for name, put in steps:
        if put:
            storage.put(kind, {**config_map(name), "metadata": {"name": name, "namespace": "default"}})
        elif ("default", name) in collection.items:
            storage.remove(kind, ("default", name))
        states[storage.revision] = [stored.body for stored in collection.sorted()]
    for revision, bodies in states.items():
        assert [stored.body for stored in collection.at(revision)] == bodies
