"""The events that a list or a watch of one kind contains, found by comparison with the known objects.

`KnownObjects` turns pages of lists and lines of watches into `ClusterEvent`s. It promises: an object that was deleted
between two watches is removed; an object that cannot be decoded or applied, or that is set aside, is reported as
undecodable, and the others are not affected; a list applies no object whose version is known. A list or an event that
cannot follow what was shown before raises SetBackError and is not applied. It is synchronous and does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from dra_extender.api.decoding import UNDECODABLE, DecodeError, Outline, OutlineError
from dra_extender.api.errors import ApiError, FailureStatus, GoneError, SetBackError, error_from_status
from dra_extender.api.events import Applied, ClusterEvent, Removed, Undecodable
from dra_extender.api.meta import Object, ObjectKey, ObjectMeta, version_number
from dra_extender.kube.resources import Identity, Resource, identify
from dra_extender.unexpected import unexpected


class Named(Protocol):
    @property
    def metadata(self) -> ObjectMeta: ...


class ContinuityCheck(Protocol):
    """What the state knows beyond the watches, from replies. See `Continuity` in `devices.cluster`."""

    def begin_list(self, kind: str) -> None: ...

    def listed(self, obj: Any, complete: int) -> None: ...

    def end_list(self, kind: str, version: int) -> None: ...


T = TypeVar("T", bound=Named)
SetAsideReason = Callable[[ObjectKey], str]
"""Why the object is set aside; empty for almost all objects."""


class _WatchEvent(Object, frozen=True):
    type: str
    object: msgspec.Raw


_event = msgspec.json.Decoder(_WatchEvent)
_status = msgspec.json.Decoder(FailureStatus)


@dataclass(eq=False)
class KnownObjects(Generic[T]):
    """The known objects of one kind: keys and versions. `_apply` gets the events."""

    resource: Resource[T]
    _apply: Callable[[ClusterEvent], object]
    _continuity: ContinuityCheck | None = None
    _set_aside: SetAsideReason = lambda key: ""
    version: str = ""
    """The resourceVersion at which the next watch starts: everything up to it has been shown."""
    _known: dict[str, tuple[str, str]] = field(default_factory=dict)
    """UID and resourceVersion of each object's last decodable version, by key."""
    _undecodable: dict[str, Undecodable] = field(default_factory=dict)
    _listed: set[str] = field(default_factory=set)
    _changed: list[tuple[Identity, T | Undecodable]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self._known)

    @property
    def undecodable(self) -> int:
        """How many objects cannot be decoded now."""
        return len(self._undecodable)

    def begin_list(self) -> None:
        self._listed, self._changed = set(), []
        if self._continuity is not None:
            self._continuity.begin_list(self.resource.kind)

    def listed(self, items: Sequence[msgspec.Raw]) -> None:
        """Decode some objects of a list in progress. `report` later applies the objects with a new version. It must
        be fast, because it does not await. Raises SetBackError.
        """
        for raw in items:
            identity = identify(raw)
            self._listed.add(identity.key)
            found = self._read(raw, identity)
            if isinstance(found, Undecodable) or identity.key in self._undecodable:
                self._changed.append((identity, found))
                continue
            known = self._known.get(identity.key) == (identity.uid, identity.resource_version)
            self._check(found, known=known)
            if not known or not identity.resource_version:
                self._changed.append((identity, found))

    def _check(self, listed: T, *, known: bool) -> None:
        """The object must be as it was shown, unless its version is newer than everything that was."""
        version, complete = listed.metadata.version, version_number(self.version)
        if 0 < version <= complete and not known:
            raise SetBackError(f"{self.subject(listed.metadata.key)} has version {version}, which was not shown before")
        if self._continuity is not None:
            self._continuity.listed(listed, complete)

    def report(self) -> None:
        """Apply what `listed` has decoded so far."""
        changed, self._changed = self._changed, []
        for identity, found in changed:
            self._apply_object(found, identity, listed=True)

    def end_list(self, version: str) -> None:
        """The list is complete: apply the changed objects, and remove the objects that it lacks. Raises
        SetBackError.
        """
        self._advance(version)
        if self._continuity is not None:
            self._continuity.end_list(self.resource.kind, version_number(version))
        self.report()
        for key in [key for key in {**self._undecodable, **self._known} if key not in self._listed]:
            self._remove(key)
        self._listed = set()

    def watched(self, line: bytes) -> None:
        """Apply one event of a watch. Raises SetBackError, GoneError or another ApiError: list again."""
        try:
            event = _read_event(line)
        except UNDECODABLE as problem:
            raise ApiError(0, "Malformed", f"watch of {self.resource.plural}: {problem}") from None
        if event.type == "ERROR":
            raise _watch_error(event.object)
        identity = identify(event.object)
        self._advance(identity.resource_version)
        if event.type in ("ADDED", "MODIFIED"):
            self._apply_object(self._read(event.object, identity), identity)
        elif event.type == "DELETED":
            self._remove(identity.key)

    def _advance(self, version: str) -> None:
        if 0 < version_number(version) < version_number(self.version):
            raise SetBackError(f"{self.resource.kind}: version {version} is shown after version {self.version}")
        self.version = version or self.version

    def subject(self, key: str) -> ObjectKey:
        """The object with this namespace/name."""
        return ObjectKey(self.resource.kind, key)

    def _read(self, raw: msgspec.Raw, identity: Identity) -> T | Undecodable:
        try:
            if reason := self._set_aside(self.subject(identity.key)):
                raise DecodeError(self.resource.kind, identity.key, reason)
            return self.resource.decode(raw)
        except DecodeError as problem:
            read = self.resource.read_partially
            found = read(raw) if read is not None else None
            return Undecodable(self.subject(identity.key), problem.problem, found)
        except Exception as problem:  # a bug must not stop the watch of other objects
            return self._failed(identity.key, problem)

    def _apply_object(self, found: T | Undecodable, identity: Identity, *, listed: bool = False) -> None:
        key = identity.key
        if isinstance(found, Undecodable):
            self._apply_undecodable(found)
            return
        meta = found.metadata
        try:
            if self._known.get(key, (meta.uid,))[0] != meta.uid:
                self._remove(key)  # deleted and created again between two watches
            self._known[key] = meta.uid, meta.resource_version
            self._apply(Applied(found, "list" if listed or key in self._undecodable else "watch"))
        except Exception as problem:  # as above
            self._apply_undecodable(self._failed(key, problem))
        else:
            self._undecodable.pop(key, None)

    def _remove(self, key: str) -> None:
        known, undecodable = self._known.pop(key, None), self._undecodable.pop(key, None)
        if known is None and undecodable is None:
            return
        try:
            self._apply(Removed(self.subject(key), known[0] if known is not None else None))
        except Exception as problem:  # as above
            self._failed(key, problem)

    def _apply_undecodable(self, found: Undecodable) -> None:
        if self._undecodable.get(found.key.name) != found:
            self._undecodable[found.key.name] = found
            self._apply(found)

    def _failed(self, key: str, problem: Exception) -> Undecodable:
        unexpected("object", problem, kind=self.resource.kind, name=key)
        return Undecodable(self.subject(key), f"{type(problem).__name__}: {problem}")


def _read_event(line: bytes) -> _WatchEvent:
    """The object of the event need not be valid JSON, only balanced. Raises one of UNDECODABLE."""
    try:
        return _event.decode(line)
    except UNDECODABLE as problem:
        try:
            return _outlined_event(line)
        except OutlineError:
            raise problem from None


def _outlined_event(line: bytes) -> _WatchEvent:
    """The API server writes the type first and the object last, so the object ends where the line ends."""
    outline = Outline(line)
    kind = ""
    for name, at in outline.members():
        if name == "type":
            kind = outline.text(at)
        elif name == "object" and line[at : at + 1] == b"{":
            whole = kind and line.rstrip().endswith(b"}}")
            raw = msgspec.Raw(line[at : line.rindex(b"}")]) if whole else outline.value(at)
            kind = kind or outline.text(outline.member("type"))
            if kind and identify(raw).resource_version:  # the next watch starts after this version
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
