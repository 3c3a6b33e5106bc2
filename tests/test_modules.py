"""The size of modules, everywhere in the repository."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
LONGEST = 400
PLACES = ("app", "bench", "charts", "hack", "loadtest", "reference", "requirements", "tests", "tools")


def test_no_module_is_longer_than_400_lines() -> None:
    """A module is one noun. One that outgrows a few screens has become two, and readers no longer know where a rule is.

    Split it where its docstring would need an "and"; do not move a tail into a second module without a meaning.
    """
    modules = [*ROOT.glob("*.py"), *(path for place in PLACES for path in (ROOT / place).rglob("*.py"))]
    assert len(modules) > 400, "the places have moved"
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in modules}
    assert {name: length for name, length in lengths.items() if length > LONGEST} == {}
