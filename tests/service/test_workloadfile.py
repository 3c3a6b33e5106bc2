"""The workload file: what it says, and what is said about one that cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from dra_extender.api.decoding import convert
from dra_extender.api.resource import ResourceClaimSpec
from dra_extender.placement.podshape import Load
from dra_extender.service import workloadfile
from dra_extender.service.settings import SettingsError, load

REQUEST = "{name: gpu, exactly: {deviceClassName: gpu, count: 2}}"
GOOD = f"""
pods:
- count: 3
  requests: {{cpu: 1500m, memory: 2Gi}}
  claims:
  - devices: {{requests: [{REQUEST}]}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "workload.yaml"


def test_kinds_of_pods_are_read(file: Path) -> None:
    file.write_text(GOOD)
    found = workloadfile.read(file)
    assert not found.only
    (kind,) = found.pods
    assert (kind.count, kind.load) == (3, Load(1500, 2 * 2**30))
    exactly = {"deviceClassName": "gpu", "count": 2}
    (claim,) = kind.claims
    assert claim.spec == convert(ResourceClaimSpec, {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}})


def test_count_and_requests_may_be_left_out_and_json_is_read_as_well(file: Path) -> None:
    exactly = '{"exactly": {"deviceClassName": "gpu"}, "name": "g"}'
    file.write_text(f'{{"learn": false, "pods": [{{"claims": [{{"devices": {{"requests": [{exactly}]}}}}]}}]}}')
    found = workloadfile.read(file)
    assert found.only
    assert [(kind.count, kind.load) for kind in found.pods] == [(1, Load(0, 0))]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("pods: []", "pods: Expected `array` of length >= 1: give 1 to 512 kinds of pods"),
        ("", "Expected `object`, got `null`: see the workload file"),
        ("kinds: []", "Object contains unknown field `kinds`: see the workload file"),
        ("learn: true", "Object missing required field `pods`: give 1 to 512 kinds of pods"),
        (GOOD + "learn: perhaps", "learn: Expected `bool`, got `str`: give true or false"),
        (GOOD.replace("3", "0"), "pods[0].count: Expected `int` >= 1: give whole numbers"),
        (GOOD.replace("3", "65537"), "pods: each count is too large: give whole numbers from 1, in all no more than"),
        (GOOD.replace("3", "many"), "pods[0].count: Expected `int`, got `str`: give whole numbers"),
        (GOOD.replace("2Gi", "lots"), "pods[0].requests[...]: quantity 'lots'"),
        (
            GOOD.replace("memory", "gpus"),
            "pods[0].requests.gpus: only cpu and memory are compared: give cpu and memory",
        ),
        (GOOD.replace("1500m", "-1"), "pods[0].requests.cpu: is negative: give cpu and memory"),
        (GOOD.replace("claims", "claim"), "pods[0]: Object contains unknown field `claim`"),
        (GOOD.replace(f"[{REQUEST}]", "[]"), "pods[0].claims[0].devices.requests: asks for no devices: give cpu"),
        (GOOD.replace("exactly", "precisely"), "devices.requests[0]: Object contains unknown field `precisely`"),
        (GOOD.replace(REQUEST, "{name: gpu}"), "requests[0]: has neither exactly nor firstAvailable"),
        (GOOD.replace("deviceClassName: gpu", "deviceClassName: ''"), "requests[0]: names no deviceClassName"),
        ("pods: [", "is not YAML"),
    ],
)
def test_an_error_names_the_file_the_place_the_problem_and_what_to_do(file: Path, text: str, told: str) -> None:
    file.write_text(text)
    with pytest.raises(SettingsError) as problem:
        load({"placement_workload": str(file)})
    assert str(problem.value).startswith(f"{file}: ")
    assert told in str(problem.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="absent: No such file or directory: name a file that can be read"):
        load({"placement_workload": str(tmp_path / "absent")})


def test_settings_have_the_pods_of_their_file(file: Path) -> None:
    file.write_text(GOOD)
    assert load({"placement_workload": str(file)}).expected == workloadfile.read(file)
    assert load().expected.pods == ()
