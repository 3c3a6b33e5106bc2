"""The offline commands: JSON lines in, JSON lines out, and selectors tried on slices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from dra_extender.cli.main import app

SLICE = """
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: s}
spec:
  driver: gpu.example.com
  nodeName: n
  pool: {name: n, generation: 1, resourceSliceCount: 1}
  devices:
  - name: gpu-0
    attributes: {model: {string: A100}}
    capacity: {memory: {value: 80Gi}}
  - name: gpu-1
    capacity: {memory: {value: 8Gi}}
"""


def run(*arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(app, list(arguments), input=stdin)


def selector(expression: str) -> Result:
    return run("selector", expression, "--slice", "-", stdin=SLICE)


@pytest.mark.parametrize(
    ("expression", "status", "words"),
    [
        ("device.capacity['gpu.example.com'].memory.isGreaterThan(quantity('10Gi'))", 0, ["1 of 2 devices match"]),
        ("device.driver == 'nic.example.com'", 1, ["0 of 2 devices match, 0 errors"]),
        ("device.attributes['gpu.example.com'].model == 'A100'", 2, ["gpu-0", "yes", "no such key: model", "has("]),
    ],
)
def test_a_selector_is_tried_on_every_device(expression: str, status: int, words: list[str]) -> None:
    result = selector(expression)
    assert result.exit_code == status
    for word in words:
        assert word in " ".join(result.stdout.split())


def test_a_selector_that_does_not_compile_is_pointed_at() -> None:
    result = selector("device.capacity['gpu.example.com'].memory > '10Gi'")
    assert result.exit_code == 2
    assert "does not compile" in result.stderr
    assert "^" in result.stderr


def test_a_file_without_slices_is_named(tmp_path: Path) -> None:
    other = tmp_path / "pod.yaml"
    other.write_text("kind: Pod\n")
    result = run("selector", "true", "--slice", str(other))
    assert result.exit_code == 2
    assert "pod.yaml" in result.stderr
    assert "ResourceSlice" in result.stderr


def test_slices_are_found_in_lists_and_among_other_documents(tmp_path: Path) -> None:
    mixed = tmp_path / "all.yaml"
    indented = "\n".join("  " + line for line in SLICE.strip().splitlines())
    mixed.write_text(f"kind: Pod\n---\nkind: List\nitems:\n-{indented[1:]}\n---\n{SLICE}")
    result = run("selector", "true", "--slice", str(mixed))
    assert result.exit_code == 0
    assert "4 of 4 devices match" in result.stdout


def test_slices_of_an_older_version_are_refused_by_name() -> None:
    older = """
apiVersion: resource.k8s.io/v1beta1
kind: ResourceSlice
metadata: {name: s}
spec:
  driver: gpu.example.com
  nodeName: n
  pool: {name: n, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0, basic: {attributes: {model: {string: A100}}}}]
"""
    result = run("selector", "true", "--slice", "-", stdin=older)
    problem = "ResourceSlice s: apiVersion resource.k8s.io/v1beta1 is not supported: use resource.k8s.io/v1"
    assert (result.exit_code, problem in result.stderr) == (2, True)


def test_an_expression_is_needed() -> None:
    assert run("selector").exit_code == 2


def test_lines_are_answered_in_order_and_unreadable_ones_do_not_stop_the_others() -> None:
    result = run("allocate", stdin='{"name": "a"}\n\nnot json\n[1]\n{"name": "b"}')
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert [answer["name"] for answer in answers] == ["a", "line 3", "line 4", "b"]
    assert answers[1]["error"].startswith("not JSON")
    assert answers[2]["error"] == "not an object"
    assert result.exit_code == 2


def test_selectors_are_answered_in_batches() -> None:
    device = {"driver": "d", "attributes": {}, "capacity": {}}
    lines = [
        {"name": "yes", "gates": "default", "expression": "device.driver == 'd'", "device": device},
        {"name": "never", "gates": "default", "expression": "device.nope", "device": device},
    ]
    result = run("selector", "--batch", stdin="\n".join(map(json.dumps, lines)) + "\nbroken\n")
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(answer["name"], answer["result"]) for answer in answers] == [
        ("yes", "true"),
        ("never", "reject"),
        ("line 3", "error"),
    ]
    assert result.exit_code == 2


DEVICES: dict[str, Any] = {
    "metadata": {"name": "s"},
    "spec": {
        "driver": "gpu.example.com", "nodeName": "n", "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0", "attributes": {"model": {"string": "A100"}}}],
    },
}  # fmt: skip


def claim(**exactly: Any) -> dict[str, Any]:
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", **exactly}}
    return {"metadata": {"name": "c", "namespace": "d", "uid": "u"}, "spec": {"devices": {"requests": [request]}}}


def allocate(**changes: Any) -> tuple[int, dict[str, Any]]:
    """The exit status, and the answer to a scenario of one device and one claim, changed."""
    case = {"name": "x", "node": {"metadata": {"name": "n"}}, "slices": [DEVICES], "claims": [claim()]}
    result = run("allocate", stdin=json.dumps({**case, "classes": [{"metadata": {"name": "gpu"}}], **changes}))
    return result.exit_code, json.loads(result.stdout)


EXACTLY = "$.claims[0].spec.devices.requests[0].exactly"


@pytest.mark.parametrize(
    ("changes", "status", "problem"),
    [
        ({}, 0, ""),
        ({"claims": [claim(allocationMode="All")]}, 0, ""),
        ({"claims": [claim(count=2)]}, 1, "cannot allocate all claims"),
        ({"claim": []}, 2, "unknown field `claim`"),
        ({"claims": []}, 2, "claims: missing or empty, so there is nothing to allocate"),
        ({"claims": {"a": 1}}, 2, "Expected `array`, got `object` - at `$.claims`"),
        ({"claims": ["c"]}, 2, "Expected `object`, got `str` - at `$.claims[0]`"),
        ({"claims": [{"metadata": {"name": "c"}}]}, 2, "missing required field `spec` - at `$.claims[0]`"),
        ({"claims": [claim(cuont=3)]}, 2, f"unknown field `cuont` - at `{EXACTLY}`"),
        ({"claims": [claim(count="3")]}, 2, f"Expected `int`, got `str` - at `{EXACTLY}.count`"),
        ({"claims": [claim(count=-1)]}, 2, "claims[0]: request r: count -1 is less than 1"),
        (
            {"claims": [claim(selectors=[{"cel": {"expresion": "true"}}])]}, 2,
            f"unknown field `expresion` - at `{EXACTLY}.selectors[0].cel`",
        ),
        ({"slices": 3}, 2, "Expected `array`, got `int` - at `$.slices`"),
        ({"slices": [{**DEVICES, "spec": 3}]}, 2, "Expected `object`, got `int` - at `$.slices[0].spec`"),
        ({"slices": [{**DEVICES, "spec": {"nodname": "n"}}]}, 2, "unknown field `nodname` - at `$.slices[0].spec`"),
        ({"node": "n"}, 2, "Expected `object`, got `str` - at `$.node`"),
        ({"node": {"metadata": {"name": True}}}, 2, "Node True: Expected `str`, got `bool` - at `$.metadata.name`"),
        ({"release": 1.37}, 2, "Expected `str`, got `float` - at `$.release`"),
        ({"features": "DRAAdminAccess"}, 2, "Expected `array`, got `str` - at `$.features`"),
        ({"features": ["DRADerivedAttributes"]}, 2, "features: DRADerivedAttributes unknown in 1.36; known are: "),
        ({"features": ["DRADerivedAttributes"], "release": "1.37"}, 0, ""),
        ({"features": ["Nope"]}, 2, "features: Nope unknown in 1.36; known are: "),
        ({"classes": []}, 2, "claim d/c, request r: could not retrieve device class gpu"),
        ({"claims": [claim(selectors=[{"cel": {"expression": "device.foo"}}])]}, 2, "undefined field 'foo'"),
    ],
)  # fmt: skip
def test_a_scenario_is_decided_or_what_is_wrong_with_it_is_named(
    changes: dict[str, Any], status: int, problem: str
) -> None:
    found, answer = allocate(**changes)
    assert (found, problem in answer["error"]) == (status, True), answer
    assert answer["name"] == "x"


@pytest.mark.parametrize(
    ("expression", "status", "words"),
    [
        (
            "device.attributes['gpu.example.com'].modle == 'A100'", 2,
            ["did you mean model?", "It fails for 2 devices here:", "......^"],
        ),
        ("device.capacity['gpu.exmaple.com'].memory == quantity('1')", 2, ["did you mean gpu.example.com?"]),
        (
            "device.driver == 'a' && device.attributes['gpu.example.com'].model == 'x'", 1,
            ["driver == 'a' is false", "gpu.example.com"],
        ),
        ("'model' in device.attributes['gpu.example.com'] && 1 / 0 == 1", 2, ["gpu-1", "no", "error"]),
        ("device.allowMultipleAllocations", 1, ["0 of 2 devices match"]),
        ("device.capacity['gpu.example.com'].memory.compareTo(quantity('1Gi')) < 0", 1, ["is false", "80Gi", "8Gi"]),
        ("1", 2, ["must evaluate to bool"]),
        ("", 2, ["does not compile"]),
    ],
)  # fmt: skip
def test_a_selector_says_which_clause_decided_and_where_it_fails(
    expression: str, status: int, words: list[str]
) -> None:
    result = selector(expression)
    told = " ".join(result.output.split())
    assert (result.exit_code, [word for word in words if word not in told]) == (status, []), result.output


@pytest.mark.parametrize(
    ("gates", "status"), [("", 2), ("DRAListTypeAttributes=true", 1), ("DRAListTypeAttributes=maybe", 2)]
)
def test_the_feature_gates_decide_what_a_selector_may_use(gates: str, status: int) -> None:
    expression = "device.driver == 'x' && device.attributes['gpu.example.com'].model.includes('A100')"
    assert run("selector", expression, "--slice", "-", "--feature-gates", gates, stdin=SLICE).exit_code == status
