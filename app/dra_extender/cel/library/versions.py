"""Semantic versions (apiserver pkg/cel/library/semverlib.go, 1.36)."""

from __future__ import annotations

from typing import Final

from dra_extender.api.semver import Semver
from dra_extender.cel.declarations import Library
from dra_extender.cel.errors import Fault
from dra_extender.cel.work import Meter, text_bytes

LIBRARY: Final = Library()

_IDENTIFIER: Final = 160
"""Bytes that an identifier takes."""


@LIBRARY.function("semver", "string -> Semver", metered=True)
def semver(meter: Meter, text: str) -> Semver:
    return semver_normalized(meter, text, False)


@LIBRARY.function("semver", "string, bool -> Semver", metered=True)
def semver_normalized(meter: Meter, text: str, normalize: bool) -> Semver:
    size = _affordable(meter, text)
    try:
        version = Semver.parse(text, normalize)
    except ValueError as error:
        raise Fault(str(error)) from None
    meter.keep(version, size)
    return version


def _affordable(meter: Meter, text: str) -> int:
    """How many bytes the version takes: each of its identifiers is an object."""
    identifiers = text.count(".")
    meter.charge(identifiers)
    meter.room(_IDENTIFIER * identifiers)
    return _IDENTIFIER * identifiers + text_bytes(text)


@LIBRARY.function("isSemver", "string -> bool", metered=True)
def is_semver(meter: Meter, text: str) -> bool:
    return is_semver_normalized(meter, text, False)


@LIBRARY.function("isSemver", "string, bool -> bool", metered=True)
def is_semver_normalized(meter: Meter, text: str, normalize: bool) -> bool:
    _affordable(meter, text)
    try:
        Semver.parse(text, normalize)
    except ValueError:
        return False
    return True


@LIBRARY.method("isGreaterThan", "Semver, Semver -> bool")
def is_greater_than(left: Semver, right: Semver) -> bool:
    return left.key > right.key


@LIBRARY.method("isLessThan", "Semver, Semver -> bool")
def is_less_than(left: Semver, right: Semver) -> bool:
    return left.key < right.key


@LIBRARY.method("compareTo", "Semver, Semver -> int")
def compare_to(left: Semver, right: Semver) -> int:
    return (left.key > right.key) - (left.key < right.key)


def _signed(number: int) -> int:
    """Upstream stores uint64 numbers as int64."""
    return number - 2**64 if number >= 2**63 else number


@LIBRARY.method("major", "Semver -> int")
def major(value: Semver) -> int:
    return _signed(value.major)


@LIBRARY.method("minor", "Semver -> int")
def minor(value: Semver) -> int:
    return _signed(value.minor)


@LIBRARY.method("patch", "Semver -> int")
def patch(value: Semver) -> int:
    return _signed(value.patch)
