"""A shell in which commands of the documentation are typed one after the other, as a reader would.

Promises: one shell for all of them, so that what one exports the next one has; each has its own status and output.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.documentation.blocks import Command
from tests.support.patience import LONGEST

_ALL: Final = 5 * LONGEST
"""Seconds for all commands of a shell together; below the timeout of pytest."""
_BEGIN, _END = "\x1e", "\x1f"
_OURS: Final = re.compile(r"^(\.venv/bin/)?(dra-extender|kubectl dra)\s")
"""Commands whose exit status 1 is an answer, namely no; 2 is an error."""


class Answer(NamedTuple):
    """What became of a command."""

    command: Command
    status: int
    output: str

    @property
    def is_well(self) -> bool:
        """The command did what it is for."""
        return self.status == 0 or (self.status == 1 and bool(_OURS.match(self.command.text)))

    def lacking(self) -> list[str]:
        """The lines of the documentation that do not come out any more: headings of tables that are not there as
        they are, other lines of which none begins with the same word. What is a number, or made up, does not count.
        """
        came = [_words(line) for line in self.output.splitlines()]
        shown = [(line, _words(line)) for line in self.command.shown if line.strip() != "…"]
        first = {words[:1] for words in came}
        return [line for line, words in shown if words not in came and (line.isupper() or words[:1] not in first)]


def _words(line: str) -> tuple[str, ...]:
    """Numbers, and the ends of names that controllers make up, are all the same."""
    return tuple(re.sub(r"\d+", "#", re.sub(r"-[0-9a-z]{5}\b", "-#", line)).split())


def type_all(commands: Sequence[Command], folder: Path, environment: Mapping[str, str]) -> list[Answer]:
    """Run them. A pipe fails when any part of it does. Raises AssertionError when the shell itself ends too early."""
    script = "".join(f"printf '{_BEGIN}'\n{each.text}\nprintf '{_END}%s\\n' \"$?\"\n" for each in commands)
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", script],
        cwd=folder,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_ALL,
        check=False,
    )
    found = re.findall(rf"{_BEGIN}([^{_BEGIN}]*){_END}(\d+)\n", done.stdout)
    assert len(found) == len(commands), f"the shell ended with {done.returncode}\n{done.stdout}"
    return [Answer(each, int(status), output) for each, (output, status) in zip(commands, found, strict=True)]
