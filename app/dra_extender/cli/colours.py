"""Where colours may be written: on a terminal whose user has not refused them (https://no-color.org)."""

from __future__ import annotations

import os
from typing import TextIO


def is_coloured(stream: TextIO) -> bool:
    """True when escape sequences are for the eyes of somebody who wants them."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
