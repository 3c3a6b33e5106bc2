"""The API server that is embedded answers as a real one was recorded to answer, field by field.

The real one itself is asked too where its binaries are there (marker e2e), so that the recordings stay true.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence

import pytest

from embedded_cluster.apiserver.access import Access, Attributes
from embedded_cluster.apiserver.server import EmbeddedAPIServer
from tests.e2e.controlplane import ControlPlane
from tests.support.contract import exchanges, record, releases
from tests.support.contract.answers import differences
from tests.support.contract.exchanges import Rule, Scenario

SCENARIOS = exchanges.load()
each_scenario = pytest.mark.parametrize(
    "scenario", SCENARIOS, ids=[f"{scenario.file}: {scenario.name}" for scenario in SCENARIOS]
)


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
        return rules is None or any(asked.verb in rule["verbs"] and _is_about(rule, asked) for rule in rules)


def _is_about(rule: Rule, asked: Attributes) -> bool:
    if asked.path:
        return asked.path in rule.get("nonResourceURLs", ())
    return asked.group in rule.get("apiGroups", ()) and asked.target in rule.get("resources", ())


@each_scenario
async def test_the_embedded_server_answers_like_the_real_one(scenario: Scenario) -> None:
    rights = Rights()
    embedded = EmbeddedAPIServer(versions=("v1", "v1beta2"), access=rights.access)
    embedded.collects_garbage = False
    async with embedded:
        embedded.store.forget_history()
        server = exchanges.Server(embedded.url, login=rights.log_in)
        answers = await exchanges.run(server, scenario, "contract-embedded")
    for answer in answers:  # a warning that no real server gives
        if "without validation" in answer["headers"].get("Warning", ""):
            del answer["headers"]["Warning"]
    assert differences(exchanges.recording(scenario.file)[scenario.name], answers) == []


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    directory = tmp_path_factory.mktemp("controlplane")
    with ControlPlane(directory, controllers=False) as plane:
        plane.restart_apiserver()
        yield plane


@pytest.mark.e2e
@pytest.mark.own_plane("the recordings are of a server without controllers that was restarted")
@each_scenario
async def test_the_recordings_are_what_a_real_server_answers(scenario: Scenario, plane: ControlPlane) -> None:
    release = releases.release_of(plane.version)
    recorded = release in (releases.RELEASE, releases.OLDER)
    if not releases.is_since(release, scenario.since):
        pytest.skip(f"needs {scenario.since}; this is {plane.version}")
    if not recorded and scenario.varies:
        pytest.skip(f"{scenario.varies}; this is {plane.version}")
    server = await record.server(plane.admin_kubeconfig)
    want = exchanges.recording(scenario.file, releases.nearest(release))[scenario.name]
    answers = await exchanges.run(server, scenario, f"contract-{secrets.token_hex(3)}")
    if not recorded:
        want, answers = exchanges.lasting(scenario, want), exchanges.lasting(scenario, answers)
    assert differences(want, answers) == []


def test_every_recording_belongs_to_a_scenario() -> None:
    wanted = {(scenario.file, scenario.name) for scenario in SCENARIOS}
    have = {
        (file.stem, name) for file in exchanges.RECORDINGS.glob("*.json") for name in exchanges.recording(file.stem)
    }
    assert have == wanted


def test_the_recordings_of_the_older_release_are_of_scenarios_that_differ() -> None:
    files = [file.stem for file in (exchanges.RECORDINGS / releases.OLDER).glob("*.json")]
    assert files
    for file in files:
        older = json.loads((exchanges.RECORDINGS / releases.OLDER / f"{file}.json").read_text())
        newer = exchanges.recording(file)
        assert [name for name, answers in older.items() if not differences(newer[name], answers)] == []


@pytest.mark.parametrize(
    ("version", "release"), [("v1.35.4", "v1.36"), ("v1.36.3", "v1.36"), ("v1.37.2", "v1.37"), ("v1.100.0", "v1.37")]
)
def test_a_release_that_was_not_recorded_is_compared_with_the_nearest(version: str, release: str) -> None:
    assert releases.nearest(releases.release_of(version)) == release
