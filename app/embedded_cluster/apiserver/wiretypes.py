"""What the .proto files of Kubernetes say of fields and the models of kubernetes-asyncio do not: how wide integers are,
and which fields are an integer or a string."""

from __future__ import annotations

from functools import cache
from typing import Final

import orjson

from embedded_cluster.apiserver.protobuf import TABLE

INT_OR_STRING: Final = "intOrString"
_INTEGERS: Final = ("int32", "int64")
_CALLED: Final = {"util.intstr.IntOrString": INT_OR_STRING}


@cache
def wire_types() -> dict[tuple[str, str], str]:
    """(struct without its version, field) -> int32, int64 or intOrString; the wider where versions differ."""
    found: dict[tuple[str, str], str] = {}
    for message, fields in orjson.loads(TABLE.read_bytes()).items():
        owner = message.rpartition(".")[2]
        for field in fields.values():
            name, _, kind = field.partition(" ")
            kind = kind.removeprefix("[]")
            kind = _CALLED.get(kind, kind)
            if kind == INT_OR_STRING or kind in _INTEGERS:
                found[owner, name] = max(kind, found.get((owner, name), ""))
    return found
