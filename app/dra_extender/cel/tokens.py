"""From text to tokens, and what literal tokens stand for: the lexical grammar of cel-go v0.26 and, with `quoted` names,
v0.29 (parser/gen/CEL.g4).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from dra_extender.cel.errors import CelCompileError
from dra_extender.cel.values import UInt

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
    | (?P<quoted>  `[A-Za-z0-9_./\- ]+` )
    | (?P<symbol>  == | != | <= | >= | && | \|\| | [<>\[\]{{}}().,\-!?:+*/%] )
    """,
    re.VERBOSE | re.DOTALL,
)

KEYWORDS: Final = frozenset(("in", "true", "false", "null"))
END: Final = "end"


class Token(NamedTuple):
    """`kind` is string, float, uint, int, name, quoted, end, or the symbol or keyword itself."""

    kind: str
    text: str
    offset: int


def tokenize(expression: str, quoted: bool = True) -> list[Token]:
    """The tokens of an expression, an `end` token last; `quoted`: names may be in backticks. Raises CelCompileError at
    the first invalid text.
    """
    tokens: list[Token] = []
    place, length, match = 0, len(expression), _TOKEN.match
    while place < length:
        found = match(expression, place)
        if found is None or (found.lastgroup == "quoted" and not quoted):
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


_SIMPLE: Final = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "'": "'", '"': '"', "`": "`", "?": "?",
}  # fmt: skip
_ESCAPED: Final = re.compile(r"\\(?:(?P<hex>[xX]..|u.{4}|U.{8})|(?P<octal>[0-3]..)|(?P<simple>.))", re.DOTALL)
_BYTE_ESCAPED: Final = re.compile(rb"\\(?:[xX](?P<hex>..)|(?P<octal>[0-3]..)|(?P<simple>.))", re.DOTALL)


def integer(text: str, negative: bool) -> int:
    """Raises ValueError outside int64."""
    value = _number(text)
    value = -value if negative else value
    if not -(2**63) <= value < 2**63:
        raise ValueError("invalid int literal: it does not fit into 64 bits")
    return value


def unsigned(text: str) -> UInt:
    """Raises ValueError outside uint64."""
    value = _number(text[:-1])
    if value >= 2**64:
        raise ValueError("invalid uint literal: it does not fit into 64 bits")
    return UInt(value)


def double(text: str, negative: bool) -> float:
    """Raises ValueError when the number is too large for a double."""
    value = float(text)
    if value == float("inf"):
        raise ValueError("invalid double literal: it is too large")
    return -value if negative else value


def string(text: str) -> str:
    """The text in a string literal. Raises ValueError for an escape that does not name a Unicode character."""
    raw, body = _body(text)
    if raw or "\\" not in body:
        return body
    return _ESCAPED.sub(_character, body)


def byte_string(text: str) -> bytes:
    """The bytes in a bytes literal (with its b). Raises ValueError for \\u escapes."""
    raw, body = _body(text[1:])
    data = body.encode()
    if raw or b"\\" not in data:
        return data
    return _BYTE_ESCAPED.sub(_byte, data)


def _number(text: str) -> int:
    if text.startswith("0x"):
        return int(text[2:], 16)
    digits = text.lstrip("0") or "0"
    return int(digits) if len(digits) <= 20 else 2**64  # as good as any other number that does not fit


def _body(text: str) -> tuple[bool, str]:
    """True for a raw literal, and the text between its quotes with newlines normalized."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    raw = text[0] in "rR"
    if raw:
        text = text[1:]
    quote = 3 if len(text) >= 6 and text[:3] in ('"""', "'''") else 1
    return raw, text[quote:-quote]


def _character(found: re.Match[str]) -> str:
    if found["simple"] is not None:
        return _SIMPLE[found["simple"]]
    point = int(found["hex"][1:], 16) if found["hex"] is not None else int(found["octal"], 8)
    if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
        raise ValueError("invalid unicode code point")
    return chr(point)


def _byte(found: re.Match[bytes]) -> bytes:
    if found["hex"] is not None:
        return bytes((int(found["hex"], 16),))
    if found["octal"] is not None:
        return bytes((int(found["octal"], 8),))
    simple = found["simple"].decode()
    if simple in "uU":
        raise ValueError("a bytes literal cannot contain \\u escapes")
    return _SIMPLE[simple].encode()
