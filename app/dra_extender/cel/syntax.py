"""The tree of an expression. Macros stay what they are: nodes of their own, not loops in disguise."""

from __future__ import annotations

from typing import Any

from dra_extender.cel.declarations import Overload
from dra_extender.cel.types import DYN, Type


class Node:
    """A part of an expression. `offset` is its place in the text, `type` what the checker found."""

    __slots__ = ("offset", "type")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.type: Type = DYN

    @property
    def children(self) -> tuple[Node, ...]:
        return ()


class Literal(Node):
    """A constant."""

    __slots__ = ("value",)

    def __init__(self, offset: int, value: Any) -> None:
        super().__init__(offset)
        self.value = value


class Variable:
    """A local variable of a macro; `index` numbers all variables of an expression."""

    __slots__ = ("index", "name", "type")

    def __init__(self, name: str, type_: Type, index: int) -> None:
        self.name = name
        self.type = type_
        self.index = index


class Ident(Node):
    """A name: `device`, a local variable, or a type. The checker sets `variable` or `constant` for the latter two."""

    __slots__ = ("constant", "name", "variable")

    def __init__(self, offset: int, name: str) -> None:
        super().__init__(offset)
        self.name = name
        self.variable: Variable | None = None
        self.constant: Any = None


class Select(Node):
    """`operand.field`, `operand.?field` (optional), `has(operand.field)` (test).

    The checker sets `constant` when it is the name of a type, such as `net.IP`.
    """

    __slots__ = ("constant", "field", "operand", "optional", "test")

    def __init__(self, offset: int, operand: Node, field: str, *, optional: bool = False, test: bool = False) -> None:
        super().__init__(offset)
        self.operand = operand
        self.field = field
        self.optional = optional
        self.test = test
        self.constant: Any = None

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.operand,)


class Index(Node):
    """`operand[key]` or `operand[?key]`."""

    __slots__ = ("key", "operand", "optional")

    def __init__(self, offset: int, operand: Node, key: Node, *, optional: bool = False) -> None:
        super().__init__(offset)
        self.operand = operand
        self.key = key
        self.optional = optional

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.operand, self.key)


class Logic(Node):
    """`a && b && c` or `a || b || c`: one node however many terms."""

    __slots__ = ("is_and", "terms")

    def __init__(self, offset: int, is_and: bool, terms: tuple[Node, ...]) -> None:
        super().__init__(offset)
        self.is_and = is_and
        self.terms = terms

    @property
    def children(self) -> tuple[Node, ...]:
        return self.terms


class Conditional(Node):
    """`test ? then : otherwise`."""

    __slots__ = ("otherwise", "test", "then")

    def __init__(self, offset: int, test: Node, then: Node, otherwise: Node) -> None:
        super().__init__(offset)
        self.test = test
        self.then = then
        self.otherwise = otherwise

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.test, self.then, self.otherwise)


class Call(Node):
    """A function, method or operator. The checker clears `target` when it was a namespace, and sets `overloads`."""

    __slots__ = ("args", "function", "overloads", "target")

    def __init__(self, offset: int, function: str, target: Node | None, args: tuple[Node, ...]) -> None:
        super().__init__(offset)
        self.function = function
        self.target = target
        self.args = args
        self.overloads: tuple[Overload, ...] = ()

    @property
    def operands(self) -> tuple[Node, ...]:
        """The receiver, if any, and the arguments."""
        return self.args if self.target is None else (self.target, *self.args)

    @property
    def children(self) -> tuple[Node, ...]:
        return self.operands


class ListNode(Node):
    """`[a, ?b]`; `optional` is true for elements that are optionals."""

    __slots__ = ("elements", "optional")

    def __init__(self, offset: int, elements: tuple[Node, ...], optional: tuple[bool, ...]) -> None:
        super().__init__(offset)
        self.elements = elements
        self.optional = optional

    @property
    def children(self) -> tuple[Node, ...]:
        return self.elements


class MapNode(Node):
    """`{key: value, ?key: optional}`."""

    __slots__ = ("keys", "optional", "values")

    def __init__(
        self, offset: int, keys: tuple[Node, ...], values: tuple[Node, ...], optional: tuple[bool, ...]
    ) -> None:
        super().__init__(offset)
        self.keys = keys
        self.values = values
        self.optional = optional

    @property
    def children(self) -> tuple[Node, ...]:
        return tuple(node for entry in zip(self.keys, self.values, strict=True) for node in entry)


class Message(Node):
    """`google.protobuf.Int64Value{value: 1}`."""

    __slots__ = ("fields", "name", "optional", "values")

    def __init__(
        self, offset: int, name: str, fields: tuple[str, ...], values: tuple[Node, ...], optional: tuple[bool, ...]
    ) -> None:
        super().__init__(offset)
        self.name = name
        self.fields = fields
        self.values = values
        self.optional = optional

    @property
    def children(self) -> tuple[Node, ...]:
        return self.values


class Macro(Node):
    """`range.name(variables…, arguments…)`: a loop, or `cel.bind`, `optMap`, `optFlatMap`, `sortBy`.

    `range` is what is iterated, bound or unwrapped; `arguments` are the expressions that may use the variables. The
    checker sets `bound`, and `keyed` for a `sortBy` whose type of keys is known.
    """

    __slots__ = ("arguments", "bound", "keyed", "name", "range", "variables")

    def __init__(
        self, offset: int, name: str, range_: Node, variables: tuple[str, ...], arguments: tuple[Node, ...]
    ) -> None:
        super().__init__(offset)
        self.name = name
        self.range = range_
        self.variables = variables
        self.arguments = arguments
        self.bound: tuple[Variable, ...] = ()
        self.keyed = False

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.range, *self.arguments)


def walk(node: Node) -> list[Node]:
    """All nodes below and including `node`, parents first. Without recursion."""
    nodes = [node]
    for current in nodes:  # grows while it is read
        nodes += current.children
    return nodes


_ONCE = frozenset(("bind", "optMap", "optFlatMap"))


def weight(node: Node) -> int:
    """How many nodes are evaluated at most, not counting those in loops, of which each round counts for itself."""
    nodes = [node]
    for current in nodes:  # grows while it is read
        if isinstance(current, Macro) and current.name not in _ONCE:
            nodes.append(current.range)
        else:
            nodes += current.children
    return len(nodes)
