"""Names with dots, and what those stand for that mean the same in every selector: types and constants."""

from __future__ import annotations

from typing import Any, Final

from dra_extender.cel import types
from dra_extender.cel.messages import CONSTANTS
from dra_extender.cel.syntax import Ident, Node, Select
from dra_extender.cel.types import Type, list_of, map_of, optional_of, type_of
from dra_extender.cel.values import TypeValue

_A: Final = types.param("A")
_B: Final = types.param("B")
_TYPE_NAMES: Final = {
    **{
        kind.name: kind
        for kind in (
            types.BOOL, types.BYTES, types.DOUBLE, types.DURATION, types.INT, types.NULL, types.STRING,
            types.TIMESTAMP, types.TYPE, types.UINT, types.IP, types.CIDR,
        )
    },
    "list": list_of(_A),
    "map": map_of(_A, _B),
    "optional_type": optional_of(_A),
}  # fmt: skip


def global_name(name: str) -> tuple[Type, Any] | None:
    """The type and value of the name of a type or a constant; None for any other."""
    kind = _TYPE_NAMES.get(name)
    if kind is not None:
        return type_of(kind), TypeValue(name)
    return CONSTANTS.get(name)


def dotted(node: Node) -> str | None:
    """`a.b.c` as text, if the node is just names and dots."""
    parts: list[str] = []
    while isinstance(node, Select) and not node.test and not node.optional:
        parts.append(node.field)
        node = node.operand
    if not isinstance(node, Ident):
        return None
    return ".".join((node.name, *reversed(parts)))
