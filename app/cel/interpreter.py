"""The exact evaluator: every rule of the language, every error, every unit of cost.

A tree becomes closures, one per node, that take the frame of an evaluation. Fault is an error that `&&`, `||`, `all`
and `exists` absorb; Abort ends the evaluation. Semantics and order of evaluation are those of cel-go's interpreter,
v0.26.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from app.api.quantity import Quantity
from app.api.semver import Semver
from app.cel.cost import CALLS, LIMIT, LIST, MAP, MESSAGE, Constant, Cost
from app.cel.declarations import Declarations, Function, Overload, no_such_overload
from app.cel.device import DeviceView
from app.cel.equality import describe, equal, equal_joined
from app.cel.errors import Abort, Fault
from app.cel.library.network import Cidr, Ip
from app.cel.library.urls import Url
from app.cel.loops import LOOPS, sort_by
from app.cel.messages import MESSAGES
from app.cel.syntax import (
    Call,
    Conditional,
    Ident,
    Index,
    ListNode,
    Literal,
    Logic,
    Macro,
    MapNode,
    Message,
    Node,
    Select,
    Variable,
)
from app.cel.values import (
    NONE,
    Lost,
    Map,
    Option,
    SumQuantity,
    TypeValue,
    UInt,
    find,
    is_unhashable,
    map_key,
    type_name,
)

COST_MESSAGE: Final = "operation cancelled: actual cost limit exceeded"


class Frame:
    """One evaluation: the device, the local variables, and what it has cost so far."""

    __slots__ = ("cost", "values", "view")

    def __init__(self, view: DeviceView, variables: int) -> None:
        self.view = view
        self.values: list[Any] = [None] * variables
        self.cost = 0

    def charge(self, cost: int) -> None:
        self.cost += cost
        if self.cost > LIMIT:
            raise Abort(COST_MESSAGE)


Evaluate = Callable[[Frame], Any]
Qualifier = tuple[Evaluate | None, Any, bool]
"""How to compute a key, or else the key; and whether it is optional."""


class Lazy:
    """A `cel.bind` variable: evaluated when first used, even if that fails."""

    __slots__ = ("_evaluate", "_fault", "_value")

    def __init__(self, evaluate: Evaluate) -> None:
        self._evaluate: Evaluate | None = evaluate
        self._value: Any = None
        self._fault: Fault | None = None

    def get(self, frame: Frame) -> Any:
        evaluate = self._evaluate
        if evaluate is not None:
            self._evaluate = None
            try:
                self._value = evaluate(frame)
            except Fault as fault:
                self._fault = fault
        if self._fault is not None:
            raise self._fault
        return self._value


class Interpreter:
    """An expression, ready to be evaluated."""

    def __init__(self, tree: Node, declarations: Declarations) -> None:
        builder = _Builder(declarations)
        self._evaluate = builder.build(tree)
        self._variables = builder.variables

    def evaluate(self, view: DeviceView) -> tuple[Any, int]:
        """The value of the expression and its cost. Raises Fault and Abort."""
        frame = Frame(view, self._variables)
        value = self._evaluate(frame)
        frame.charge(0)
        return value, frame.cost


# --- Selection ------------------------------------------------------------------------------------------------------


def select(value: Any, key: Any) -> Any:
    """`value[key]`. Raises Fault."""
    found, present = _look_up(value, key)
    if present:
        return found
    if value.__class__ is list:
        raise Fault(f"index out of bounds: {key}")
    raise Fault(f"no such key: {describe(key)}")


def _look_up(value: Any, key: Any) -> tuple[Any, bool]:
    """The entry of a map or list and whether there is one; nothing has an entry in anything else. Raises Fault."""
    if isinstance(value, dict):
        return find(value, key)
    if value.__class__ is not list:
        return None, False
    index = _index(key)
    return (value[index], True) if 0 <= index < len(value) else (None, False)


def _index(key: Any) -> int:
    kind = key.__class__
    if kind is int:
        return int(key)
    if kind is UInt:
        return int(key) if key <= 2**63 - 1 else -1
    if kind is float:
        if key.is_integer() and -(2.0**63) < key < 2.0**63:
            return int(key)
        raise Fault(f"unsupported index value {key} in list")
    raise Fault(f"unsupported index type '{type_name(key)}' in list")


_KEYS: Final = (str, int, bool, UInt, float)
_CHANGING: Final = frozenset((Option, TypeValue, Quantity, SumQuantity, Semver, Ip, Cidr, Url))


def _qualify(frame: Frame, value: Any, qualifiers: tuple[Qualifier, ...]) -> tuple[Any, bool]:
    """Follow selections; returns the result and whether it is to be wrapped as an optional."""
    optional = value.__class__ is Option
    if optional:
        if value is NONE:
            return NONE, False
        value = value.content
    for evaluate, key, is_optional in qualifiers:
        optional = optional or is_optional
        if evaluate is not None:
            key = evaluate(frame)
            if key.__class__ not in _KEYS:
                raise Fault(f"invalid qualifier type: {type_name(key)}")
        if optional:
            value, present = _look_up(value, key)
            if not present:
                return NONE, False
        else:
            value = select(value, key)
        frame.cost += 1
    return value, optional


def renewed(option: Option) -> Option:
    """An optional after upstream took the value out and put it in again, which happens to variables and branches.

    Values of extension types do not survive that, a type becomes its name, an optional in an optional loses one level.
    """
    value = option.value
    if option is NONE or value.__class__ not in _CHANGING:
        return option
    if value.__class__ is Option:
        return Option(None) if value is NONE else renewed(value)
    if value.__class__ is TypeValue:
        return Option(value.name)
    return Option(Lost(type_name(value)))


# --- Building -------------------------------------------------------------------------------------------------------


class _Builder:
    """Makes closures of nodes. `variables` is how many local variables were met."""

    def __init__(self, declarations: Declarations) -> None:
        self._functions = declarations.functions
        self._lazy: set[int] = set()
        self.variables = 0

    def build(self, node: Node) -> Evaluate:
        evaluate: Evaluate = self._METHODS[node.__class__](self, node)
        return evaluate

    def build_all(self, nodes: tuple[Node, ...]) -> tuple[Evaluate, ...]:
        return tuple(self.build(node) for node in nodes)

    # --- Names ------------------------------------------------------------------------------------------------------

    def _literal(self, node: Literal) -> Evaluate:
        return Constant(node.value)

    def _ident(self, node: Ident, cost: int = 1) -> Evaluate:
        variable = node.variable
        if variable is None:

            def evaluate_device(frame: Frame) -> dict[str, Any]:
                frame.cost += cost
                return frame.view.fields

            return evaluate_device
        index, lazy = variable.index, variable.index in self._lazy

        def evaluate(frame: Frame) -> Any:
            frame.cost += cost
            value = frame.values[index]
            if lazy:
                value = value.get(frame)
            return renewed(value) if value.__class__ is Option else value

        return evaluate

    def _selection(self, node: Select | Index, cost: int = 1) -> Evaluate:
        """A chain of selections, evaluated as one: what is optional in it makes all that follows optional."""
        base, qualifiers = self._chain(node)
        evaluate_base = self._ident(base, 0) if isinstance(base, Ident) else self.build(base)

        def evaluate(frame: Frame) -> Any:
            frame.cost += cost
            value, optional = _qualify(frame, evaluate_base(frame), qualifiers)
            return Option(value) if optional else value

        def test(frame: Frame) -> bool:
            value, _ = _qualify(frame, evaluate_base(frame), qualifiers[:-1])
            if value is NONE:
                return False
            frame.cost += 1
            return _look_up(value, qualifiers[-1][1])[1]

        return test if isinstance(node, Select) and node.test else evaluate

    def _chain(self, node: Node) -> tuple[Node, tuple[Qualifier, ...]]:
        qualifiers: list[Qualifier] = []
        while True:
            if isinstance(node, Select) and not (node.test and qualifiers):
                qualifiers.append((None, node.field, node.optional))
            elif isinstance(node, Index):
                key = node.key
                if isinstance(key, Literal):
                    qualifiers.append((None, key.value, node.optional))
                else:
                    qualifiers.append((self._part(key), None, node.optional))
            else:
                return node, tuple(reversed(qualifiers))
            node = node.operand

    # --- Logic ------------------------------------------------------------------------------------------------------

    def _logic(self, node: Logic) -> Evaluate:
        terms = self.build_all(node.terms)
        decisive = not node.is_and

        def evaluate(frame: Frame) -> bool:
            fault: Fault | None = None
            for term in terms:
                try:
                    value = term(frame)
                except Fault as error:
                    fault = fault or error
                    continue
                if value is decisive:
                    return bool(value)
                if value.__class__ is not bool:
                    fault = fault or Fault("no such overload")
            if fault is not None:
                raise fault
            return not decisive

        return evaluate

    def _conditional(self, node: Conditional) -> Evaluate:
        test, then, otherwise = self.build(node.test), self._branch(node.then), self._branch(node.otherwise)

        def evaluate(frame: Frame) -> Any:
            value = test(frame)
            if value is True:
                return then(frame)
            if value is False:
                return otherwise(frame)
            raise Fault("no such overload")

        return evaluate

    def _part(self, node: Node) -> Evaluate:
        """A branch or an index: there a selection is cheaper by one."""
        if isinstance(node, Ident):
            return self._ident(node, 0)
        if isinstance(node, Select | Index):
            return self._selection(node, 0)
        return self.build(node)

    def _branch(self, node: Node) -> Evaluate:
        evaluate = self._part(node)
        if isinstance(node, Literal | Ident | Select | Index | Conditional):
            return evaluate
        return lambda frame: _renewed_if_optional(evaluate(frame))

    # --- Calls ------------------------------------------------------------------------------------------------------

    def _call(self, node: Call) -> Evaluate:
        name = node.function
        if name == "or" or name == "orValue":
            return self._or_else(node)
        operands = self.build_all(node.operands)
        if name in _FRAGILE and len(node.overloads) == 1:
            place, kind = _FRAGILE[name]
            operands = (*operands[:place], *(_required(operand, kind) for operand in operands[place:]))
        cost = self._cost(node)
        if name == "_==_" or name == "_!=_":
            return _equality(node, operands, name == "_==_", cost)
        if name == "@in" and isinstance(node.args[1], Literal):
            members = _members(node)
            if members is not None:
                return _membership(operands[0], members)
        run = self._implementation(node)
        if len(operands) == 1:
            return _unary(operands[0], run, cost)
        if len(operands) == 2:
            return _binary(operands[0], operands[1], run, cost)
        return _many(operands, run, cost)

    def _cost(self, node: Call) -> Cost | None:
        """How to compute the cost; None when it is 1, as for some calls that are resolved at run time."""
        if node.function == "matches" and node.target is None:
            return None
        if len(node.overloads) > 1 and node.function in _BY_OVERLOAD:
            return None
        return CALLS.get(node.function)

    def _implementation(self, node: Call) -> Callable[..., Any]:
        function: Function = self._functions[node.function]
        if function.shared is not None:
            return function.shared
        if len(node.overloads) == 1:
            return guarded(node.overloads[0])
        return function.dispatch

    def _or_else(self, node: Call) -> Evaluate:
        """The argument is evaluated only if the optional is empty. What is no optional is returned as it is."""
        option, other = self.build_all(node.operands)
        unwrap = node.function == "orValue"

        def evaluate(frame: Frame) -> Any:
            value = option(frame)
            if value.__class__ is not Option:
                return value
            if value is NONE:
                return other(frame)
            return value.content if unwrap else value

        return evaluate

    # --- Aggregates -------------------------------------------------------------------------------------------------

    def _list(self, node: ListNode) -> Evaluate:
        elements = tuple(zip(self.build_all(node.elements), node.optional, strict=True))

        def evaluate(frame: Frame) -> list[Any]:
            values = []
            for element, optional in elements:
                value = element(frame)
                if optional:
                    if value.__class__ is not Option:
                        raise Fault(
                            f"cannot initialize optional list element from non-optional value {describe(value)}"
                        )
                    if value is NONE:
                        continue
                    value = value.content
                values.append(value)
            frame.charge(LIST)
            return values

        return evaluate

    def _map(self, node: MapNode) -> Evaluate:
        entries = tuple(
            zip(self.build_all(node.keys), self.build_all(node.values), node.optional, strict=True),
        )

        def evaluate(frame: Frame) -> Map:
            result = Map()
            for evaluate_key, evaluate_value, optional in entries:
                key, value = evaluate_key(frame), evaluate_value(frame)
                if optional:
                    if value.__class__ is not Option:
                        raise Fault(f"cannot initialize optional entry '{describe(key)}' from non-optional value")
                    if value is NONE:
                        result.pop(map_key(key), None)
                        continue
                    value = value.content
                result[map_key(key)] = value
            frame.charge(MAP)
            return result

        return evaluate

    def _message(self, node: Message) -> Evaluate:
        message = MESSAGES[node.name]
        fields = tuple(zip(node.fields, self.build_all(node.values), node.optional, strict=True))

        def evaluate(frame: Frame) -> Any:
            values: dict[str, Any] = {}
            for name, field, optional in fields:
                value = field(frame)
                if optional:
                    if value.__class__ is not Option:
                        raise Fault(f"cannot initialize optional entry '{name}' from non-optional value")
                    if value is NONE:
                        values.pop(name, None)
                        continue
                    value = value.content
                values[name] = value
            frame.charge(MESSAGE)
            return message.build(values)

        return evaluate

    # --- Macros -----------------------------------------------------------------------------------------------------

    def _macro(self, node: Macro) -> Evaluate:
        for variable in node.bound:
            self.variables = max(self.variables, variable.index + 1)
        range_ = self.build(node.range)
        if node.name == "bind":
            return self._bind(node.bound[0], range_, node.arguments[0])
        arguments = self.build_all(node.arguments)
        if node.name == "optMap" or node.name == "optFlatMap":
            return _unwrapping(node, range_, arguments[0])
        indexes = tuple(variable.index for variable in node.bound)
        if node.name == "sortBy":
            return sort_by(range_, indexes[0], arguments[0], fragile=node.keyed)
        return LOOPS[node.name](range_, indexes, arguments)

    def _bind(self, variable: Variable, initial: Evaluate, body: Node) -> Evaluate:
        self._lazy.add(variable.index)
        evaluate_body, index = self.build(body), variable.index

        def evaluate(frame: Frame) -> Any:
            frame.values[index] = Lazy(initial)
            return evaluate_body(frame)

        return evaluate

    _METHODS: Final[dict[type, Any]] = {
        Literal: _literal, Ident: _ident, Select: _selection, Index: _selection, Call: _call, Logic: _logic,
        Conditional: _conditional, ListNode: _list, MapNode: _map, Message: _message, Macro: _macro,
    }  # fmt: skip


_BY_OVERLOAD: Final = frozenset(
    ("_<_", "_<=_", "_>_", "_>=_", "_+_", "@in", "sort", "@sortByAssociatedKeys", "flatten")
)
"""What costs only 1 when it is resolved at run time."""


_FRAGILE: Final[dict[str, tuple[int, type]]] = {"distinct": (0, list), "sort": (0, list), "flatten": (1, int)}
"""Calls whose cost upstream cannot compute when an argument is an error or of another type: it panics."""


def _required(operand: Evaluate, kind: type) -> Evaluate:
    """An argument of a fragile call."""

    def evaluate(frame: Frame) -> Any:
        try:
            value = operand(frame)
        except Fault as fault:
            raise Abort(f"internal error: {fault}") from None
        if value.__class__ is not kind:
            raise Abort(f"internal error: a value of type {type_name(value)} has no cost")
        return value

    return evaluate


def _renewed_if_optional(value: Any) -> Any:
    return renewed(value) if value.__class__ is Option else value


def _unwrapping(node: Macro, option: Evaluate, body: Evaluate) -> Evaluate:
    index, wrap = node.bound[0].index, node.name == "optMap"

    def evaluate(frame: Frame) -> Any:
        value = option(frame)
        if value.__class__ is not Option:
            raise no_such_overload("hasValue", (value,))
        frame.cost += 2
        if value is NONE:
            return NONE
        frame.values[index] = value.content
        result = body(frame)
        return renewed(Option(result)) if wrap else _renewed_if_optional(result)

    return evaluate


# --- Calls ----------------------------------------------------------------------------------------------------------


def guarded(overload: Overload) -> Callable[..., Any]:
    """The overload, for values that may be of any type."""
    run = overload.run
    if run is None:
        raise TypeError(f"nothing carries out {overload.function}")
    implementation = run

    def run_guarded(*values: Any) -> Any:
        if overload.accepts(values):
            return implementation(*values)
        raise no_such_overload(overload.function, values)

    return run_guarded


def _unary(operand: Evaluate, run: Callable[..., Any], cost: Cost | None) -> Evaluate:
    if cost is None:

        def evaluate(frame: Frame) -> Any:
            result = run(operand(frame))
            frame.cost += 1
            return result

        return evaluate
    return _many((operand,), run, cost)


def _binary(left: Evaluate, right: Evaluate, run: Callable[..., Any], cost: Cost | None) -> Evaluate:
    if cost is None:

        def evaluate(frame: Frame) -> Any:
            result = run(left(frame), right(frame))
            frame.cost += 1
            return result

        return evaluate
    return _many((left, right), run, cost)


def _many(operands: tuple[Evaluate, ...], run: Callable[..., Any], cost: Cost | None) -> Evaluate:
    def evaluate(frame: Frame) -> Any:
        values = tuple([operand(frame) for operand in operands])
        result = run(*values)
        frame.charge(1 if cost is None else cost(values, result))
        return result

    return evaluate


def is_sum(node: Node) -> bool:
    """Whether a node is a sum, leaving aside what adds an empty list."""
    if not (isinstance(node, Call) and node.function == "_+_"):
        return False
    left, right = node.args
    if isinstance(left, Literal) and left.value == []:
        return is_sum(right)
    return not (isinstance(right, Literal) and right.value == []) or is_sum(left)


def _equality(node: Call, operands: tuple[Evaluate, ...], wanted: bool, cost: Cost | None) -> Evaluate:
    left, right = operands
    compare = equal_joined if is_sum(node.args[0]) else equal

    def evaluate(frame: Frame) -> bool:
        values = left(frame), right(frame)
        frame.charge(1 if cost is None else cost(values, None))
        if wanted:
            return compare(*values)
        try:
            return not compare(*values)
        except Fault:
            return True

    return evaluate


def _members(node: Call) -> frozenset[tuple[type, Any]] | None:
    """The members of a constant list, each with its type and in all numeric types it equals; None for other lists."""
    literal = node.args[1]
    if not isinstance(literal, Literal) or literal.value.__class__ is not list or len(node.overloads) != 1:
        return None
    members: set[tuple[type, Any]] = set()
    for element in literal.value:
        if element.__class__ not in (bool, int, UInt, float, str):
            return None
        members.add((element.__class__, element))
        members |= {(kind, kind(element)) for kind in _numeric_twins(element)}
    return frozenset(members)


def _numeric_twins(element: Any) -> tuple[type, ...]:
    """The other numeric types an element is converted to without loss (to double always)."""
    kind = element.__class__
    if kind is int:
        return (float, UInt) if element >= 0 else (float,)
    if kind is UInt:
        return (float, int) if element <= 2**63 - 1 else (float,)
    if kind is float and element.is_integer():
        kinds: list[type] = []
        if -(2.0**63) < element < 2.0**63:
            kinds.append(int)
        if 0 <= element < 2.0**64:
            kinds.append(UInt)
        return tuple(kinds)
    return ()


def _membership(operand: Evaluate, members: frozenset[tuple[type, Any]]) -> Evaluate:
    if not members:
        return lambda frame: False

    def evaluate(frame: Frame) -> bool:
        value = operand(frame)
        if value.__class__ in (list, dict, Map) or not value.__hash__:
            return False
        if is_unhashable(value):
            raise Abort(f"internal error: a value of type {type_name(value)} cannot be hashed")
        return (value.__class__, value) in members

    return evaluate
