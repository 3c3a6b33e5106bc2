"""Events of objects of the cluster: applied, removed, or undecodable.

Cluster state changes only through `ClusterEvent`s. They come from watches, lists, and replies to requests of our own.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from dra_extender.api.meta import ObjectKey
from dra_extender.api.partial import PartialAllocation

Source = Literal["watch", "list", "reply"]
"""Where an event comes from. A `list` may have skipped versions of the object. A `reply` to a request of our own may be
ahead of the watch, or behind it.
"""


class Applied(msgspec.Struct, frozen=True):
    """A new or changed object, in the v1 form of its kind."""

    object: Any
    source: Source = "watch"

    @property
    def key(self) -> ObjectKey:
        return ObjectKey(type(self.object).__name__, self.object.metadata.key)


class Removed(msgspec.Struct, frozen=True):
    """An object that is gone. `uid` is None when the object could never be decoded."""

    key: ObjectKey
    uid: str | None = None
    source: Source = "watch"

    @classmethod
    def of(cls, obj: Any, source: Source = "watch") -> Removed:
        """The removal of this object."""
        return cls(ObjectKey(type(obj).__name__, obj.metadata.key), obj.metadata.uid, source)


class Undecodable(msgspec.Struct, frozen=True):
    """An object that exists and cannot be decoded. `partial`: the part of a claim's allocation that can be read."""

    key: ObjectKey
    problem: str
    partial: PartialAllocation | None = None


ClusterEvent = Applied | Removed | Undecodable
