"""From bytes to typed objects and back.

`decode` promises: one pass over the bytes into frozen structs. JSON null where Kubernetes means "absent" is accepted
(at the price of a second, slower pass). Anything else that does not fit raises `DecodeError`, which names object,
field and problem, so that one bad object can be reported and left out while the others go on.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, TypeVar, cast

import msgspec

from dra_extender.api import outline
from dra_extender.api.meta import IGNORED, Ignored
from dra_extender.api.quantity import Quantity

T = TypeVar("T")

_MANAGED_FIELDS = "managedFields"

UNDECODABLE: Final = (msgspec.DecodeError, ValueError, RecursionError, MemoryError, OverflowError)
"""What a decoder may raise for bytes that others wrote: its own errors, and those of the types it makes."""


_LONGEST_REPEATED: Final = 64


class DecodeError(ValueError):
    """An object that cannot be decoded. `name` is namespace/name, or empty when even that is unreadable."""

    def __init__(self, kind: str, name: str, problem: str) -> None:
        super().__init__(f"{kind} {name or '(unnamed)'}: {problem}")
        self.kind = kind
        self.name = name
        self.problem = problem


@lru_cache(maxsize=65536)
def _repeated(text: str) -> Quantity:
    """Slices repeat the same few amounts thousands of times: one object each."""
    return Quantity.parse(text)


def _quantity(text: str) -> Quantity:
    """What is longer than people write is not kept."""
    return _repeated(text) if len(text) <= _LONGEST_REPEATED else Quantity.parse(text)


def _decode_hook(kind: type, value: Any) -> Any:
    if kind is Quantity:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError("a quantity must be text or a number")
        return _quantity(str(value))
    if kind is Ignored:
        return IGNORED
    raise NotImplementedError(kind)


def _encode_hook(value: Any) -> Any:
    if isinstance(value, Quantity):
        return str(value)
    if isinstance(value, Ignored):
        return {}
    raise NotImplementedError(type(value))


_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """One decoder per type: there are about twenty."""
    found = _decoders.get(kind)
    if found is None:
        found = _decoders[kind] = msgspec.json.Decoder(kind, dec_hook=_decode_hook)
    return found


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
    """Leave out nulls and try again; when that fails too, report the first problem under the object's name."""
    name = ""
    try:
        plain = msgspec.json.decode(data)
        if isinstance(plain, dict) and isinstance(plain.get("metadata"), dict):
            metadata = plain["metadata"]
            metadata.pop(_MANAGED_FIELDS, None)
            name = "/".join(str(metadata[part]) for part in ("namespace", "name") if metadata.get(part))
        return cast(T, _decoder(kind).decode(msgspec.json.encode(_without_nulls(plain))))
    except UNDECODABLE:
        raise decode_error(kind, data, first, name) from None


def decode_error(kind: Any, data: bytes | msgspec.Raw, problem: Exception, name: str = "") -> DecodeError:
    """The error for an object that cannot be decoded, as far as it can be read under its name."""
    metadata = outline.identity(data) if not name else {}
    name = name or "/".join(metadata[part] for part in ("namespace", "name") if metadata.get(part))
    return DecodeError(getattr(kind, "__name__", str(kind)), name, str(problem) or type(problem).__name__)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
