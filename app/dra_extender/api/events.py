"""Events of objects of the cluster: applied, removed, or undecodable.

Cluster state changes only through `ClusterEvent`s. They come from watches, lists, and replies to requests of our own.

Promises about the partial allocation of a claim that cannot be decoded: every device that can be read is reported. A
result of which only the device can be read counts as the whole device, too much rather than too little; of one without
a device the pool is reported, and where not even that can be read, the nodes of the allocation. Never raises.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal

import msgspec

from dra_extender.api.core import NodeSelector
from dra_extender.api.decoding import DecodeError, Outline, OutlineError, decode, identity
from dra_extender.api.meta import ObjectKey
from dra_extender.api.resource import DeviceRequestAllocationResult

_NAMED: Final = ("metadata.name", "In")

Source = Literal["watch", "list", "reply"]
"""Where an event comes from. A `list` may have skipped versions of the object. A `reply` to a request of our own may be
ahead of the watch, or behind it.
"""


class PartialAllocation(msgspec.Struct, frozen=True):
    """`results` of the allocation as far as they can be read; `complete` is true when these are all there are. `pools`
    (driver, pool) are pools of which it has devices that cannot be identified; `nodes` are the nodes of the allocation
    if not even the pool of a result can be identified.
    """

    uid: str = ""
    results: tuple[DeviceRequestAllocationResult, ...] = ()
    complete: bool = msgspec.field(default=True, name="whole")
    """`whole` is its name in snapshot files of format 1."""
    pools: tuple[tuple[str, str], ...] = ()
    nodes: tuple[str, ...] = ()


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
        return cls(ObjectKey(type(obj).__name__, obj.metadata.key), obj.metadata.uid, source)


class Undecodable(msgspec.Struct, frozen=True):
    """An object that exists and cannot be decoded. `partial`: the part of a claim's allocation that can be read."""

    key: ObjectKey
    problem: str
    partial: PartialAllocation | None = None


ClusterEvent = Applied | Removed | Undecodable


def partial_allocation(data: bytes | msgspec.Raw) -> PartialAllocation:
    """The devices that the claim in `data` holds."""
    outline = Outline(data)
    results: list[DeviceRequestAllocationResult] = []
    pools: dict[tuple[str, str], None] = {}
    placed = True
    try:
        for at in _results(outline):
            result = _result(outline, at)
            if not (result.driver and result.pool):
                placed = False
            elif result.device:
                results.append(result)
            else:
                pools[result.driver, result.pool] = None
    except OutlineError:
        placed = False
    uid = identity(data).get("uid", "")
    nodes = () if placed else _nodes(outline)
    return PartialAllocation(uid, tuple(results), placed and not pools, tuple(pools), nodes)


def _results(outline: Outline) -> Iterator[int]:
    """Where the results begin. Raises OutlineError."""
    at = 0
    for name in ("status", "allocation", "devices", "results"):
        found = next((start for key, start in outline.members(at) if key == name), None)
        if found is None or outline.data.startswith(b"null", found):
            return iter(())
        at = found
    return outline.elements(at)


def _result(outline: Outline, at: int) -> DeviceRequestAllocationResult:
    """One result; what cannot be read of it is empty. Raises OutlineError."""
    try:
        return decode(DeviceRequestAllocationResult, outline.value(at))
    except DecodeError:
        pass
    texts = {key: outline.text(start) for key, start in outline.members(at)}
    driver, pool, device = (texts.get(field, "") for field in ("driver", "pool", "device"))
    return DeviceRequestAllocationResult(texts.get("request", ""), driver, pool, device)


def _nodes(outline: Outline) -> tuple[str, ...]:
    """The nodes that the allocation names. Never raises."""
    try:
        at = 0
        for name in ("status", "allocation", "nodeSelector"):
            at = outline.member(name, at)
        selector = decode(NodeSelector, outline.value(at))
    except (OutlineError, DecodeError):
        return ()
    fields = (field for term in selector.node_selector_terms for field in term.match_fields)
    return tuple(name for field in fields if (field.key, field.operator) == _NAMED for name in field.values)
