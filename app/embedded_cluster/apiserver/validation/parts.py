"""Checks shared by claims, classes and slices: names, selectors, configurations, tolerations.

Each function returns the problems of one part found at the field path `at`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

import orjson

from dra_extender.cel import CelCompileError, CelGates, Program
from dra_extender.cel.errors import CelResultError
from embedded_cluster.apiserver import names
from embedded_cluster.apiserver.statuses import (
    JSON,
    FieldError,
    duplicate,
    invalid_value,
    required,
    too_long,
    too_many,
    unsupported,
)

T = TypeVar("T")

MOST_SELECTORS: Final = 32
MOST_CONFIGS: Final = 32
LONGEST_CEL: Final = 10 * 1024
LONGEST_PARAMETERS: Final = 10 * 1024
LONGEST_DRIVER: Final = 63
LONGEST_IDENTIFIER: Final = 32
EFFECTS: Final = ("NoExecute", "NoSchedule", "None")


def name_problems(value: str | None, at: str, check: names.Check) -> list[FieldError]:
    """A name; an empty one is invalid."""
    wrong = check(value or "")
    return [invalid_value(at, value or "", wrong)] if wrong else []


def required_name_problems(value: str | None, at: str, check: names.Check) -> list[FieldError]:
    """A name; an empty one is missing."""
    return name_problems(value, at, check) if value else [required(at)]


def driver_problems(value: str | None, at: str) -> list[FieldError]:
    """A driver name: a DNS subdomain of at most 63 characters, upper case tolerated."""
    if not value:
        return [required(at)]
    problems = [too_long(at, LONGEST_DRIVER)] if len(value) > LONGEST_DRIVER else []
    wrong = names.dns_subdomain(value.lower())
    return [*problems, invalid_value(at, value, wrong)] if wrong else problems


def pool_problems(value: str | None, at: str) -> list[FieldError]:
    """DNS subdomains joined by slashes, at most 253 characters."""
    if not value:
        return [required(at)]
    problems = [too_long(at, 253)] if len(value) > 253 else []
    problems += [invalid_value(at, part, wrong) for part in value.split("/") if (wrong := names.dns_subdomain(part))]
    return problems


def qualified_problems(value: str, at: str, *, domain_required: bool = False) -> list[FieldError]:
    """`identifier` or `domain/identifier`."""
    if not value:
        return [required(at, "name required")]
    domain, slash, identifier = value.partition("/")
    if not slash:
        if domain_required:
            return [invalid_value(at, value, "a fully qualified name must be a domain and a name separated by a slash")]
        domain, identifier = "", value
    problems: list[FieldError] = []
    if slash and not domain:
        problems.append(invalid_value(at, "", "the domain must not be empty"))
    elif domain:
        problems += driver_problems(domain, at)
    if not identifier:
        problems.append(invalid_value(at, "", "the name must not be empty"))
    elif "/" not in identifier:
        if len(identifier) > LONGEST_IDENTIFIER:
            problems.append(too_long(at, LONGEST_IDENTIFIER))
        if wrong := names.c_identifier(identifier):
            problems.append(invalid_value(at, identifier, wrong))
    return problems


def set_problems(
    items: Sequence[T],
    at: str,
    most: int,
    identity: Callable[[T], Any],
    check: Callable[[T, str], list[FieldError]] | None = None,
    shown: str = "",
) -> list[FieldError]:
    """A list that is a set: at most `most` items, each passing `check` (item, path), no two with the same identity.

    `shown` is the sub-field a duplicate is reported at.
    """
    problems = [too_many(at, len(items), most)] if len(items) > most else []
    if check is not None and not problems:
        for index, item in enumerate(items):
            problems += check(item, f"{at}[{index}]")
    seen: set[Any] = set()
    for index, item in enumerate(items):
        key = identity(item)
        if key in seen:
            problems.append(duplicate(f"{at}[{index}]{shown}", key))
        seen.add(key)
    return problems


def selector_problems(selectors: Sequence[JSON], at: str) -> list[FieldError]:
    """CEL selectors: their number, their length, and their expressions."""
    if len(selectors) > MOST_SELECTORS:
        return [too_many(at, len(selectors), MOST_SELECTORS)]
    problems: list[FieldError] = []
    for index, selector in enumerate(selectors):
        where = f"{at}[{index}].cel"
        cel = selector.get("cel")
        if cel is None:
            problems.append(required(where))
            continue
        expression = cel.get("expression", "")
        if len(expression) > LONGEST_CEL:
            problems.append(too_long(f"{where}.expression", LONGEST_CEL))
        elif wrong := selector_problem(expression):
            problems.append(invalid_value(f"{where}.expression", expression, wrong))
    return problems


def selector_problem(expression: str) -> str | None:
    """What a real API server says about the expression (cel-go common/error.go); None when it is valid. It goes on to
    further mistakes.
    """
    try:
        Program(expression, CelGates(is_1_37=True))
    except CelResultError as problem:
        return problem.upstream
    except CelCompileError as problem:
        if problem.upstream_offset is None:
            return f"compilation failed: {problem.upstream}"
        if not expression:
            return f"compilation failed: ERROR: <input>:1:0: {problem.upstream}"
        head = expression[: problem.upstream_offset].split("\n")
        number, column = len(head), len(head[-1])
        line = expression.split("\n")[number - 1].replace("\t", " ")
        before = "".join("." if character.isascii() else "\uff0e" for character in line[:column])
        mark = "^" if line[column : column + 1].isascii() else "\uff3e"
        place = f"<input>:{number}:{column + 1}: {problem.upstream}\n | {line}\n | {before}{mark}"
        return f"compilation failed: ERROR: {place}"
    return None


def opaque_problems(config: JSON, at: str) -> list[FieldError]:
    """The opaque part of a configuration."""
    opaque = config.get("opaque")
    if opaque is None:
        return [required(f"{at}.opaque")]
    problems = driver_problems(opaque.get("driver"), f"{at}.opaque.driver")
    return problems + raw_problems(opaque.get("parameters"), f"{at}.opaque.parameters", LONGEST_PARAMETERS)


def raw_problems(value: Any, at: str, longest: int) -> list[FieldError]:
    """A raw JSON object of at most `longest` bytes."""
    if value is None:
        return [required(at)]
    if not isinstance(value, dict):
        return [invalid_value(at, "<value omitted>", "must be a valid JSON object")]
    return [too_long(at, longest)] if len(orjson.dumps(value)) > longest else []


def toleration_problems(tolerations: Iterable[JSON], at: str) -> list[FieldError]:
    """Values of all tolerations first: the API server checks the other parts later."""
    values: list[FieldError] = []
    problems: list[FieldError] = []
    for index, toleration in enumerate(tolerations):
        where = f"{at}[{index}]"
        key, operator = toleration.get("key"), toleration.get("operator", "Equal")
        if key:
            problems += name_problems(key, f"{where}.key", names.qualified_name)
        if operator == "Exists":
            if toleration.get("value"):
                values.append(
                    invalid_value(f"{where}.value", toleration["value"], "must be empty for operator `Exists`")
                )
        elif operator == "Equal":
            if wrong := names.label_value(toleration.get("value", "")):
                values.append(invalid_value(f"{where}.value", toleration["value"], wrong))
        else:
            problems.append(unsupported(f"{where}.operator", operator, ("Equal", "Exists")))
        effect = toleration.get("effect", "")
        if effect not in ("", *EFFECTS):
            problems.append(unsupported(f"{where}.effect", effect, EFFECTS))
    return values + problems


def taint_problems(taint: JSON, at: str) -> list[FieldError]:
    """A device taint."""
    problems = name_problems(taint.get("key"), f"{at}.key", names.qualified_name)
    if wrong := names.label_value(taint.get("value", "")):
        problems.append(invalid_value(f"{at}.value", taint["value"], wrong))
    effect = taint.get("effect", "")
    if not effect:
        problems.append(required(f"{at}.effect"))
    elif effect not in EFFECTS:
        problems.append(unsupported(f"{at}.effect", effect, EFFECTS))
    return problems


def negative_problems(part: JSON, at: str, fields: Iterable[str]) -> list[FieldError]:
    """Numbers that must not be below zero."""
    return [
        invalid_value(f"{at}.{name}", part[name], "must be greater than or equal to 0")
        for name in fields
        if part.get(name, 0) < 0
    ]


def condition_problems(conditions: Sequence[JSON], at: str, most: int) -> list[FieldError]:
    """metav1.Conditions: at most `most`, unique types, status True, False or Unknown, a reason and a time."""
    if len(conditions) > most:
        return [too_many(at, len(conditions), most)]
    problems: list[FieldError] = []
    seen: set[str] = set()
    for index, condition in enumerate(conditions):
        where, kind = f"{at}[{index}]", condition.get("type", "")
        if wrong := names.qualified_name(kind):
            problems.append(invalid_value(f"{where}.type", kind, wrong))
        if kind in seen:
            problems.append(duplicate(where, kind))
        seen.add(kind)
        if condition.get("status") not in ("True", "False", "Unknown"):
            problems.append(unsupported(f"{where}.status", condition.get("status", ""), ("False", "True", "Unknown")))
        if not condition.get("lastTransitionTime"):
            problems.append(required(f"{where}.lastTransitionTime", "must be set"))
        if not condition.get("reason"):
            problems.append(required(f"{where}.reason", "must be set"))
    return problems
