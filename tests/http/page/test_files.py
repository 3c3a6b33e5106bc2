"""The files of the page: what they may do in a browser, and what is not in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dra_extender.http.page import routes
from dra_extender.http.page.routes import HEADERS, page_files

FOLDER = Path(routes.__file__).parent / routes.FOLDER
TEXTS = {path.name: path.read_text() for path in sorted(FOLDER.iterdir())}
SCRIPTS = {name: text for name, text in TEXTS.items() if name.endswith(".js")}
LONGEST = 400


def test_every_file_is_served() -> None:
    assert page_files().keys() == {"/"} | {f"/page/{name}" for name in TEXTS if name != routes.DOCUMENT}


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_script_makes_markup_of_text(name: str) -> None:
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|setHTML"
    assert re.findall(forbidden, SCRIPTS[name]) == []


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_checked_says_what_it_is_about_and_is_short(name: str) -> None:
    text = SCRIPTS[name]
    assert text.startswith("// @ts-check\n/**")
    assert len(text.splitlines()) <= LONGEST


@pytest.mark.parametrize("name", TEXTS)
def test_nothing_comes_from_elsewhere(name: str) -> None:
    text = TEXTS[name].replace("http://www.w3.org/2000/svg", "")
    assert re.findall(r"https?://|//[a-z]+\.[a-z]|@import", text) == []


def test_the_document_has_no_script_and_no_style_in_it() -> None:
    text = TEXTS[routes.DOCUMENT]
    assert re.findall(r"<style|\sstyle=|\son[a-z]+=|javascript:", text) == []
    assert set(re.findall(r"<script[^>]*>(.*?)</script>", text)) == {""}


def test_every_import_is_a_file_of_the_page() -> None:
    imported = {name for text in SCRIPTS.values() for name in re.findall(r'from "\./([^"]+)"', text)}
    assert imported <= SCRIPTS.keys()
    assert SCRIPTS.keys() - imported == {"main.js"}, "a module that nobody imports"


def test_every_module_is_asked_for_at_once() -> None:
    preloaded = re.findall(r'rel="modulepreload" href="page/([^"]+)"', TEXTS[routes.DOCUMENT])
    assert sorted([*preloaded, "main.js"]) == sorted(SCRIPTS)


def test_a_browser_may_load_nothing_but_these_files_and_send_nothing_elsewhere() -> None:
    policy = dict(rule.split(" ", 1) for rule in HEADERS["Content-Security-Policy"].split("; "))
    assert policy == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "connect-src": "'self'",
        "img-src": "'self' data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    assert HEADERS["X-Content-Type-Options"] == "nosniff"
    assert HEADERS["Referrer-Policy"] == "no-referrer"
