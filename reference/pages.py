"""Which part of which page is written, and by what.

Promises: a page keeps every word outside of its two marks, each of which occurs once. What is written depends on
nothing but the sources: no time, no place, no width of a terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from reference import commands, questions, tables

DOCS: Final = Path(__file__).parents[1] / "docs"
BEGIN: Final = "<!-- written by make reference -->\n"
END: Final = "<!-- end of what make reference writes -->\n"

PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "commands.md": commands.markdown,
    "settings.md": tables.settings,
    "metrics.md": tables.metrics,
    "insight-api.md": questions.markdown,
    "limits.md": tables.limits,
}
"""Page below `docs/` -> what writes its part."""


def renewed(text: str, written: str) -> str:
    """The text of a page with this between its marks. Raises ValueError for a page without them."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in after:
        raise ValueError(f"the page has to have {BEGIN.strip()!r} and {END.strip()!r} once each, in this order")
    return f"{before}{BEGIN}\n{written.strip()}\n\n{END}{after}"
