"""Requests as cluster-autoscaler sends them to a gRPC expander.

Nodes and pods begin with recorded bytes of Kubernetes, which have many fields that the service skips. What a test says
is appended: protobuf merges the parts of a message that are sent one after the other.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

RECORDED: dict[str, Any] = json.loads((Path(__file__).parents[2] / "http" / "expander.json").read_text())
NODE, POD = (base64.b64decode(RECORDED[kind]) for kind in ("node", "pod"))
Json = dict[str, Any]


def varint(value: int) -> bytes:
    return bytes([value & 127 | 128]) + varint(value >> 7) if value > 127 else bytes([value])


def field(number: int, value: bytes | str | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def entries(number: int, values: Mapping[str, bytes | str]) -> bytes:
    return b"".join(field(number, field(1, key) + field(2, value)) for key, value in values.items())


def template(document: Json, recorded: bytes = b"") -> bytes:
    """The Node, without its hostname."""
    meta, spec, amounts = document["metadata"], document["spec"], document["status"]["allocatable"]
    taints = (field(1, each["key"]) + field(2, each.get("value", "")) + field(3, each["effect"])
              for each in spec.get("taints", ()))  # fmt: skip
    parts = (
        field(1, meta["name"]) + entries(11, meta["labels"]),
        b"".join(field(5, taint) for taint in taints),
        entries(2, {name: field(1, amount) for name, amount in amounts.items()}),
    )
    return recorded + b"".join(field(number, part) for number, part in enumerate(parts, start=1))


def pod(name: str) -> bytes:
    return POD + field(1, field(1, name) + field(5, f"uid-{name}"))


def option(group: str, pods: Sequence[str], nodes: int = 1, number: int = 5) -> bytes:
    """`number`: 5 with the encoded pods of newer versions, 4 with those of older ones."""
    return field(1, group) + field(2, nodes) + field(3, "why") + b"".join(field(number, pod(name)) for name in pods)


def request(options: Sequence[bytes], templates: Mapping[str, bytes], number: int = 3) -> bytes:
    """`number`: 3 with the encoded nodes of newer versions, 2 with those of older ones."""
    return b"".join(field(1, each) for each in options) + entries(number, templates)


def groups_in(reply: bytes) -> list[str]:
    """The names of the options of an answer, which have nothing else."""
    found = []
    while reply:
        size, part = reply[1], reply[2:]
        assert reply[0] == 10 and size < 128 and part[0] == 10 and part[1] == size - 2
        found.append(part[2:size].decode())
        reply = part[size:]
    return found
