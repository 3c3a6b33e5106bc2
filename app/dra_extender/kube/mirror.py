"""What has been seen of one kind of objects, and what each list or watch event changes in it.

`Mirror` turns pages of lists and lines of watches into calls of `on_apply` and `on_remove`. It promises: every object
that disappears is reported, also when it disappeared between two watches; an object that cannot be understood is
reported by name and changes nothing for the others; an exception in a callback does the same; nothing is reported
twice in a row at the same version. It is synchronous and does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec

from dra_extender.api.decoding import UNDECODABLE, DecodeError
from dra_extender.api.errors import ApiError, GoneError, error_from_status
from dra_extender.api.meta import Object, ObjectMeta
from dra_extender.api.outline import Outline, OutlineError
from dra_extender.api.partial import PartialAllocation
from dra_extender.kube.resources import Identity, Resource, identify
from dra_extender.unexpected import unexpected


class Named(Protocol):
    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T", bound=Named)


class _Event(Object, frozen=True):
    type: str
    object: msgspec.Raw


class _Status(Object, frozen=True):
    code: int = 0
    reason: str = ""
    message: str = ""


_event = msgspec.json.Decoder(_Event)
_status = msgspec.json.Decoder(_Status)


class _Unreadable(msgspec.Struct, frozen=True):
    """Why an object cannot be used, and what it holds all the same."""

    problem: str
    partial: PartialAllocation | None = None


def _ignore(_name: str) -> None:
    return None


class Callbacks(Generic[T]):
    """Where changes go. `on_poisoned(name, problem)`: an object cannot be used; `on_healed(name)`: it can again.

    `on_jump` is called instead of `on_apply` when versions of the object before this one may have been missed: it comes
    from a list, or after a version that could not be used. `on_partial` is called instead of `on_poisoned` for a kind
    of which something can be partial, whenever that changes.
    """

    def __init__(
        self,
        on_apply: Callable[[T], object],
        on_remove: Callable[[T], object],
        on_poisoned: Callable[[str, str], object],
        on_healed: Callable[[str], object] = _ignore,
        on_jump: Callable[[T], object] | None = None,
        on_partial: Callable[[str, str, PartialAllocation], object] | None = None,
    ) -> None:
        self.on_apply = on_apply
        self.on_jump = on_jump or on_apply
        self.on_remove = on_remove
        self.on_poisoned = on_poisoned
        self.on_partial = on_partial or (lambda name, problem, _: on_poisoned(name, problem))
        self.on_healed = on_healed


class Mirror(Generic[T]):
    """The objects of one kind by key. `keep` shrinks what is remembered of an object until it is removed."""

    def __init__(
        self, resource: Resource[T], callbacks: Callbacks[T], *, keep: Callable[[T], T] = lambda obj: obj
    ) -> None:
        self.version = ""
        """The resourceVersion up to which everything has been seen; empty before the first complete list."""
        self._resource = resource
        self._callbacks = callbacks
        self._keep = keep
        self._known: dict[str, T] = {}
        self._undecodable: dict[str, tuple[str, PartialAllocation | None]] = {}
        self._listed: set[str] = set()
        self._changed: list[tuple[Identity, T | _Unreadable]] = []

    def __len__(self) -> int:
        return len(self._known)

    @property
    def undecodable(self) -> int:
        """How many objects cannot be used now."""
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
            known = self._known.get(identity.key)
            if known is None or not _same_version(known.metadata, identity) or identity.key in self._undecodable:
                self._changed.append((identity, self._read(raw, identity)))

    def report(self) -> None:
        """Apply what `listed` has found so far."""
        changed, self._changed = self._changed, []
        for identity, found in changed:
            self._take(found, identity, listed=True)

    def end_list(self, version: str) -> None:
        """The list is complete: report what has changed and what is gone, in one step."""
        self.report()
        for key in [key for key in self._undecodable if key not in self._listed]:
            self._heal(key)
        for key in [key for key in self._known if key not in self._listed]:
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
            self._heal(identity.key)
            self._remove(identity.key)
        if identity.resource_version:
            self.version = identity.resource_version

    def _read(self, raw: msgspec.Raw, identity: Identity) -> T | _Unreadable:
        try:
            return self._resource.decode(raw)
        except DecodeError as problem:
            partial = self._resource.partial
            return _Unreadable(problem.problem, partial(raw) if partial is not None else None)
        except Exception as problem:  # one object must never stop the others
            unexpected("object", problem, kind=self._resource.kind, name=identity.key)
            return _Unreadable(f"{type(problem).__name__}: {problem}")

    def _take(self, found: T | _Unreadable, identity: Identity, *, listed: bool = False) -> None:
        key = identity.key
        if isinstance(found, _Unreadable):
            self._poison(key, found.problem, found.partial)
            return
        try:
            known = self._known.get(key)
            if known is not None and known.metadata.uid != found.metadata.uid:
                self._remove(key)  # deleted and created again between two watches
            self._known[key] = self._keep(found)
            (self._callbacks.on_jump if listed or key in self._undecodable else self._callbacks.on_apply)(found)
        except Exception as problem:  # as above
            unexpected("object", problem, kind=self._resource.kind, name=key)
            self._poison(key, f"{type(problem).__name__}: {problem}")
        else:
            self._heal(key)

    def _remove(self, key: str) -> None:
        known = self._known.pop(key, None)
        if known is None:
            return
        try:
            self._callbacks.on_remove(known)
        except Exception as problem:  # as above
            unexpected("object", problem, kind=self._resource.kind, name=key)

    def _poison(self, key: str, problem: str, partial: PartialAllocation | None = None) -> None:
        if self._undecodable.get(key) == (problem, partial):
            return
        self._undecodable[key] = problem, partial
        if partial is None:
            self._callbacks.on_poisoned(key, problem)
        else:
            self._callbacks.on_partial(key, problem, partial)

    def _heal(self, key: str) -> None:
        if self._undecodable.pop(key, None) is not None:
            self._callbacks.on_healed(key)


def _read_event(line: bytes) -> _Event:
    """The object of the event may be anything between brackets. Raises one of UNDECODABLE."""
    try:
        return _event.decode(line)
    except UNDECODABLE as problem:
        try:
            return _outlined_event(line)
        except OutlineError:
            raise problem from None


def _outlined_event(line: bytes) -> _Event:
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
                return _Event(kind, raw)
    raise OutlineError("no event")


def _same_version(known: ObjectMeta, found: Identity) -> bool:
    return known.uid == found.uid and known.resource_version == found.resource_version != ""


def _watch_error(raw: msgspec.Raw) -> ApiError:
    try:
        status = _status.decode(raw)
    except UNDECODABLE:
        return ApiError(0, "Malformed", "watch ended with an unreadable error")
    if status.code == 410 or status.reason in ("Expired", "Gone"):
        return GoneError(410, status.reason, status.message)
    return error_from_status(status.code or 500, status.reason, status.message)
