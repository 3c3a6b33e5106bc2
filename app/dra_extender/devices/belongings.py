"""What was found out about objects that others own, for as long as those live.

Promises: as `WeakKeyDictionary`, of owners that are compared by identity, but a look-up costs as much as in a dict: a
cold question makes several at each node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import ref

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
    """What takes away an entry whose owner is gone. It does not hold the others: they go when nobody looks at them."""
    known = ref(belongings)

    def lose(gone: ref[Owner]) -> None:
        found = known()
        if found is not None:
            assert isinstance(gone, Belonging)
            found.pop(gone.number, None)

    return lose
