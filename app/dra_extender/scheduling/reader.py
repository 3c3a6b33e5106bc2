"""Who reads a text: administrators see all names, users of a namespace see the names of objects in it.

Promises: what is written to an object of a namespace contains no name of an object of another namespace. It has their
number instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from dra_extender.plaintext import counted

HIDDEN: Final = "(another namespace)"
"""Instead of the key of an object that the reader does not see."""


class Reader(msgspec.Struct, frozen=True):
    """`namespace`: of the object that the text is written to; None for a reader who sees all names."""

    namespace: str | None = None

    def sees(self, key: str) -> bool:
        """`key`: namespace/name of an object."""
        return self.namespace is None or key.partition("/")[0] == self.namespace

    def shown(self, key: str) -> str:
        """The key; `HIDDEN` if the reader does not see the object."""
        return key if self.sees(key) else HIDDEN

    def listed(self, noun: str, keys: Iterable[str]) -> str:
        """Such as "pods a/x, a/y and 2 pods of other namespaces"; empty without keys (namespace/name)."""
        return listed(noun, map(self.shown, keys))


ADMINISTRATOR: Final = Reader()


def listed(noun: str, keys: Iterable[str]) -> str:
    """As `Reader.listed`, for keys that are `shown`."""
    found = list(keys)
    seen = [key for key in found if key != HIDDEN]
    named = f"{noun if len(seen) == 1 else noun + 's'} {', '.join(seen)}" if seen else ""
    return " and ".join(filter(None, (named, others(noun, len(found) - len(seen)))))


def others(noun: str, number: int) -> str:
    """Such as "2 pods of other namespaces"; empty for none."""
    return f"{counted(number, noun)} of {'another namespace' if number == 1 else 'other namespaces'}" if number else ""
