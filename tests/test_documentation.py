"""The documentation names tests as evidence and links to files: both have to exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


@pytest.fixture(scope="module")
def defined() -> set[str]:
    """The names of all test functions."""
    sources = (ROOT / "tests").rglob("test_*.py")
    return {name for source in sources for name in re.findall(r"def (test_\w+)", source.read_text())}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_test_that_is_named_as_evidence_exists(page: Path, defined: set[str]) -> None:
    named = set(re.findall(r"`(test_\w+)`", page.read_text()))
    # Acceptance tests are cited by number: `test_17` stands for all tests whose names begin with it and a sentence.
    numbers = {name[: len("test_00")] for name in defined if re.match(r"test_\d\d_", name)}
    assert named - defined - numbers == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []


def test_the_documentation_gives_evidence() -> None:
    assert len(re.findall(r"`test_\w+`", (ROOT / "docs" / "differences.md").read_text())) > 20
