"""What if, as it is posted: what is understood, and what is refused with field, problem and remedy."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from typing import Any

import aiohttp
import pytest
from fastapi import FastAPI, HTTPException

from dra_extender.http.insight.queue import QueryQueue
from dra_extender.http.insight.routes import insight_router
from dra_extender.limits import BYTES_OF_WHATIF, PARTS_OF_SLICE, QUEUED_QUESTIONS
from dra_extender.scheduling.view import View
from tests.support.diagnosis.gpupods import running, waiting
from tests.support.diagnosis.hardware import device_class, gpus, node
from tests.support.diagnosis.heldcluster import GATES, GPU
from tests.support.diagnosis.scene import Scene
from tests.support.http.served import serving

Json = dict[str, Any]
Ask = Callable[[Json | bytes], Awaitable[tuple[int, Json]]]
RESOURCE = "resource.k8s.io/v1"
DOCUMENTS = [
    device_class("gpu", f'device.driver == "{GPU}"'),
    *[item for name in "ab" for item in (node(name), gpus(name, "A", 2, "1Gi", "1.0.0"))],
    *running("p", "a", "gpu-0", "gpu-1"),
    *waiting("w", 2),
    *waiting("x", 2),
]


class Known:
    """A service that knows the cluster."""

    def __init__(self, view: View) -> None:
        self.view = view

    def unknown(self) -> str:
        return ""

    def terms(self, pod: object) -> None:
        return None

    def problems(self) -> Generator[None, None, list[Any]]:
        yield
        return []


@pytest.fixture
def view() -> View:
    return Scene(DOCUMENTS, gates=GATES).view()


@pytest.fixture
async def ask(view: View, session: aiohttp.ClientSession) -> AsyncIterator[Ask]:
    app = FastAPI()
    app.include_router(insight_router(Known(view)))
    async with serving(app) as server:

        async def post(body: Json | bytes) -> tuple[int, Json]:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            async with session.post(f"{server.url}/insight/whatif", data=content) as reply:
                return reply.status, await reply.json()

        yield post


def verdicts(found: Json) -> dict[str, str]:
    return {outcome["pod"].removeprefix("default/"): outcome["verdict"] for outcome in found["outcomes"]}


def slice_of(host: str, pool: str, *devices: str) -> Json:
    spec = {
        "driver": GPU, "nodeName": host, "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": name, "attributes": {"model": {"string": "A"}}} for name in devices],
    }  # fmt: skip
    return {"apiVersion": RESOURCE, "kind": "ResourceSlice", "metadata": {"name": pool}, "spec": spec}


def trial(name: str, count: int, device_class: str = "gpu") -> list[Json]:
    """A pod to try, and the template of its claim."""
    exactly = {"deviceClassName": device_class, "count": count}
    spec = {"spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}}
    template = {
        "apiVersion": RESOURCE, "kind": "ResourceClaimTemplate", "metadata": {"name": f"{name}-t"}, "spec": spec
    }  # fmt: skip
    claims = [{"name": "gpu", "resourceClaimTemplateName": f"{name}-t"}]
    pod = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i"}], "resourceClaims": claims},
    }  # fmt: skip
    return [pod, template]


BIG = {"apiVersion": RESOURCE, "kind": "DeviceClass", "metadata": {"name": "new"}, "spec": {"selectors": []}}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, {"w": "fits", "x": "does not fit"}),
        ({"addNodes": [{"like": "a"}]}, {"w": "fits", "x": "would fit"}),
        ({"withoutPods": ["default/p"]}, {"w": "fits", "x": "would fit"}),
        ({"drain": ["b"]}, {"w": "no more", "x": "does not fit"}),
        ({"drain": ["a"]}, {"p": "fits", "w": "no more", "x": "does not fit"}),
        ({"withSlices": [slice_of("a", "more", "m-0", "m-1")]}, {"w": "fits", "x": "would fit"}),
        ({"withObjects": [slice_of("a", "more", "m-0", "m-1")]}, {"w": "fits", "x": "would fit"}),
        ({"withSlices": [slice_of("a", "more", "m-0")]}, {"w": "fits", "x": "does not fit"}),
        ({"pods": ["default/x"]}, {"x": "fits"}),
        ({"pods": trial("t", 2)[:1], "withObjects": trial("t", 2)[1:]}, {"t": "fits"}),
        ({"pods": trial("t", 3)[:1], "withObjects": trial("t", 3)[1:]}, {"t": "does not fit"}),
        ({"pods": trial("t", 2, "new")[:1], "withObjects": trial("t", 2, "new")[1:]}, {"t": "does not fit"}),
        ({"pods": trial("t", 2, "new")[:1], "withObjects": [*trial("t", 2, "new")[1:], BIG]}, {"t": "would fit"}),
        ({"pods": trial("t", 1)[:1]}, {"t": "does not fit"}),
    ],
)
async def test_decisions_use_the_hypothetical_changes(ask: Ask, body: Json, expected: dict[str, str]) -> None:
    status, found = await ask(body)
    assert status == 200, found
    assert verdicts(found) == expected
    assert found["complete"] is True


async def test_the_answer_says_where_and_why_and_what_would_help(ask: Ask) -> None:
    _, found = await ask({"pods": ["default/w", "default/x"]})
    assert found["outcomes"][1] == {
        "pod": "default/x", "verdict": "does not fit", "displaced": False, "now": "", "node": "",
        "reason": "2 nodes lack the devices", "remedy": "wait until pod default/p ends",
    }  # fmt: skip
    assert found["totals"] == {"no_more": 0, "would_fit": 0, "does_not_fit": 1, "fits": 1}


async def test_a_slice_that_cannot_be_used_is_a_problem_of_the_answer(ask: Ask) -> None:
    _, found = await ask({"withSlices": [slice_of("a", "more", "m-0", "m-0")]})
    assert "more" in found["problems"][0]


def nested(depth: int) -> bytes:
    return b'{"pods": [' + b'{"spec":' * depth + b"1" + b"}" * depth + b"]}"


def object_of(kind: str, **more: Any) -> Json:
    return {"apiVersion": RESOURCE, "kind": kind, "metadata": {"name": "n"}, **more}


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        (b"", 400, "the body: Input data was truncated: give an object with any of addNodes"),
        (b"[1]", 400, "the body: Expected `object`, got `array`: give an object with any of"),
        (b"\xff\xfe", 400, "the body: "),
        (nested(50_000), 400, "the body: "),
        ({"addNode": []}, 400, "the body: Object contains unknown field `addNode`: give an object with any of"),
        (
            {"addNodes": [{"like": "a", "count": 10**9}]},
            400,
            "addNodes[0].count: Expected `int` <= 100: give a list",
        ),
        (b'{"addNodes": [{"like": "a", "count": 1' + b"0" * 5000 + b"}]}", 400, "addNodes[0].count: "),
        ({"addNodes": [{"like": "a", "count": True}]}, 400, "addNodes[0].count: Expected `int`, got `bool`"),
        ({"addNodes": [{"count": 1}]}, 400, "addNodes[0]: Object missing required field `like`"),
        ({"addNodes": [{"like": "a", "count": 60}] * 2}, 400, "addNodes: 120 nodes: 1 to 100 can be added"),
        (
            {"addNodes": [{"like": "z"}]},
            404,
            "addNodes[0].like: node z not found",
        ),
        ({"drain": ["z"]}, 404, "drain[0]: node z not found"),
        ({"drain": "a"}, 400, "drain: Expected `array`, got `str`: give a list of names of nodes"),
        ({"drain": ["a" * 300]}, 400, "drain[0]: Expected `str` of length <= 253"),
        ({"drain": ["a"] * 1001}, 400, "drain: Expected `array` of length <= 1000"),
        ({"withoutPods": ["default/z"]}, 404, "withoutPods[0]: pod default/z not found"),
        ({"withoutPods": ["z"]}, 400, "withoutPods[0]: Expected `str` matching regex"),
        ({"pods": [1]}, 400, "pods[0]: Expected `object`, got `int`: give a list of NAMESPACE/NAME or manifests"),
        ({"pods": ["default/z"]}, 404, "pods[0]: pod default/z not found"),
        ({"pods": [object_of("Pod")]}, 400, f"pods[0]: is {RESOURCE} Pod: give a list of NAMESPACE/NAME or manifests"),
        (
            {"pods": ["default/w", "default/w"]},
            409,
            "pods[1]: there are two pods default/w: give each",
        ),
        (
            {"pods": [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "n"}, "spec": {"priority": "high"}}]},
            400,
            "pods[0].spec.priority: Expected `int`, got `str`: give a list of NAMESPACE/NAME or manifests",
        ),
        ({"withSlices": [object_of("DeviceClass")]}, 400, f"withSlices[0]: is {RESOURCE} DeviceClass: give a list of"),
        ({"withObjects": [object_of("Secret")]}, 400, f"withObjects[0]: is {RESOURCE} Secret: give a list of Resource"),
        ({"withObjects": [{}]}, 400, "withObjects[0]: is of no apiVersion of no kind"),
        ({"withObjects": [object_of("DeviceClass") | {"metadata": {}}]}, 400, "withObjects[0].metadata.name: is empty"),
        ({"withSlices": [object_of("ResourceSlice", spec={})]}, 400, "withSlices"),
        (
            {"withSlices": [slice_of("a", "many", *map(str, range(129)))]},
            400,
            "withSlices: ResourceSlice many has 129 devices: split it into slices of at most 128",
        ),
        (
            {"withObjects": [object_of("ResourceClaim") | {"metadata": {"name": "p"}}]},
            400,
            "withObjects: ResourceClaim default/p exists and is allocated: give the claim another name",
        ),
        ({"tolerations": [{"operator": "Equal"}]}, 400, "tolerations[0].key: is empty: give the key of the taint"),
        ({"tolerations": [{"key": "k", "operator": "In"}]}, 400, "tolerations[0].operator: Invalid enum value 'In'"),
    ],
)
async def test_what_is_wrong_is_told_by_field_problem_and_remedy(
    ask: Ask, body: Json | bytes, status: int, told: str
) -> None:
    got, found = await ask(body)
    assert (got, found["detail"][: len(told)]) == (status, told)
    assert len(found["detail"]) < 1_000


async def test_a_request_that_is_too_large_is_not_read_to_its_end(ask: Ask) -> None:
    status, found = await ask(b"[" * (BYTES_OF_WHATIF + 1))
    assert status == 413
    assert found["detail"] == f"the request is larger than {BYTES_OF_WHATIF} bytes: send fewer objects at once"


async def test_a_claim_cannot_pose_as_another_that_has_devices(ask: Ask, view: View) -> None:
    (held,) = [claim for claim in view.ledger.claims() if claim.allocation is not None]
    thief = object_of("ResourceClaim") | {"metadata": {"name": "thief", "uid": held.metadata.uid}}
    _, found = await ask({"withObjects": [thief]})
    assert verdicts(found) == {"w": "fits", "x": "does not fit"}, "p keeps its devices"


# --- how many at once


async def test_questions_that_take_long_are_answered_one_at_a_time_and_few_wait(view: View) -> None:
    desk = QueryQueue(Known(view))
    running_now = most = 0

    def steps() -> Generator[None, None, int]:
        nonlocal running_now, most
        running_now += 1
        most = max(most, running_now)
        for _ in range(5):
            yield
        running_now -= 1
        return 1

    asked = await asyncio.gather(
        *(desk.answer_at_length(steps()) for _ in range(QUEUED_QUESTIONS + 3)), return_exceptions=True
    )
    refused = [found for found in asked if isinstance(found, HTTPException)]
    assert asked.count(1) == QUEUED_QUESTIONS
    assert most == 1
    assert [found.status_code for found in refused] == [429] * 3
    assert all(found.headers == {"Retry-After": "2"} for found in refused)
    assert await desk.answer_at_length(steps()) == 1, "who asks again is answered"


@pytest.mark.parametrize("devices", [0, 2])
async def test_a_hypothetical_slice_for_too_many_labels_is_refused(ask: Ask, devices: int) -> None:
    """Its selectors would be parsed in one step."""
    share = PARTS_OF_SLICE // max(devices, 1) + 1
    requirements = [{"key": f"k{number}", "operator": "DoesNotExist"} for number in range(share)]
    selector = {"nodeSelectorTerms": [{"matchExpressions": requirements}]}
    many = slice_of("a", "many", *map(str, range(devices)))
    if devices:
        many["spec"]["perDeviceNodeSelection"] = True
        many["spec"]["devices"] = [device | {"nodeSelector": selector} for device in many["spec"]["devices"]]
    else:
        many["spec"]["nodeSelector"] = selector
    status, found = await ask({"withSlices": [many]})
    problem = f"the node selectors of ResourceSlice many have {share * max(devices, 1):,} requirements"
    assert (status, found["detail"]) == (400, f"withSlices: {problem}: give at most 2,500")
