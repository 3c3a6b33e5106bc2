"""Pictures of the demo in a terminal, for the README: `make recording` runs it, and writes what a reader would see.

Nothing in them is drawn by hand. Addresses, process numbers and nodes of some pods are other ones in each recording.
"""

from __future__ import annotations

import io
import re
import shutil
import sys
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

from tests.support.demo.terminal import Terminal

ROOT: Final = Path(__file__).parents[3]
FOLDER: Final = ROOT / "docs" / "pictures"
WIDTH: Final = 100
BOARD, SHELL = "terminal-demo.svg", "terminal-why.svg"
ASKED: Final = (
    "kubectl dra why unschedulable -n dra-samples",
    "kubectl dra top nodes",
    "kubectl dra whatif --drain node-4 --add-node like=node-4",
)
"""Questions whose answers are the second picture."""

_FONTS_FROM_ELSEWHERE: Final = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def drawn(screen: str, title: str) -> str:
    """A picture (SVG) of a screen with its control sequences. The same screen gives the same picture."""
    lines = [line.rstrip() for line in screen.rstrip().splitlines()]
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for line in lines:
        console.print(Text.from_ansi(line), soft_wrap=True)
    picture = console.export_svg(title=title, unique_id=f"terminal-{title.replace(' ', '-')}")
    return _FONTS_FROM_ELSEWHERE.sub("", picture)


def record() -> dict[str, str]:
    """By file name, the pictures of a demo that runs for it. Raises AssertionError when it does not do its part."""
    with Terminal("demo", ROOT, WIDTH, 42) as first, Terminal("questions", ROOT, WIDTH, 42) as second:
        first.type("make demo")
        first.until(r"dra-samples/unschedulable waits, as expected")
        first.until(r"^urgent .*Running|^dra-preemption/urgent .*Running")
        exported = first.until(r"export KUBECONFIG=\S+ PATH=\S+")[0]
        made = {BOARD: drawn(first.shown(coloured=True), "make demo")}
        second.type(f"{exported}; clear")
        second.until(r"\A\$\n*\Z")
        for question in ASKED:
            second.type(question)
            second.until(rf"^\$ {re.escape(question)}\n(?:.+\n)+\$\n*\Z")
        made[SHELL] = drawn(second.shown(coloured=True).rstrip().removesuffix("$"), "another terminal")
        first.interrupt()
        first.until(r"^\$$")
    return made


def main() -> int:
    """The exit status: 1 without tmux or kubectl."""
    missing = [name for name in ("tmux", "kubectl", "make") if not shutil.which(name)]
    if missing:
        sys.stderr.write(f"missing on this machine: {', '.join(missing)}; apt-get install tmux kubernetes-client\n")
        return 1
    for name, picture in record().items():
        (FOLDER / name).write_text(picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
