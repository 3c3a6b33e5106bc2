"""From text to tokens: the lexical grammar of cel-go v0.26 (parser/gen/CEL.g4), in one regular expression."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from dra_extender.cel.errors import CelCompileError

_ESCAPE: Final = r"\\(?:[abfnrtv\"'\\?`]|[0-3][0-7][0-7]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"

_TOKEN: Final = re.compile(
    rf"""
      (?P<space>   [\t\ \r\n\f]+ | //[^\n]* )
    | (?P<string>
          [bB]? [rR] (?: \"\"\" .*? \"\"\" | ''' .*? ''' | "[^"\n\r]*" | '[^'\n\r]*' )
        | [bB]? (?: \"\"\" (?:{_ESCAPE}|[^\\])*? \"\"\" | ''' (?:{_ESCAPE}|[^\\])*? '''
                  | " (?:{_ESCAPE}|[^\\"\n\r])* " | ' (?:{_ESCAPE}|[^\\'\n\r])* ' ) )
    | (?P<float>   [0-9]+ \.[0-9]+ (?:[eE][+-]?[0-9]+)? | [0-9]+ [eE][+-]?[0-9]+ | \.[0-9]+ (?:[eE][+-]?[0-9]+)? )
    | (?P<uint>    (?: 0x[0-9a-fA-F]+ | [0-9]+ ) [uU] )
    | (?P<int>     0x[0-9a-fA-F]+ | [0-9]+ )
    | (?P<word>    [A-Za-z_][A-Za-z0-9_]* )
    | (?P<symbol>  == | != | <= | >= | && | \|\| | [<>\[\]{{}}().,\-!?:+*/%] )
    """,
    re.VERBOSE | re.DOTALL,
)

KEYWORDS: Final = frozenset(("in", "true", "false", "null"))
END: Final = "end"


class Token(NamedTuple):
    """`kind` is string, float, uint, int, name, end, or the symbol or keyword itself."""

    kind: str
    text: str
    offset: int


def tokenize(expression: str) -> list[Token]:
    """The tokens of an expression, an `end` token last. Raises CelCompileError at the first text that is none."""
    tokens: list[Token] = []
    place, length, match = 0, len(expression), _TOKEN.match
    while place < length:
        found = match(expression, place)
        if found is None:
            raise _unreadable(expression, place)
        kind, text = found.lastgroup, found.group()
        if kind == "word":
            tokens.append(Token(text if text in KEYWORDS else "name", text, place))
        elif kind == "symbol":
            tokens.append(Token(text, text, place))
        elif kind is not None and kind != "space":
            tokens.append(Token(kind, text, place))
        place = found.end()
    tokens.append(Token(END, "", length))
    return tokens


def _unreadable(expression: str, place: int) -> CelCompileError:
    character = expression[place]
    hint = ""
    if character in "\"'":
        hint = 'close the string; write \\\\ for a backslash, or use a raw string r"…"'
    elif character == "&" or character == "|":
        hint = f"write {character * 2}"
    elif character == "=":
        hint = "compare with =="
    elif character == "`":
        hint = 'write ["name"] for names with special characters'
    unread = expression[place:].partition("\n")[0] if character in "\"'" else character
    upstream = f"Syntax error: token recognition error at: '{unread}'"
    return CelCompileError(f"syntax error: unexpected {character!r}", expression, place, hint, upstream)
