"""Large YAML files of test data, read with the loader in C where PyYAML has it: every worker reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read(file: Path) -> Any:
    """The content of a file of one document."""
    return yaml.load(file.read_text(), _LOADER)
