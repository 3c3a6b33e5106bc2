"""docs/performance.md: each benchmark writes its own section, between two markers, and leaves the others alone."""

from __future__ import annotations

from pathlib import Path

PERFORMANCE = Path(__file__).parents[1] / "docs" / "performance.md"
_TITLE = "# Performance\n"


def write_section(name: str, text: str, document: Path = PERFORMANCE) -> None:
    """Put `text` (Markdown) where the section of that name is, or at the end of the document."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    known = document.read_text() if document.exists() else _TITLE
    before, marker, rest = known.partition(begin)
    after = rest.partition(end)[2] if marker else "\n"
    separator = "" if marker else "\n"
    document.write_text(f"{before}{separator}{begin}\n{text.strip()}\n{end}{after}")
