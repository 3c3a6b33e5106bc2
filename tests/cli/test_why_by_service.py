"""Users who may not list the cluster get the answer of the service, or an error that says what to ask for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from aiohttp import web

from dra_extender.cli.answers.answer import UnanswerableError
from dra_extender.cli.answers.service import diagnosis_by_service
from dra_extender.cli.questions import WhyOptions
from dra_extender.insight.why.redaction import redacted
from dra_extender.kube.credentials import FORWARDED_TOKEN
from dra_extender.scheduling.reader import Reader
from tests.support.diagnosis.misfits import MISFITS, POD
from tests.support.diagnosis.strangers import among_strangers
from tests.support.kube.scripted import ScriptedServer

WAY = "/api/v1/namespaces/infra/services/https:dra:insight/proxy/insight/diagnosis"


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    scripted, app = ScriptedServer(), web.Application()
    app.router.add_route("*", "/{tail:.*}", scripted.handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    scripted.url = "http://{}:{}".format(*runner.addresses[0][:2])
    yield scripted
    await runner.cleanup()


def given(server: ScriptedServer, folder: Path, user: dict[str, str]) -> WhyOptions:
    config = {
        "clusters": [{"name": "c", "cluster": {"server": server.url}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    return WhyOptions(kubeconfig=str(file), service="infra/dra")


async def test_a_diagnosis_arrives_as_the_service_has_made_it(server: ScriptedServer, tmp_path: Path) -> None:
    made = [redacted(among_strangers(misfit).diagnose(POD), Reader("default")) for misfit in MISFITS]
    server.on("GET", WAY, *((200, msgspec.to_builtins(each)) for each in made))
    options = given(server, tmp_path, {"token": "t"})
    for each in made:
        assert await diagnosis_by_service(options, f"default/{POD}", "no") == each


FORBIDDEN = {"kind": "Status", "reason": "Forbidden", "message": "cannot get services/proxy", "code": 403}


@pytest.mark.parametrize(
    ("user", "answer", "problem"),
    [
        (
            {"token": "t"},
            (403, FORBIDDEN),
            "cannot get services/proxy; ask an administrator for a RoleBinding to role dra-why in namespace infra",
        ),
        ({"token": "t"}, (403, {"detail": "jane may not get pod a/p"}), "jane may not get pod a/p"),
        ({"token": "t"}, (404, {"detail": "pod a/p not found"}), "pod a/p not found"),
        ({}, (200, {}), "your kubeconfig has no token, and the service does not see client certificates: use a token"),
    ],
)
async def test_an_error_says_what_is_missing_and_what_to_ask_for(
    server: ScriptedServer, tmp_path: Path, user: dict[str, str], answer: tuple[int, Any], problem: str
) -> None:
    server.on("GET", WAY, answer)
    with pytest.raises(UnanswerableError) as caught:
        await diagnosis_by_service(given(server, tmp_path, user), "a/p", "cannot list nodes")
    told = "cannot list nodes; the service infra/dra does not answer instead: "
    assert str(caught.value) == f"{told}{problem}. `kubectl describe pod` shows the short answer"


async def test_the_token_is_sent_in_a_header_that_reaches_the_service(server: ScriptedServer, tmp_path: Path) -> None:
    server.on("GET", WAY, (404, {"detail": "no pod"}))
    with pytest.raises(UnanswerableError):
        await diagnosis_by_service(given(server, tmp_path, {"token": "t"}), "a/p", "no")
    (asked,) = server.asked
    assert (asked.headers[FORWARDED_TOKEN], asked.query) == ("Bearer t", {"pod": "a/p"})


async def test_an_answer_of_another_version_is_an_error(server: ScriptedServer, tmp_path: Path) -> None:
    server.on("GET", WAY, (200, {"pod": 1}))
    with pytest.raises(UnanswerableError, match="Expected"):
        await diagnosis_by_service(given(server, tmp_path, {"token": "t"}), "a/p", "no")
