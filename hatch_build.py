"""The long description of the package: README.md with links and pictures that also work on a package index."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

RELATIVE_PICTURE = re.compile(r"(!\[[^\]]*)\]\((?![a-z]+:|#)")
RELATIVE_LINK = re.compile(r"\]\((?![a-z]+:|#)")


class LongDescription(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        source = metadata["urls"]["Source"]
        readme = Path(self.root, "README.md").read_text(encoding="utf-8")
        text = RELATIVE_PICTURE.sub(rf"\1]({source}/raw/main/", readme)
        text = RELATIVE_LINK.sub(f"]({source}/blob/main/", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
