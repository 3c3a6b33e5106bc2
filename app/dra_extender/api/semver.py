"""A semantic version such as `1.3.0-rc.1+b7`: strict, immutable, ordered by precedence.

Promises the rules of blang/semver v4, which Kubernetes 1.36 uses for device attributes and selectors: SemVer 2.0 with
three numbers (and numeric pre-release identifiers) below 2**64. Build metadata counts neither for order nor for
equality.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

_TEXT: Final = re.compile(
    r"(?P<major>0|[1-9][0-9]*)\.(?P<minor>0|[1-9][0-9]*)\.(?P<patch>0|[1-9][0-9]*)"
    r"(?:-(?P<pre>[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
    r"(?:\+(?P<build>[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
)
_MAX_DIGITS: Final = 20
_LIMIT: Final = 2**64

_PreRelease = tuple[tuple[int, int, str], ...]
_Key = tuple[int, int, int, int, _PreRelease]


class VersionText(str):
    """The text of a version attribute, not parsed yet: marks it off from a string attribute."""

    __slots__ = ()


@dataclass(frozen=True, order=True, slots=True)
class Semver:
    """A parsed version. `key` orders versions by precedence; it begins with major, minor and patch."""

    key: _Key = field(repr=False)
    text: str = field(compare=False)

    @classmethod
    def parse(cls, text: str, normalize: bool = False) -> Semver:
        """The version in `text`. Raises ValueError naming the text and the problem.

        `normalize` first removes a leading `v` and leading zeros and completes a version of one or two numbers.
        """
        found = _TEXT.fullmatch(_normalized(text) if normalize else text)
        if found is None:
            raise _invalid(text, "is not of the form major.minor.patch[-pre.release][+build]")
        major, minor, patch = (_number(text, found[name]) for name in ("major", "minor", "patch"))
        pre = found["pre"]
        if pre is None:
            return cls((major, minor, patch, 1, ()), found[0])
        return cls((major, minor, patch, 0, tuple(_identifier(text, part) for part in pre.split("."))), found[0])

    def __str__(self) -> str:
        return self.text


def _invalid(text: str, problem: str) -> ValueError:
    shown = text if len(text) <= 64 else text[:61] + "..."
    return ValueError(f"version {shown!r} {problem}")


def _number(text: str, digits: str) -> int:
    if len(digits) > _MAX_DIGITS or int(digits) >= _LIMIT:
        raise _invalid(text, "has a number above 2^64 - 1")
    return int(digits)


def _identifier(text: str, part: str) -> tuple[int, int, str]:
    """Precedence of one pre-release identifier: numbers before words."""
    if not part.isdigit():
        return 1, 0, part
    if len(part) > 1 and part[0] == "0":
        raise _invalid(text, f"has the numeric pre-release identifier {part[:16]!r} with a leading zero")
    return 0, _number(text, part), ""


def _normalized(text: str) -> str:
    parts = text.removeprefix("v").split(".", 2)
    for index, part in enumerate(parts):
        if len(part) > 1:
            stripped = part.lstrip("0")
            parts[index] = stripped if stripped[:1] and stripped[0] in "0123456789" else "0" + stripped
    if len(parts) < 3:
        if "+" in parts[-1] or "-" in parts[-1]:
            raise _invalid(text, "is short and therefore cannot have a pre-release or build part")
        parts += ["0"] * (3 - len(parts))
    return ".".join(parts)
