"""Reading Kubernetes' protobuf: some commands of kubectl and most programs in Go write objects that way.

Only requests are read; answers are JSON, which every such client accepts as well. The numbers of the fields are in
fieldnumbers.json (tests/support/embedded/fieldnumbers.py makes it from the .proto files). Values come out as they
would be in JSON; empty strings are left out, as they mean nothing there.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final

import orjson

from dra_extender.api.times import format_micro_time, format_time
from embedded_cluster.apiserver.statuses import JSON, bad_request

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
TABLE: Final = Path(__file__).with_name("fieldnumbers.json")

_NUMBERS: Final = ("bool", "int32", "int64", "uint32", "uint64")
_MAGIC: Final = b"k8s\x00"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNKNOWN: Final = {1: ("typeMeta", "TypeMeta"), 2: ("raw", "bytes")}
_TYPE_META: Final = {1: ("apiVersion", "string"), 2: ("kind", "string")}
_OPTIONS: Final = "DeleteOptions"

_EMPTY_IS_NOTHING: Final = frozenset(
    {
        "generation",
        "hostIPC",
        "hostNetwork",
        "hostPID",
        "minReadySeconds",
        "nodePort",
        "paused",
        "readOnly",
        "stdin",
        "stdinOnce",
        "tty",
        "unschedulable",
    }
)
"""Fields that Go writes as zero when they were not given; a zero of any other field may have been given."""

Fields = dict[int, tuple[str, str]]
"""Field number -> (name, type)."""


def message_of(api_version: str, kind: str) -> str:
    """The name of a kind's message: `core.v1.Pod`."""
    if kind == _OPTIONS:
        return f"meta.v1.{kind}"
    group, _, version = api_version.rpartition("/")
    return f"{group.partition('.')[0] or 'core'}.{version}.{kind}"


@cache
def _table() -> dict[str, Fields]:
    messages: dict[str, dict[str, str]] = orjson.loads(TABLE.read_bytes())
    table: dict[str, Fields] = {"Unknown": _UNKNOWN, "TypeMeta": _TYPE_META}
    for name, fields in messages.items():
        table[name] = {int(number): (spec.split(" ")[0], spec.split(" ")[1]) for number, spec in fields.items()}
    return table


def decode(data: bytes) -> JSON:
    """The object in a protobuf body; raises 400 for what is none, or of a kind that is not known."""
    if not data.startswith(_MAGIC):
        raise bad_request("the body of the request is not Kubernetes protobuf")
    try:
        envelope = _message(data[len(_MAGIC) :], "Unknown")
        meta = envelope.get("typeMeta", {})
        api_version, kind = meta.get("apiVersion", ""), meta.get("kind", "")
        name = message_of(api_version, kind)
        if name not in _table():
            raise bad_request(f'no kind "{kind}" is registered for version "{api_version}" in protobuf')
        obj = _message(base64.b64decode(envelope.get("raw", "")), name)
    except (IndexError, ValueError, KeyError) as error:
        raise bad_request(f"the body of the request is broken protobuf: {error}") from None
    return {"apiVersion": api_version, "kind": kind, **obj}


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """(value, index behind it)"""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _parts(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(field number, number or bytes) of a message, in order."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if kind == 2:
            length, at = _varint(data, at)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise ValueError(f"wire type {kind}")
        if at + length > len(data):
            raise ValueError("it ends in the middle of a field")
        yield key >> 3, data[at : at + length]
        at += length


def _message(data: bytes, name: str) -> JSON:
    """A message as JSON; fields that are not known are skipped."""
    fields, obj = _table()[name], JSON()
    for number, raw in _parts(data):
        if number not in fields:
            continue
        field, kind = fields[number]
        if kind.startswith("[]"):
            obj.setdefault(field, []).append(_value(raw, kind[2:]))
        elif kind.startswith("="):
            obj.update(_message(_bytes(raw), kind[1:]))
        elif kind.startswith("{}"):
            key, value = _entry(raw, kind[2:])
            obj.setdefault(field, {})[key] = value
        else:
            value = _value(raw, kind)
            if value not in (None, "") and (value or field not in _EMPTY_IS_NOTHING):
                obj[field] = value
    return obj


def _entry(raw: int | bytes, kind: str) -> tuple[str, Any]:
    """One entry of a map: a message of key and value, either of which is left out when it is empty."""
    parts = dict(_parts(_bytes(raw)))
    key = _bytes(parts.get(1, b"")).decode()
    empty: int | bytes = 0 if kind in _NUMBERS else b""
    return key, _value(parts.get(2, empty), kind)


def _bytes(raw: int | bytes) -> bytes:
    if isinstance(raw, int):
        raise ValueError("a number where bytes belong")
    return raw


def _value(raw: int | bytes, kind: str) -> Any:
    if isinstance(raw, int):
        if kind == "bool":
            return bool(raw)
        if kind not in _NUMBERS:
            raise ValueError("a number where something else belongs")
        return raw - (1 << 64) if raw >= 1 << 63 else raw
    if kind == "string":
        return raw.decode()
    if kind == "bytes":
        return base64.b64encode(raw).decode()
    special = _SPECIAL.get(kind)
    return special(raw) if special is not None else _message(raw, kind)


# messages that are something else in JSON


def _moment(raw: bytes) -> datetime | None:
    parts = dict(_parts(raw))
    seconds, nanos = parts.get(1, 0), parts.get(2, 0)
    if not isinstance(seconds, int) or not isinstance(nanos, int):
        raise ValueError("a time without numbers")
    if not parts:
        return None
    seconds -= (1 << 64) if seconds >= 1 << 63 else 0
    return _EPOCH + timedelta(seconds=seconds, microseconds=nanos // 1000)


def _time(raw: bytes) -> str | None:
    moment = _moment(raw)
    return None if moment is None else format_time(moment)


def _micro_time(raw: bytes) -> str | None:
    moment = _moment(raw)
    return None if moment is None else format_micro_time(moment)


def _text(raw: bytes) -> str:
    return _bytes(dict(_parts(raw)).get(1, b"")).decode()


def _int_or_string(raw: bytes) -> int | str:
    parts = dict(_parts(raw))
    if parts.get(1, 0):
        return _bytes(parts.get(3, b"")).decode()
    number: int = _value(parts.get(2, 0), "int32")
    return number


def _embedded(raw: bytes) -> Any:
    inner = _bytes(dict(_parts(raw)).get(1, b""))
    return orjson.loads(inner) if inner else None


def _items(raw: bytes) -> list[str]:
    return [_bytes(part).decode() for _, part in _parts(raw)]


_SPECIAL: Final = {
    "meta.v1.Time": _time,
    "meta.v1.MicroTime": _micro_time,
    "meta.v1.FieldsV1": _embedded,
    "runtime.RawExtension": _embedded,
    "api.resource.Quantity": _text,
    "util.intstr.IntOrString": _int_or_string,
    "authorization.v1.ExtraValue": _items,
}
