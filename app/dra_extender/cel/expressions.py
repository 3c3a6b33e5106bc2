"""Expressions about objects of the API, as admission policies have them: the same language with other variables.

Objects are plain JSON, of no declared type; what has one (policyvariables.py) is checked.
Rules: Kubernetes 1.36, apiserver/pkg/admission/plugin/cel (compile.go, condition.go, composition.go).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dra_extender.cel.checker import check
from dra_extender.cel.environment import Environment, all_functions
from dra_extender.cel.errors import Abort, CelCompileError, CelRuntimeError, Fault
from dra_extender.cel.hints import hint_for_fault
from dra_extender.cel.interpreter import Interpreter
from dra_extender.cel.meter import Meter
from dra_extender.cel.parser import parse
from dra_extender.cel.syntax import Ident, walk
from dra_extender.cel.types import Type
from dra_extender.cel.validation import check_result, fold, validate
from dra_extender.cel.work import unlimited
from dra_extender.unexpected import unexpected


class Expression:
    """A compiled expression. `names` are the variables that it reads, `type` is what it evaluates to."""

    def __init__(
        self,
        text: str,
        roots: Mapping[str, Type],
        structs: Mapping[str, Mapping[str, Type]],
        wanted: Type | None = None,
    ) -> None:
        """`wanted` is the type that it must have. Raises CelCompileError."""
        problem = "" if wanted is None else f"must evaluate to {wanted} but got"
        language = Environment(all_functions(), roots, structs, () if wanted is None else (wanted,), problem)
        meter = Meter(unlimited())
        try:
            tree = parse(text)
            check(text, tree, language, meter.work)
            check_result(text, tree, language.results, language.wanted)
            validate(text, tree, meter)
            self.type = tree.type
            self.names = frozenset(_root_names(tree, roots))
            self._interpreter = Interpreter(fold(text, tree, language.declarations, meter), language.declarations)
        except RecursionError as error:
            unexpected("selector", error, expression=text)
            raise CelCompileError("the expression is nested too deeply") from None
        self.text = text

    def evaluate(self, bindings: Bindings) -> Any:
        """The value. Raises CelRuntimeError."""
        try:
            return self._interpreter.evaluate(bindings, unlimited())[0]
        except (Fault, Abort) as error:
            raise CelRuntimeError(str(error), hint_for_fault(error.kind), error.key) from None
        except RecursionError as error:
            unexpected("selector", error, expression=self.text)
            raise CelRuntimeError("the values are nested too deeply") from None


def _root_names(tree: Any, roots: Mapping[str, Type]) -> set[str]:
    idents = (node for node in walk(tree) if isinstance(node, Ident) and node.variable is None)
    return {name for node in idents if (name := node.name.removeprefix(".")) in roots}


class Bindings:
    """The values of variables in one evaluation of a policy. Its `variables` are evaluated when first read."""

    def __init__(self, values: Mapping[str, Any], variables: Mapping[str, Expression]) -> None:
        self._values = {**values, "variables": _Deferred(variables, self)}

    def root(self, name: str) -> Any:
        return self._values[name]


class _Deferred(dict[str, Any]):
    """The variables of a policy as a map: an error in one is an error of whoever reads it."""

    def __init__(self, variables: Mapping[str, Expression], bindings: Bindings) -> None:
        super().__init__(variables)
        self._bindings = bindings
        self._known: dict[str, Any] = {}

    def get(self, key: str, default: Any = None) -> Any:
        if key not in self:
            return default
        if key not in self._known:
            self._known[key] = self._evaluate(key)
        value = self._known[key]
        if isinstance(value, CelRuntimeError):
            raise Fault(f'composited variable "{key}" fails to evaluate: {value.message}')
        return value

    def _evaluate(self, key: str) -> Any:
        try:
            return self[key].evaluate(self._bindings)
        except CelRuntimeError as error:
            return error
