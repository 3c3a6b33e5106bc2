"""The exact evaluator: every rule of the language, every error, every unit of cost.

A tree becomes closures, one per node, that take the frame of an evaluation. Fault is an error that `&&`, `||`, `all`
and `exists` absorb; Abort ends the evaluation. Semantics and order of evaluation are those of cel-go's interpreter,
v0.26.
"""

from __future__ import annotations

from typing import Any, Final

from dra_extender.cel import syntax
from dra_extender.cel.calls import (
    BY_OVERLOAD,
    FRAGILE,
    call,
    counted,
    equality,
    members,
    membership,
    remembered,
    required,
)
from dra_extender.cel.cost import CALLS, LIST, MAP, MESSAGE, Constant, Cost
from dra_extender.cel.declarations import Functions
from dra_extender.cel.device import DeviceView
from dra_extender.cel.environment import MESSAGES
from dra_extender.cel.equality import describe
from dra_extender.cel.errors import Fault
from dra_extender.cel.frame import (
    Evaluate,
    Frame,
    Lazy,
    Qualifier,
    device_read,
    look_up,
    qualify,
    reading,
    renewed,
    renewed_if_optional,
    tests_optional,
)
from dra_extender.cel.loops import LOOPS, sort_by, unwrapping
from dra_extender.cel.syntax import Expr, weight
from dra_extender.cel.values import NONE, Map, Option, map_key
from dra_extender.cel.work import MANY, Patterns, Work


class Interpreter:
    """An expression, ready to be evaluated: a closure for each of its nodes."""

    def __init__(self, tree: Expr, functions: Functions) -> None:
        self._functions = functions
        self._lazy: set[int] = set()
        self._variables = 0
        self._weight = weight(tree)
        self._evaluate = self.build(tree)

    def evaluate(self, view: DeviceView, work: Work, patterns: Patterns) -> tuple[Any, int]:
        """The value of the expression and its cost. Raises Fault, Abort and WorkExceeded."""
        work.charge(self._weight)
        frame = Frame(view, self._variables, work, patterns)
        value = self._evaluate(frame)
        frame.add_cost(0)
        return value, frame.cost

    def build(self, node: Expr) -> Evaluate:
        """The closure of a node."""
        evaluate: Evaluate = self._METHODS[node.__class__](self, node)
        return evaluate

    def _literal(self, node: syntax.Literal) -> Evaluate:
        return Constant(node.value)

    def _ident(self, node: syntax.Ident, cost: int = 1) -> Evaluate:
        variable = node.variable
        if variable is None:

            def evaluate_device(frame: Frame) -> Any:
                frame.cost += cost
                return frame.view.as_map

            return evaluate_device
        index, lazy = variable.index, variable.index in self._lazy

        def evaluate(frame: Frame) -> Any:
            frame.cost += cost
            value = frame.values[index]
            if lazy:
                value = value.get(frame)
            return renewed(value) if value.__class__ is Option else value

        return evaluate

    def _selection(self, node: syntax.Select | syntax.Index, cost: int = 1, *, branch: bool = False) -> Evaluate:
        """A chain of selections, evaluated as one: what is optional in it makes all that follows optional. It may be a
        branch of a conditional.
        """
        base, qualifiers = self._chain(node)
        evaluate_base = self._ident(base, 0) if isinstance(base, syntax.Ident) else self.build(base)

        def evaluate(frame: Frame) -> Any:
            frame.cost += cost
            value, optional = qualify(frame, evaluate_base(frame), qualifiers)
            return Option(value) if optional else value

        def test(frame: Frame) -> bool:
            value, _ = qualify(frame, evaluate_base(frame), qualifiers[:-1])
            if value is NONE:
                return False
            frame.cost += 1
            return look_up(value, qualifiers[-1][1])[1]

        if isinstance(node, syntax.Select) and node.test and not (branch and tests_optional(node)):
            return test
        is_read = isinstance(base, syntax.Ident) and base.variable is None
        read = device_read(qualifiers) if is_read else None
        return evaluate if read is None else reading(read, cost + len(qualifiers), evaluate)

    def _chain(self, node: Expr) -> tuple[Expr, tuple[Qualifier, ...]]:
        qualifiers: list[Qualifier] = []
        while True:
            if isinstance(node, syntax.Select) and not (node.test and qualifiers):
                qualifiers.append((None, node.field, node.optional))
            elif isinstance(node, syntax.Index):
                key = node.key
                if isinstance(key, syntax.Literal):
                    qualifiers.append((None, key.value, node.optional))
                else:
                    qualifiers.append((self._part(key), None, node.optional))
            else:
                return node, tuple(reversed(qualifiers))
            node = node.operand

    def _logic(self, node: syntax.Logic) -> Evaluate:
        terms = tuple(map(self.build, node.terms))
        decisive = not node.is_and

        def evaluate(frame: Frame) -> bool:
            fault: Fault | None = None
            for term in terms:
                try:
                    value = term(frame)
                except Fault as error:
                    fault = fault or error.with_traceback(None)
                    continue
                if value is decisive:
                    return bool(value)
                if value.__class__ is not bool:
                    fault = fault or Fault("no such overload")
            if fault is not None:
                raise fault
            return not decisive

        return evaluate

    def _conditional(self, node: syntax.Conditional) -> Evaluate:
        test, then, otherwise = self.build(node.test), self._branch(node.then), self._branch(node.otherwise)

        def evaluate(frame: Frame) -> Any:
            value = test(frame)
            if value is True:
                return then(frame)
            if value is False:
                return otherwise(frame)
            raise Fault("no such overload")

        return evaluate

    def _part(self, node: Expr, *, branch: bool = False) -> Evaluate:
        """A branch or an index: there a selection is cheaper by one."""
        if isinstance(node, syntax.Ident):
            return self._ident(node, 0)
        if isinstance(node, syntax.Select | syntax.Index):
            return self._selection(node, 0, branch=branch)
        return self.build(node)

    def _branch(self, node: Expr) -> Evaluate:
        evaluate = self._part(node, branch=True)
        if isinstance(node, syntax.Literal | syntax.Ident | syntax.Select | syntax.Index | syntax.Conditional):
            return evaluate
        return lambda frame: renewed_if_optional(evaluate(frame))

    def _call(self, node: syntax.Call) -> Evaluate:
        name = node.function
        if name == "or" or name == "orValue":
            return self._or_else(node)
        operands = tuple(map(self.build, node.children))
        if name in FRAGILE and len(node.overloads) == 1:
            place, kind = FRAGILE[name]
            operands = (*operands[:place], *(required(operand, kind) for operand in operands[place:]))
        cost = self._cost(node)
        if cost is not None and (name == "_==_" or name == "_!=_"):
            return equality(node, operands, cost)
        if name == "@in" and isinstance(node.args[1], syntax.Literal):
            constants = members(node)
            if constants is not None:
                return membership(operands[0], constants)
        both = name != "format" and (len(node.overloads) == 1 or self._functions[name].shared is not None)
        evaluate = call(operands, counted(name, self._functions[name].run(node.overloads)), cost, both)
        return remembered(name, operands[0], evaluate) if len(operands) == 1 else evaluate

    def _cost(self, node: syntax.Call) -> Cost | None:
        """How to compute the cost; None when it is 1, as for some calls that are resolved at run time."""
        if node.function == "matches" and node.target is None:
            return None
        if len(node.overloads) > 1 and node.function in BY_OVERLOAD:
            return None
        return CALLS.get(node.function)

    def _or_else(self, node: syntax.Call) -> Evaluate:
        """Evaluate the argument only if the optional is empty. A value of another type is returned unchanged."""
        option, other = map(self.build, node.children)
        unwrap = node.function == "orValue"

        def evaluate(frame: Frame) -> Any:
            value = option(frame)
            if value.__class__ is not Option:
                return value
            if value is NONE:
                return other(frame)
            return value.content if unwrap else value

        return evaluate

    def _list(self, node: syntax.ListNode) -> Evaluate:
        elements = tuple(zip(map(self.build, node.elements), node.optional, strict=True))

        def evaluate(frame: Frame) -> list[Any]:
            values = []
            for element, optional in elements:
                value = element(frame)
                if optional and value.__class__ is not Option:
                    raise Fault(f"cannot initialize optional list element from non-optional value {describe(value)}")
                if value is not NONE or not optional:
                    values.append(value.content if optional else value)
            frame.add_cost(LIST)
            if len(values) >= MANY:
                frame.keep(values)
            return values

        return evaluate

    def _map(self, node: syntax.MapNode) -> Evaluate:
        entries = tuple(zip(map(self.build, node.keys), map(self.build, node.values), node.optional, strict=True))

        def evaluate(frame: Frame) -> Map:
            result = Map()
            for evaluate_key, evaluate_value, optional in entries:
                key, value = evaluate_key(frame), evaluate_value(frame)
                _enter(result, map_key(key), value, describe(key) if optional else None)
            frame.add_cost(MAP)
            frame.keep(result)
            return result

        return evaluate

    def _message(self, node: syntax.Message) -> Evaluate:
        message = MESSAGES[node.name]
        fields = tuple(zip(node.fields, map(self.build, node.values), node.optional, strict=True))

        def evaluate(frame: Frame) -> Any:
            values: dict[str, Any] = {}
            for name, field, optional in fields:
                value = field(frame)
                _enter(values, name, value, name if optional else None)
            frame.add_cost(MESSAGE)
            return message.build(values)

        return evaluate

    def _macro(self, node: syntax.Macro) -> Evaluate:
        for variable in node.bound:
            self._variables = max(self._variables, variable.index + 1)
        if node.name == "bind":
            return self._bind(node)
        range_ = self.build(node.range)
        arguments = tuple(map(self.build, node.arguments))
        if node.name == "optMap" or node.name == "optFlatMap":
            return unwrapping(range_, node.bound[0].index, arguments[0], wrap=node.name == "optMap")
        indexes = tuple(variable.index for variable in node.bound)
        step = sum(map(weight, node.arguments))
        if node.name == "sortBy":
            return sort_by(range_, indexes[0], arguments[0], step, fragile=node.keyed)
        return LOOPS[node.name](range_, indexes, arguments, step)

    def _bind(self, node: syntax.Macro) -> Evaluate:
        index, initial = node.bound[0].index, self.build(node.range)
        self._lazy.add(index)
        evaluate_body = self.build(node.arguments[0])

        def evaluate(frame: Frame) -> Any:
            frame.values[index] = Lazy(initial)
            try:
                return evaluate_body(frame)
            finally:
                frame.values[index] = None

        return evaluate

    _METHODS: Final[dict[type, Any]] = {
        syntax.Literal: _literal, syntax.Ident: _ident, syntax.Select: _selection, syntax.Index: _selection,
        syntax.Call: _call, syntax.Logic: _logic, syntax.Conditional: _conditional, syntax.ListNode: _list,
        syntax.MapNode: _map, syntax.Message: _message, syntax.Macro: _macro,
    }  # fmt: skip


def _enter(entries: dict[Any, Any], key: Any, value: Any, optional: str | None) -> None:
    """Put an entry into a map or message; an `optional` entry, which errors call so, only if it has a value."""
    if optional is None:
        entries[key] = value
    elif value.__class__ is not Option:
        raise Fault(f"cannot initialize optional entry '{optional}' from non-optional value")
    elif value is NONE:
        entries.pop(key, None)
    else:
        entries[key] = value.content
