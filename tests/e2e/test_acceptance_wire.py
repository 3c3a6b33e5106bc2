"""Acceptance tests 1 to 4: what goes over the wire between kube-scheduler and the extender."""

from __future__ import annotations

import ssl
from typing import Any

import pytest

from tests.e2e.case import Case
from tests.e2e.credentials import Credentials
from tests.e2e.extender import scheduler_trust
from tests.e2e.ground import SCHEDULER, Ground
from tests.e2e.wire import ask

pytestmark = pytest.mark.e2e

REQUEST = {"Pod", "Nodes", "NodeNames"}
BINDING = {"PodName", "PodNamespace", "PodUID", "Node"}


def placed_and_refused(case: Case) -> None:
    for node in ("node-1", "node-2"):
        case.publish(node, 1)
    case.pod_with_claim("fits")
    case.claim("never", case.request(count=9))
    case.pod("never", "never")
    case.until_bound("fits")
    case.until_refused("never")


def test_01_requests_have_the_keys_we_expect(case: Case, ground: Ground) -> None:
    placed_and_refused(case)
    for verb in ("filter", "prioritize"):
        (call,) = ground.calls.calls(verb, case.key("fits"))
        request = call.json
        assert set(request) == REQUEST
        assert request["Nodes"] is None
        assert not {"kind", "apiVersion"} & set(request["Pod"])
    (bind,) = ground.calls.calls("bind", case.key("fits"))
    assert set(bind.json) == BINDING
    assert bind.json["PodUID"] == case.stored_pod("fits")["metadata"]["uid"]


def test_02_every_node_of_the_question_is_in_the_answer_exactly_once(case: Case, ground: Ground) -> None:
    placed_and_refused(case)
    filters = [call for call in list(ground.calls.log) if call.verb == "filter" and call.status == 200]
    assert filters
    for call in filters:
        answer = call.answer
        assert set(answer) == {"NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error"}
        if not answer["Error"]:
            told = [*answer["NodeNames"], *answer["FailedNodes"], *answer["FailedAndUnresolvableNodes"]]
            assert sorted(told) == sorted(call.json["NodeNames"])
            assert "" not in answer["FailedAndUnresolvableNodes"].values()


def test_03_a_scheduler_that_sends_whole_nodes_is_told_what_to_set(case: Case, ground: Ground) -> None:
    name = SCHEDULER + "-mistaken"

    def change(config: dict[str, Any]) -> None:
        config["leaderElection"]["leaderElect"] = False
        config["profiles"][0]["schedulerName"] = name
        for extender in config["extenders"]:
            extender["nodeCacheCapable"] = False

    ground.start_scheduler(name, change=change)
    try:
        case.publish("node-1", 1)
        case.pod_with_claim("one", scheduler=name)
        case.until_refused("one", "SchedulerError", "nodeCacheCapable: true")
        assert case.results("one") == []
    finally:
        ground.plane.stop_component(name)


def test_04_only_a_client_that_our_authority_has_signed_is_listened_to(ground: Ground, tmp_path: Any) -> None:
    ours = ground.plane.credentials
    nobody = ours.trust()
    stranger = ours.trust()
    stranger.load_cert_chain(*Credentials(tmp_path).client("stranger", "dra-scheduler"))
    question = '{"Pod":{"metadata":{},"spec":{}},"NodeNames":["node-1"]}'
    url = ground.extender.url + "/scheduler/filter"
    assert ask(url, scheduler_trust(ours), question)[0] == 200
    for context in (nobody, stranger):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            ask(url, context, question)
