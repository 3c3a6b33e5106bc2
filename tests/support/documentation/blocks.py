"""Blocks of the documentation, and who runs their commands, as a comment in the source of the page says.

Above the fence of each block of commands (`sh`: commands; `console`: commands after `$ `, and what they print) stands
one of

    <!-- run: PLACE -->              tests of this place run it (`PLACES`), PLACE may be followed by NAME=VALUE
    <!-- run by: test_name -->       this test runs it
    <!-- run by: .ci/run -->         each line is one that everybody's checks run
    <!-- not run: REASON -->         not run, and why
    <!-- file: NAME -->              not commands: a file that commands below it use
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
COMMANDS: Final = ("sh", "console")
PLACES: Final[Mapping[str, str]] = {
    "the demo's terminal": "tests/documentation/test_demo.py",
    "demo": "tests/documentation/test_demo.py",
    "shipped deployment": "tests/e2e/test_rollout.py",
    "installation": "tests/chart/test_documentation.py",
    "adoption": "tests/chart/test_adopt.py",
    "node": "tests/node/test_quickstart.py",
}
"""Where commands are run -> the tests that do."""

_MARK: Final = re.compile(r"<!-- (?P<kind>run|run by|not run|file): (?P<what>.+?) -->")
_FENCE: Final = re.compile(r"(?P<indent> *)(?P<fence>`{3,})(?P<language>\S*)$")
_VARIABLE: Final = re.compile(r"\s([A-Z]+)=(\S+)")
_PROMPT: Final = "$ "


@dataclass(frozen=True)
class Command:
    """What a reader types, and the lines that the page says come out; none: it does not say."""

    text: str
    shown: Sequence[str] = ()


@dataclass(frozen=True)
class Block:
    """A fenced block: `line` of its fence, the `heading` above it, the `kind` of its mark and `what` that says."""

    page: str
    line: int
    heading: str
    language: str
    text: str
    kind: str = ""
    what: str = ""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def place(self) -> str:
        """Where the mark says it is run; empty when it is not by tests of a place."""
        return _VARIABLE.sub("", self.what) if self.kind == "run" else ""

    @property
    def variables(self) -> dict[str, str]:
        """What stands for words in capitals."""
        return dict(_VARIABLE.findall(self.what))

    def commands(self) -> list[Command]:
        """In order, with variables replaced."""
        found = list(_after_prompts(self.text) if self.language == "console" else map(Command, statements(self.text)))
        return [Command(self._filled(each.text), [*map(self._filled, each.shown)]) for each in found]

    def _filled(self, text: str) -> str:
        for name, value in self.variables.items():
            text = re.sub(rf"\b{name}\b", value, text)
        return text


def pages() -> list[Path]:
    """All pages of the repository that people read."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "charts").rglob("*.md")]
    return sorted([*found, *(ROOT / "tests").glob("*/README.md")])


def all_blocks() -> list[Block]:
    """Those of all pages."""
    return [block for page in pages() for block in blocks(page.relative_to(ROOT).as_posix(), page.read_text())]


def blocks_of(page: str) -> list[Block]:
    """Those of one page, by its path."""
    return list(blocks(page, (ROOT / page).read_text()))


def block_below(page: str, heading: str) -> Block:
    """The first block of commands below a heading. Raises AssertionError without one."""
    found = [block for block in blocks_of(page) if block.heading == heading and block.language in COMMANDS]
    assert found, f"{page} has no commands below {heading}"
    return found[0]


def blocks(page: str, text: str) -> Iterator[Block]:
    """Those in the text of a page. Raises ValueError for a fence without an end."""
    lines = text.splitlines()
    heading, number = "", 0
    while number < len(lines):
        line = lines[number]
        heading = line.lstrip("#").strip() if line.startswith("#") else heading
        if fence := _FENCE.match(line):
            ends = fence["indent"] + fence["fence"]
            if ends not in lines[number + 1 :]:
                raise ValueError(f"{page}:{number + 1}: a block without an end")
            end = lines.index(ends, number + 1)
            inner = [each.removeprefix(fence["indent"]) for each in lines[number + 1 : end]]
            mark = _MARK.search(lines[number - 1]) if number else None
            marked = (mark["kind"], mark["what"]) if mark else ("", "")
            yield Block(page, number + 1, heading, fence["language"], "\n".join(inner) + "\n", *marked)
            number = end
        number += 1


def statements(text: str) -> Iterator[str]:
    """The complete commands of a script: a loop is one, and so is a line that is continued. Raises ValueError."""
    open_lines: list[str] = []
    for line in text.splitlines():
        open_lines.append(line)
        if not line.endswith("\\") and _is_complete("\n".join(open_lines)):
            if line.strip():
                yield "\n".join(open_lines)
            open_lines = []
    if open_lines:
        raise ValueError(f"a shell does not understand {open_lines}")


def _is_complete(script: str) -> bool:
    return subprocess.run(["bash", "-nc", script], capture_output=True, check=False).returncode == 0


def _after_prompts(text: str) -> Iterator[Command]:
    for part in re.split(rf"^{re.escape(_PROMPT)}", text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        length = next(count for count, line in enumerate(lines, 1) if not line.endswith("\\"))
        yield Command("\n".join(lines[:length]), [line for line in lines[length:] if line.strip()])
