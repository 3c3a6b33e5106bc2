"""A terminal without a window: tmux, which has to be installed."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.patience import LONGEST


class Terminal:
    """A shell with the prompt `$ ` in a terminal of this size, on a tmux server of its own; enter it to start it."""

    def __init__(self, name: str, folder: Path, width: int, height: int) -> None:
        self._server = ("tmux", "-L", f"dra-extender-{name}-{os.getpid()}", "-f", os.devnull)
        self._folder = folder
        self._size = ("-x", str(width), "-y", str(height))

    def __enter__(self) -> Self:
        self._tmux("new-session", "-d", *self._size, "-c", str(self._folder), "env PS1='$ ' bash --norc --noprofile")
        try:
            self.until(r"^\$$")
        except AssertionError:
            self._tmux("kill-server")
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tmux("kill-server")

    def type(self, line: str) -> None:
        """With Enter at its end."""
        self._tmux("send-keys", "-l", line)
        self._tmux("send-keys", "Enter")

    def interrupt(self) -> None:
        """Ctrl-C."""
        self._tmux("send-keys", "C-c")

    def shown(self, *, coloured: bool = False) -> str:
        """Its content; with colours as the terminal's control sequences."""
        return self._tmux("capture-pane", "-p", *(("-e",) if coloured else ()))

    def until(self, pattern: str) -> re.Match[str]:
        """Wait until it shows this text. Raises AssertionError with the text that it shows."""
        deadline = time.monotonic() + LONGEST
        while not (found := re.search(pattern, shown := self.shown(), re.MULTILINE)):
            assert time.monotonic() < deadline, f"{pattern!r} did not come\n{shown}"
            time.sleep(0.1)
        return found

    def _tmux(self, *arguments: str) -> str:
        return subprocess.run([*self._server, *arguments], capture_output=True, text=True, check=True).stdout
