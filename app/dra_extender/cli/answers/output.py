"""Answers as JSON or YAML, for programs."""

from __future__ import annotations

from typing import Literal

import msgspec
import yaml

Format = Literal["json", "yaml"]


def written(found: object, format: Format) -> str:
    """A struct of texts, numbers and structs, as it is."""
    if format == "json":
        return msgspec.json.format(msgspec.json.encode(found)).decode()
    loaded = msgspec.json.decode(msgspec.json.encode(found))
    return str(yaml.dump(loaded, Dumper=_DUMPER, sort_keys=False, allow_unicode=True)).rstrip()


_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
"""The fast one where PyYAML was built with it: a census of a large cluster has hundreds of thousands of lines."""
