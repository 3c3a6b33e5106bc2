"""Sections of the document about performance."""

from __future__ import annotations

from pathlib import Path

from bench.document import write_section


def test_each_benchmark_replaces_its_own_section_only(tmp_path: Path) -> None:
    document = tmp_path / "performance.md"
    write_section("one", "## One\n1", document)
    write_section("two", "## Two\n2", document)
    first = document.read_text()
    assert first.startswith("# ")
    write_section("one", "## One\n3", document)
    assert document.read_text() == first.replace("\n1\n", "\n3\n")
    write_section("one", "## One\n1", document)
    assert document.read_text() == first


def test_what_people_wrote_around_a_section_stays(tmp_path: Path) -> None:
    document = tmp_path / "performance.md"
    write_section("one", "1", document)
    document.write_text("before\n" + document.read_text() + "after\n")
    write_section("one", "2", document)
    assert document.read_text().startswith("before\n")
    assert document.read_text().endswith("after\n")
