"""Acceptance tests 16 to 26: bind, undisturbed and disturbed at each of its writes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web

from tests.e2e.case import Case
from tests.e2e.disturbance import WRITES, Match, Then, binding, finalizer, once, refuse, status, verb
from tests.e2e.ground import BIND_TIMEOUT, HASTY, Ground
from tests.e2e.wire import Exchange

pytestmark = pytest.mark.e2e

EXTENDER = "system:serviceaccount:dra-system:dra-extender"


def bind_to(case: Case, pod: str) -> Match:
    return verb("bind", case.key(pod))


def writes_of_extender(case: Case, ground: Ground) -> list[tuple[str, str, int]]:
    """(verb, what, status code) of every write in the test's namespace, in the order of the API server."""
    found = []
    for line in ground.plane.audit_log.read_text().splitlines():
        event = json.loads(line)
        subject = event["objectRef"]
        if event["user"]["username"] == EXTENDER and subject.get("namespace") == case.name:
            what = "/".join(filter(None, (subject["resource"], subject.get("subresource"))))
            if what != "events":
                found.append((event["verb"], what, event["responseStatus"]["code"]))
    return found


@pytest.mark.own_plane("it reads the audit log")
def test_16_finalizer_then_allocation_with_reservation_then_binding(case: Case, ground: Ground) -> None:
    case.publish("node-1", 1)
    case.pod_with_claim("one")
    case.until_runs("one")
    assert writes_of_extender(case, ground) == [
        ("patch", "resourceclaims", 200),
        ("patch", "resourceclaims/status", 200),
        ("create", "pods/binding", 201),
    ]
    stored = case.stored_claim("one")
    assert stored["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    assert case.reserved("one") == {"one"}
    selector = stored["status"]["allocation"]["nodeSelector"]["nodeSelectorTerms"]
    assert selector == [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}]


def test_17_one_device_goes_to_one_of_two_pods(case: Case, ground: Ground) -> None:
    case.publish("node-2", 1)
    names = ["one", "two"]
    for name in names:
        case.pod_with_claim(name)
    (winner,) = ground.eventually(lambda: case.bound(names), "one binding")
    (loser,) = set(names) - {winner}
    case.until_refused(loser, "cannot allocate all claims")
    assert case.results(loser) == []
    case.delete_pod(winner)
    case.until_runs(loser)


def test_18_a_bind_that_fails_gives_its_devices_back_and_succeeds_later(case: Case, ground: Ground) -> None:
    case.publish("node-1", 1)
    failing = True

    async def forbid(exchange: Exchange) -> web.Response | None:
        wrong = failing and binding("unlucky")(exchange)
        return await refuse(403, "Forbidden")(exchange) if wrong else None

    with ground.api.rule(before=forbid):
        case.pod_with_claim("unlucky")
        case.until_refused("unlucky", "SchedulerError", "the API server refused the binding")
        case.until_free("unlucky")
        failing = False
    case.until_runs("unlucky")
    assert case.reserved("unlucky") == {"unlucky"}


@pytest.mark.own_plane("it reads the audit log")
def test_19_an_answer_that_comes_too_late_leaves_the_pod_bound(case: Case, ground: Ground, hasty: str) -> None:
    case.publish("node-3", 2)

    late: list[Exchange] = []

    async def dawdle(exchange: Exchange) -> None:
        await asyncio.sleep(BIND_TIMEOUT + 1)
        late.append(exchange)

    with ground.calls.rule(after=once(bind_to(case, "late"), dawdle)):
        case.pod_with_claim("late", scheduler=hasty)
        case.until_bound("late")
        ground.eventually(lambda: late, "the late answer")
    assert late[0].answer == {"Error": ""}
    # The next pod's scheduling shows that the first one's failure has been dealt with.
    case.pod_with_claim("next", scheduler=hasty)
    case.until_runs("late", "next")
    assert case.reserved("late") == {"late"}
    assert [write for write in writes_of_extender(case, ground) if write[1] == "pods/binding"] == [
        ("create", "pods/binding", 201)
    ] * 2


@pytest.mark.own_plane("it reads the audit log")
def test_20_a_retry_while_the_binding_hangs_gives_one_allocation_on_one_node(
    case: Case, ground: Ground, hasty: str
) -> None:
    for node in ground.nodes:
        case.publish(node, 1)

    async def hang(exchange: Exchange) -> None:
        await asyncio.sleep(BIND_TIMEOUT + 3)

    with ground.api.rule(before=once(binding("slow"), hang)):
        case.pod_with_claim("slow", scheduler=hasty)
        ground.eventually(lambda: len(ground.calls.calls("bind", case.key("slow"))) >= 2, "a second bind")
        node = case.until_bound("slow")
    case.until_runs("slow")
    assert [result["pool"] for result in case.results("slow")] == [node]
    assert writes_of_extender(case, ground).count(("patch", "resourceclaims/status", 200)) == 1
    assert writes_of_extender(case, ground).count(("create", "pods/binding", 201)) == 1


FAILURES: dict[str, Then] = {
    "409": refuse(409, "Conflict"),
    "429": refuse(429, "TooManyRequests"),
    "500": refuse(500, "InternalError"),
    "503": refuse(503, "ServiceUnavailable"),
}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("write", WRITES)
def test_21_a_write_that_is_refused_once_costs_nothing(case: Case, ground: Ground, write: str, failure: str) -> None:
    case.publish("node-1", 1)
    with ground.api.rule(before=once(WRITES[write]("one"), FAILURES[failure])):
        case.pod_with_claim("one")
        case.until_runs("one")
    assert (case.devices("one"), case.reserved("one")) == (["device-0"], {"one"})


@pytest.mark.own_plane("it reads the audit log")
@pytest.mark.parametrize("write", WRITES)
def test_21_a_write_whose_reply_is_lost_is_not_done_twice(case: Case, ground: Ground, write: str) -> None:
    case.publish("node-1", 1)
    with ground.api.rule(after=once(WRITES[write]("one"), refuse(504, "Timeout"))):
        case.pod_with_claim("one")
        case.until_runs("one")
    assert (case.devices("one"), case.reserved("one")) == (["device-0"], {"one"})
    done = [what for _, what, code in writes_of_extender(case, ground) if code < 300]
    assert done.count("pods/binding") == 1
    assert done.count("resourceclaims/status") == 1


def test_22_a_pod_deleted_before_its_bind_leaves_its_devices_free(case: Case, ground: Ground) -> None:
    _deleted_on_the_way(case, ground, ground.calls.rule, bind_to(case, "gone"))
    assert (case.devices("gone"), case.devices("next")) == ([], ["device-0"])


@pytest.mark.parametrize("write", WRITES)
def test_22_a_pod_deleted_during_its_bind_leaves_its_devices_free(case: Case, ground: Ground, write: str) -> None:
    _deleted_on_the_way(case, ground, ground.api.rule, WRITES[write]("gone"))
    assert (case.devices("gone"), case.devices("next")) == ([], ["device-0"])


def _deleted_on_the_way(case: Case, ground: Ground, disturbed: Any, moment: Match) -> None:
    case.publish("node-1", 1)
    deleted = []

    async def delete(exchange: Exchange) -> None:
        await ground.client.delete(case.pod_path("gone"), b'{"gracePeriodSeconds": 0}')
        deleted.append(exchange)

    with disturbed(before=once(moment, delete)):
        case.pod_with_claim("gone")
        ground.eventually(lambda: deleted, "the deletion")
        case.pod_with_claim("next")
        case.until_runs("next")
    case.until_free("gone")


CRASHES: dict[str, tuple[str, Callable[[str], Match]]] = {
    "before": ("before", finalizer),
    "finalizer": ("after", finalizer),
    "status": ("after", status),
}
CRASHES |= {"binding": ("after", binding)}


@pytest.mark.parametrize("step", CRASHES)
def test_23_a_crash_after_any_step_is_made_good_by_the_next_start(case: Case, ground: Ground, step: str) -> None:
    case.publish("node-1", 1)
    when, write = CRASHES[step]

    async def crash(exchange: Exchange) -> None:
        ground.extender.kill()

    with ground.api.rule(**{when: once(write("one"), crash)}):
        case.pod_with_claim("one")
        ground.eventually(lambda: ground.extender.process is None, "the crash")
    ground.extender.start()
    case.until_runs("one")
    assert (case.devices("one"), case.reserved("one")) == (["device-0"], {"one"})
    case.pod_with_claim("two")
    case.until_refused("two", "cannot allocate all claims")


def test_24_a_scheduler_that_dies_during_a_bind_finds_it_done(case: Case, ground: Ground, hasty: str) -> None:
    case.publish("node-1", 1)

    async def crash(exchange: Exchange) -> None:
        ground.plane.components[HASTY].kill()

    with ground.api.rule(before=once(binding("one"), crash)):
        case.pod_with_claim("one", scheduler=hasty)
        case.until_runs("one")
    ground.plane.components.pop(HASTY)
    ground.start_hasty_scheduler()
    case.pod_with_claim("two", scheduler=hasty)
    case.until_refused("two", "cannot allocate all claims")
    assert case.reserved("one") == {"one"}


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_25_two_hundred_binds_at_once_all_succeed(case: Case, ground: Ground) -> None:
    for node in ground.nodes:
        case.publish(node, 50)
    names = [f"pod-{index}" for index in range(200)]
    for name in names:
        case.pod_with_claim(name)
    ground.eventually(lambda: len(case.bound(names)) == len(names), "all bindings", 300)
    for name in names:
        *lost, last = [ground.answer(call)["Error"] for call in ground.calls.calls("bind", case.key(name))]
        # No device is spare: two pods may want the same of the last devices.
        assert (set(lost) - {"cannot allocate all claims"}, last) == (set(), "")
    held = [tuple(result[part] for part in ("pool", "device")) for name in names for result in case.results(name)]
    assert len(set(held)) == len(held) == len(names)


def test_26_success_is_not_answered_before_the_api_server_has_the_binding(case: Case, ground: Ground) -> None:
    case.publish("node-1", 1)
    early: list[bool] = []

    async def look(exchange: Exchange) -> None:
        await asyncio.sleep(0.5)
        (call,) = ground.calls.calls("bind", case.key("one"))
        early.append(call.sent.is_set())

    with ground.api.rule(after=once(binding("one"), look)):
        case.pod_with_claim("one")
        ground.eventually(lambda: early, "a look at the answer")
    case.until_runs("one")
    assert early == [False]
