"""What is made equal before two answers are compared, and what is not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.contract.answers import Normalizer, differences, drop_words, plain_table
from tests.support.contract.exchanges import Scenario, Step, lasting

UIDS = ("6f2a1c9e-0000-4000-8000-000000000001", "6f2a1c9e-0000-4000-8000-000000000002")


def thing(uid: str, version: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a", "uid": uid, "resourceVersion": version, **more}}


def test_uids_and_versions_are_numbered_by_first_appearance() -> None:
    normalize = Normalizer("space")
    first = normalize([thing(UIDS[0], "17"), thing(UIDS[1], "18"), thing(UIDS[0], "17")])
    again = Normalizer("space")([thing(UIDS[1], "40"), thing(UIDS[0], "51"), thing(UIDS[1], "40")])
    assert first == again
    assert [entry["metadata"]["uid"] for entry in first] == ["<uid-1>", "<uid-2>", "<uid-1>"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(("17", "17"), ("17", "18"), id="an object that changed is not one that did not"),
        pytest.param(("17", "0"), ("17", "17"), id="no version is not some version"),
    ],
)
def test_a_version_that_stays_is_told_from_one_that_moves(first: tuple[str, str], second: tuple[str, str]) -> None:
    one, other = ([thing(UIDS[0], version) for version in versions] for versions in (first, second))
    assert Normalizer("space")(one) != Normalizer("space")(other)


def test_the_version_of_a_list_does_not_count() -> None:
    one, other = ({"kind": "List", "metadata": {"resourceVersion": version}} for version in ("17", "99"))
    assert Normalizer("space")(one) == Normalizer("space")(other)


def test_a_quantity_is_no_version() -> None:
    normalize = Normalizer("space")
    normalize(thing(UIDS[0], "4"))
    assert normalize({"cpu": "4"}) == {"cpu": "4"}


def test_generated_names_and_times_are_replaced_wherever_they_stand() -> None:
    normalize = Normalizer("space")
    normalize({"metadata": {"generateName": "claim-", "name": "claim-x2x9z"}})
    said = normalize({"message": "claim-x2x9z in space since 2026-01-01T00:00:00Z"})
    assert said == {"message": "claim-<random-1> in <ns> since <time>"}


def test_words_of_a_refusal_are_dropped_but_not_its_fields() -> None:
    causes = [{"reason": "FieldValueRequired", "field": "spec", "message": text} for text in ("one", "two")]
    body = {"kind": "Status", "code": 422, "reason": "Invalid", "message": "long", "details": {"causes": causes}}
    drop_words(body)
    assert body == {
        "kind": "Status",
        "code": 422,
        "reason": "Invalid",
        "details": {"causes": [{"reason": "FieldValueRequired", "field": "spec"}]},
    }


def test_words_of_a_conflict_stay() -> None:
    body = {"kind": "Status", "code": 409, "message": "already assigned"}
    drop_words(body)
    assert body["message"] == "already assigned"


def test_ages_in_a_table_are_made_equal() -> None:
    columns = [{"name": name, "description": "long"} for name in ("Name", "TimeAdded", "Age")]
    table = {"kind": "Table", "columnDefinitions": columns, "rows": [{"cells": ["5s", "0s", "1m30s"]}]}
    assert plain_table(table)["rows"] == [{"cells": ["5s", "<age>", "<age>"]}]


@pytest.mark.parametrize(
    ("want", "got", "found"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": None}, {}, []),
        ({"a": 1}, {"a": True}, ["a: want 1, got true"]),
        ({"a": {"b": "x"}}, {"a": {}}, ['a.b: want "x", got "<absent>"']),
        ({"a": {}}, {}, ['a: want {}, got "<absent>"']),
        ([1, 2], [1], [": 2 entries wanted, 1 came"]),
        ([{"a": 1}, {"a": 2}], [{"a": 1}, {"a": 3}], ["1.a: want 2, got 3"]),
    ],
)
def test_every_difference_is_named_by_its_path(want: Any, got: Any, found: list[str]) -> None:
    assert differences(want, got) == found


def test_what_varies_from_release_to_release_is_left_out_of_both_sides() -> None:
    step = Step("GET", "/x", varies=["headers.Warning", "body.items.*.new"])
    answers = [{"status": 200, "headers": {"Warning": "old", "Allow": "GET"}, "body": {"items": [{"a": 1, "new": 2}]}}]
    kept = lasting(Scenario("file", "name", (step,)), answers)
    assert kept == [{"status": 200, "headers": {"Allow": "GET"}, "body": {"items": [{"a": 1}]}}]
    assert answers[0]["headers"] == {"Warning": "old", "Allow": "GET"}
