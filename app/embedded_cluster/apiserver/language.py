"""What policies need of the expression language, which the embedded cluster does not know by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

Wanted = Literal["bool", "string", "anything"]


class WrongExpression(Exception):
    """An expression that does not compile; its text is what the API server says of it."""


class FailedExpression(Exception):
    """An expression that has no value for this request; its text is what the API server says of it."""


class Expression(Protocol):
    """A compiled expression; `names` are the variables it reads, of those that the API server declares."""

    @property
    def names(self) -> frozenset[str]: ...


class Bindings(Protocol):
    """One evaluation of a policy: what its expressions are about."""

    def value(self, expression: Expression) -> object:
        """Raises FailedExpression."""


class Language(Protocol):
    """Compiles and evaluates."""

    def compile(
        self, text: str, wanted: Wanted, *, params: bool, variables: Mapping[str, Expression] | None
    ) -> Expression:
        """An expression about a request, with `params` or not, and these variables of the policy, if any.

        Raises WrongExpression.
        """

    def bind(self, values: Mapping[str, object], variables: Mapping[str, Expression]) -> Bindings:
        """The values are JSON."""
