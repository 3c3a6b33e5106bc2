"""The files of the page: what they are, and the headers that they travel with.

Promises: they are read once. None of them contains anything about a cluster, so everybody may have them. A browser
loads and runs nothing but these files, whatever a name in the cluster looks like (content security policy).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

FOLDER: Final = "static"
DOCUMENTS: Final = {"index.html": "/", "docs.html": "/docs"}
"""Those that are no part of another, and where they are."""
_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


class PageFile(msgspec.Struct, frozen=True):
    """`tag` changes with the content."""

    content: bytes
    media_type: str
    tag: str


@cache
def page_files() -> dict[str, PageFile]:
    """By path."""
    return dict(_read())


def _read() -> Iterator[tuple[str, PageFile]]:
    for entry in (Path(__file__).parent / FOLDER).iterdir():
        kind = _TYPES.get(entry.suffix.removeprefix("."))
        if kind is not None:
            content = entry.read_bytes()
            path = DOCUMENTS.get(entry.name, f"/page/{entry.name}")
            yield path, PageFile(content, kind, f'"{hashlib.sha256(content).hexdigest()[:32]}"')
