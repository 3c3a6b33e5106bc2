"""How much memory a process has."""

from __future__ import annotations

import resource
from pathlib import Path


def resident(pid: int | str = "self") -> int:
    """Bytes; 0 when the process is gone, or where the system does not say."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return 0
