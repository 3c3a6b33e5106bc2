"""The expression language as the embedded API server speaks it, which does not know it by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dra_extender.cel import CelCompileError, CelRuntimeError, compile_selector, types
from dra_extender.cel.expressions import Bindings, Expression
from dra_extender.cel.policyvariables import ALWAYS, STRUCTS, VARIABLES
from embedded_cluster.apiserver import language


def selector_problem(expression: str) -> str | None:
    """What the API server has to say about a device selector; None when it is good."""
    try:
        compile_selector(expression)
    except CelCompileError as problem:
        return problem.official()
    return None


_WANTED: Final = {"bool": types.BOOL, "string": types.STRING, "anything": None}


def _compiled(expression: language.Expression) -> Expression:
    """An expression of ours: the API server hands back what `compile` has made, and makes none by itself. Raises
    TypeError.
    """
    if not isinstance(expression, Expression):
        raise TypeError(f"{type(expression).__name__} is of another language")
    return expression


class _Bound:
    """One evaluation of a policy."""

    def __init__(self, bindings: Bindings) -> None:
        self._bindings = bindings

    def value(self, expression: language.Expression) -> object:
        try:
            return _compiled(expression).evaluate(self._bindings)
        except CelRuntimeError as problem:
            raise language.FailedExpression(problem.message) from None


class PolicyLanguage:
    """The language of admission policies."""

    def compile(
        self,
        text: str,
        wanted: language.Wanted,
        *,
        params: bool,
        variables: Mapping[str, language.Expression] | None,
    ) -> Expression:
        roots, structs = dict(ALWAYS), dict(STRUCTS)
        if params:
            roots["params"] = types.DYN
        if variables is not None:
            roots["variables"] = VARIABLES
            structs[VARIABLES.name] = {name: _compiled(each).type for name, each in variables.items()}
        try:
            return Expression(text, roots, structs, _WANTED[wanted])
        except CelCompileError as problem:
            raise language.WrongExpression(problem.official()) from None

    def bind(self, values: Mapping[str, object], variables: Mapping[str, language.Expression]) -> _Bound:
        return _Bound(Bindings(values, {name: _compiled(each) for name, each in variables.items()}))


POLICIES: Final = PolicyLanguage()
