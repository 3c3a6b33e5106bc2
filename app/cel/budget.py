"""Which expressions stay within the limit of costs on every modest device.

Their compiled form need not count. The bounds are generous. Every other expression is interpreted, and counted.
"""

from __future__ import annotations

from math import ceil
from typing import Final

from app.cel.syntax import Call, Literal, Macro, Node, walk

_MAX_NODES: Final = 300
LONGEST_LOOP: Final = 256
"""How many elements a loop of a compiled form may have; a modest device has no longer lists."""

_NODE_COST: Final = 120
_LONGEST: Final = 1024
_BUDGET: Final = 900_000


def is_affordable(tree: Node) -> bool:
    """True when the expression stays within the limit of costs on every modest device."""
    nodes = walk(tree)
    return len(nodes) <= _MAX_NODES and _worst_cost(nodes) <= _BUDGET


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
