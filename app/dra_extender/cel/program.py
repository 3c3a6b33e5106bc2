"""Device selectors: compile once, evaluate per device. For one thread.

Parser, checker and interpreter are recursive, and the deepest selector that Kubernetes accepts takes more Python frames
than the 1,000 of CPython's default. A process that compiles selectors therefore calls `sys.setrecursionlimit(FRAMES)`
at its start. In a process that does not, a deep selector is refused with an error that names the limit; all others
work.

After the types are checked, literals are, and constant parts are carried out and replaced by literals: cel-go
cel/validator.go, ext/formatting.go and the optimiser of interpreter/decorators.go, v0.26.

Derived attributes of requests are values of expressions, whose size is limited: Kubernetes 1.37,
dynamic-resource-allocation/cel/compile.go (valToDeviceAttribute).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final, NamedTuple

from cachetools import LRUCache

from dra_extender.api.decoding import convert
from dra_extender.api.resource import DeviceAttribute
from dra_extender.api.semver import Semver
from dra_extender.cel import types
from dra_extender.cel.checker import check
from dra_extender.cel.declarations import Functions
from dra_extender.cel.device import CelGates, DeviceView, collect_reads
from dra_extender.cel.environment import EXPECTED, FAULT_HINTS, environment
from dra_extender.cel.errors import CelCompileError, CelResultError, CelRuntimeError, EvaluationError, Fault
from dra_extender.cel.interpreter import Interpreter
from dra_extender.cel.library.conversions import CONVERSIONS
from dra_extender.cel.library.formatting import check_literal
from dra_extender.cel.library.regexes import pattern, pattern_cache
from dra_extender.cel.parser import parse
from dra_extender.cel.syntax import Call, Expr, Ident, Index, ListNode, Literal, MapNode, Select, walk
from dra_extender.cel.types import Type
from dra_extender.cel.values import NONE, Map, Option, UInt, map_key, type_name
from dra_extender.cel.work import Meter, Patterns, Work, unlimited
from dra_extender.limits import FRAMES, SIZE_OF_DERIVED

REMEMBERED: Final = 64 * 2**20
"""Bytes of programs and refusals that are remembered, each counted with the most that an expression of its length
takes.
"""

DERIVED: Final = 2**14
"""Derived attributes that are remembered."""

_NEEDS: Final = f"needs a recursion limit of {FRAMES:,}"
_BYTES: Final = 2_000
_BYTES_PER_CHARACTER: Final = 250
_INDEXES: Final = (str, int, bool, float, UInt)
_COMPILING: Final = 4
"""Units of work that a character costs."""


class Program:
    """A compiled selector. `reads` is what it reads of a device: devices that agree in that get the same answer."""

    __slots__ = ("_interpreter", "_patterns", "expression", "gates", "reads")

    def __init__(
        self, expression: str, gates: CelGates = CelGates(), work: Work | None = None, patterns: Patterns | None = None
    ) -> None:
        """Raises CelCompileError, and WorkExceeded when `work` does not suffice."""
        meter = Meter(unlimited() if work is None else work, {} if patterns is None else patterns)
        meter.charge(_COMPILING * len(expression))
        language = environment(gates)
        self.expression = expression
        self.gates = gates
        self._patterns = meter.patterns
        try:
            tree = parse(expression, gates.is_1_37)
            check(expression, tree, language, meter.work)
            check_result(expression, tree, language.results, language.expected)
            validate(expression, tree, language.functions, meter)
            tree = fold(expression, tree, language.functions, meter)
            self.reads = collect_reads(tree)
            self._interpreter = Interpreter(tree, language.functions)
        except RecursionError:
            raise CelCompileError(f"the expression is nested too deeply: this process {_NEEDS}") from None

    def evaluate(self, view: DeviceView, work: Work | None = None) -> bool:
        """True when the device matches. Raises CelRuntimeError, and WorkExceeded when `work` does not suffice."""
        return self.evaluate_with_cost(view, work)[0]

    def evaluate_with_cost(self, view: DeviceView, work: Work | None = None) -> tuple[bool, int]:
        """True when the device matches, and Kubernetes' cost of the evaluation. Raises CelRuntimeError and
        WorkExceeded.
        """
        value, cost = self._evaluate(view, work)
        if value.__class__ is not bool:
            raise CelRuntimeError(
                f"CEL result of type {type_name(value)} could not be converted to bool", "compare it with something"
            )
        return value, cost

    def attribute(self, view: DeviceView, work: Work | None = None) -> DeviceAttribute:
        """The attribute that the expression computes. Raises CelRuntimeError and WorkExceeded."""
        return attribute_of(self._evaluate(view, work)[0])

    def _evaluate(self, view: DeviceView, work: Work | None) -> tuple[Any, int]:
        if view.error is not None:
            raise CelRuntimeError(*view.error.args)  # one that was raised refers to all that was going on
        try:
            value, cost = self._interpreter.evaluate(view, unlimited() if work is None else work, self._patterns)
            while value.__class__ is Option and value is not NONE:  # of dynamic type, counts as what is in it
                value = value.content
        except EvaluationError as error:
            raise CelRuntimeError(str(error), FAULT_HINTS.get(error.kind, ""), error.key) from None
        except RecursionError:
            raise CelRuntimeError(f"the values are nested too deeply: this process {_NEEDS}") from None
        return value, cost


def remembered_bytes(expression: str) -> int:
    """The most memory that the program of an expression takes."""
    return _BYTES + _BYTES_PER_CHARACTER * len(expression)


class _Known(NamedTuple):
    outcome: Program | CelCompileError
    size: int


class Programs:
    """Compiled selectors, refusals and regular expressions, remembered up to a number of bytes."""

    def __init__(self, limit: int = REMEMBERED) -> None:
        self._known: LRUCache[tuple[str, CelGates], _Known] = LRUCache(limit, getsizeof=lambda known: known.size)
        self._patterns = pattern_cache()
        self.derived: LRUCache[Hashable, Any] = LRUCache(DERIVED)
        """Derived attributes by expression and what it reads; each has `SIZE_OF_DERIVED` at most."""

    def compile(self, expression: str, gates: CelGates = CelGates(), work: Work | None = None) -> Program:
        """The program of a selector. Raises CelCompileError, and WorkExceeded when `work` does not suffice.

        Programs and refusals are remembered, a WorkExceeded is not. What is remembered costs no work.
        """
        known = self._known.get((expression, gates))
        if known is None:
            try:
                outcome: Program | CelCompileError = Program(expression, gates, work, self._patterns)
            except CelCompileError as error:
                outcome = type(error)(*error.args)
            known = _Known(outcome, remembered_bytes(expression))
            if known.size <= self._known.maxsize:
                self._known[expression, gates] = known
        if isinstance(known.outcome, CelCompileError):
            raise type(known.outcome)(*known.outcome.args)
        return known.outcome


def validate(expression: str, tree: Expr, functions: Functions, meter: Meter) -> None:
    """Refuse literals that cannot work. Raises CelCompileError and WorkExceeded."""
    exempt: set[int] = set()
    for node in walk(tree):
        if isinstance(node, Call):
            _check_literal_arguments(expression, node, functions, meter)
            if node.function == "format":
                found = [below for argument in node.children for below in walk(argument)]
                meter.charge(len(found) // 4)
                exempt.update(map(id, found))
    for node in walk(tree):
        if isinstance(node, ListNode | MapNode) and id(node) not in exempt:
            _check_homogeneous(expression, node)


def _check_literal_arguments(expression: str, call: Call, functions: Functions, meter: Meter) -> None:
    first = call.args[0] if call.args else None
    if call.function in ("matches", "duration", "timestamp") and isinstance(first, Literal):
        try:
            if call.function == "matches":
                pattern(first.value, meter)
            else:
                functions[call.function].run(())(meter, first.value)
        except (Fault, ValueError) as error:
            problem = f"invalid {call.function} argument"
            raise CelCompileError(f"{problem}: {error}", expression, first.offset, upstream=problem) from None
    target = call.target
    if (
        call.function == "format"
        and isinstance(target, Literal)
        and isinstance(target.value, str)
        and isinstance(first, ListNode)
    ):
        problem, place = check_literal(target.value, first)
        if place is not None:
            raise CelCompileError(problem, expression, place.offset)


def _check_homogeneous(expression: str, node: ListNode | MapNode) -> None:
    """All elements must have the same type; `dyn` and `any` are types of their own here."""
    values = node.elements if isinstance(node, ListNode) else node.values
    groups = [list(zip(values, node.optional, strict=True))]
    if isinstance(node, MapNode):
        groups.append([(key, False) for key in node.keys])
    for group in groups:
        wanted: Type | None = None
        for value, optional in group:
            found = value.type.params[0] if optional and value.type.params else value.type
            if wanted is None:
                wanted = found
            elif wanted != found:
                raise CelCompileError(
                    f"expected type '{wanted}' but found '{found}'",
                    expression,
                    value.offset,
                    "all elements must have the same type; wrap them with dyn(…) where they differ",
                )


def fold(expression: str, tree: Expr, functions: Functions, meter: Meter) -> Expr:
    """The tree with constant conversions, lists and maps carried out. Raises CelCompileError and WorkExceeded.

    A folded constant is not larger than the expression, because only conversions are carried out.
    """
    folded: dict[int, Expr] = {}
    for node in reversed(walk(tree)):
        _replace_children(node, folded)
        try:
            constant = _constant(node, functions, meter)
        except EvaluationError as error:
            raise CelCompileError(f"{error}", expression, node.offset) from None
        if constant is not None:
            folded[id(node)] = constant
        elif isinstance(node, Index) and isinstance(node.key, Literal) and node.key.value.__class__ not in _INDEXES:
            raise CelCompileError(f"a value of type '{node.key.type}' cannot be an index", expression, node.key.offset)
        elif isinstance(node, Call) and node.function in ("find", "findAll", "matches"):
            regex = node.children[1] if len(node.children) > 1 else None
            if isinstance(regex, Literal) and isinstance(regex.value, str):
                try:
                    pattern(regex.value, meter)
                except ValueError as error:
                    raise CelCompileError(str(error), expression, regex.offset) from None
    return folded.get(id(tree), tree)


def _replace_children(node: Expr, folded: dict[int, Expr]) -> None:
    for name in node.PARTS:
        part = getattr(node, name)
        if isinstance(part, tuple):
            setattr(node, name, tuple([folded.get(id(item), item) for item in part]))
        elif part is not None:
            setattr(node, name, folded.get(id(part), part))


def _constant(node: Expr, functions: Functions, meter: Meter) -> Literal | None:
    """The literal a node amounts to, or None."""
    if isinstance(node, Ident | Select):
        return None if node.constant is None else _literal(node, node.constant)
    if isinstance(node, ListNode) and (elements := _values(node.elements)) is not None:
        if any(node.optional):
            raise Fault("an optional element must be an optional")
        return _literal(node, elements)
    if isinstance(node, MapNode) and (entries := _values((*node.keys, *node.values))) is not None:
        if any(node.optional):
            raise Fault("an optional entry must be an optional")
        keys, values = entries[: len(node.keys)], entries[len(node.keys) :]
        return _literal(node, Map(zip(map(map_key, keys), values, strict=True)))
    if isinstance(node, Call) and node.function in CONVERSIONS and len(node.children) == 1:
        arguments = _values(node.children)
        return _literal(node, functions[node.function].run(())(meter, *arguments)) if arguments else None
    return None


def _values(nodes: Sequence[Expr]) -> list[Any] | None:
    """The values of the nodes; None if a node is not a literal."""
    found = [node.value for node in nodes if isinstance(node, Literal)]
    return found if len(found) == len(nodes) else None


def _literal(node: Expr, value: Any) -> Literal:
    literal = Literal(node.offset, value)
    literal.type = node.type
    return literal


def check_result(expression: str, tree: Expr, allowed: tuple[Type, ...], expected: str) -> None:
    """A selector is a bool, or an attribute. `expected`: the allowed types. Raises CelResultError."""
    if tree.type not in allowed or tree.type.nullable:
        hint = "compare it with something" if tree.type != types.DYN else "compare it: dyn(x) == true"
        raise CelResultError(f"must evaluate to {expected}, not {tree.type}", expression, 0, hint)


_ATTRIBUTE_FIELDS: Final[dict[type, str]] = {bool: "bool", int: "int", str: "string", Semver: "version"}
_NAMES: Final[dict[type, str]] = {
    bool: "bool", int: "int64", str: "string", Semver: "semver.Version", float: "float64", UInt: "uint64",
    bytes: "[]uint8", type(None): "structpb.NullValue",
}  # fmt: skip
"""Upstream's names of the types of values, as far as expressions often have them."""
_HINT: Final = f"the value has to be {EXPECTED}"


def attribute_of(value: Any) -> DeviceAttribute:
    """The attribute with this value. Raises CelRuntimeError."""
    if value.__class__ is list or value.__class__ is str:
        size = len(value) * (16 if value.__class__ is list else 1)
        if size <= SIZE_OF_DERIVED and value.__class__ is list:
            size += sum(len(str(_plain(element))) for element in value if element.__class__ in _ATTRIBUTE_FIELDS)
        if size > SIZE_OF_DERIVED:
            raise CelRuntimeError(f"the value is larger than {SIZE_OF_DERIVED} characters", _HINT)
    if value.__class__ is not list:
        field = _ATTRIBUTE_FIELDS.get(value.__class__)
        if field is None:
            raise CelRuntimeError(f"unsupported CEL return type: {_name(value)}", _HINT)
        return convert(DeviceAttribute, {field: _plain(value)})
    if not value:
        return DeviceAttribute(strings=())
    kind = value[0].__class__
    if kind not in _ATTRIBUTE_FIELDS:
        raise CelRuntimeError(f"unsupported list element type: {_name(value[0])}", _HINT)
    for index, element in enumerate(value):
        if element.__class__ is not kind:
            wanted = "semver" if kind is Semver else _ATTRIBUTE_FIELDS[kind]
            raise CelRuntimeError(f"expected list element at index {index} to be {wanted}, got {_name(element)}", _HINT)
    return convert(DeviceAttribute, {f"{_ATTRIBUTE_FIELDS[kind]}s": [_plain(element) for element in value]})


def _plain(value: Any) -> Any:
    return value.text if value.__class__ is Semver else value


def _name(value: Any) -> str:
    return _NAMES.get(value.__class__) or type_name(value)
