"""The reference of all values, made of values.yaml: every value has one line above it that begins with `# --`.

`rows` promises a row for each value that can be set, and an error that names a value without a line, or with two.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

CHART = Path(__file__).parent / "dra-extender"
VALUES = CHART / "values.yaml"
README = CHART / "README.md"
BEGIN, END = "<!-- values: python -m charts -->\n", "<!-- end of values -->\n"
_MARK = "# -- "


class Row(NamedTuple):
    """One value: its path with dots, its default as JSON, what it means."""

    path: str
    default: str
    meaning: str


def rows(text: str) -> list[Row]:
    """The values of a values.yaml. Raises ValueError for one that is not documented."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)
    return list(_rows(root, "", text.splitlines()))


def _rows(node: yaml.MappingNode, prefix: str, lines: list[str]) -> Iterator[Row]:
    for key, value in node.value:
        path = f"{prefix}{key.value}"
        above = lines[key.start_mark.line - 1].strip()
        if above.startswith(_MARK):
            default = json.dumps(yaml.safe_load(yaml.serialize(value)))
            yield Row(path, default, above.removeprefix(_MARK))
        elif isinstance(value, yaml.MappingNode) and value.value:
            yield from _rows(value, f"{path}.", lines)
        else:
            raise ValueError(f"{path} has no line that begins with {_MARK!r}")


def markdown_table(text: str) -> str:
    """The reference as a table."""
    found = ["| value | default | meaning |", "|---|---|---|"]
    found += [f"| `{row.path}` | `{row.default}` | {row.meaning} |" for row in rows(text)]
    return "\n".join(found) + "\n"


def readme(text: str, table: str) -> str:
    """The text of README.md with this table in its place."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table}{END}{after}"
