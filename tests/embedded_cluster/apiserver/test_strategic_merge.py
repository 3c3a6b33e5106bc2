"""Strategic merge patches: what each directive does, and in which order merged lists stand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedded_cluster.apiserver.patches.patching import merge
from embedded_cluster.apiserver.patches.strategic import strategic
from embedded_cluster.apiserver.schema import schema
from embedded_cluster.apiserver.statuses import StatusError

POD = schema("V1Pod").shape


def containers(*items: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"containers": list(items)}}


A, B, C = {"name": "a", "image": "1"}, {"name": "b", "image": "2"}, {"name": "c", "image": "3"}


@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [
        (containers(A), containers({"name": "a", "image": "9"}), containers({"name": "a", "image": "9"})),
        (containers(A, B), containers({"name": "b", "image": "9"}), containers(A, {"name": "b", "image": "9"})),
        (containers(A), containers(B), containers(B, A)),
        (containers(A, B, C), containers({"name": "b", "$patch": "delete"}), containers(A, C)),
        (containers(A, B), containers({"$patch": "replace"}, C), containers(C)),
        ({"spec": {"nodeSelector": {"x": "1"}}}, {"spec": {"nodeSelector": {"y": "2"}}}, {"x": "1", "y": "2"}),
        ({"spec": {"nodeSelector": {"x": "1"}}}, {"spec": {"nodeSelector": {"x": None}}}, {}),
        (
            {"spec": {"nodeSelector": {"x": "1"}}},
            {"spec": {"nodeSelector": {"$patch": "replace", "y": "2"}}},
            {"y": "2"},
        ),
        ({"spec": {"tolerations": [{"key": "a"}]}}, {"spec": {"tolerations": [{"key": "b"}]}}, [{"key": "b"}]),
    ],
)
def test_a_patch_is_merged(target: dict[str, Any], patch: dict[str, Any], expected: Any) -> None:
    patched = strategic(target, patch, POD)
    assert expected in (patched, *patched["spec"].values())


def test_a_map_can_be_deleted_as_a_whole() -> None:
    assert strategic(
        {"spec": {"affinity": {}, "nodeName": "n"}}, {"spec": {"affinity": {"$patch": "delete"}}}, POD
    ) == {"spec": {"nodeName": "n"}}


def test_only_retained_keys_stay() -> None:
    target = {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}
    patch = {"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}]}}
    assert strategic(target, patch, POD) == {"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}}


def test_items_of_primitive_lists_are_added_and_deleted() -> None:
    target = {"metadata": {"finalizers": ["a/a", "b/b"]}}
    assert strategic(target, {"metadata": {"finalizers": ["c/c"]}}, POD) == {
        "metadata": {"finalizers": ["c/c", "a/a", "b/b"]}
    }
    assert strategic(target, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a/a"]}}, POD) == {
        "metadata": {"finalizers": ["b/b"]}
    }


@pytest.mark.parametrize(
    ("live", "patched", "order", "expected"),
    [
        ("abc", "", "cba", "cba"),
        ("abc", "b", "ba", "bac"),
        ("abc", "x", "xabc", "xabc"),
        ("abc", "x", "ax", "axbc"),
        ("abcd", "", "dc", "abdc"),
    ],
)
def test_set_element_order_orders_what_it_names(live: str, patched: str, order: str, expected: str) -> None:
    patch: dict[str, Any] = {"$setElementOrder/containers": [{"name": name} for name in order]}
    if patched:
        patch["containers"] = [{"name": name} for name in patched]
    result = strategic(containers(*({"name": name} for name in live)), {"spec": patch}, POD)
    assert "".join(item["name"] for item in result["spec"]["containers"]) == expected


@pytest.mark.parametrize("patch", [{"$patch": "nonsense"}, containers({"image": "no key"})])
def test_directives_that_make_no_sense_are_refused(patch: dict[str, Any]) -> None:
    with pytest.raises(StatusError):
        strategic(containers(A), patch, POD)


values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.sampled_from("xyz"), values, max_size=3)


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return value


@given(objects.map(without_nulls), objects)
def test_a_merge_patch_applied_twice_is_applied_once(target: Any, patch: Any) -> None:
    once = merge(target, patch)
    assert merge(once, patch) == once


@given(objects.map(without_nulls), objects)
def test_patching_changes_neither_target_nor_patch(target: Any, patch: Any) -> None:
    before = repr((target, patch))
    merge(target, patch)
    strategic(target, patch, POD)
    assert repr((target, patch)) == before
