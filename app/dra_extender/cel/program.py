"""Device selectors: compile once, evaluate per device. For one thread, as the whole service is.

Parser, checker and interpreter walk the tree by recursion. The deepest selector that Kubernetes accepts takes 3,000
frames, more than Python allows by default, so a process that compiles selectors raises that limit at its start
(`dra_extender.cli.main`). Where it has not, a deep selector is refused, and reported as the bug that this is.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from cachetools import LRUCache

from dra_extender.cel.checker import check
from dra_extender.cel.device import DeviceView
from dra_extender.cel.environment import CelGates, environment
from dra_extender.cel.errors import Abort, CelCompileError, CelRuntimeError, Fault
from dra_extender.cel.hints import hint_for_fault
from dra_extender.cel.interpreter import Interpreter
from dra_extender.cel.meter import Meter
from dra_extender.cel.parser import parse
from dra_extender.cel.paths import collect_reads
from dra_extender.cel.validation import check_result, fold, validate
from dra_extender.cel.values import NONE, Option, type_name
from dra_extender.cel.work import Work, unlimited
from dra_extender.unexpected import unexpected

REMEMBERED: Final = 64 * 2**20
"""Bytes that programs and refusals take which are remembered, by the most that expressions of their lengths take."""

_BYTES: Final = 2_000
_BYTES_PER_CHARACTER: Final = 250
_COMPILING: Final = 4
"""Units of work that a character costs."""


class Program:
    """A compiled selector. `reads` is what it reads of a device: devices that agree in that get the same answer."""

    __slots__ = ("_interpreter", "expression", "gates", "reads")

    def __init__(self, expression: str, gates: CelGates, work: Work | None = None) -> None:
        work = unlimited() if work is None else work
        work.charge(_COMPILING * len(expression))
        language = environment(gates)
        tree = parse(expression)
        check(expression, tree, language, work)
        check_result(expression, tree, language.results, language.wanted)
        meter = Meter(work)
        validate(expression, tree, meter)
        tree = fold(expression, tree, language.declarations, meter)
        self.expression = expression
        self.gates = gates
        self.reads = collect_reads(tree)
        self._interpreter = Interpreter(tree, language.declarations)

    def evaluate(self, view: DeviceView, work: Work | None = None) -> bool:
        """True when the device matches. Raises CelRuntimeError, and WorkExceeded when `work` does not suffice."""
        return self.evaluate_with_cost(view, work)[0]

    def evaluate_with_cost(self, view: DeviceView, work: Work | None = None) -> tuple[bool, int]:
        """True when the device matches, and the cost of finding out. Raises CelRuntimeError and WorkExceeded."""
        if view.error is not None:
            raise view.error.again()
        try:
            value, cost = self._interpreter.evaluate(view, unlimited() if work is None else work)
            while value.__class__ is Option and value is not NONE:  # of dynamic type, counts as what is in it
                value = value.content
        except (Fault, Abort) as error:
            raise CelRuntimeError(str(error), hint_for_fault(error.kind), error.key) from None
        except RecursionError as error:
            unexpected("selector", error, expression=self.expression)
            raise CelRuntimeError("the values are nested too deeply") from None
        if value.__class__ is not bool:
            raise CelRuntimeError(
                f"CEL result of type {type_name(value)} could not be converted to bool", "compare it with something"
            )
        return value, cost


class _Remembered(NamedTuple):
    outcome: Program | CelCompileError
    size: int


_programs: LRUCache[tuple[str, CelGates], _Remembered] = LRUCache(maxsize=REMEMBERED, getsizeof=lambda one: one.size)


def remembered_bytes(expression: str) -> int:
    """The most memory that the program of an expression takes."""
    return _BYTES + _BYTES_PER_CHARACTER * len(expression)


def compile_selector(expression: str, gates: CelGates = CelGates(), work: Work | None = None) -> Program:
    """The program of a selector. Raises CelCompileError, and WorkExceeded when `work` does not suffice.

    Programs and refusals are remembered, a WorkExceeded is not.
    """
    key = (expression, gates)
    known = _programs.get(key)
    if known is None:
        known = _Remembered(_compile(expression, gates, work), remembered_bytes(expression))
        if known.size <= REMEMBERED:
            _programs[key] = known
    if isinstance(known.outcome, CelCompileError):
        raise known.outcome.again()
    return known.outcome


def _compile(expression: str, gates: CelGates, work: Work | None) -> Program | CelCompileError:
    try:
        return Program(expression, gates, work)
    except CelCompileError as error:
        return error.again()
    except RecursionError as error:
        unexpected("selector", error, expression=expression)
        return CelCompileError("the expression is nested too deeply")
