"""Times as objects carry them: metav1.Time in whole seconds, metav1.MicroTime in microseconds. Knows no clock."""

from __future__ import annotations

from datetime import UTC, datetime


def format_time(moment: datetime) -> str:
    """As metav1.Time is written: RFC 3339 in UTC, the fraction of the second cut off. `moment` has a time zone."""
    return _written(moment, "seconds")


def format_micro_time(moment: datetime) -> str:
    """As metav1.MicroTime is written: RFC 3339 in UTC with six digits after the second. `moment` has a time zone."""
    return _written(moment, "microseconds")


def parse_time(text: str) -> datetime | None:
    """A metav1.Time or MicroTime, in UTC where it names no zone; None when it is neither."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _written(moment: datetime, precision: str) -> str:
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec=precision) + "Z"
