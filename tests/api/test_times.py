"""Times as objects carry them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_extender.api.meta import format_micro_time, format_time, parse_time

MOMENT = datetime(2026, 1, 2, 3, 4, 5, 999_999, tzinfo=UTC)


@pytest.mark.parametrize(
    ("moment", "time", "micro_time"),
    [
        (MOMENT, "2026-01-02T03:04:05Z", "2026-01-02T03:04:05.999999Z"),
        (MOMENT.replace(microsecond=0), "2026-01-02T03:04:05Z", "2026-01-02T03:04:05.000000Z"),
        (MOMENT.astimezone(timezone(timedelta(hours=2))), "2026-01-02T03:04:05Z", "2026-01-02T03:04:05.999999Z"),
        (MOMENT.replace(year=1), "0001-01-02T03:04:05Z", "0001-01-02T03:04:05.999999Z"),
    ],
)
def test_times_are_written_in_utc_with_the_digits_of_their_kind(moment: datetime, time: str, micro_time: str) -> None:
    assert (format_time(moment), format_micro_time(moment)) == (time, micro_time)


@given(st.datetimes(timezones=st.just(UTC)))
def test_what_is_written_is_read_again(moment: datetime) -> None:
    assert parse_time(format_time(moment)) == moment.replace(microsecond=0)
    assert parse_time(format_micro_time(moment)) == moment


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-01-02T05:04:05+02:00", MOMENT.replace(microsecond=0)),
        ("2026-01-02T03:04:05", MOMENT.replace(microsecond=0)),
        ("yesterday", None),
        ("", None),
    ],
)
def test_other_zones_are_read_and_other_texts_are_none(text: str, moment: datetime | None) -> None:
    assert parse_time(text) == moment
