"""What `dra_extender.unexpected` has reported in the test that runs now."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from dra_extender.unexpected import ErrorPlace

Reports = list[tuple[ErrorPlace, Exception]]

REPORTS: Final[Reports] = []


def refuse(place: ErrorPlace, problem: Exception, about: dict[str, object]) -> None:
    """Note the report and raise the error."""
    REPORTS.append((place, problem))
    raise problem


def outlive(place: ErrorPlace, problem: Exception, about: dict[str, object]) -> None:
    """Note the report and go on, as in production."""
    REPORTS.append((place, problem))


@contextmanager
def raises_unexpected(place: ErrorPlace) -> Iterator[None]:
    """What is inside reports one unexpected error, at this place."""
    with pytest.raises(Exception):  # noqa: B017 - whichever it is, it was reported
        yield
    assert [found for found, _ in REPORTS] == [place]
    REPORTS.clear()
