"""What happens to the objects of a cluster, as watches, lists and replies show it.

`ClusterEvent` is the one input of cluster state: an object is there in some version, is gone, or cannot be decoded.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from dra_extender.api.meta import ObjectKey
from dra_extender.api.partial import PartialAllocation

Source = Literal["watch", "list", "reply"]
"""Where an event comes from. After a `list` versions of the object may have been missed; a `reply` to a request of ours
may be ahead of the watch, or behind it.
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
        """The end of an object of one of the kinds in `api`."""
        return cls(ObjectKey(type(obj).__name__, obj.metadata.key), obj.metadata.uid, source)


class Undecodable(msgspec.Struct, frozen=True):
    """An object that exists and cannot be decoded. `partial`: what can be read of it, if it is a claim."""

    key: ObjectKey
    problem: str
    partial: PartialAllocation | None = None


ClusterEvent = Applied | Removed | Undecodable
