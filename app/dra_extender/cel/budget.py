"""Which expressions stay within the limit of costs, and within little work, on every modest device.

Their compiled form need not count. The bounds are generous. Every other expression is interpreted, and counted.
"""

from __future__ import annotations

from math import ceil
from typing import Final

from dra_extender.cel.library.membership import MAX_EXAMINED
from dra_extender.cel.library.regexes import pattern
from dra_extender.cel.meter import FREE
from dra_extender.cel.syntax import Call, Literal, Macro, Node, walk

_MAX_NODES: Final = 300
LONGEST_LOOP: Final = 256
"""How many elements a loop of a compiled form may have; a modest device has no longer lists."""

_NODE_COST: Final = 120
_LONGEST: Final = 1024
_BUDGET: Final = 900_000

CEILING: Final = 1000
"""The most work of a compiled form, in units."""

_PER_UNIT: Final = 10
_CALL: Final = 5
_COMPARISON: Final = 3
_CONVERSION: Final = 200
_VERSION: Final = 4000
_CONVERSIONS: Final = frozenset(
    (
        "int", "string", "double", "quantity", "isQuantity", "ip", "isIP", "cidr", "isCIDR", "containsIP",
        "containsCIDR", "lowerAscii", "upperAscii", "trim", "split", "substring",
    )
)  # fmt: skip
_UNKNOWN: Final = frozenset(("dyn", "list", "map"))


def affordable_work(tree: Node) -> int | None:
    """The most work, in units, that a compiled form of the expression is on a modest device; at least 1.

    None when it may not have one: the work may be above the ceiling, or the limit of costs may be exceeded.
    """
    nodes = walk(tree)
    if len(nodes) > _MAX_NODES or _worst_cost(nodes) > _BUDGET:
        return None
    work = _worst_work(tree)
    return work if work <= CEILING else None


def _worst_cost(nodes: list[Node]) -> int:
    """More than an evaluation on a modest device can cost."""
    cost, factor = 0, 1
    for node in nodes:
        cost += _NODE_COST
        if isinstance(node, Call) and node.function in ("matches", "contains", "@in"):
            searched = node.operands[1]
            length = (
                len(searched.value)
                if isinstance(searched, Literal) and searched.value.__class__ in (str, list)
                else _LONGEST
            )
            cost += length if node.function == "@in" else _NODE_COST * ceil(length * 0.25)
        elif isinstance(node, Macro) and node.name != "bind":
            factor *= LONGEST_LOOP
    return cost * factor


def _worst_work(tree: Node) -> int:
    """More than the work of the compiled form on a modest device, in units."""
    work, pending = 0, [(tree, 1)]
    while pending:
        node, times = pending.pop()
        work += times * _node_work(node)
        if isinstance(node, Macro) and node.name not in ("bind", "optMap"):
            pending.append((node.range, times))
            pending += [(argument, times * LONGEST_LOOP) for argument in node.arguments]
        else:
            pending += [(child, times) for child in node.children]
    return 1 + work // _PER_UNIT


def _node_work(node: Node) -> int:
    """The work of a node on a modest device, in tenths of a unit."""
    if not isinstance(node, Call):
        return 1
    name, operands = node.function, node.operands
    if (name == "quantity" or name == "semver") and isinstance(operands[0], Literal):
        return _CALL  # made when the selector is compiled
    if name in _CONVERSIONS:
        return _CONVERSION
    if name == "semver" or name == "isSemver":
        return _VERSION
    if name == "_==_" or name == "_!=_" or name == "@in":
        return _COMPARISON * LONGEST_LOOP if all(operand.type.kind in _UNKNOWN for operand in operands) else _CALL
    if name == "includes":
        return _COMPARISON * MAX_EXAMINED
    if name in ("contains", "indexOf", "lastIndexOf", "matches"):
        return _searching(name, operands[1])
    return _CALL


def _searching(name: str, searched: Node) -> int:
    if not isinstance(searched, Literal) or searched.value.__class__ is not str:
        return _CALL * _LONGEST
    if name != "matches":
        return _CALL * (1 + min(len(searched.value), _LONGEST))
    try:
        return _PER_UNIT * pattern(searched.value, FREE).work(_LONGEST)
    except ValueError:
        return _CALL
