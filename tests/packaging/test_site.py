"""The site of the documentation: `make docs` builds it strictly; here is what it rests on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from requirements.site import REPOSITORY, with_absolute_links

ROOT = Path(__file__).parents[2]
CONFIGURATION = (ROOT / "mkdocs.yml").read_text()


@pytest.mark.parametrize(
    ("source", "link", "leads_to"),
    [
        ("install.md", "](../charts/dra-extender/README.md)", f"]({REPOSITORY}charts/dra-extender/README.md)"),
        ("decisions/search.md", "](../../bench/ablation.py)", f"]({REPOSITORY}bench/ablation.py)"),
        ("upgrade.md", "](../CONTRIBUTING.md#releases)", f"]({REPOSITORY}CONTRIBUTING.md#releases)"),
        ("runbooks/README.md", "](../metrics.md)", "](../metrics.md)"),
        ("install.md", "](upgrade.md)", "](upgrade.md)"),
        ("install.md", "](https://example.com/../x)", "](https://example.com/../x)"),
        ("install.md", "```\n](../LICENSE)\n```", "```\n](../LICENSE)\n```"),
    ],
)
def test_links_out_of_the_documentation_lead_to_github(source: str, link: str, leads_to: str) -> None:
    assert with_absolute_links(f"a\n\n{link}\n\nb", source) == f"a\n\n{leads_to}\n\nb"


def test_every_page_is_in_the_navigation_once() -> None:
    pages = sorted(str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md"))
    entries = re.findall(r"^ +- (?:[^:\n]+: )?([\w/-]+\.md)$", CONFIGURATION, re.MULTILINE)
    assert sorted(entries) == pages


def test_entries_that_lead_to_the_repository_lead_to_files() -> None:
    links = re.findall(re.escape(REPOSITORY) + r"(\S+)", CONFIGURATION)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_site_is_strict_and_part_of_what_everybody_runs() -> None:
    assert re.search(r"^strict: true$", CONFIGURATION, re.MULTILINE)
    assert re.search(r"links: \{not_found: warn, anchors: warn", CONFIGURATION)
    assert re.search(r"^make docs$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
