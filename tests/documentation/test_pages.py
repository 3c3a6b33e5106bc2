"""Pages agree with the sources: quoted messages, figures, gates, generated references, navigation of the site."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dra_extender.api.features import GATES, FeatureGates
from reference import commands, questions
from reference.pages import BEGIN, DOCS, END, PAGES, renewed
from requirements.site import REPOSITORY, with_absolute_links

ROOT = Path(__file__).parents[2]
HOLES = re.compile(r"…|\b[A-Z]{4,}\b|10000|'")
"""What stands for something else in a message that is quoted."""


def rows(page: str) -> list[list[str]]:
    """The cells of all tables of a page, without headings."""
    lines = [line for line in (DOCS / page).read_text().splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]


def test_messages_that_are_looked_up_are_those_of_the_sources() -> None:
    sources = [*(ROOT / "app").rglob("*.py"), *(ROOT / "manifests").rglob("*.yaml")]
    text = "\n".join(source.read_text() for source in sources)
    quoted = {message for row in rows("troubleshooting.md") for message in re.findall(r"`([^`]+)`", row[0])}
    assert len(quoted) > 30
    parts = {part.strip() for message in quoted for part in HOLES.split(message)}
    assert [part for part in sorted(parts) if part not in text] == []


def test_reasons_of_events_are_all_looked_up() -> None:
    sentence = re.sub(r"\s+", " ", (DOCS / "insight.md").read_text()).split("Reasons are ")[1].split(". ")[0]
    reasons = re.findall(r"`([A-Z]\w+)`", sentence)
    assert len(reasons) > 8
    known = (DOCS / "troubleshooting.md").read_text()
    assert [reason for reason in reasons if f"`{reason}`" not in known] == []


def test_figures_of_the_comparison_stand_where_they_were_measured() -> None:
    """After a new measurement, change both places."""
    measured = "\n".join((DOCS / page).read_text() for page in ("performance.md", "placement.md"))
    figures = {figure for row in rows("comparison.md") for figure in re.findall(r"\d+\.\d+", " ".join(row))}
    figures -= {"1.34", "1.36", "1.37"}
    assert len(figures) > 15
    assert [figure for figure in sorted(figures) if not re.search(rf"\b{re.escape(figure)}\b", measured)] == []


def test_every_feature_gate_has_its_row_with_its_default() -> None:
    described = {row[0].strip("`"): row[1] for row in rows("support.md") if row[0].startswith("`DRA")}
    assert described == {name: "on" if getattr(FeatureGates(), name) else "off" for name in GATES}


@pytest.mark.parametrize(("minor", "variable"), [("1.37", "K8S_VERSION ?"), ("1.36", "SECOND :")])
def test_the_releases_that_are_called_tested_are_those_that_are_pinned(minor: str, variable: str) -> None:
    makefile = (ROOT / "tests" / "controlplane" / "Makefile").read_text()
    (pinned,) = re.findall(rf"^{re.escape(variable)}= (\S+)$", makefile, re.MULTILINE)
    (row,) = (row for row in rows("support.md") if row[0] == minor)
    assert row[1:] == [f"tested: {pinned}, by `.ci/run`"] * 3


# --- generated references: `make reference` writes them


@pytest.mark.parametrize("page", PAGES)
def test_the_reference_is_current(page: str) -> None:
    text = (DOCS / page).read_text()
    assert text == renewed(text, PAGES[page]()), "run `make reference`"


def test_what_people_wrote_around_a_reference_stays() -> None:
    page = f"# Page\n\nbefore\n\n{BEGIN}old\n{END}\nafter\n"
    assert renewed(page, "new\n") == f"# Page\n\nbefore\n\n{BEGIN}\nnew\n\n{END}\nafter\n"
    assert renewed(renewed(page, "new"), "new") == renewed(page, "new")


@pytest.mark.parametrize("page", ["no marks", BEGIN, f"{END}{BEGIN}", f"{BEGIN}{BEGIN}{END}", f"{BEGIN}{END}{END}"])
def test_a_page_without_its_marks_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match="once each"):
        renewed(page, "new")


def test_every_command_and_every_path_has_a_section() -> None:
    sections = re.findall(r"^### (\S+)$", commands.markdown(), re.MULTILINE)
    assert len(sections) == len(set(sections)) > 10
    panels = re.findall(r"^## (.+)$", commands.markdown(), re.MULTILINE)
    assert len(panels) == len(set(panels))
    assert {"why", "serve", "snapshot"} <= set(sections)
    asked = re.findall(r"^## (?:GET|POST) (\S+)$", questions.markdown(), re.MULTILINE)
    assert asked == list(questions.schema()["paths"])


def test_an_answer_is_told_down_to_its_innermost_fields() -> None:
    text = questions.markdown().partition("## GET /insight/devices\n")[2].partition("\n## ")[0]
    field = r"\| `devices\[\]\.holders\[\]\.claim` \| string \|"
    assert re.search(field, text)


def test_the_same_fields_are_listed_once_and_linked() -> None:
    text = questions.markdown()
    assert "has the fields of [GET /livez](#get-livez)." in text
    listed = [section for section in text.split("## GET ") if "| `remedies[].changes[].op` |" in section]
    assert len(listed) == 1


# --- the site: `make docs` builds it strictly

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
    assert re.search(r"^(begin docs )?make docs$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
