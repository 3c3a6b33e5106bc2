"""Every block of commands in the documentation names the test that runs it, or the reason why none does."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import yaml

from tests.support.documentation.blocks import (
    COMMANDS,
    PLACES,
    ROOT,
    Block,
    Command,
    all_blocks,
    block_below,
    blocks,
    statements,
)
from tests.support.documentation.terminal import Answer, type_all

BLOCKS = all_blocks()
WITH_COMMANDS = [block for block in BLOCKS if block.language in COMMANDS]
LANGUAGES = (*COMMANDS, "text", "yaml", "python", "mermaid")


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_says_what_it_is_in(block: Block) -> None:
    assert block.language in LANGUAGES, f"one of {LANGUAGES}"
    if block.language == "text":
        assert not re.search(r"^(\$ |kubectl |helm |make |dra-extender )", block.text, re.MULTILINE), "sh or console"
    if block.language == "yaml":
        assert list(yaml.safe_load_all(block.text))
    if block.language == "python":
        assert compile(block.text, str(block), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("block", WITH_COMMANDS, ids=str)
def test_a_block_of_commands_is_run_or_says_why_not(block: Block) -> None:
    assert block.kind in ("run", "run by", "not run"), (
        "see tests/support/documentation/blocks.py for what to write above it"
    )
    assert block.commands()
    if block.kind == "run":
        assert block.place in PLACES
    elif block.kind == "not run":
        assert len(block.what.split()) > 3, "the reason is too short"
    elif block.what == ".ci/run":
        lines = (ROOT / ".ci" / "run").read_text().splitlines()
        told = [command.text.partition("#")[0].strip() for command in block.commands()]
        assert [each for each in told if not any(re.match(rf"{each}\b", line) for line in lines)] == []
    else:
        sources = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
        (source,) = [text for text in sources if f"def {block.what}(" in text]
        assert Path(block.page).name in source, "the test does not read the page"


@pytest.mark.parametrize(("place", "test"), PLACES.items(), ids=str)
def test_every_place_has_blocks_and_its_tests_take_them(place: str, test: str) -> None:
    assert [block for block in WITH_COMMANDS if block.place == place]
    assert f'"{place}"' in (ROOT / test).read_text()


def test_most_blocks_are_run() -> None:
    run = [block for block in WITH_COMMANDS if block.kind != "not run"]
    assert len(run) > len(WITH_COMMANDS) / 2


# --- how blocks are read

PAGE = """\
# Page

<!-- run: demo POD=mine -->
```console
$ first POD \\
  --more
HEADING
row 1

$ second
```

## Below

```sh
for each in 1 2; do
  echo $each
done
next # with a comment
```
"""


def test_blocks_are_found_with_their_marks_and_headings() -> None:
    first, second = blocks("page.md", PAGE)
    assert (str(first), first.heading, first.place, first.variables) == ("page.md:4", "Page", "demo", {"POD": "mine"})
    assert first.commands() == [Command("first mine \\\n  --more", ["HEADING", "row 1"]), Command("second", [])]
    assert (second.heading, second.kind) == ("Below", "")
    assert [each.text for each in second.commands()] == [
        "for each in 1 2; do\n  echo $each\ndone",
        "next # with a comment",
    ]
    assert "rollout" in block_below("docs/upgrade.md", "Restart").text


def test_what_cannot_be_read_is_refused() -> None:
    with pytest.raises(ValueError, match=r"page\.md:1: a block without an end"):
        list(blocks("page.md", "```sh\nx\n"))
    with pytest.raises(ValueError, match="does not understand"):
        list(statements("for x in 1; do\n"))


def test_a_shell_keeps_what_commands_leave_and_tells_their_statuses(tmp_path: Path) -> None:
    commands = [
        Command(text) for text in ("export A=b; cd /", "echo $A $PWD", "false | cat", "ls nothing-of-this-name")
    ]
    answers = type_all(commands, tmp_path, {"PATH": "/usr/bin:/bin"})
    assert [each.output for each in answers[:3]] == ["", "b /\n", ""]
    assert [each.is_well for each in answers] == [True, True, False, False]


@pytest.mark.parametrize(
    ("shown", "came", "lacking"),
    [
        (["NAME  FREE", "gpu-1    3"], "NAME   FREE\ngpu-7  12\n", []),
        (["NAME  FREE"], "NAME  USED\n", ["NAME  FREE"]),
        (["2 pods would fit."], "11 pods would not.\n", []),
        (["…", "What helps: more"], "Why: so\n", ["What helps: more"]),
        (["dra/workers-22a40b85b9-d55wl: x"], "  dra/workers-22a40b85b9-hjmfk: y\n", []),
    ],
)
def test_what_a_page_shows_is_looked_for_in_what_comes_out(shown: list[str], came: str, lacking: list[str]) -> None:
    assert Answer(Command("x", shown), 0, came).lacking() == lacking
