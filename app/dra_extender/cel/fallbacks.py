"""How often the compiled form of a selector has left the answer to the interpreter, since the start of the process."""

from __future__ import annotations

from typing import Final, Literal

Cause = Literal["interpreted", "unexpected"]

CAUSES: Final[dict[Cause, str]] = {
    "interpreted": "the device lacks what the selector reads, or the answer is an error",
    "unexpected": "a bug",
}

FALLBACKS: Final[dict[Cause, int]] = {"interpreted": 0, "unexpected": 0}
