"""Content as bytes, and values that are kept as long as they are in use.

Promises: equal content has equal bytes, whatever the order of maps, and content that a decision can distinguish has
different bytes. An `Interner` keeps one object per content, `Belongings` keep a value per object: both for as long as
the object is in use.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, Generic, ParamSpec, TypeVar
from weakref import WeakValueDictionary, ref

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
    """One object per content, made on first use."""

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


class SharedValues:
    """The values of equal content that were seen lately, for parts that many owners repeat."""

    def __init__(self) -> None:
        self._by_content: LRUCache[bytes, Any] = LRUCache(SHARED_VALUES)
        self.hashable: Callable[[H], H] = lru_cache(SHARED_VALUES)(_itself)
        """As `of`, and faster, for values that are hashable."""

    def of(self, value: T) -> T:
        """The first value of this content, unless it is large."""
        if not value:
            return value
        content = encode(value)
        found: T = self._by_content.setdefault(content, value) if len(content) <= LARGEST_SHARED else value
        return found


def _itself(value: H) -> H:
    return value


Owner = TypeVar("Owner")
V = TypeVar("V")


class Belonging(ref[Owner], Generic[Owner, V]):
    """A value, and the owner it goes with."""

    __slots__ = ("number", "value")

    number: int
    value: V


class Belongings(dict[int, Belonging[Owner, V]], Generic[Owner, V]):
    """By `id` of the owner: an entry goes before its owner's identity can be another's. Ask with `get`."""

    __slots__ = ("__weakref__", "_lose")

    def __init__(self) -> None:
        super().__init__()
        self._lose = _loser(self)

    def give(self, owner: Owner, value: V) -> V:
        """Keep the value for as long as the owner lives. Returns it."""
        belonging: Belonging[Owner, V] = Belonging(owner, self._lose)
        belonging.number, belonging.value = id(owner), value
        self[belonging.number] = belonging
        return value


def _loser(belongings: Belongings[Owner, V]) -> Callable[[ref[Owner]], None]:
    """Removes an entry when its owner is gone. It keeps no reference to the other entries."""
    known = ref(belongings)

    def lose(gone: ref[Owner]) -> None:
        found = known()
        if found is not None:
            assert isinstance(gone, Belonging)
            found.pop(gone.number, None)

    return lose
