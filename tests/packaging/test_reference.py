"""References that are made of the sources are those that the sources make now; `make reference` writes them."""

from __future__ import annotations

import re

import pytest

from reference import commands, questions
from reference.pages import BEGIN, DOCS, END, PAGES, renewed


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
    assert len(sections) == len(set(sections)) > 12
    panels = re.findall(r"^## (.+)$", commands.markdown(), re.MULTILINE)
    assert len(panels) == len(set(panels))
    assert {"why", "serve", "replay", "version"} <= set(sections) and "explain" not in sections
    asked = re.findall(r"^## (?:GET|POST) (\S+)$", questions.markdown(), re.MULTILINE)
    assert asked == list(questions.schema()["paths"])


def test_an_answer_is_told_down_to_its_innermost_fields() -> None:
    text = questions.markdown().partition("## GET /insight/devices\n")[2].partition("\n## ")[0]
    field = r"\| `devices\[\]\.holders\[\]\.claim` \| string \|"
    assert re.search(field, text)
