"""Write the reference pages again."""

from __future__ import annotations

from reference.pages import DOCS, PAGES, renewed


def main() -> None:
    """Write all of them."""
    for page, write in PAGES.items():
        path = DOCS / page
        path.write_text(renewed(path.read_text(), write()))


if __name__ == "__main__":
    main()
