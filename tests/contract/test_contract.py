"""The API server that is embedded answers as a real one was recorded to answer, field by field.

The real one itself is asked too where its binaries are there (marker e2e), so that the recordings stay true. Where the
embedded server is known to differ, ``differences.yaml`` says in what and why; a difference that is gone must leave it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

import pytest
import yaml

from app.cel import CelCompileError, compile_selector
from app.embedded.apiserver.access import Access, Attributes
from app.embedded.apiserver.server import EmbeddedAPIServer
from tests.contract import exchanges, record
from tests.contract.exchanges import Rule, Scenario
from tests.e2e.controlplane import ControlPlane

SCENARIOS = list(exchanges.load())
each_scenario = pytest.mark.parametrize(
    "scenario", SCENARIOS, ids=[f"{scenario.file}: {scenario.name}" for scenario in SCENARIOS]
)
Listed = Mapping[str, str]
"""Where a scenario's answers may differ, and why."""


@cache
def recorded(file: str) -> dict[str, list[exchanges.Answer]]:
    return exchanges.recording(file)


@cache
def listed(file: str, name: str) -> Listed:
    content = yaml.safe_load((exchanges.FOLDER / "differences.yaml").read_text()) or {}
    found: Listed = content.get(file, {}).get(name, {})
    return found


def unlisted(found: Sequence[str], known: Listed) -> list[str]:
    """The differences that nobody has listed, and the listed ones that are none any more."""
    left = [line for line in found if not any(line.startswith(path) for path in known)]
    gone = [path for path in known if not any(line.startswith(path) for line in found)]
    return left + [f"{path}: listed as a difference, but there is none" for path in gone]


def selector_problem(expression: str) -> str | None:
    """What is wrong with a device selector."""
    try:
        compile_selector(expression)
    except CelCompileError as problem:
        return str(problem)
    return None


class Rights:
    """Users of the embedded server and the rules they are held to; everybody else may do everything."""

    def __init__(self) -> None:
        self.rules: dict[str, Sequence[Rule]] = {}
        self.access = Access(policy=self.allows, tokens={})

    def log_in(self, user: str, rules: Sequence[Rule]) -> Mapping[str, str]:
        self.rules[user] = rules
        self.access.tokens = {**self.access.tokens, user: user}
        return {"Authorization": f"Bearer {user}"}

    def allows(self, asked: Attributes) -> bool:
        rules = self.rules.get(asked.user)
        return rules is None or any(
            asked.verb in rule["verbs"] and asked.group in rule["apiGroups"] and asked.resource in rule["resources"]
            for rule in rules
        )


@each_scenario
async def test_the_embedded_server_answers_like_the_real_one(scenario: Scenario) -> None:
    rights = Rights()
    versions = ("v1", "v1beta2", "v1beta1")
    async with EmbeddedAPIServer(
        versions=versions, access=rights.access, check_cel=selector_problem, garbage_delay=None
    ) as embedded:
        embedded.store.forget_history()
        server = exchanges.Server(embedded.url, login=rights.log_in)
        answers = await exchanges.run(server, scenario, "contract-embedded")
    found = exchanges.differences(recorded(scenario.file)[scenario.name], answers)
    assert unlisted(found, listed(scenario.file, scenario.name)) == []


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    directory = tmp_path_factory.mktemp("controlplane")
    with ControlPlane(directory, controllers=False) as plane:
        plane.restart_apiserver()
        yield plane


@pytest.mark.e2e
@each_scenario
async def test_the_recordings_are_what_a_real_server_answers(scenario: Scenario, plane: ControlPlane) -> None:
    server = await record.server(plane.admin_kubeconfig)
    answers = await exchanges.run(server, scenario, f"contract-{secrets.token_hex(3)}")
    assert exchanges.differences(recorded(scenario.file)[scenario.name], answers) == []


def test_every_recording_belongs_to_a_scenario() -> None:
    wanted = {(scenario.file, scenario.name) for scenario in SCENARIOS}
    have = {(file.stem, name) for file in exchanges.RECORDINGS.glob("*.json") for name in recorded(file.stem)}
    assert have == wanted
