"""The clauses of a selector, the places of words in it, and variants of it with one word changed.

Promises: only what is written is looked at; every part is a text of the language when the whole is one. An expression
that cannot be read as tokens is one clause, and nothing can be changed in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from dra_extender.cel.errors import CelCompileError, excerpt
from dra_extender.cel.tokens import END, Token, tokenize

_OPENING: Final = frozenset("([{")
_CLOSING: Final = frozenset(")]}")
_LOOSER: Final = frozenset(("||", "?"))
_WAY: Final = re.compile(r"""device\.(?:attributes|capacity)\[(?:"[^"]*"|'[^']*')\]\.""")
_DIGITS: Final = 20
"""Digits of the longest 64-bit number."""
_FLIPPED: Final = {"true": "false", "false": "true"}


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
    """The line of the first name or string that is this word, with a caret below it; empty if there is none."""
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


class Respelled(NamedTuple):
    """`expression` has `new` where there was `old`."""

    old: str
    new: str
    expression: str


def respelled(
    expression: str, others: Callable[[str], Iterable[str]], numbers: Callable[[int], Iterable[int]]
) -> Iterator[Respelled]:
    """The expression with one word changed: a string or a name behind a point becomes one of `others(word)`, a number
    one of `numbers(number)`, a truth value the other.
    """
    tokens = _tokens(expression)
    for before, token in zip((None, *tokens), tokens, strict=False):
        content = _content(token)
        news: list[tuple[str, str]] = []
        if content:
            news = [(word, _quoted(word)) for word in others(content)]
        elif token.kind == "name" and before is not None and before.kind == ".":
            news = [(word, word) for word in others(token.text) if word.isidentifier()]
        elif token.kind == "int" and len(token.text) <= _DIGITS:
            news = [(str(number), str(number)) for number in numbers(int(token.text, 0)) if str(number) != token.text]
        elif token.kind in _FLIPPED:
            news = [(_FLIPPED[token.kind], _FLIPPED[token.kind])]
        for word, written in news:
            end = token.offset + len(token.text)
            yield Respelled(content or token.text, word, expression[: token.offset] + written + expression[end:])


def _tokens(expression: str) -> list[Token]:
    try:
        return [token for token in tokenize(expression) if token.kind != END]
    except CelCompileError:
        return []


def _quoted(word: str) -> str:
    """As a string of the language."""
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _content(token: Token) -> str:
    """The content of a string literal without escapes; empty for all other tokens."""
    text = token.text
    simple = token.kind == "string" and text[0] in "\"'" and text[:3] not in ('"""', "'''") and "\\" not in text
    return text[1:-1] if simple else ""
