"""The offline commands: JSON lines in, JSON lines out, and selectors tried on slices."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from app.cli.lines import answer_lines
from app.cli.main import app

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


def test_an_expression_is_needed() -> None:
    assert run("selector").exit_code == 2


def test_lines_are_answered_in_order_and_unreadable_ones_do_not_stop_the_others() -> None:
    source = io.BytesIO(b'{"name": "a"}\n\nnot json\n[1]\n{"name": "b"}')
    target = io.BytesIO()

    def complain(name: str, problem: str) -> dict[str, Any]:
        return {"name": name, "problem": problem}

    assert answer_lines(source, target, lambda case: {"name": case["name"]}, complain) == 2
    answers = [json.loads(line) for line in target.getvalue().splitlines()]
    assert [answer["name"] for answer in answers] == ["a", "line 3", "line 4", "b"]
    assert answers[1]["problem"].startswith("not JSON")
    assert "list" in answers[2]["problem"]


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
