"""Device selectors: compile once, evaluate per device. For one thread.

Parser, checker and interpreter are recursive, and the deepest selector that Kubernetes accepts takes more Python frames
than the 1,000 of CPython's default. A process that compiles selectors therefore calls `sys.setrecursionlimit(FRAMES)`
at its start. In a process that does not, a deep selector is refused with an error that names the limit; all others
work.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final, NamedTuple

from cachetools import LRUCache

from dra_extender.api.resource import DeviceAttribute
from dra_extender.cel.checker import check
from dra_extender.cel.device import CelGates, DeviceView, collect_reads
from dra_extender.cel.environment import FAULT_HINTS, attribute_of, environment
from dra_extender.cel.errors import Abort, CelCompileError, CelRuntimeError, Fault
from dra_extender.cel.interpreter import Interpreter
from dra_extender.cel.library.regexes import pattern_cache
from dra_extender.cel.parser import parse
from dra_extender.cel.validation import check_result, fold, validate
from dra_extender.cel.values import NONE, Option, type_name
from dra_extender.cel.work import Meter, Patterns, Work, unlimited
from dra_extender.limits import FRAMES

REMEMBERED: Final = 64 * 2**20
"""Bytes of programs and refusals that are remembered, each counted with the most that an expression of its length
takes.
"""

DERIVED: Final = 2**14
"""Derived attributes that are remembered."""

_NEEDS: Final = f"needs a recursion limit of {FRAMES:,}"
_BYTES: Final = 2_000
_BYTES_PER_CHARACTER: Final = 250
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
            tree = parse(expression)
            check(expression, tree, language, meter.work)
            check_result(expression, tree, language.results, language.expected)
            validate(expression, tree, meter)
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
            raise view.error.again()
        try:
            value, cost = self._interpreter.evaluate(view, unlimited() if work is None else work, self._patterns)
            while value.__class__ is Option and value is not NONE:  # of dynamic type, counts as what is in it
                value = value.content
        except (Fault, Abort) as error:
            raise CelRuntimeError(str(error), FAULT_HINTS.get(error.kind, ""), error.key) from None
        except RecursionError:
            raise CelRuntimeError(f"the values are nested too deeply: this process {_NEEDS}") from None
        return value, cost


def compile_selector(expression: str, gates: CelGates = CelGates(), work: Work | None = None) -> Program:
    """The program of a selector. Raises CelCompileError, and WorkExceeded when `work` does not suffice."""
    return Program(expression, gates, work)


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
            known = _Known(self._compile(expression, gates, work), remembered_bytes(expression))
            if known.size <= self._known.maxsize:
                self._known[expression, gates] = known
        if isinstance(known.outcome, CelCompileError):
            raise known.outcome.again()
        return known.outcome

    def _compile(self, expression: str, gates: CelGates, work: Work | None) -> Program | CelCompileError:
        try:
            return Program(expression, gates, work, self._patterns)
        except CelCompileError as error:
            return error.again()
