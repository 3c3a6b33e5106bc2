"""What a worker is sent is the same question, and nothing that it does not need."""

from __future__ import annotations

import asyncio
from itertools import islice

import pytest

from bench.allocation import vectors
from dra_extender.allocation import allocator as allocators
from dra_extender.allocation.allocator import Allocator, reply_to
from dra_extender.allocation.constraints import Values
from dra_extender.allocation.plan import NO_SOLUTION, Plan, Unfit
from dra_extender.allocation.requests import PreparedClaims, prepare
from dra_extender.allocation.scenario import Scenario
from dra_extender.allocation.workerrequests import SearchReply, SearchRequest
from dra_extender.api.decoding import to_builtins
from dra_extender.devices.holdings import NodeHoldings
from dra_extender.devices.inventory import node_view
from dra_extender.devices.usage import holdings_of
from dra_extender.workers import wire
from dra_extender.workers.wire import (
    HEADER,
    MOST,
    WireError,
    decode_reply,
    decode_request,
    encode_request,
    frame,
    length,
)
from tests.support.allocation.newgates import random_scenario
from tests.support.allocation.scenarios import DRIVER, claim, device, request, resource_slice, scenario


def sent_bytes(question: SearchRequest) -> bytes:
    """What a worker reads."""
    payload, _ = asyncio.run(encode_request(question))
    return payload


def question_of(scenario: Scenario, values: Values = ()) -> SearchRequest | None:
    """None for claims that are wrong on every node."""
    prepared = prepare(scenario.claims, scenario.classes, scenario.features, values=values)
    if not isinstance(prepared, PreparedClaims):
        return None
    view = node_view(scenario.node, scenario.slices, scenario.rules, scenario.features)
    held = holdings_of(scenario.allocated, scenario.features)
    return SearchRequest(prepared, view, held)


@pytest.mark.parametrize("name", ["allocation", "hard"])
def test_a_search_that_was_sent_takes_the_same_turns(name: str) -> None:
    asked = 0
    for case in islice(vectors(name), None, None, 3):
        question = question_of(Scenario(case))
        if question is not None and not question.view.error:
            asked += 1
            sent = decode_request(sent_bytes(question))
            assert reply_to(sent) == reply_to(question), case["name"]
    assert asked > 15


def test_a_search_with_the_gates_of_1_37_takes_the_same_turns() -> None:
    questions = filter(None, (question_of(Scenario(random_scenario(number))) for number in range(150)))
    asked = [question for question in questions if not question.view.error]
    for question in asked:
        assert reply_to(decode_request(sent_bytes(question))) == reply_to(question)
    assert len(asked) > 50


def test_the_result_of_a_search_is_made_without_preparing_the_search_again(monkeypatch: pytest.MonkeyPatch) -> None:
    allocator = Allocator(share_ids=lambda: "share")
    made = 0
    for number in range(150):
        question = question_of(Scenario(random_scenario(number)))
        if question is None or question.view.error:
            continue
        prepared, view, holdings = question.prepared, question.view, NodeHoldings(question.view, question.held)
        found, reply = allocator.allocate(prepared, view, holdings), reply_to(question)
        assert isinstance(reply, SearchReply)
        with monkeypatch.context() as patched:
            patched.delattr(allocators, "AllocationTask")
            replayed = allocator.replay(prepared, view, reply)
        assert to_builtins(replayed) == to_builtins(found)
        made += isinstance(found, Plan)
    assert made > 20


def test_a_search_takes_only_devices_with_the_values_that_they_must_have() -> None:
    devices = [device("a", {"rack": "x"}), device("b", {"rack": "y"})]
    case = scenario([resource_slice(devices)], [claim(request("r"))])
    question = question_of(Scenario(case), ((f"{DRIVER}/rack", ("str", "y")),))
    assert question is not None
    reply = reply_to(decode_request(sent_bytes(question)))
    assert reply == SearchReply(2, ((0, 0, 1),))
    allocator = Allocator(share_ids=lambda: "share")
    assert isinstance(allocator.replay(question.prepared, question.view, reply), Plan)
    for number in (0, -1, 2):
        wrong = allocator.replay(question.prepared, question.view, SearchReply(2, ((0, 0, number),)))
        assert wrong == Unfit(NO_SOLUTION, 2)


def has_a_selector(question: SearchRequest) -> bool:
    asks = [ask for request in question.prepared.requests for ask in request.asks]
    return bool(question.view.devices) and any(ask.filter.selectors for ask in asks)


def test_what_is_known_of_selectors_goes_with_a_search() -> None:
    questions = filter(None, (question_of(Scenario(case)) for case in vectors("allocation")))
    question = next(filter(has_a_selector, questions))
    reply_to(question)
    sent = decode_request(sent_bytes(question))
    assert isinstance(sent, SearchRequest)
    first = sent.prepared.requests[0].asks[0].filter
    assert all(first.key in device.model.memo for device in sent.view.devices)


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b'{"type":"who"}', b'{"type":"compile"}', b"[" * 100_000])
def test_what_is_no_message_is_an_error(payload: bytes) -> None:
    for decode in (decode_request, decode_reply):
        with pytest.raises(WireError):
            decode(payload)


def test_frames_have_a_largest_size() -> None:
    with pytest.raises(WireError):
        frame(bytes(MOST + 1))
    with pytest.raises(WireError):
        length(HEADER.pack(MOST + 1))


async def turns_of(question: SearchRequest) -> int:
    """In how many turns of the event loop it is encoded."""
    task = asyncio.create_task(encode_request(question))
    turns = 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    return turns


def many(requests: int, devices: int) -> SearchRequest:
    """A search with this number of filters and models, all different."""
    published = [device(f"d{number}", {"serial": f"s{number}"}) for number in range(devices)]
    asked = [request(f"r{number}", 1, f"device.driver != 'x{number}'") for number in range(requests)]
    slices = [resource_slice(published[first : first + 128], name=f"s{first}") for first in range(0, devices, 128)]
    for each in slices:
        each["spec"]["pool"]["resourceSliceCount"] = len(slices)
    question = question_of(Scenario(scenario(slices, [claim(*asked)])))
    assert question is not None
    return question


async def test_a_search_is_encoded_in_turns() -> None:
    """512 filters of 4,096 models took the better part of a second."""
    assert await turns_of(many(8, 512)) >= 8 + 2


async def test_a_search_that_is_too_large_is_not_encoded_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    question = many(8, 512)
    whole, _ = await encode_request(question)
    monkeypatch.setattr(wire, "MOST", len(whole) // 2)
    payload, seconds = await encode_request(question)
    assert len(whole) // 2 < len(payload) < len(whole)
    assert seconds > 0
    with pytest.raises(WireError):
        frame(payload)


async def test_each_claim_is_encoded_in_a_turn_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 256 claims with selectors of 1.3 MB each, 333 MB were encoded in one turn, and then refused."""
    selectors = [f"device.driver != '{letter * 1_000}'" for letter in "abcdefgh"]
    claims = [claim(request("r", 1, text), name=f"c{number}") for number, text in enumerate(selectors)]
    question = question_of(Scenario(scenario([resource_slice([device("d")])], claims)))
    assert question is not None
    assert await turns_of(question) > 2 * len(claims)
    monkeypatch.setattr(wire, "MOST", 2_000)
    payload, _ = await encode_request(question)
    assert len(payload) < 4_000
