"""What can go wrong with a selector: it does not compile, or it fails for one device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

FaultKind = Literal["other", "missing key", "no value", "out of bounds", "overflow", "too costly", "too large"]
"""What code may ask of an error; its words are upstream's, and for people."""


LONGEST: Final = 256
"""Characters of a message that are shown, if it has more."""

_QUOTED: Final = 128


def shown(text: str, limit: int = _QUOTED) -> str:
    """A text of an expression or object as errors quote it: a long one is cut, and its length follows."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters)"


class CelCompileError(ValueError):
    """The expression is not a valid device selector.

    `message` says what is wrong, `line` and `column` (from 1 and 0, in code points) where, `hint` what to do about it;
    `upstream` is the message in the words of cel-go, `upstream_offset` the place it points at.
    """

    def __init__(
        self,
        message: str,
        expression: str = "",
        offset: int | None = None,
        hint: str = "",
        upstream: str = "",
        upstream_offset: int | None = None,
    ) -> None:
        self.message = message = shown(message, LONGEST)
        self.hint = hint
        self.upstream = upstream or message
        self.upstream_offset = offset if upstream_offset is None else upstream_offset
        self.offset = offset
        self.line, self.column, excerpt = _locate(expression, offset)
        self.excerpt = excerpt
        place = f" at line {self.line}, column {self.column + 1}" if offset is not None else ""
        self._text = f"{message}{place}" + (f"\n{excerpt}" if excerpt else "") + (f"\nhint: {hint}" if hint else "")
        super().__init__(message, expression, offset, hint, upstream, upstream_offset)

    def __str__(self) -> str:
        return self._text


class CelResultError(CelCompileError):
    """The expression is well formed, and of a type that is not wanted."""


class CelRuntimeError(Exception):
    """The selector failed for one device. `message` is in upstream's words, `hint` says what to do about it; `key` is
    the name that the device does not have, where it is about one.
    """

    def __init__(self, message: str, hint: str = "", key: str = "") -> None:
        self.message = message = shown(message, LONGEST)
        self.hint = hint
        self.key = key
        super().__init__(message, hint, key)

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class EvaluationError(Exception):
    """What ends the evaluation of a part of an expression."""

    def __init__(self, message: str, kind: FaultKind = "other", key: str = "") -> None:
        self.kind = kind
        self.key = key
        super().__init__(shown(message, LONGEST))


class Fault(EvaluationError):
    """An error while evaluating: `&&`, `||` and their like may absorb it."""


class Abort(EvaluationError):
    """The end of an evaluation that nothing absorbs: too costly, or what makes upstream's evaluator panic."""


def parses(parse: Callable[..., object], *arguments: object) -> bool:
    """False when it raises ValueError."""
    try:
        parse(*arguments)
    except ValueError:
        return False
    return True


def too_costly() -> Abort:
    """The evaluation has used up what it may cost."""
    return Abort("operation cancelled: actual cost limit exceeded", "too costly")


_WIDTH = 100


def _locate(expression: str, offset: int | None) -> tuple[int, int, str]:
    """Line, column and the line of text with a pointer below it. Long lines are cut around the place."""
    if offset is None:
        return 0, 0, ""
    start = expression.rfind("\n", 0, offset) + 1
    end = expression.find("\n", offset)
    line_text = expression[start : end if end >= 0 else len(expression)]
    line, column = expression.count("\n", 0, offset) + 1, offset - start
    first = max(0, min(column - _WIDTH // 2, len(line_text) - _WIDTH))
    shown = line_text[first : first + _WIDTH].replace("\t", " ")
    return line, column, f" | {shown}\n | {'.' * (column - first)}^"


def excerpt(expression: str, offset: int) -> str:
    """The line of the expression with a pointer below the place, as compile errors show it."""
    return _locate(expression, offset)[2]
