"""What each page of a list and each event of a watch changes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_extender.api.core import Node
from dra_extender.api.errors import ApiError, GoneError, OutcomeUnknownError
from dra_extender.api.events import Applied, ClusterEvent, Removed, Undecodable
from dra_extender.api.meta import ObjectKey
from dra_extender.kube.knownobjects import KnownObjects
from dra_extender.kube.resources import NODES, RESOURCE_CLAIMS
from tests.support.unexpected import Reports


class Seen:
    """Records events; applying a node called `bomb` fails."""

    def __init__(self) -> None:
        self.log: list[tuple[str, ...]] = []
        self.nodes: dict[str, str] = {}

    def apply(self, event: ClusterEvent) -> None:
        name = event.key.name
        match event:
            case Applied(object=obj):
                if name == "bomb":
                    raise RuntimeError("does not fit")
                self.log.append(("apply", name, obj.metadata.resource_version))
                self.nodes[name] = obj.metadata.uid
            case Removed(uid=uid):
                self.log.append(("remove", name, str(uid)))
                self.nodes.pop(name, None)
            case Undecodable(problem=problem):
                self.log.append(("undecodable", name, problem))


def node(name: str, version: int = 1, uid: str = "u", **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": uid, "resourceVersion": str(version)}, **fields}


def raws(*objects: Any) -> list[msgspec.Raw]:
    return [msgspec.Raw(msgspec.json.encode(obj)) for obj in objects]


def event(kind: str, obj: Any) -> bytes:
    return msgspec.json.encode({"type": kind, "object": obj})


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def known(seen: Seen) -> KnownObjects[Node]:
    return KnownObjects(NODES, seen.apply)


def relist(known: KnownObjects[Node], version: str, *objects: Any) -> None:
    known.begin_list()
    known.listed(raws(*objects))
    known.end_list(version)


def test_a_list_applies_everything_and_remembers_its_version(known: KnownObjects[Node], seen: Seen) -> None:
    relist(known, "7", node("a"), node("b", 2))
    assert seen.log == [("apply", "a", "1"), ("apply", "b", "2")]
    assert known.version == "7"


def test_a_second_list_reports_only_differences(known: KnownObjects[Node], seen: Seen) -> None:
    relist(known, "7", node("same"), node("changed"), node("gone"))
    seen.log.clear()
    relist(known, "9", node("same"), node("changed", 8), node("new", 9))
    assert seen.log == [("apply", "changed", "8"), ("apply", "new", "9"), ("remove", "gone", "u")]


def test_a_list_is_decoded_as_it_comes_and_reported_in_one_step(seen: Seen) -> None:
    """The step has to be a short one, however large the objects are."""
    decoded: list[str] = []

    def decode(data: bytes | msgspec.Raw) -> Node:
        node = NODES.decode(data)
        decoded.append(node.name)
        return node

    known = KnownObjects(msgspec.structs.replace(NODES, decode=decode), seen.apply)
    known.begin_list()
    known.listed(raws(node("a"), node("b")))
    assert (decoded, seen.log) == (["a", "b"], [])
    known.end_list("7")
    assert (decoded, seen.log) == (["a", "b"], [("apply", "a", "1"), ("apply", "b", "1")])


def test_an_object_made_anew_between_two_lists_is_removed_first(known: KnownObjects[Node], seen: Seen) -> None:
    relist(known, "7", node("a", 1, uid="old"))
    seen.log.clear()
    relist(known, "9", node("a", 8, uid="new"))
    assert seen.log == [("remove", "a", "old"), ("apply", "a", "8")]


def test_events_apply_remove_and_advance_the_version(known: KnownObjects[Node], seen: Seen) -> None:
    relist(known, "1")
    known.watched(event("ADDED", node("a", 2)))
    known.watched(event("MODIFIED", node("a", 3)))
    known.watched(event("BOOKMARK", {"metadata": {"resourceVersion": "40"}}))
    assert known.version == "40"
    known.watched(event("DELETED", node("a", 41)))
    assert seen.log == [("apply", "a", "2"), ("apply", "a", "3"), ("remove", "a", "u")]
    assert known.version == "41"
    assert len(known) == 0


def test_an_undecodable_object_is_reported_once_and_the_others_go_on(known: KnownObjects[Node], seen: Seen) -> None:
    bad = node("bad", status={"allocatable": {"cpu": "lots"}})
    relist(known, "5", node("a"), bad, node("b"))
    assert [entry[:2] for entry in seen.log] == [("apply", "a"), ("undecodable", "bad"), ("apply", "b")]
    assert "lots" in seen.log[1][2]
    assert known.undecodable == 1
    seen.log.clear()
    relist(known, "6", node("a"), bad, node("b"))
    assert seen.log == []


def test_an_undecodable_object_that_becomes_good_recovers(known: KnownObjects[Node], seen: Seen) -> None:
    known.watched(event("ADDED", node("a", status={"allocatable": {"cpu": "lots"}})))
    known.watched(event("MODIFIED", node("a", 2)))
    assert [entry[0] for entry in seen.log] == ["undecodable", "apply"]
    assert known.undecodable == 0


def test_an_object_that_turns_undecodable_keeps_its_last_good_form_until_it_is_deleted(
    known: KnownObjects[Node], seen: Seen
) -> None:
    bad = node("a", 2, status={"allocatable": {"cpu": "lots"}})
    known.watched(event("ADDED", node("a")))
    known.watched(event("MODIFIED", bad))
    assert "a" in seen.nodes
    known.watched(event("DELETED", bad))
    assert [entry[0] for entry in seen.log] == ["apply", "undecodable", "remove"]


def test_the_end_of_an_object_that_was_never_decodable_is_reported(known: KnownObjects[Node], seen: Seen) -> None:
    relist(known, "5", node("a", status={"allocatable": {"cpu": "lots"}}))
    relist(known, "6")
    assert [(entry[0], entry[2]) for entry in seen.log][1:] == [("remove", "None")]


def test_an_object_whose_event_fails_counts_as_undecodable(
    known: KnownObjects[Node], seen: Seen, tolerated: Reports
) -> None:
    relist(known, "5", node("bomb"), node("a"))
    assert seen.log == [("undecodable", "bomb", "RuntimeError: does not fit"), ("apply", "a", "1")]
    assert [place for place, _ in tolerated] == ["object"]


def test_nulls_and_managed_fields_do_no_harm(known: KnownObjects[Node], seen: Seen) -> None:
    odd = node("a")
    odd["metadata"] |= {"labels": None, "managedFields": [{"manager": 7, "fieldsV1": None}]}
    relist(known, "5", odd)
    assert seen.log == [("apply", "a", "1")]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"code": 410, "reason": "Expired", "message": "too old"}, GoneError),
        ({"code": 410}, GoneError),
        ({"code": 500, "message": "etcd"}, OutcomeUnknownError),
        ({"message": "no code"}, OutcomeUnknownError),
    ],
)
def test_an_error_event_ends_the_watch(
    known: KnownObjects[Node], status: dict[str, Any], expected: type[ApiError]
) -> None:
    with pytest.raises(expected):
        known.watched(event("ERROR", status))


@pytest.mark.parametrize("line", [b"", b"{", b'{"type":"ADDED"}', b"[]", b'{"type":7,"object":{}}'])
def test_a_malformed_line_ends_the_watch_and_changes_nothing(
    known: KnownObjects[Node], seen: Seen, line: bytes
) -> None:
    with pytest.raises(ApiError, match="watch of nodes"):
        known.watched(line)
    assert seen.log == []


DEEP = b"[" * 100_000 + b"]" * 100_000
NAMED = b'"metadata":{"name":"c","namespace":"n","uid":"u","resourceVersion":"7"}'
OPAQUE = b'{"driver":"d","parameters":%s}'


def claim_with(parameters: bytes) -> bytes:
    spec = b'"spec":{"devices":{"config":[{"opaque":' + OPAQUE % parameters + b"}]}}"
    return b'{"kind":"ResourceClaim",' + NAMED + b"," + spec + b"}"


UNDECODABLE_CLAIMS = {
    "deep opaque parameters": claim_with(DEEP),
    "deep objects": claim_with(b'{"a":' * 10_000 + b"1" + b"}" * 10_000),
    "the depth before the name": b'{"spec":{"metadata":{"name":"victim","resourceVersion":"1"},"x":%s},%s}'
    % (DEEP, NAMED),
    "managed fields before the name": b'{"metadata":{"managedFields":[{"fieldsV1":%s}],%s,"spec":{}}'
    % (DEEP, NAMED.partition(b"{")[2]),
    "a number of 10,000 digits": b'{%s,"status":{"allocation":{"devices":{"results":[{"request":"r","driver":"d",'
    b'"pool":"p","device":"x","consumedCapacity":{"m":%s}}]}}}}' % (NAMED, b"1" * 10_000),
    "a generation of 10,000 digits": b'{"metadata":{"generation":%s,%s}' % (b"1" * 10_000, NAMED.partition(b"{")[2]),
    "no Unicode": b'{%s,"spec":{"devices":{"requests":[{"name":"\xff\xfe"}]}}}' % NAMED,
    "a control character": b'{%s,"spec":{"devices":{"requests":[{"name":"a\nb"}]}}}' % NAMED,
    "labels that are a number": b'{"metadata":{"labels":7,%s}' % NAMED.partition(b"{")[2],
    "a status that is text": b'{%s,"status":"fine"}' % NAMED,
    "a list for a driver": b'{%s,"status":{"allocation":{"devices":{"results":[{"driver":[]}]}}}}' % NAMED,
}


@pytest.mark.parametrize("raw", UNDECODABLE_CLAIMS.values(), ids=UNDECODABLE_CLAIMS)
def test_a_claim_that_cannot_be_decoded_is_named_and_the_stream_goes_on_behind_it(raw: bytes) -> None:
    seen = Seen()
    known = KnownObjects(RESOURCE_CLAIMS, seen.apply)

    def log() -> list[tuple[str, ...]]:
        return [entry[:2] for entry in seen.log]

    known.watched(b'{"type":"MODIFIED","object":%s}' % raw)
    assert (log(), known.version, known.undecodable) == ([("undecodable", "n/c")], "7", 1)
    known.watched(b'{"object":%s,"type":"MODIFIED"}\n' % raw)
    assert len(seen.log) == 1
    known.watched(event("MODIFIED", {"metadata": {"name": "d", "namespace": "n", "uid": "v", "resourceVersion": "8"}}))
    known.watched(b'{"type":"DELETED","object":%s}' % raw.replace(b'"7"', b'"9"'))
    assert (log()[1:], known.version) == ([("apply", "n/d"), ("remove", "n/c")], "9")
    known.begin_list()
    known.listed([msgspec.Raw(raw)])
    known.end_list("10")
    assert log()[3:] == [("undecodable", "n/c"), ("remove", "n/d")]


def test_what_can_be_read_of_an_allocation_comes_with_the_event_whenever_it_changes() -> None:
    found: list[ClusterEvent] = []
    known = KnownObjects(RESOURCE_CLAIMS, found.append)
    bare = claim_with(DEEP)
    status = b',"status":{"allocation":{"devices":{"results":[{"request":"r","driver":"d","pool":"p","device":"x"}]}}}}'
    allocated = bare[:-1] + status
    for raw in (bare, bare, allocated, allocated):
        known.watched(b'{"type":"MODIFIED","object":%s}' % raw)
    known.begin_list()
    known.listed([msgspec.Raw(bare)])
    known.end_list("10")
    partials = [event.partial for event in found if isinstance(event, Undecodable) and event.partial is not None]
    assert [[result.device for result in partial.results] for partial in partials] == [[], ["x"], []]
    assert len(found) == 3
    assert all(partial.complete for partial in partials)


def test_an_object_that_is_set_aside_is_not_decoded_and_what_it_holds_is_known() -> None:
    found: list[ClusterEvent] = []
    aside = {ObjectKey("ResourceClaim", "n/c"): "stopped a process"}
    known = KnownObjects(RESOURCE_CLAIMS, found.append, None, lambda key: aside.get(key, ""))
    results = [{"request": "r", "driver": "d", "pool": "p", "device": "x"}]
    claim, other = (
        {
            "metadata": {"name": name, "namespace": "n", "uid": name, "resourceVersion": version},
            "spec": {},
            "status": {"allocation": {"devices": {"results": results}}},
        }
        for name, version in (("c", "7"), ("d", "8"))
    )
    known.watched(event("ADDED", claim))
    known.watched(event("ADDED", other))
    first, second = found
    assert isinstance(first, Undecodable) and first.partial is not None
    assert (first.problem, [result.device for result in first.partial.results]) == ("stopped a process", ["x"])
    assert isinstance(second, Applied)
    aside.clear()
    known.begin_list()
    known.listed(raws(claim, other))
    known.end_list("10")
    assert [event.key.name for event in found[2:] if isinstance(event, Applied)] == ["n/c"]


@pytest.mark.parametrize("metadata", [b"7", b"[]", b"null", b'{"name":7}', DEEP], ids=["7", "[]", "null", "7s", "deep"])
def test_an_object_without_a_name_stops_nobody(metadata: bytes, known: KnownObjects[Node], seen: Seen) -> None:
    """Behind an event that is nested too deeply and has no version, the watch cannot go on: a list follows."""
    line = b'{"type":"ADDED","object":{"metadata":%s}}' % metadata
    if metadata is DEEP:
        with pytest.raises(ApiError, match="watch of nodes"):
            known.watched(line)
    else:
        known.watched(line)
        assert [entry[:2] for entry in seen.log] == [("undecodable", "")]
    known.watched(event("ADDED", node("a", 2)))
    assert seen.log[-1] == ("apply", "a", "2")


claim_fields = st.sampled_from(
    [
        "devices",
        "requests",
        "config",
        "opaque",
        "allocation",
        "results",
        "driver",
        "reservedFor",
        "nodeSelector",
        "name",
    ]
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(claim_fields | st.text(max_size=3), inner, max_size=3),
    max_leaves=20,
)


@given(anything, anything, st.permutations(["metadata", "spec", "status"]))
def test_whatever_an_object_contains_the_next_one_is_applied(spec: Any, status: Any, order: list[str]) -> None:
    seen = Seen()
    known = KnownObjects(RESOURCE_CLAIMS, seen.apply)
    parts = {"metadata": node("odd", 2)["metadata"], "spec": spec, "status": status}
    known.watched(event("ADDED", {name: parts[name] for name in order}))
    assert known.version == "2"
    known.watched(event("ADDED", node("a", 3)))
    assert seen.log[-1][:2] == ("apply", "a")


changes = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["put", "delete", "relist", "bad"])), max_size=40)


@given(changes)
def test_after_any_history_the_events_have_shown_exactly_what_exists(history: list[tuple[str, str]]) -> None:
    """Missed deletions, recreations and bad objects included."""
    seen = Seen()
    known = KnownObjects(NODES, seen.apply)
    stored: dict[str, dict[str, Any]] = {}
    for version, (name, action) in enumerate(history, start=1):
        if action == "put":
            stored[name] = node(name, version, uid=f"{name}{version // 7}")
            known.watched(event("MODIFIED", stored[name]))
        elif action == "bad":
            known.watched(event("MODIFIED", node(name, version, spec=7)))
            stored.setdefault(name, node(name, version))
        elif action == "delete":
            stored.pop(name, None)  # nobody watched
        else:
            relist(known, str(version), *stored.values())
    relist(known, str(len(history) + 1), *stored.values())
    assert seen.nodes == {name: obj["metadata"]["uid"] for name, obj in stored.items()}
    assert known.undecodable == 0
