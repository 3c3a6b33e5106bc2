"""The pictures of the demo in a terminal are of what the demo shows, and load nothing from elsewhere."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from tests.support.demo.recording import ASKED, BOARD, FOLDER, ROOT, SHELL, drawn

MOST_BYTES = 100_000
SHOWN = {
    BOARD: ("dra-extender demo", "dra-samples/unschedulable waits, as expected", "POD NODE DEVICES STATE", "export"),
    SHELL: ("Pod dra-samples/unschedulable fits none of 4 nodes.", "Suggestion:", "NODE DEVICES FREE USED", *ASKED),
}


def text(picture: str) -> str:
    """What stands in it, line by line, with single spaces."""
    lines: dict[str, list[str]] = {}
    for element in ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text"):
        lines.setdefault(element.attrib["y"], []).append("".join(element.itertext()))
    return "\n".join(" ".join(" ".join(line).split()) for line in lines.values())


@pytest.mark.parametrize(("name", "shown"), SHOWN.items(), ids=str)
def test_the_readme_shows_pictures_of_what_the_demo_shows(name: str, shown: tuple[str, ...]) -> None:
    picture = (FOLDER / name).read_text()
    said = text(picture)
    assert [words for words in shown if words not in said] == []
    assert len(picture) < MOST_BYTES
    assert f"docs/pictures/{name}" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("name", SHOWN)
def test_a_picture_loads_nothing_from_elsewhere(name: str) -> None:
    picture = (FOLDER / name).read_text()
    assert re.findall(r"(?:url\(|href=|@import|src:)[^#)]*//", picture) == []
    assert "@font-face" not in picture


def test_a_screen_is_drawn_with_its_colours_and_always_alike() -> None:
    screen = "\x1b[1mPOD\x1b[0m  NODE\n\x1b[32mRunning\x1b[0m   \n\n\n"
    picture = drawn(screen, "a title")
    assert picture == drawn(screen, "a title")
    assert text(picture).split("\n")[-2:] == ["POD NODE", "Running"]
    assert {"font-weight: bold", "#98a84b"} <= set(re.findall(r"font-weight: bold|#98a84b", picture))
    assert "@font-face" not in picture
