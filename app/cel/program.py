"""Device selectors: compile once, evaluate per device. For one thread, as the whole service is.

Parser, checker and interpreter walk the tree by recursion. The deepest selector that Kubernetes accepts takes 3,000
frames, more than Python allows by default, so a process that compiles selectors raises that limit at its start
(`app.cli.main`). Where it has not, a deep selector is refused, and reported as the bug that this is.
"""

from __future__ import annotations

from typing import Final

from cachetools import LRUCache

from app.cel.checker import check
from app.cel.device import DeviceView
from app.cel.environment import CelGates, environment
from app.cel.errors import Abort, CelCompileError, CelRuntimeError, Fault, NotFast
from app.cel.fallbacks import FALLBACKS
from app.cel.generator import generate
from app.cel.hints import hint_for_fault
from app.cel.interpreter import Interpreter
from app.cel.parser import parse
from app.cel.paths import collect_reads
from app.cel.validation import check_result, fold, validate
from app.cel.values import NONE, Option, type_name
from app.unexpected import unexpected

_CACHE_SIZE: Final = 4096


class Program:
    """A compiled selector. `reads` is what it reads of a device: devices that agree in that get the same answer."""

    __slots__ = ("_fast", "_interpreter", "expression", "gates", "reads")

    def __init__(self, expression: str, gates: CelGates) -> None:
        language = environment(gates)
        tree = parse(expression)
        check(expression, tree, language.declarations, language.device_fields)
        check_result(expression, tree, language.results)
        validate(expression, tree)
        tree = fold(expression, tree, language.declarations)
        self.expression = expression
        self.gates = gates
        self.reads = collect_reads(tree)
        self._fast = generate(tree, language.declarations)
        self._interpreter = Interpreter(tree, language.declarations)

    def evaluate(self, view: DeviceView) -> bool:
        """True when the device matches. Raises CelRuntimeError."""
        if view.modest and self._fast is not None:
            try:
                return self._fast(view)
            except NotFast:
                FALLBACKS["interpreted"] += 1
            except Exception as bug:
                FALLBACKS["unexpected"] += 1
                unexpected("selector", bug, expression=self.expression)
        return self.evaluate_exactly(view)[0]

    @property
    def is_fast(self) -> bool:
        """True when the expression has a compiled form."""
        return self._fast is not None

    def evaluate_exactly(self, view: DeviceView) -> tuple[bool, int]:
        """True when the device matches, and the cost of finding out. Raises CelRuntimeError."""
        if view.poison is not None:
            raise view.poison.with_traceback(None)
        try:
            value, cost = self._interpreter.evaluate(view)
            while value.__class__ is Option and value is not NONE:  # of dynamic type, counts as what is in it
                value = value.content
        except (Fault, Abort) as error:
            raise CelRuntimeError(str(error), hint_for_fault(error.kind)) from None
        except RecursionError as error:
            unexpected("selector", error, expression=self.expression)
            raise CelRuntimeError("the values are nested too deeply") from None
        if value.__class__ is not bool:
            raise CelRuntimeError(
                f"CEL result of type {type_name(value)} could not be converted to bool", "compare it with something"
            )
        return value, cost


_programs: LRUCache[tuple[str, CelGates], Program | CelCompileError] = LRUCache(maxsize=_CACHE_SIZE)


def compile_selector(expression: str, gates: CelGates = CelGates()) -> Program:
    """The program of a selector. Raises CelCompileError. Programs and failures are remembered."""
    key = (expression, gates)
    known = _programs.get(key)
    if known is None:
        known = _programs[key] = _compile(expression, gates)
    if isinstance(known, CelCompileError):
        raise known.with_traceback(None)
    return known


def _compile(expression: str, gates: CelGates) -> Program | CelCompileError:
    try:
        return Program(expression, gates)
    except CelCompileError as error:
        return error.with_traceback(None)
    except RecursionError as error:
        unexpected("selector", error, expression=expression)
        return CelCompileError("the expression is nested too deeply")
