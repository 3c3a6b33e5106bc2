"""What is said of names and calls that the language does not have. Upstream points at the bracket of a call."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dra_extender.cel.errors import CelCompileError
from dra_extender.cel.syntax import Call, Message, Node


def variables_hint(names: Collection[str]) -> str:
    """Which variables there are."""
    listed = ", ".join(sorted(names))
    return f"the only variable is {listed}" if len(names) == 1 else f"variables: {listed}"


def undeclared(expression: str, node: Node, name: str, hint: str = "") -> CelCompileError:
    """A variable, function or message that is not there."""
    problem = f"undeclared reference to '{name}'"
    upstream = f"{problem} (in container '')"
    return CelCompileError(problem, expression, node.offset, hint, upstream, _bracket(expression, node))


def no_overload(
    expression: str, node: Node, name: str, member: bool, arguments: Sequence[str], hint: str
) -> CelCompileError:
    """A function that does not take arguments of these types; the first is that of the receiver of a method."""
    applied = f"{arguments[0]}.({', '.join(arguments[1:])})" if member else f"({', '.join(arguments)})"
    problem = f"found no matching overload for '{name}' applied to '{applied}'"
    return CelCompileError(problem, expression, node.offset, hint, upstream_offset=_bracket(expression, node))


def _bracket(expression: str, node: Node) -> int | None:
    """Where a call that is written with a name, or a message, has its bracket."""
    if isinstance(node, Message):
        return expression.find("{", node.offset)
    named = isinstance(node, Call) and expression.startswith(node.function.rpartition(".")[2], node.offset)
    return expression.find("(", node.offset) if named else None
