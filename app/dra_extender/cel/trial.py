"""A selector tried on published devices: which match, which do not, and for which it fails.

Promises: every device of every slice gets an answer, in the order of the slices; an error is the answer for its device
and says what to write instead, where that is known. Of the text of a selector only what is written is looked at; every
part is a text of the language when the whole is one. An expression that cannot be read as tokens is one clause, and
nothing can be changed in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any, Final, Literal, NamedTuple

import msgspec

from dra_extender.api.decoding import convert
from dra_extender.api.resource import Device, ResourceSlice
from dra_extender.cel.device import CelGates, DeviceView, PublishedDevice, ReadSet
from dra_extender.cel.errors import CelCompileError, CelRuntimeError, excerpt
from dra_extender.cel.library.strings import quote
from dra_extender.cel.program import Program, Programs
from dra_extender.cel.tokens import END, Token, tokenize
from dra_extender.cel.work import Work, unlimited

_LETTERS: Final = 5
"""Letters that are compared in a unit of work."""
_OPENING: Final = frozenset("([{")
_CLOSING: Final = frozenset(")]}")
_LOOSER: Final = frozenset(("||", "?"))
_WAY: Final = re.compile(r"""device\.(?:attributes|capacity)\[(?:"[^"]*"|'[^']*')\]\.""")
_DIGITS: Final = 20
"""Digits of the longest 64-bit number."""
_WORDS: Final = frozenset(("string", "int", "true", "false"))


class DeviceMatch(msgspec.Struct, frozen=True, omit_defaults=True):
    """`matches` is None when the selector failed for the device; `problem` says why, and for a device that does not
    match which clause is not satisfied, with the value that it compares. `place` is the line of the selector where it
    failed, with a caret below.
    """

    driver: str
    pool: str
    device: str
    matches: bool | None
    problem: str = ""
    place: str = ""


def try_selector(program: Program, slices: Iterable[ResourceSlice], programs: Programs) -> Iterator[DeviceMatch]:
    for published in slices:
        spec = published.spec
        for device in spec.devices:
            view = DeviceView.build(PublishedDevice.of(spec.driver, device), program.gates)
            name = (spec.driver, spec.pool.name, device.name)
            try:
                matches = program.evaluate(view)
                yield DeviceMatch(*name, matches, "" if matches else _unsatisfied(program, view, programs))
            except CelRuntimeError as error:
                word, near = misspelt(program.expression, error.key, view, unlimited())
                meant = f"; did you mean {near}?" if near else ""
                yield DeviceMatch(*name, None, f"{error}{meant}", _place(program, error, word, view, programs))


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


def clauses(expression: str) -> tuple[str, ...]:
    """The operands of the outermost `&&`, in order; the whole expression if `&&` is not its outermost operator."""
    depth, start = 0, 0
    found: list[str] = []
    for token in _tokens(expression):
        if token.kind in _OPENING:
            depth += 1
        elif token.kind in _CLOSING:
            depth -= 1
        elif depth == 0 and token.kind in _LOOSER:
            return (expression.strip(),)
        elif depth == 0 and token.kind == "&&":
            found.append(expression[start : token.offset].strip())
            start = token.offset + 2
    return (*found, expression[start:].strip())


def pointed(expression: str, word: str) -> str:
    """The line of the first name or string that is this word, with a caret below it; empty without such a word."""
    for token in _tokens(expression):
        if word in (token.text, _content(token)):
            return excerpt(expression, token.offset)
    return ""


def strings(expression: str) -> tuple[str, ...]:
    """The contents of string literals without escapes, in order."""
    return tuple(content for token in _tokens(expression) if (content := _content(token)))


def brief(expression: str) -> str:
    """The expression as people say it: without the way from the device to what it reads."""
    return _WAY.sub("", expression)


class Word(NamedTuple):
    """A part of an expression that can be another: a string, a name behind a point, a number or a truth value. `kind`:
    of its token. `text`: without quotes.
    """

    kind: str
    text: str
    start: int
    end: int

    def replaced(self, expression: str, other: str) -> str:
        """The expression with another word there."""
        written = quote(other) if self.kind == "string" else other
        return expression[: self.start] + written + expression[self.end :]


def words(expression: str) -> Iterator[Word]:
    """In order. Strings with escapes, and numbers that no 64-bit number is, are left out."""
    tokens = _tokens(expression)
    for before, token in zip((None, *tokens), tokens, strict=False):
        text = _content(token) if token.kind == "string" else token.text
        named = token.kind == "name" and before is not None and before.kind == "."
        if text and (named or token.kind in _WORDS) and (token.kind != "int" or len(text) <= _DIGITS):
            yield Word(token.kind, text, token.offset, token.offset + len(token.text))


def _tokens(expression: str) -> list[Token]:
    try:
        return [token for token in tokenize(expression) if token.kind != END]
    except CelCompileError:
        return []


def _content(token: Token) -> str:
    """The content of a string literal without escapes; empty for all other tokens."""
    text = token.text
    simple = token.kind == "string" and text[0] in "\"'" and text[:3] not in ('"""', "'''") and "\\" not in text
    return text[1:-1] if simple else ""


class _Case(msgspec.Struct, frozen=True):
    expression: str
    gates: Literal["default", "lists"] = "default"
    device: dict[str, Any] | None = None


class _Driver(msgspec.Struct, frozen=True):
    driver: str = ""


def batch_answer(case: Any, programs: Programs | None = None) -> dict[str, Any]:
    """The answer to one case: `{"name", "result": "true"|"false"|"error"|"reject", "message"?}`. Never raises."""
    name = case.get("name", "") if isinstance(case, dict) else ""
    try:
        asked = msgspec.convert(case, _Case)
        gates = CelGates(list_attributes=asked.gates == "lists")
        program = (programs or Programs(0)).compile(asked.expression, gates)
        device = {"name": "device", **(asked.device or {})}
        driver = msgspec.convert(device, _Driver).driver
        device.pop("driver", None)
        published = PublishedDevice.of(driver, convert(Device, device))
        matches = program.evaluate(DeviceView.build(published, gates))
    except CelCompileError as error:
        return {"name": name, "result": "reject", "message": str(error)}
    except (CelRuntimeError, ValueError, OverflowError) as error:
        return {"name": name, "result": "error", "message": str(error)}
    return {"name": name, "result": "true" if matches else "false"}
