"""Compare objects by content (bytes, digests, shared instances), and keep values for as long as an object lives.

Promises: equal content has equal bytes, in any order of maps; content that a decision can distinguish has different
bytes. `Interner` and `WeakIdentityDict` do not keep their objects alive.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, Generic, ParamSpec, TypeVar
from weakref import WeakValueDictionary, ref

import msgspec
from cachetools import LRUCache

from dra_extender.api.meta import Ignored
from dra_extender.api.quantity import Quantity

P = ParamSpec("P")
T = TypeVar("T")
H = TypeVar("H", bound=Hashable)

DIGEST_BYTES: Final = 16
SHARED_VALUES: Final = 8_192
"""Distinct values that are kept for sharing. Rarer values, such as serial numbers, are not shared."""
LARGEST_SHARED: Final = 1024
"""Bytes of content. Larger values are seldom equal, and would keep memory in use after their owners are gone."""


def _exact(value: Any) -> Any:
    """A quantity as a selector can distinguish it: `1Gi` and `1073741824` are equal amounts, not equal content."""
    if isinstance(value, Quantity):
        return (str(value.nano), value.format, value.scale, value.fast)
    if isinstance(value, Ignored):
        return None
    raise TypeError(f"{type(value).__name__} has no content that can be compared")


_encoder = msgspec.json.Encoder(enc_hook=_exact, order="deterministic")


def encode(value: Any) -> bytes:
    """The content of structs, lists and maps."""
    return _encoder.encode(value)


def digest(*values: Any) -> bytes:
    """A digest of the content of structs, lists and maps. Several values are one list."""
    return shortened(encode(values))


def shortened(content: bytes) -> bytes:
    """A digest of encoded content, without known collisions."""
    return blake2b(content, digest_size=DIGEST_BYTES).digest()


class Interner(Generic[T]):
    """One object per content, made on first use."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[Hashable, T] = WeakValueDictionary()

    def of(self, content: Hashable, make: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The object of this content, made from the arguments on first use. Equal content needs equal arguments."""
        found = self._known.get(content)
        if found is None:
            found = self._known[content] = make(*args, **kwargs)
        return found

    def __len__(self) -> int:
        return len(self._known)


class SharedValues:
    """One value for equal content, for parts that many objects have in common. The most recent values are kept."""

    def __init__(self) -> None:
        self._by_content: LRUCache[bytes, Any] = LRUCache(SHARED_VALUES)
        self.hashable: Callable[[H], H] = lru_cache(SHARED_VALUES)(lambda value: value)
        """As `of`, but faster, for hashable values."""

    def of(self, value: T) -> T:
        """The first value of this content, unless it is large."""
        if not value:
            return value
        content = encode(value)
        found: T = self._by_content.setdefault(content, value) if len(content) <= LARGEST_SHARED else value
        return found


Owner = TypeVar("Owner")
V = TypeVar("V")


class _WeakEntry(ref[Owner], Generic[Owner, V]):
    """A weak reference to the owner, with the value."""

    __slots__ = ("number", "value")

    number: int
    value: V


class WeakIdentityDict(dict[int, _WeakEntry[Owner, V]], Generic[Owner, V]):
    """Values by `id` of their owner. An entry is removed with its owner, so a later object with the same `id` does
    not find it. Read with `get`.
    """

    __slots__ = ("__weakref__", "_remove")

    def __init__(self) -> None:
        super().__init__()
        entries = ref(self)  # which does not keep the dict alive

        def remove(gone: ref[Owner]) -> None:
            found = entries()
            if found is not None:
                assert isinstance(gone, _WeakEntry)
                found.pop(gone.number, None)

        self._remove = remove

    def put(self, owner: Owner, value: V) -> V:
        """Keep the value for as long as the owner lives. Returns it."""
        entry: _WeakEntry[Owner, V] = _WeakEntry(owner, self._remove)
        entry.number, entry.value = id(owner), value
        self[entry.number] = entry
        return value
