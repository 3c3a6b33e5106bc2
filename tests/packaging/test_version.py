"""A release moves everything that has its version: service, package, chart, manifests, documentation, changelog."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from app.version import VERSION

ROOT = Path(__file__).parents[2]
IMAGE = r"dra-extender(?:=REGISTRY/dra-extender)?:(\d+\.\d+\.\d+)"
CARRIERS = [
    ("charts/dra-extender/Chart.yaml", r"^version: (.+)$", 1),
    ("charts/dra-extender/Chart.yaml", r'^appVersion: "(.+)"$', 1),
    ("charts/dra-extender/Chart.yaml", IMAGE, 1),
    ("manifests/extender/kustomization.yaml", r"^ +newTag: (.+)$", 1),
    ("docs/install.md", IMAGE, 5),
    ("docs/insight.md", r"by dra-extender (\d+\.\d+\.\d+)$", 1),
]
"""File, what the version stands in, and how often it does."""


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
    done = subprocess.run([sys.executable, "-m", "app.cli", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == VERSION
