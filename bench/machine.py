"""What figures were measured on, in words."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def described() -> str:
    """Python, the number of cores and what they are."""
    model = next(
        (line.partition(":")[2].strip() for line in _cpuinfo() if line.startswith("model name")), platform.machine()
    )
    return f"Python {platform.python_version()}, {os.cpu_count()} × {model}"


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []
