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


def test_the_tests_of_gangs_name_their_row_of_the_table() -> None:
    sources = [path.read_text() for path in (ROOT / "tests" / "e2e").glob("test_*.py")]
    rows = re.findall(r"(?m)^\| (T[0-8]) \|(.*)$", (ROOT / "docs" / "acceptance.md").read_text())
    assert [row for row, _ in rows] == [f"T{number}" for number in range(9)]
    for row, line in rows:
        for name in re.findall(r"`(test_\w+)`", line):
            docstring = rf'def {name}\([^)]*\) -> None:\n    """{row}\b'
            assert any(re.search(docstring, source) for source in sources), (row, name)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []


def test_the_documentation_gives_evidence() -> None:
    assert len(re.findall(r"`test_\w+`", (ROOT / "docs" / "differences.md").read_text())) > 20


ARCHITECTURE, GLOSSARY = ROOT / "docs" / "architecture.md", ROOT / "docs" / "glossary.md"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_is_named_exists(page: Path) -> None:
    named = set(re.findall(r"`((?:app|tests|bench|tools|charts|docs|manifests)/[\w./-]*)`", page.read_text()))
    placeholders = {path for path in named if re.search(r"/[A-Z]+(\.py)?$", path)}  # tests/PACKAGE, for example
    assert [path for path in sorted(named - placeholders) if not (ROOT / path).exists()] == []


def test_the_architecture_describes_every_package_that_is_installed_and_those_of_the_service() -> None:
    described = set(re.findall(r"^\| `(app/[\w/]+)/` \|", ARCHITECTURE.read_text(), re.MULTILINE))
    packages = [*(ROOT / "app").glob("*/__init__.py"), *(ROOT / "app" / "dra_extender").glob("*/__init__.py")]
    assert described == {path.parent.relative_to(ROOT).as_posix() for path in packages}


def test_the_glossary_is_short_and_alphabetical_and_names_the_package_of_each_word() -> None:
    rows = re.findall(r"^\| (.+?) \| .+ \| (.+) \|$", GLOSSARY.read_text(), re.MULTILINE)[1:]
    words = [word.casefold() for word, _ in rows]
    assert words == sorted(words)
    assert 10 < len(words) <= 30
    assert [word for word, package in rows if not re.fullmatch(r"`app/[\w/]+/`", package)] == []
