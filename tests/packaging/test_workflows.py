"""What runs on GitHub is named by content, may do what its job names and no more, and runs what everybody runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").iterdir())
PINNED = re.compile(r"[\w.-]+(/[\w.-]+)+@[0-9a-f]{40} # v\d+\.\d+\.\d+")

each_workflow = pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)


def read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(file.read_text())
    return found


def steps(workflow: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for job in workflow["jobs"].values():
        yield from job["steps"]


def uses(text: str) -> list[str]:
    """What follows each `uses:`, with the comment that names the version."""
    return re.findall(r"^\s*(?:- )?uses: (.*)$", text, re.MULTILINE)


def test_there_are_the_two_workflows() -> None:
    assert [file.name for file in WORKFLOWS] == ["ci.yml", "release.yml"]


@each_workflow
def test_every_action_is_pinned_by_commit_with_its_version_beside_it(file: Path) -> None:
    named = uses(file.read_text())
    assert len(named) == sum("uses" in step for step in steps(read(file))) > 0
    assert [name for name in named if not PINNED.fullmatch(name)] == []


def test_an_action_has_one_version_everywhere() -> None:
    pins = {name for file in WORKFLOWS for name in uses(file.read_text())}
    actions = [pin.partition("@")[0] for pin in pins]
    assert sorted(actions) == sorted(set(actions))


@each_workflow
def test_a_workflow_has_no_permissions_and_every_job_names_its_own(file: Path) -> None:
    workflow = read(file)
    assert workflow["permissions"] == {}
    for name, job in workflow["jobs"].items():
        assert isinstance(job["permissions"], dict), name
        assert "timeout-minutes" in job, name


def test_pull_requests_may_read_and_nothing_else() -> None:
    jobs = read(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]
    assert [job["permissions"] for job in jobs.values()] == [{"contents": "read"}] * len(jobs)


@each_workflow
def test_no_checkout_leaves_its_token_behind(file: Path) -> None:
    checkouts = [step for step in steps(read(file)) if step.get("uses", "").startswith("actions/checkout@")]
    assert checkouts
    assert [step["with"]["persist-credentials"] for step in checkouts] == [False] * len(checkouts)


@each_workflow
def test_scripts_get_values_by_the_environment(file: Path) -> None:
    """An expression within a script is replaced before a shell reads it: a branch's name could be a command."""
    assert [step["run"] for step in steps(read(file)) if "${{" in step.get("run", "")] == []


@each_workflow
def test_what_everybody_runs_is_run_before_anything_else_is_made(file: Path) -> None:
    jobs = read(file)["jobs"]
    checking = [name for name, job in jobs.items() if {"run": ".ci/run"} in job["steps"]]
    assert len(checking) == 1
    if "tags" in file.read_text():
        assert [name for name in jobs if name not in checking and not _after(checking[0], name, jobs)] == []


def _after(first: str, name: str, jobs: dict[str, Any]) -> bool:
    """True when a job waits for another one, perhaps by way of others."""
    needs = jobs[name].get("needs", [])
    before = [needs] if isinstance(needs, str) else needs
    return any(each == first or _after(first, each, jobs) for each in before)


def test_make_targets_that_workflows_name_exist() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {name for file in WORKFLOWS for name in re.findall(r"run: make ([a-z]+)$", file.read_text(), re.MULTILINE)}
    assert named
    assert named - targets == set()
