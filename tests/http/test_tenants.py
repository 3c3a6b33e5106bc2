"""Who may get a pod reads over HTTP why it waits, and no name of another namespace."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from itertools import cycle
from typing import Any

import aiohttp
import pytest

from dra_extender.api.core import Pod
from dra_extender.http.application import create_app
from dra_extender.http.authorization import TokenAuthorizer
from dra_extender.http.insight import QueryQueue, insight_router
from dra_extender.insight.problems import ClusterProblem
from dra_extender.kube.access import AccessDecision, Reviews, UserInfo
from dra_extender.kube.credentials import FORWARDED_TOKEN
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.preemption.terms import PreemptionTerms
from dra_extender.scheduling.turns import Turns
from dra_extender.scheduling.view import View
from tests.support.diagnosis.misfits import MISFITS, POD
from tests.support.diagnosis.strangers import SECRET, among_strangers
from tests.support.http.served import Served, serving

PATH = "/insight/diagnosis"
FORMS = ("application/json", "text/plain")


class Tenant(Reviews):
    """Its only user may get the pods of namespace default."""

    def __init__(self) -> None: ...

    async def user_of(self, token: str) -> UserInfo | None:
        return UserInfo(token)

    async def may(self, user: UserInfo, attributes: Mapping[str, str]) -> AccessDecision:
        pods = {"verb": "get", "resource": "pods", "namespace": "default"}
        return AccessDecision(user.username == "dev" and pods.items() <= attributes.items())


class State:
    """What insight asks of the service: pods of another namespace use the devices that the pod of a misfit wants."""

    def __init__(self) -> None:
        self.config = SchedulingConfig()
        self.misfit = MISFITS[0]

    def unknown(self) -> str:
        return ""

    @property
    def view(self) -> View:
        scene = among_strangers(self.misfit)
        scene.config = self.config
        return scene.view()

    def terms(self, pod: Pod) -> PreemptionTerms | None:
        return PreemptionTerms(preemptor=pod)

    def problems(self) -> Turns[Sequence[ClusterProblem]]:
        yield
        return ()

    def shadow(self) -> str:
        return "no record"


@pytest.fixture
def state() -> State:
    return State()


@pytest.fixture
async def url(served: Served, state: State) -> AsyncIterator[str]:
    app = create_app([*served.pages, insight_router(state)], TokenAuthorizer(Tenant()))
    async with serving(app) as server:
        yield server.url


async def read(session: aiohttp.ClientSession, url: str, token: str = "dev", **headers: str) -> tuple[int, str]:
    async with session.get(url, headers={FORWARDED_TOKEN: f"Bearer {token}"} | headers) as reply:
        return reply.status, await reply.text()


async def test_no_answer_has_a_name_of_another_namespace(
    url: str, session: aiohttp.ClientSession, state: State
) -> None:
    """Each misfit in one of the forms. That no form of any diagnosis has such a name is shown of `redacted`."""
    counted = 0
    for misfit, form in zip(MISFITS, cycle(FORMS), strict=False):
        state.misfit = misfit
        status, text = await read(session, f"{url}{PATH}?pod=default/{POD}", Accept=form)
        assert (status, SECRET in text, text[0] == "{") == (200, False, form == FORMS[0]), (misfit.name, text)
        counted += "another namespace" in text
    assert counted > 20


async def test_questions_wait_in_the_turns_of_their_namespace(
    url: str, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespaces, answer = list[str](), QueryQueue.answer_at_length

    async def noting(queue: QueryQueue, steps: Turns[Any], namespace: str = "") -> Any:
        namespaces.append(namespace)
        return await answer(queue, steps, namespace)

    monkeypatch.setattr(QueryQueue, "answer_at_length", noting)
    assert (await read(session, f"{url}{PATH}?pod=default/{POD}"))[0] == 200
    assert namespaces == ["default"]


async def test_the_setting_that_allows_all_names_in_events_allows_them_here(
    url: str, session: aiohttp.ClientSession, state: State
) -> None:
    state.misfit = next(misfit for misfit in MISFITS if misfit.name == "a pod has all of the devices")
    state.config = SchedulingConfig(event_names="all")
    assert SECRET in (await read(session, f"{url}/insight/diagnosis?pod=default/{POD}"))[1]


@pytest.mark.parametrize(
    "path",
    [
        f"/insight/diagnosis?pod={SECRET}/x",
        f"/insight/diagnosis?pod=default/{POD}&pod={SECRET}/x",
        f"/insight/diagnosis?pod={SECRET}/x&pod=default/{POD}",
        f"/insight/diagnosis?pod=default/{POD}%2F..%2F{SECRET}",
        "/insight/diagnosis?pod=default",
        "/insight/diagnosis",
        f"/insight/devices?pod=default/{POD}",
        f"/insight/problems?pod=default/{POD}",
        "/insight/headroom?class=gpu",
        "/metrics",
        "/openapi.json",
    ],
)
async def test_all_other_questions_are_refused(url: str, session: aiohttp.ClientSession, path: str) -> None:
    assert (await read(session, url + path))[0] == 403


async def test_a_pod_that_does_not_exist_is_refused_like_one_that_does(
    url: str, session: aiohttp.ClientSession
) -> None:
    there, absent = [await read(session, f"{url}{PATH}?pod=default/{pod}", "stranger") for pod in (POD, "none")]
    assert (there[0], there[1].replace(POD, "none")) == absent
