"""The tree of an expression. Macros stay what they are: nodes of their own, not loops in disguise."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field as attribute
from typing import Any, ClassVar

from dra_extender.cel.declarations import Overload
from dra_extender.cel.types import DYN, Type
from dra_extender.cel.work import Work


@dataclass(slots=True, eq=False)
class Expr:
    """A part of an expression. `offset` is its place in the text, `type` what the checker found.

    `PARTS` are the fields that have expressions, or tuples of them.
    """

    PARTS: ClassVar[tuple[str, ...]] = ()

    offset: int
    type: Type = attribute(default=DYN, init=False)

    @property
    def children(self) -> list[Expr]:
        """The expressions that it is made of; of a call, the receiver comes before the arguments."""
        found: list[Expr] = []
        for name in self.PARTS:
            part = getattr(self, name)
            if part.__class__ is tuple:
                found += part
            elif part is not None:
                found.append(part)
        return found


@dataclass(slots=True, eq=False)
class Literal(Expr):
    """A constant."""

    value: Any


@dataclass(slots=True, eq=False)
class Variable:
    """A local variable of a macro; `index` numbers all variables of an expression."""

    name: str
    type: Type
    index: int


@dataclass(slots=True, eq=False)
class Ident(Expr):
    """A name: `device`, a local variable, or a type. The checker sets `variable` or `constant` for the latter two."""

    name: str
    variable: Variable | None = attribute(default=None, init=False)
    constant: Any = attribute(default=None, init=False)


@dataclass(slots=True, eq=False)
class Select(Expr):
    """`operand.field`, `operand.?field` (optional), `has(operand.field)` (test).

    The checker sets `constant` when it is the name of a type, such as `net.IP`.
    """

    PARTS: ClassVar = ("operand",)
    operand: Expr
    field: str
    optional: bool = False
    test: bool = False
    constant: Any = attribute(default=None, init=False)


@dataclass(slots=True, eq=False)
class Index(Expr):
    """`operand[key]` or `operand[?key]`."""

    PARTS: ClassVar = ("operand", "key")
    operand: Expr
    key: Expr
    optional: bool = False


@dataclass(slots=True, eq=False)
class Logic(Expr):
    """`a && b && c` or `a || b || c`: one node however many terms."""

    PARTS: ClassVar = ("terms",)
    is_and: bool
    terms: tuple[Expr, ...]


@dataclass(slots=True, eq=False)
class Conditional(Expr):
    """`test ? then : otherwise`."""

    PARTS: ClassVar = ("test", "then", "otherwise")
    test: Expr
    then: Expr
    otherwise: Expr


@dataclass(slots=True, eq=False)
class Call(Expr):
    """A function, method or operator. The checker clears `target` when it was a namespace, and sets `overloads`."""

    PARTS: ClassVar = ("target", "args")
    function: str
    target: Expr | None
    args: tuple[Expr, ...]
    overloads: tuple[Overload, ...] = attribute(default=(), init=False)


@dataclass(slots=True, eq=False)
class ListNode(Expr):
    """`[a, ?b]`; `optional` is true for elements that are optionals."""

    PARTS: ClassVar = ("elements",)
    elements: tuple[Expr, ...]
    optional: tuple[bool, ...]


@dataclass(slots=True, eq=False)
class MapNode(Expr):
    """`{key: value, ?key: optional}`."""

    PARTS: ClassVar = ("keys", "values")
    keys: tuple[Expr, ...]
    values: tuple[Expr, ...]
    optional: tuple[bool, ...]


@dataclass(slots=True, eq=False)
class Message(Expr):
    """`google.protobuf.Int64Value{value: 1}`."""

    PARTS: ClassVar = ("values",)
    name: str
    fields: tuple[str, ...]
    values: tuple[Expr, ...]
    optional: tuple[bool, ...]


@dataclass(slots=True, eq=False)
class Macro(Expr):
    """`range.name(variables…, arguments…)`: a loop, or `cel.bind`, `optMap`, `optFlatMap`, `sortBy`.

    `range` is what is iterated, bound or unwrapped; `arguments` are the expressions that may use the variables. The
    checker sets `bound`, and `keyed` for a `sortBy` whose type of keys is known.
    """

    PARTS: ClassVar = ("range", "arguments")
    name: str
    range: Expr
    variables: tuple[str, ...]
    arguments: tuple[Expr, ...]
    bound: tuple[Variable, ...] = attribute(default=(), init=False)
    keyed: bool = attribute(default=False, init=False)


def dotted(node: Expr, work: Work) -> str | None:
    """`a.b.c` as text, if the node is just names and dots. Four characters are read per unit of work."""
    parts: list[str] = []
    while isinstance(node, Select) and not node.test and not node.optional:
        parts.append(node.field)
        node = node.operand
    work.charge(sum(map(len, parts)) // 4)
    if not isinstance(node, Ident):
        return None
    return ".".join((node.name, *reversed(parts)))


def walk(node: Expr) -> list[Expr]:
    """All nodes below and including `node`, parents first. Without recursion."""
    nodes = [node]
    for current in nodes:  # grows while it is read
        nodes += current.children
    return nodes


_ONCE = frozenset(("bind", "optMap", "optFlatMap"))


def weight(node: Expr) -> int:
    """How many nodes are evaluated at most, not counting those in loops, of which each round counts for itself."""
    nodes = [node]
    for current in nodes:  # grows while it is read
        if isinstance(current, Macro) and current.name not in _ONCE:
            nodes.append(current.range)
        else:
            nodes += current.children
    return len(nodes)
