"""Issue forms are valid, and the commands and files that they name exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from dra_extender.cli.main import app

ROOT = Path(__file__).parents[2]
TEMPLATES = ROOT / ".github" / "ISSUE_TEMPLATE"
FORMS = sorted(path for path in TEMPLATES.glob("*.yml") if path.name != "config.yml")

each_form = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found


def test_there_are_forms_for_bugs_and_questions() -> None:
    assert [form.name for form in FORMS] == ["bug.yml", "question.yml"]


@each_form
def test_a_form_has_what_github_requires(form: Path) -> None:
    found = read(form)
    assert found["name"] and found["description"]
    inputs = [part for part in found["body"] if part["type"] != "markdown"]
    assert any(part.get("validations", {}).get("required") for part in inputs)
    assert all(part["attributes"]["label"] for part in inputs)
    identifiers = [part["id"] for part in inputs]
    assert len(identifiers) == len(set(identifiers))
    assert {part["type"] for part in found["body"]} <= {"markdown", "textarea", "input", "dropdown", "checkboxes"}


@each_form
def test_commands_and_flags_that_a_form_names_exist(form: Path) -> None:
    named = re.findall(r"`dra-extender ([^`]+)`", form.read_text())
    assert named
    for line in named:
        command, *words = line.split()
        shown = CliRunner().invoke(app, [command, *(["--help"] if not command.startswith("-") else [])])
        assert shown.exit_code == 0, line
        help_text = shown.output
        assert [word for word in words if word.startswith("--") and word not in help_text] == [], line


def test_files_that_the_forms_name_exist() -> None:
    named = {name for path in TEMPLATES.iterdir() for name in re.findall(r"[\w/-]+\.md", path.read_text())}
    assert named >= {"SECURITY.md", "docs/troubleshooting.md"}
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_code_of_conduct_and_the_security_policy_name_a_contact() -> None:
    assert "SECURITY.md" in (ROOT / "CODE_OF_CONDUCT.md").read_text()
    assert "Report a vulnerability" in (ROOT / "SECURITY.md").read_text()
    (link,) = read(TEMPLATES / "config.yml")["contact_links"]
    assert link["url"].endswith("/security/policy")
