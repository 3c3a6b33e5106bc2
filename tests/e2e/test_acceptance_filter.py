"""Acceptance tests 6 to 15: what filter and prioritize do to the choices of a real kube-scheduler."""

from __future__ import annotations

import json
import time

import pytest

from tests.e2e.case import Case
from tests.e2e.extender import scheduler_trust
from tests.e2e.ground import SCHEDULER, Ground
from tests.e2e.schedulerqueue import Queue
from tests.e2e.wire import ask

pytestmark = pytest.mark.e2e


def test_06_a_pod_without_claims_may_go_anywhere(case: Case, ground: Ground) -> None:
    case.pod("plain")
    case.until_runs("plain")
    (call,) = ground.calls.calls("filter", case.key("plain"))
    assert sorted(call.answer["NodeNames"]) == sorted(ground.nodes) == sorted(call.json["NodeNames"])


def test_07_a_claim_is_allocated_only_where_its_devices_are(case: Case, ground: Ground) -> None:
    case.publish("node-3", 1)
    case.pod_with_claim("one")
    assert case.until_bound("one") == "node-3"
    assert case.devices("one") == ["device-0"]
    case.until_runs("one")


def test_08_an_allocated_claim_takes_its_pods_to_its_node(case: Case, ground: Ground) -> None:
    case.publish("node-2", 1)
    case.publish("node-4", 1)
    case.claim("shared")
    case.pod("first", "shared")
    node = case.until_bound("first")
    case.pod("second", "shared")
    assert case.until_bound("second") == node
    assert ground.calls.calls("filter", case.key("second"))[-1].answer["NodeNames"] == [node]


def test_09_a_missing_class_is_an_ordinary_refusal(case: Case) -> None:
    case.publish("node-1", 1)
    case.claim("lost", {"name": "r", "exactly": {"deviceClassName": f"{case.name}-missing"}})
    case.pod("lost", "lost")
    assert case.until_refused("lost", f"{case.name}-missing").startswith("Unschedulable:")


def test_09_a_claim_that_is_being_deleted_is_an_ordinary_refusal(case: Case, ground: Ground) -> None:
    case.publish("node-1", 1)
    case.claim("leaving")
    ground.patch(case.claim_path("leaving"), {"metadata": {"finalizers": ["example.com/hold"]}})
    case.delete_claim("leaving")
    case.pod("late", "leaving")
    # preEnqueue keeps it from us while the claim goes; the claim is never touched.
    time.sleep(1)
    assert case.node("late") == ""
    assert "allocation" not in case.stored_claim("leaving").get("status", {})
    ground.patch(case.claim_path("leaving"), {"metadata": {"finalizers": None}})


def test_09_a_selector_that_fails_at_run_time_is_told_to_people(case: Case) -> None:
    case.publish("node-1", 1)
    selector = {"cel": {"expression": f'device.attributes["{case.driver}"].absent == "x"'}}
    case.claim("bad", case.request(selectors=[selector]))
    case.pod("bad", "bad")
    assert "no such key" in case.until_refused("bad")


def test_10_a_pod_that_fits_nowhere_is_asked_about_twice_and_then_left_alone(case: Case, ground: Ground) -> None:
    case.alone()
    case.pod_with_claim("never")
    told = case.until_refused("never")
    others = len(ground.plane.others)  # a cluster's own nodes are counted, and told of first
    assert told.startswith(f"Unschedulable: 0/{4 + others} nodes are available: ")
    assert ("" if others else "available: ") + "4 cannot allocate all claims." in told

    def asked() -> int:
        return len(ground.calls.calls("filter", case.key("never")))

    ground.eventually(lambda: asked() >= 2)
    queue = Queue(ground)
    ground.eventually(lambda: queue.rests(1), "rest")
    time.sleep(5)
    assert (asked(), queue.rests(1)) == (2, True)
    ground.plane.stop_component(SCHEDULER)
    ground.extender.stop()
    ground.extender.start()
    ground.start_scheduler()
    ground.eventually(lambda: asked() > 2, "a call by the new scheduler")
    time.sleep(1)
    assert case.told("never") == told


def test_10_the_reasons_do_not_depend_on_the_order_of_the_nodes(case: Case, ground: Ground) -> None:
    case.publish("node-1", 1)
    case.publish("node-3", 3)
    case.claim("never", case.request(count=4))
    case.pod("never", "never")
    case.until_refused("never")
    call = ground.calls.calls("filter", case.key("never"))[-1]
    names, trust = call.json["NodeNames"], scheduler_trust(ground.plane.credentials)
    for order in (names, names[::-1], names[2:] + names[:2]):
        question = json.dumps(call.json | {"NodeNames": order})
        status, answer = ask(ground.extender.url + call.path, trust, question)
        assert (status, json.loads(answer)) == (200, call.answer)


def test_11_a_shortage_of_devices_evicts_nobody(case: Case, ground: Ground) -> None:
    case.apply(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": case.name},
            "value": 1000,
        }
    )
    case.publish("node-1", 1)
    case.pod_with_claim("holder")
    case.until_bound("holder")
    case.claim("wanted")
    case.pod("important", "wanted", priorityClassName=case.name)
    told = case.until_refused("important", "cannot allocate all claims")
    assert "expected at least one victim" not in told
    ground.eventually(lambda: len(ground.calls.calls("filter", case.key("important"))) >= 2)
    assert "deletionTimestamp" not in case.stored_pod("holder")["metadata"]


def test_12_a_nominated_node_is_asked_for_alone_first(case: Case, ground: Ground) -> None:
    case.publish("node-2", 1)
    case.claim("late", case.request(selectors=[{"cel": {"expression": "false"}}]))
    case.pod("nominated", "late")
    case.until_refused("nominated")
    ground.patch(case.pod_path("nominated") + "/status", {"status": {"nominatedNodeName": "node-3"}})

    def sizes() -> list[int]:
        return [len(call.json["NodeNames"]) for call in ground.calls.calls("filter", case.key("nominated"))]

    ground.eventually(lambda: 1 in sizes() and sizes()[-1] == 4, "one name, then all")
    after = sizes()[sizes().index(1) :]
    assert after[:2] == [1, 4]


def test_13_a_single_survivor_is_bound_without_prioritize(case: Case, ground: Ground) -> None:
    case.publish("node-4", 1)
    case.pod_with_claim("only")
    case.until_runs("only")
    assert ground.calls.calls("prioritize", case.key("only")) == []
    assert len(ground.calls.calls("bind", case.key("only"))) == 1


def test_14_scores_are_small_integers_and_the_better_alternative_decides(case: Case, ground: Ground) -> None:
    for node in ground.nodes:
        model = {"attributes": {"model": {"string": "good" if node == "node-3" else "poor"}}}
        case.publish(node, [{"name": "device-0", **model}])
    wanted = {"cel": {"expression": f'device.attributes["{case.driver}"].model == "good"'}}
    alternatives = [
        {"name": "good", "deviceClassName": case.name, "selectors": [wanted]},
        {"name": "any", "deviceClassName": case.name},
    ]
    case.claim("either", {"name": "r", "firstAvailable": alternatives})
    case.pod("choosy", "either")
    assert case.until_bound("choosy") == "node-3"
    assert case.results("either")[0]["request"] == "r/good"
    scores = ground.calls.calls("prioritize", case.key("choosy"))[-1].answer
    assert {type(score["Score"]) for score in scores} == {int}
    assert all(0 <= score["Score"] <= 10 for score in scores)
    best = max(scores, key=lambda score: score["Score"])
    assert best["Host"] == "node-3"


def test_15_a_node_we_have_not_seen_yet_is_refused_and_found_soon(case: Case, ground: Ground) -> None:
    ground.watches(False)
    try:
        node = case.node_added()
        case.publish(node, 1)
        case.pod_with_claim("newcomer")
        case.until_refused("newcomer", "node not synced yet")
    finally:
        ground.watches(True)
    assert case.until_bound("newcomer") == node
