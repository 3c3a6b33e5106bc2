"""What the site of the documentation does to a page: `mkdocs.yml` names this module as a hook.

Promises: links from `docs/` to files elsewhere in the repository, which work on GitHub as they are, lead to GitHub from
the site, too. Code is left as it is. Where a link within `docs/` leads is mkdocs' business.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any, Final

REPOSITORY: Final = "https://github.com/dra-extender/dra-extender/blob/main/"
_FENCE: Final = re.compile(r"(^```.*?^```)", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"\]\((?P<path>\.\./[^)\s]+)\)")


def on_page_markdown(markdown: str, *, page: Any, **_others: Any) -> str:
    """Called by mkdocs with the text of each page."""
    return with_absolute_links(markdown, page.file.src_uri)


def with_absolute_links(markdown: str, source: str) -> str:
    """`source` is the path of the page below `docs/`."""
    here = posixpath.dirname(posixpath.join("docs", source))

    def absolute(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(here, link["path"]))
        return link[0] if path.startswith("docs/") else f"]({REPOSITORY}{path})"

    parts = _FENCE.split(markdown)
    return "".join(part if part.startswith("```") else _LINK.sub(absolute, part) for part in parts)
