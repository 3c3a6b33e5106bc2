"""What structs contain, as bytes: how equal content is found, and kept as one object.

Promises: equal content has equal bytes, whatever the order of maps, and content that a decision can tell apart has
different ones. What is kept by content is kept for as long as somebody holds it, unless it is said otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, Generic, ParamSpec, TypeVar
from weakref import WeakValueDictionary

import msgspec
from cachetools import LRUCache

from dra_extender.api.quantity import Quantity

P = ParamSpec("P")
T = TypeVar("T")
H = TypeVar("H", bound=Hashable)

DIGEST_BYTES: Final = 16
SHARED_VALUES: Final = 8_192
"""How many distinct values are kept for sharing; what is rarer (serial numbers) is kept by its owners only."""
LARGEST_SHARED: Final = 1024
"""Bytes of content. Larger values are seldom repeated, and would keep much after their owners are gone."""


def _exact(value: Any) -> Any:
    """A selector can tell how an amount was written, not only how much it is."""
    if isinstance(value, Quantity):
        return (str(value.nano), value.format, value.scale, value.fast)
    raise TypeError(f"{type(value).__name__} has no content that can be compared")


_encoder = msgspec.json.Encoder(enc_hook=_exact, order="deterministic")


def encode(value: Any) -> bytes:
    """The content of structs, lists and maps."""
    return _encoder.encode(value)


def digest(*values: Any) -> bytes:
    """The content of structs, lists and maps in short. Several values are one list."""
    return shortened(encode(values))


def shortened(content: bytes) -> bytes:
    """Equal for equal content only, as far as anybody can tell."""
    return blake2b(content, digest_size=DIGEST_BYTES).digest()


class Interner(Generic[P, T]):
    """One object per content, made when somebody asks for it first."""

    def __init__(self, make: Callable[P, T]) -> None:
        self._make = make
        self._known: WeakValueDictionary[Hashable, T] = WeakValueDictionary()

    def of(self, content: Hashable, *args: P.args, **kwargs: P.kwargs) -> T:
        """The object of this content. The arguments say how to make it: they have to follow from the content."""
        found = self._known.get(content)
        if found is None:
            found = self._known[content] = self._make(*args, **kwargs)
        return found

    def __len__(self) -> int:
        return len(self._known)


_values: LRUCache[bytes, Any] = LRUCache(SHARED_VALUES)


def shared(value: T) -> T:
    """The first value of this content that was seen lately, for parts that many owners repeat, unless it is large."""
    if not value:
        return value
    content = encode(value)
    found: T = _values.setdefault(content, value) if len(content) <= LARGEST_SHARED else value
    return found


@lru_cache(maxsize=SHARED_VALUES)
def shared_hashable(value: H) -> H:
    """As `shared`, and faster, for values that tell by themselves whether they are equal."""
    return value
