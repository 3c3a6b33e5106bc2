"""A snapshot file: everything of a cluster that decisions depend on, to answer questions later and elsewhere.

Promises: the restored state gives the same decisions as the cluster, also for objects that could not be read. The file
has no other fields: no environment, commands or images of pods, no opaque parameters of drivers, no managed fields, and
only annotations of Kubernetes and of this project.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from dra_extender.api.decoding import DecodeError, decode, encode, to_builtins
from dra_extender.api.events import Applied, ClusterEvent, PartialAllocation, Undecodable
from dra_extender.api.meta import Object
from dra_extender.limits import BYTES_OF_SNAPSHOT

KIND: Final = "DeviceSnapshot"
FORMAT: Final = 1
_GZIP: Final = b"\x1f\x8b"
_OURS: Final = ("kubernetes.io", "k8s.io", "dra-extender.dev")
_COPIES: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""This annotation contains the whole object, including the environment."""


class Unreadable(Object, frozen=True):
    """An undecodable object, and the reason. `partial`: for a claim, the devices that its allocation names."""

    kind: str
    name: str
    problem: str
    partial: PartialAllocation | None = msgspec.field(default=None, name="salvaged")
    """`salvaged` is its name in files of format 1."""


class ClusterFile(msgspec.Struct, kw_only=True, omit_defaults=True, rename="camel"):
    """`objects` in version v1 by plural name. `taken`: when, in UTC. `kubernetes`: the version of the API server."""

    kind: str = ""
    format: int = 0
    made_by: str = ""
    taken: str = ""
    kubernetes: str = ""
    objects: dict[str, list[msgspec.Raw]] = msgspec.field(default_factory=dict)
    unreadable: list[Unreadable] = msgspec.field(default_factory=list)

    def add(self, plural: str, event: ClusterEvent) -> None:
        if isinstance(event, Applied):
            self.objects.setdefault(plural, []).append(msgspec.Raw(encode(_bare(to_builtins(event.object)))))
        elif isinstance(event, Undecodable):
            self.unreadable.append(Unreadable(event.key.kind, event.key.name, event.problem, event.partial))


def dump(found: ClusterFile, *, compressed: bool) -> bytes:
    data = encode(found)
    return gzip.compress(data) if compressed else data


def load(data: bytes) -> ClusterFile:
    """Raises ValueError."""
    try:
        found = decode(ClusterFile, _inflated(data) if data.startswith(_GZIP) else data)
    except (DecodeError, zlib.error) as problem:
        raise ValueError(f"it is not a snapshot: {str(problem).removeprefix('ClusterFile (unnamed): ')}") from None
    if found.kind != KIND:
        raise ValueError(f"it is not a snapshot: its kind is {found.kind or 'missing'}, not {KIND}")
    if found.format != FORMAT:
        raise ValueError(f"its format is {found.format}; this version of dra-extender reads {FORMAT}")
    return found


def _inflated(data: bytes) -> bytes:
    """Raises ValueError, without inflating more than the limit, and zlib.error."""
    stream = zlib.decompressobj(16 + zlib.MAX_WBITS)
    found = stream.decompress(data, BYTES_OF_SNAPSHOT)
    if stream.unconsumed_tail:
        raise ValueError(f"it has more than {BYTES_OF_SNAPSHOT:,} bytes when it is decompressed, which is the limit")
    if not stream.eof:
        raise zlib.error("its end is missing")
    return found


def _bare(item: dict[str, Any]) -> Any:
    """The object without fields that the file must not have."""
    annotations: Mapping[str, str] = (item.get("metadata") or {}).get("annotations") or {}
    if annotations:
        item["metadata"]["annotations"] = {name: value for name, value in annotations.items() if _is_kept(name)}
    return _without_parameters(item)


def _is_kept(annotation: str) -> bool:
    domain = annotation.rpartition("/")[0]
    return annotation != _COPIES and any(domain == ours or domain.endswith(f".{ours}") for ours in _OURS)


def _without_parameters(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_parameters(part) for part in value]
    if not isinstance(value, dict):
        return value
    opaque = value.get("opaque")
    if isinstance(opaque, dict) and "driver" in opaque:
        value = {**value, "opaque": {"driver": opaque["driver"]}}
    return {key: _without_parameters(part) for key, part in value.items()}
