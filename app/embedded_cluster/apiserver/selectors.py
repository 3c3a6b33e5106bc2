"""Label and field selectors of list, watch and deletecollection, parsed into one predicate over stored objects."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from embedded_cluster.apiserver.statuses import JSON, bad_request
from embedded_cluster.apiserver.storage import Stored

Predicate = Callable[[Stored], bool]

_SET: Final = re.compile(r"^\s*([^\s!=<>(),]+)\s+(in|notin)\s*\(([^()]*)\)\s*$")
_EQUALS: Final = re.compile(r"^\s*([^\s!=<>(),]+)\s*(==|=|!=)\s*([^\s!=<>(),]*)\s*$")
_ORDER: Final = re.compile(r"^\s*([^\s!=<>(),]+)\s*([<>])\s*(-?\d+)\s*$")
_EXISTS: Final = re.compile(r"^\s*(!?)\s*([^\s!=<>(),]+)\s*$")
_FIELD: Final = re.compile(r"^([^=!]+)(==|=|!=)(.*)$")


@dataclass(frozen=True, slots=True)
class Selector:
    """Both selectors of a request; `matches` is None when everything matches."""

    matches: Predicate | None

    def accepts(self, stored: Stored) -> bool:
        return self.matches is None or self.matches(stored)

    def choose(self, items: Iterable[Stored]) -> list[Stored]:
        return list(items) if self.matches is None else [item for item in items if self.matches(item)]


def _split(text: str) -> list[str]:
    """Split at the commas that are not inside parentheses."""
    return [part for part in re.split(r",(?![^()]*\))", text) if part.strip()]


def _label(part: str) -> Callable[[Mapping[str, str]], bool]:
    if match := _SET.match(part):
        key, operator, listed = match.groups()
        values = {value.strip() for value in listed.split(",")}
        if operator == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if match := _EQUALS.match(part):
        key, operator, value = match.groups()
        if operator == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if match := _ORDER.match(part):
        key, operator, bound = match.groups()
        limit, more = int(bound), operator == ">"

        def ordered(labels: Mapping[str, str]) -> bool:
            try:
                number = int(labels[key])
            except (KeyError, ValueError):
                return False
            return number > limit if more else number < limit

        return ordered
    if match := _EXISTS.match(part):
        negated, key = match.groups()
        return (lambda labels: key not in labels) if negated else (lambda labels: key in labels)
    raise bad_request(f"unable to parse requirement: {part!r} is not a label requirement")


def _field(part: str, known: frozenset[str]) -> Callable[[Mapping[str, str]], bool]:
    match = _FIELD.match(part.strip())
    if match is None:
        raise bad_request(f"invalid selector: '{part}'; can't understand '{part}'")
    key, operator, value = match.group(1).strip(), match.group(2), _unescape(match.group(3))
    if key not in known:
        listed = ", ".join(f'"{name}"' for name in sorted(known))
        raise bad_request(f'"{key}" is not a known field selector: only {listed}')
    if operator == "!=":
        return lambda fields: fields.get(key, "") != value
    return lambda fields: fields.get(key, "") == value


def _unescape(value: str) -> str:
    return re.sub(r"\\([\\,=])", r"\1", value)


def parse(labels: str, fields: str, known: frozenset[str]) -> Selector:
    """Parse `labelSelector` and `fieldSelector`; `known` are the supported field names. Raises 400 for bad syntax."""
    label_tests = [_label(part) for part in _split(labels)]
    field_parts = [part for part in re.split(r"(?<!\\),", fields) if part]
    field_tests = [_field(part, known) for part in field_parts]
    if not label_tests and not field_tests:
        return Selector(None)

    def matches(stored: Stored) -> bool:
        return all(test(stored.labels) for test in label_tests) and all(test(stored.fields) for test in field_tests)

    return Selector(matches)


def selects(selector: JSON | None, labels: Mapping[str, str]) -> bool:
    """True when a label selector that was validated accepts the labels."""
    selector = selector or {}
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_met(requirement, labels) for requirement in selector.get("matchExpressions") or ())


def _met(requirement: JSON, labels: Mapping[str, str]) -> bool:
    operator, present = requirement["operator"], requirement["key"] in labels
    if operator in ("Exists", "DoesNotExist"):
        return present is (operator == "Exists")
    among = present and labels[requirement["key"]] in requirement["values"]
    return among is (operator == "In")
