"""Pages for people in need: the messages they quote are those of the sources, and figures those of the measurements."""

from __future__ import annotations

import re
from pathlib import Path

from dra_extender.api.features import FeatureGates

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
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
    told = re.findall(
        r"`([A-Z]\w+)`", re.sub(r"\s+", " ", (DOCS / "insight.md").read_text()).split("Reasons are ")[1].split(". ")[0]
    )
    assert len(told) > 8
    known = (DOCS / "troubleshooting.md").read_text()
    assert [reason for reason in told if f"`{reason}`" not in known] == []


def test_figures_of_the_comparison_stand_where_they_were_measured() -> None:
    """A figure that is measured anew is changed in both places."""
    measured = "\n".join((DOCS / page).read_text() for page in ("performance.md", "placement.md"))
    figures = {figure for row in rows("comparison.md") for figure in re.findall(r"\d+\.\d+", " ".join(row))}
    figures -= {"1.34", "1.36"}
    assert len(figures) > 15
    assert [figure for figure in sorted(figures) if not re.search(rf"\b{re.escape(figure)}\b", measured)] == []


def test_every_feature_gate_has_its_row_with_its_default() -> None:
    described = {row[0].strip("`"): row[1] for row in rows("support.md") if row[0].startswith("`DRA")}
    assert described == {
        name: "on" if getattr(FeatureGates(), name) else "off" for name in FeatureGates.__struct_fields__
    }


def test_the_release_that_is_called_tested_is_the_one_that_is_pinned() -> None:
    makefile = (ROOT / "tests" / "controlplane" / "Makefile").read_text()
    (pinned,) = re.findall(r"^K8S_VERSION \?= (\S+)$", makefile, re.MULTILINE)
    (row,) = (row for row in rows("support.md") if row[0] == "1.36")
    assert row[1:] == [f"tested: {pinned}, by `.ci/run`"] * 3
