"""A selector tried on published devices: which match, which do not, and for which it fails.

Promises: every device of every slice gets an answer, in the order of the slices; an error is the answer for its device
and says what to write instead, where that is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any, Final

import msgspec

from dra_extender.api.resource import DeviceID, ResourceSlice
from dra_extender.cel.clauses import brief, clauses, pointed, strings
from dra_extender.cel.device import DeviceView, PublishedDevice, ReadSet
from dra_extender.cel.errors import CelCompileError, CelRuntimeError, excerpt
from dra_extender.cel.program import Program, Programs
from dra_extender.cel.work import Work, unlimited

_LETTERS: Final = 5
"""Letters that are compared in a unit of work."""


class DeviceMatch(msgspec.Struct, frozen=True):
    """`matches` is None when the selector failed for the device; `problem` says why, and for a device that does not
    match which clause is not satisfied, with the value that it compares. `place` is the line of the selector where it
    failed, with a caret below.
    """

    device: DeviceID
    matches: bool | None
    problem: str = ""
    place: str = ""


def try_selector(program: Program, slices: Iterable[ResourceSlice], programs: Programs) -> Iterator[DeviceMatch]:
    """The answer of `program` for each device."""
    for published in slices:
        spec = published.spec
        for device in spec.devices:
            view = DeviceView.build(PublishedDevice.of(spec.driver, device), program.gates)
            name = (spec.driver, spec.pool.name, device.name)
            try:
                matches = program.evaluate(view)
                yield DeviceMatch(name, matches, "" if matches else _unsatisfied(program, view, programs))
            except CelRuntimeError as error:
                word, near = misspelt(program.expression, error.key, view, unlimited())
                meant = f"; did you mean {near}?" if near else ""
                yield DeviceMatch(name, None, f"{error}{meant}", _place(program, error, word, view, programs))


def misspelt(expression: str, key: str, view: DeviceView, work: Work) -> tuple[str, str]:
    """(the word that is wrong, the name of the device that is nearly the same, or empty), for a device without
    `key`. If another domain of the device has the name, the domain is wrong. Raises WorkExceeded.
    """
    names = list(_names(view))
    if key in names:
        work.charge(1 + len(expression) // _LETTERS)
    words = [key] if key not in names else [word for word in strings(expression) if word not in names]
    for word in filter(None, words):
        work.charge(1 + sum(len(word) * len(name) for name in names) // _LETTERS)
        near = get_close_matches(word, names, 1)
        if near:
            return word, near[0]
    return key, ""


def _unsatisfied(program: Program, view: DeviceView, programs: Programs) -> str:
    """The first clause that the device does not satisfy."""
    for clause in clauses(program.expression):
        try:
            part = programs.compile(clause, program.gates)
            if not part.evaluate(view):
                found = value_of(part.reads, view)
                return f"{brief(clause)} is false" + (f": {found[0]} is {found[1] or 'not there'}" if found else "")
        except (CelCompileError, CelRuntimeError):
            continue
    return "is false"


def _place(program: Program, error: CelRuntimeError, word: str, view: DeviceView, programs: Programs) -> str:
    """Where the name stands that the device does not have, else the first clause that fails by itself."""
    expression = program.expression
    if error.key:
        return pointed(expression, word)
    for clause in clauses(expression):
        try:
            programs.compile(clause, program.gates).evaluate(view)
        except CelCompileError:
            continue
        except CelRuntimeError:
            return excerpt(expression, expression.index(clause))
    return ""


def value_of(reads: ReadSet, view: DeviceView) -> tuple[str, str] | None:
    """(name, value) of the one thing that an expression reads; None when it reads several."""
    if reads.everything or len(reads.entries) + len(reads.fields) != 1:
        return None
    if reads.fields:
        name = reads.fields[0]
        return name, shown_value(view.field(name))
    section, domain, identifier = reads.entries[0]
    return f"{domain}/{identifier}", shown_value(view.entries(section).get(f"{domain}/{identifier}"))


def shown_value(value: Any) -> str:
    """A value as a selector would write it; empty for none."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ", ".join(map(shown_value, value))
    return str(getattr(value, "text", value))


def _names(view: DeviceView) -> list[str]:
    """The names of what the device has, and their domains."""
    found: dict[str, None] = {}
    for name in (*view.attributes, *view.capacity):
        domain, _, identifier = name.partition("/")
        found[identifier] = found[domain] = None
    return list(found)
