"""Numbers of things, as people say them."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str = "") -> str:
    """Such as "1 node", "3 nodes", "0 nodes"; `plural` where it is not the noun with an s."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
