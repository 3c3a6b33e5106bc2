"""What has been seen of one kind of objects, and which events a list or a line of a watch brings.

`Mirror` turns pages of lists and lines of watches into `ClusterEvent`s. It promises: the end of every object is
reported, also when the object disappeared between two watches; an object that cannot be decoded is reported by name and
changes nothing for the others, and so is an object whose event fails; no version is reported twice in a row. It is
synchronous and does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec

from dra_extender.api.decoding import UNDECODABLE, DecodeError
from dra_extender.api.errors import ApiError, FailureStatus, GoneError, error_from_status
from dra_extender.api.events import Applied, ClusterEvent, Removed, Undecodable
from dra_extender.api.meta import Object, ObjectKey, ObjectMeta
from dra_extender.api.outline import Outline, OutlineError
from dra_extender.kube.resources import Identity, Resource, identify
from dra_extender.unexpected import unexpected


class Named(Protocol):
    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T", bound=Named)


class _WatchEvent(Object, frozen=True):
    type: str
    object: msgspec.Raw


_event = msgspec.json.Decoder(_WatchEvent)
_status = msgspec.json.Decoder(FailureStatus)


class Mirror(Generic[T]):
    """Which objects of one kind exist, by key, in which versions. `apply` gets the events."""

    def __init__(self, resource: Resource[T], apply: Callable[[ClusterEvent], object]) -> None:
        self.version = ""
        """The resourceVersion up to which everything has been seen; empty before the first complete list."""
        self._resource = resource
        self._apply = apply
        self._known: dict[str, tuple[str, str]] = {}
        """UID and resourceVersion of the objects that could be decoded, as they were last."""
        self._undecodable: dict[str, Undecodable] = {}
        self._listed: set[str] = set()
        self._changed: list[tuple[Identity, T | Undecodable]] = []

    def __len__(self) -> int:
        return len(self._known)

    @property
    def undecodable(self) -> int:
        """How many objects cannot be decoded now."""
        return len(self._undecodable)

    def begin_list(self) -> None:
        self._listed, self._changed = set(), []

    def listed(self, items: Sequence[msgspec.Raw]) -> None:
        """Some objects of a list in progress. They are decoded here, so that the step that reports them is a short one.
        Those already known at the same version are only ticked off.
        """
        for raw in items:
            identity = identify(raw)
            self._listed.add(identity.key)
            version = identity.uid, identity.resource_version
            if self._known.get(identity.key) != version or not version[1] or identity.key in self._undecodable:
                self._changed.append((identity, self._read(raw, identity)))

    def report(self) -> None:
        """Apply what `listed` has found so far."""
        changed, self._changed = self._changed, []
        for identity, found in changed:
            self._take(found, identity, listed=True)

    def end_list(self, version: str) -> None:
        """The list is complete: report what has changed and what is gone, in one step."""
        self.report()
        for key in [key for key in {**self._undecodable, **self._known} if key not in self._listed]:
            self._remove(key)
        self._listed = set()
        self.version = version

    def watched(self, line: bytes) -> None:
        """One event of a watch. Raises GoneError when the list must be read again, ApiError for a broken watch."""
        try:
            event = _read_event(line)
        except UNDECODABLE as problem:
            raise ApiError(0, "Malformed", f"watch of {self._resource.plural}: {problem}") from None
        if event.type == "ERROR":
            raise _watch_error(event.object)
        identity = identify(event.object)
        if event.type in ("ADDED", "MODIFIED"):
            self._take(self._read(event.object, identity), identity)
        elif event.type == "DELETED":
            self._remove(identity.key)
        if identity.resource_version:
            self.version = identity.resource_version

    def _key(self, key: str) -> ObjectKey:
        return ObjectKey(self._resource.kind, key)

    def _read(self, raw: msgspec.Raw, identity: Identity) -> T | Undecodable:
        try:
            return self._resource.decode(raw)
        except DecodeError as problem:
            read = self._resource.read_partially
            found = read(raw) if read is not None else None
            return Undecodable(self._key(identity.key), problem.problem, found)
        except Exception as problem:  # one object must never stop the others
            return self._failed(identity.key, problem)

    def _take(self, found: T | Undecodable, identity: Identity, *, listed: bool = False) -> None:
        key = identity.key
        if isinstance(found, Undecodable):
            self._leave_out(found)
            return
        meta = found.metadata
        try:
            if self._known.get(key, (meta.uid,))[0] != meta.uid:
                self._remove(key)  # deleted and created again between two watches
            self._known[key] = meta.uid, meta.resource_version
            self._apply(Applied(found, "list" if listed or key in self._undecodable else "watch"))
        except Exception as problem:  # as above
            self._leave_out(self._failed(key, problem))
        else:
            self._undecodable.pop(key, None)

    def _remove(self, key: str) -> None:
        known, undecodable = self._known.pop(key, None), self._undecodable.pop(key, None)
        if known is None and undecodable is None:
            return
        try:
            self._apply(Removed(self._key(key), known[0] if known is not None else None))
        except Exception as problem:  # as above
            self._failed(key, problem)

    def _leave_out(self, found: Undecodable) -> None:
        if self._undecodable.get(found.key.name) != found:
            self._undecodable[found.key.name] = found
            self._apply(found)

    def _failed(self, key: str, problem: Exception) -> Undecodable:
        unexpected("object", problem, kind=self._resource.kind, name=key)
        return Undecodable(self._key(key), f"{type(problem).__name__}: {problem}")


def _read_event(line: bytes) -> _WatchEvent:
    """The object of the event may be anything between brackets. Raises one of UNDECODABLE."""
    try:
        return _event.decode(line)
    except UNDECODABLE as problem:
        try:
            return _outlined_event(line)
        except OutlineError:
            raise problem from None


def _outlined_event(line: bytes) -> _WatchEvent:
    """The API server writes the type before the object, which then ends with the line: its end need not be searched."""
    outline = Outline(line)
    kind = ""
    for name, at in outline.members():
        if name == "type":
            kind = outline.text(at)
        elif name == "object" and line[at : at + 1] == b"{":
            whole = kind and line.rstrip().endswith(b"}}")
            raw = msgspec.Raw(line[at : line.rindex(b"}")]) if whole else outline.value(at)
            kind = kind or outline.text(outline.member("type"))
            if kind and identify(raw).resource_version:  # otherwise the watch could not go on behind it
                return _WatchEvent(kind, raw)
    raise OutlineError("no event")


def _watch_error(raw: msgspec.Raw) -> ApiError:
    try:
        status = _status.decode(raw)
    except UNDECODABLE:
        return ApiError(0, "Malformed", "watch ended with an unreadable error")
    if status.code == 410 or status.reason in ("Expired", "Gone"):
        return GoneError(410, status.reason, status.message)
    return error_from_status(status.code or 500, status.reason, status.message)
