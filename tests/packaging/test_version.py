"""A release moves everything that has its version: service, package, chart, manifests, documentation, changelog."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dra_extender.version import VERSION

ROOT = Path(__file__).parents[2]
IMAGE = r"dra-extender(?:=REGISTRY/dra-extender)?:(\d+\.\d+\.\d+)"
CARRIERS = [
    ("charts/dra-extender/Chart.yaml", r"^version: (.+)$", 1),
    ("charts/dra-extender/Chart.yaml", r'^appVersion: "(.+)"$', 1),
    ("manifests/extender/kustomization.yaml", r"^ +newTag: (.+)$", 1),
    ("docs/install.md", IMAGE, 3),
    ("docs/quickstart.md", IMAGE, 2),
]
"""File, pattern of the version, and number of occurrences."""


@pytest.mark.parametrize(("file", "pattern", "times"), CARRIERS, ids=str)
def test_everything_with_a_version_has_that_of_the_service(file: str, pattern: str, times: int) -> None:
    assert re.findall(pattern, (ROOT / file).read_text(), re.MULTILINE) == [VERSION] * times


def test_no_other_page_or_manifest_names_an_image_of_another_version() -> None:
    files = [path for place in ("charts", "docs", "manifests") for path in (ROOT / place).rglob("*.*")]
    texts = [
        path.read_text() for path in [*files, *ROOT.glob("*.md")] if path.suffix in (".md", ".yaml", ".tpl", ".txt")
    ]
    assert {version for text in texts for version in re.findall(IMAGE, text)} == {VERSION}


def test_the_command_says_its_version() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dra_extender.cli", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.split()[-1] == VERSION


# --- the changelog

CHANGELOG = (ROOT / "CHANGELOG.md").read_text()
RELEASES = re.findall(r"^## (.+)$", CHANGELOG, re.MULTILINE)
KINDS = ["Before an upgrade", "Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]


def test_the_changelog_has_what_is_to_come_and_then_releases_from_the_newest_on() -> None:
    assert RELEASES[0] == "Unreleased"
    dated = [re.fullmatch(r"(\d+\.\d+\.\d+) - \d{4}-\d\d-\d\d", release) for release in RELEASES[1:]]
    versions = [found[1] for found in dated if found]
    assert len(versions) == len(dated), "## VERSION - YEAR-MONTH-DAY"
    assert versions[0] == VERSION
    assert versions == sorted(versions, key=lambda version: [int(part) for part in version.split(".")], reverse=True)


def test_each_release_tells_kinds_of_changes_in_one_order() -> None:
    for release, text in zip(RELEASES, re.split(r"^## .+$", CHANGELOG, flags=re.MULTILINE)[1:], strict=True):
        kinds = re.findall(r"^### (.+)$", text, re.MULTILINE)
        assert kinds == [kind for kind in KINDS if kind in kinds], release


def test_the_notes_of_a_release_are_found_as_the_workflow_finds_them() -> None:
    workflow = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    (program,) = re.findall(r"awk -v heading=.+? ('.+') CHANGELOG\.md", workflow)
    command = f'awk -v heading="## {VERSION}" {program} CHANGELOG.md'
    notes = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert notes == CHANGELOG.partition(f"## {VERSION} - ")[2].partition("\n## ")[0].partition("\n")[2]
    assert "\n## " not in notes
