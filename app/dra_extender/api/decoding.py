"""From bytes to typed objects and back.

`decode` promises: one pass over the bytes into frozen structs. JSON null where Kubernetes means "absent" is accepted
(at the price of a second, slower pass), and so are the fields that `ignore_fields` names. Anything else that does not
fit raises `DecodeError`, which names object, field and problem, so that one bad object can be reported and left out
while the others go on.

Decoders recurse, so an object that is nested deeply enough cannot be decoded at all, not even to learn which one it is.
`Outline` finds where the parts of a JSON text begin and end, and promises: no recursion, a number of steps that is
proportional to the text and limited, and no allocation but of what is returned. It finds brackets and strings; what is
between them may be anything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from functools import cache, lru_cache, partial
from itertools import accumulate
from typing import Any, Final, TypeVar, cast

import msgspec

from dra_extender.api.meta import IGNORED, Ignored
from dra_extender.api.quantity import Quantity
from dra_extender.limits import DEPTH_OF_PARAMETERS

T = TypeVar("T")

_MANAGED_FIELDS = "managedFields"

UNDECODABLE: Final = (msgspec.DecodeError, ValueError, RecursionError, MemoryError, OverflowError)
"""What a decoder may raise for bytes that others wrote: its own errors, and those of the types it makes."""

_LONGEST_REPEATED: Final = 64

STEPS: Final = 25_000
"""Runs of brackets that are passed in some ten milliseconds. The API server writes metadata first: far fewer."""

LEVELS: Final = DEPTH_OF_PARAMETERS + 50
"""Levels of an object that can be decoded: opaque parameters are the only part that may have many."""

_SPACE = rb"[ \t\r\n]*+"
_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_KEY: Final = re.compile(_SPACE + rb"(" + _STRING + rb")" + _SPACE + rb":" + _SPACE, re.DOTALL)
_RUN: Final = re.compile(rb'(?:[^"\[\]{}]++|' + _STRING + rb")*+([\[{]++|[\]}]++)", re.DOTALL)
_TEXT: Final = re.compile(_STRING, re.DOTALL)
_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
"""As signed bytes: one level up or down."""
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[{]}"))
_SCALAR: Final = re.compile(_STRING + rb"|[^\s,\[\]{}]++", re.DOTALL)
_OPEN: Final = re.compile(_SPACE + rb"([\[{])" + _SPACE)
_NEXT: Final = re.compile(_SPACE + rb"," + _SPACE)
_IDENTITY: Final = frozenset({"name", "namespace", "uid", "resourceVersion"})

_string = msgspec.json.Decoder(str)


class DecodeError(ValueError):
    """An object that cannot be decoded. `name` is namespace/name, or empty when even that is unreadable."""

    def __init__(self, kind: str, name: str, problem: str) -> None:
        super().__init__(f"{kind} {name or '(unnamed)'}: {problem}")
        self.kind = kind
        self.name = name
        self.problem = problem


class TooDeepError(ValueError):
    """A part of an object has too many levels."""


_repeated = lru_cache(maxsize=65536)(Quantity.parse)
"""Slices repeat the same few amounts thousands of times: one object each."""


def _decode_hook(kind: type, value: Any) -> Any:
    if kind is Quantity:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError("a quantity must be text or a number")
        text = str(value)
        return _repeated(text) if len(text) <= _LONGEST_REPEATED else Quantity.parse(text)
    if kind is Ignored:
        return IGNORED
    raise NotImplementedError(kind)


def _encode_hook(value: Any) -> Any:
    if isinstance(value, Quantity):
        return str(value)
    if isinstance(value, Ignored):
        return {}
    raise NotImplementedError(type(value))


_ignored: list[str] = []


def ignore_fields(paths: Iterable[str]) -> None:
    """From now on, leave these fields out of objects that cannot be decoded with them. A path is the kind and the names
    of the fields, as ResourceSlice.spec.devices.hint, with `*` for a key of a map.
    """
    _ignored[:] = paths


_decoder: Callable[[Any], msgspec.json.Decoder[Any]] = cache(partial(msgspec.json.Decoder, dec_hook=_decode_hook))
"""One decoder per type: there are about twenty."""


_encoder = msgspec.json.Encoder(enc_hook=_encode_hook)


def decode(kind: type[T], data: bytes | msgspec.Raw) -> T:
    """The object in `data`. Raises DecodeError."""
    try:
        return cast(T, _decoder(kind).decode(data))
    except UNDECODABLE as first:
        return _decode_tolerantly(kind, data, first)


def convert(kind: type[T], value: Any) -> T:
    """As `decode`, for JSON that is parsed already (dicts and lists). Raises DecodeError."""
    return decode(kind, msgspec.json.encode(value))


def encode(value: Any) -> bytes:
    """The JSON of structs, absent fields left out, quantities in canonical text."""
    return _encoder.encode(value)


def to_builtins(value: Any) -> Any:
    """The JSON of structs as dicts and lists."""
    return msgspec.json.decode(encode(value))


def _decode_tolerantly(kind: type[T], data: bytes | msgspec.Raw, first: Exception) -> T:
    """Leave out nulls and ignored fields and try again. If that fails too, or cannot help because a part is too deep,
    report the first problem with the name.
    """
    name = ""
    if isinstance(first.__cause__, TooDeepError) and not _ignored:
        raise decode_error(kind, data, first)
    try:
        plain = msgspec.json.decode(data)
        if isinstance(plain, dict) and isinstance(plain.get("metadata"), dict):
            metadata = plain["metadata"]
            metadata.pop(_MANAGED_FIELDS, None)
            name = "/".join(str(metadata[part]) for part in ("namespace", "name") if metadata.get(part))
        return cast(T, _decoder(kind).decode(msgspec.json.encode(_kept(plain, getattr(kind, "__name__", "")))))
    except UNDECODABLE:
        raise decode_error(kind, data, first, name) from None


def decode_error(kind: Any, data: bytes | msgspec.Raw, problem: Exception, name: str = "") -> DecodeError:
    """The error for an object that cannot be decoded, as far as it can be read under its name."""
    metadata = identity(data) if not name else {}
    name = name or "/".join(metadata[part] for part in ("namespace", "name") if metadata.get(part))
    return DecodeError(getattr(kind, "__name__", str(kind)), name, str(problem) or type(problem).__name__)


def _kept(value: Any, path: str, levels: int = LEVELS) -> Any:
    """Raises ValueError for an object of more levels, which cannot be decoded without nulls either."""
    if not levels:
        raise ValueError("too many levels")
    if isinstance(value, dict):
        named = [(key, item) for key, item in value.items() if item is not None]
        if _ignored:
            named = [(key, item) for key, item in named if not any(fnmatchcase(f"{path}.{key}", at) for at in _ignored)]
        return {
            key: _kept(item, f"{path}.{key}", levels - 1) if isinstance(item, (dict, list)) else item
            for key, item in named
        }
    if isinstance(value, list):
        return [_kept(item, path, levels - 1) for item in value]
    return value


class OutlineError(ValueError):
    """No such part, or too many steps to find it."""


class Outline:
    """The parts of `data` by the offset at which they begin. `steps` limits all questions together; None: no limit."""

    def __init__(self, data: bytes | msgspec.Raw, steps: int | None = STEPS) -> None:
        self.data = bytes(data)
        self._left = steps

    def members(self, start: int = 0) -> Iterator[tuple[str, int]]:
        """The names and values of the object at `start`. What follows a value is not looked at before it is asked for.
        Raises OutlineError.
        """
        for at in self._parts(start, b"{"):
            found = _KEY.match(self.data, at)
            if found is None:
                raise OutlineError("a member has no name")
            yield self.text(found.start(1)), found.end()

    def member(self, name: str, start: int = 0) -> int:
        """Where the first value of this name begins. Raises OutlineError without one."""
        for key, at in self.members(start):
            if key == name:
                return at
        raise OutlineError(f"no member {name}")

    def elements(self, start: int = 0) -> Iterator[int]:
        """Where the elements of the array at `start` begin. Raises OutlineError."""
        return self._parts(start, b"[")

    def text(self, start: int) -> str:
        """The string at `start`; empty for another value, and for one that is not Unicode."""
        found = _TEXT.match(self.data, start)
        try:
            return _string.decode(found.group()) if found else ""
        except ValueError:
            return ""

    def value(self, start: int) -> msgspec.Raw:
        """The text of the value at `start`. Raises OutlineError."""
        return msgspec.Raw(self.data[start : self._end(start)])

    def _parts(self, start: int, bracket: bytes) -> Iterator[int]:
        """Where the members of an object begin, with their names, or the elements of an array."""
        found = _OPEN.match(self.data, start)
        if found is None or found.group(1) != bracket:
            raise OutlineError(f"no {bracket.decode()}")
        at = found.end()
        while self.data[at : at + 1] not in (b"}", b"]"):
            self._step()
            yield at
            key = _KEY.match(self.data, at) if bracket == b"{" else None
            end = self._end(key.end() if key else at)
            comma = _NEXT.match(self.data, end)
            if comma is None:
                if self.data[end:].lstrip()[:1] not in (b"}", b"]"):
                    raise OutlineError("torn off")
                return
            at = comma.end()

    def _end(self, start: int) -> int:
        """Where the value at `start` ends."""
        if self.data[start : start + 1] not in (b"{", b"["):
            scalar = _SCALAR.match(self.data, start)
            if scalar is None:
                raise OutlineError("no value")
            return scalar.end()
        depth, at = 0, start
        while True:
            self._step()
            run = _RUN.match(self.data, at)  # never `search`: that would start again at every byte
            if run is None:
                raise OutlineError("torn off")
            first, at = run.span(1)
            depth += at - first if self.data[first] in b"[{" else first - at
            if depth <= 0:
                return at + depth  # brackets beyond the last belong to what is around the value

    def _step(self) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                raise OutlineError("too many steps")


def depth(data: bytes) -> int:
    """How deeply the brackets of a JSON text are nested."""
    steps = _TEXT.sub(b"", data).translate(_STEPS, _NO_BRACKETS)
    return max(accumulate(memoryview(steps).cast("b")), default=0)


def identity(data: bytes | msgspec.Raw) -> dict[str, str]:
    """Those of name, namespace, uid and resourceVersion that are strings in the metadata of an object."""
    outline = Outline(data)
    found: dict[str, str] = {}
    try:
        for key, at in outline.members(outline.member("metadata")):
            if key in _IDENTITY:
                found[key] = outline.text(at)
                if len(found) == len(_IDENTITY):
                    break
    except OutlineError:
        pass  # what was found before still tells the object from others
    return found
