"""A policy with its expressions compiled, and what is wrong with them.

Rules: Kubernetes 1.36, pkg/apis/admissionregistration/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from embedded_cluster.apiserver import names
from embedded_cluster.apiserver.language import Expression, Language, Wanted, WrongExpression
from embedded_cluster.apiserver.statuses import (
    JSON,
    Problem,
    duplicate,
    forbidden,
    invalid_value,
    required,
    unsupported,
)

_REASONS = ("Forbidden", "Invalid", "RequestEntityTooLarge")
_NO_AUTHORIZER = "the embedded API server does not evaluate authorizer: decide by request.userInfo instead"


@dataclass(frozen=True)
class Validation:
    """One validation: what must hold, and what is said where it does not."""

    text: str
    holds: Expression
    message: str
    message_expression: Expression | None
    reason: str


@dataclass
class Compiled:
    """`conditions` are by their text, in order."""

    variables: dict[str, Expression] = field(default_factory=dict)
    conditions: list[tuple[str, Expression]] = field(default_factory=list)
    validations: list[Validation] = field(default_factory=list)


class Compiler:
    """Compiles one policy; `problems` are what was found meanwhile."""

    def __init__(self, spec: JSON, language: Language) -> None:
        self._spec = spec
        self._language = language
        self._params = spec.get("paramKind") is not None
        self.problems: list[Problem] = []

    def policy(self) -> Compiled:
        """What of the policy could be compiled."""
        found = Compiled()
        self._variables(found.variables)
        for index, condition in enumerate(self._spec.get("matchConditions") or ()):
            self._condition(condition, f"spec.matchConditions[{index}]", found)
        self._unique("matchConditions")
        for index, validation in enumerate(self._spec.get("validations") or ()):
            self._validation(validation, f"spec.validations[{index}]", found)
        return found

    def _compile(
        self, text: str, at: str, wanted: Wanted, variables: Mapping[str, Expression] | None, missing: str = ""
    ) -> Expression | None:
        if not text.strip():
            self.problems.append(required(at, missing))
            return None
        try:
            expression = self._language.compile(text, wanted, params=self._params, variables=variables)
        except WrongExpression as wrong:
            self.problems.append(invalid_value(at, text, str(wrong)))
            return None
        if "authorizer" in expression.names:
            self.problems.append(forbidden(at, _NO_AUTHORIZER))
        return expression

    def _variables(self, found: dict[str, Expression]) -> None:
        for index, variable in enumerate(self._spec.get("variables") or ()):
            at, name = f"spec.variables[{index}]", variable.get("name", "")
            if not name:
                self.problems.append(required(f"{at}.name", "name is not specified"))
            elif names.c_identifier(name):
                self.problems.append(invalid_value(f"{at}.name", name, "must be a valid CEL identifier"))
            text, missing = variable.get("expression", ""), "expression is not specified"
            expression = self._compile(text, f"{at}.expression", "anything", found, missing)
            if expression is not None and name:
                found[name] = expression

    def _condition(self, condition: JSON, at: str, found: Compiled) -> None:
        text = condition.get("expression", "")
        expression = self._compile(text, f"{at}.expression", "bool", None)
        if not condition.get("name"):
            self.problems.append(required(f"{at}.name"))
        elif wrong := names.qualified_name(condition["name"]):
            self.problems.append(invalid_value(f"{at}.name", condition["name"], wrong))
        if expression is not None:
            found.conditions.append((text, expression))

    def _unique(self, part: str) -> None:
        seen: set[str] = set()
        for index, item in enumerate(self._spec.get(part) or ()):
            name = item.get("name", "")
            if name and name in seen:
                self.problems.append(duplicate(f"spec.{part}[{index}].name", name))
            seen.add(name)

    def _validation(self, validation: JSON, at: str, found: Compiled) -> None:
        variables = found.variables if self._spec.get("variables") else None
        text, said = validation.get("expression", ""), validation.get("messageExpression", "")
        holds = self._compile(text, f"{at}.expression", "bool", variables, "expression is not specified")
        message = None
        if said:
            message = self._compile(said, f"{at}.messageExpression", "string", variables)
        self.problems += _word_problems(validation, at)
        if holds is not None:
            reason, constant = validation.get("reason", ""), validation.get("message", "").strip()
            found.validations.append(Validation(text.strip(), holds, constant, message, reason))


def _word_problems(validation: JSON, at: str) -> list[Problem]:
    """Of the constant message and the reason."""
    message, reason, found = validation.get("message", ""), validation.get("reason", ""), []
    if message and not message.strip():
        found.append(invalid_value(f"{at}.message", message, "must be non-empty if specified"))
    elif "\n" in message.strip() or "\r" in message.strip():
        found.append(invalid_value(f"{at}.message", message, "must not contain line breaks"))
    return found + ([unsupported(f"{at}.reason", reason, _REASONS)] if reason and reason not in _REASONS else [])


def compile_policy(spec: JSON, language: Language) -> tuple[Compiled, list[Problem]]:
    """The policy, and what is wrong with its expressions."""
    compiler = Compiler(spec, language)
    return compiler.policy(), compiler.problems
