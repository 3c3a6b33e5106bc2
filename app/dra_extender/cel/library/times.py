"""Timestamps and durations (cel-go common/types and common/stdlib, v0.26; Go's time package for their texts)."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from dra_extender.cel.declarations import Library
from dra_extender.cel.errors import Fault, shown
from dra_extender.cel.values import INT_MAX, INT_MIN, Duration, Timestamp
from dra_extender.cel.work import Meter

LIBRARY: Final = Library()

_NANO: Final = 10**9
_FIRST_SECOND: Final = -62135596800  # 0001-01-01T00:00:00Z
_LAST_SECOND: Final = 253402300799  # 9999-12-31T23:59:59Z
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAY: Final = 86400
_ZONE: Final = 200
"""Units of work to read a time zone from its file."""

_TIMESTAMP: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]+))?(Z|([+-])([0-9]{2}):([0-9]{2}))"
)
_DURATION_PART: Final = re.compile(r"([0-9]*)(?:(\.)([0-9]*))?(ns|us|µs|μs|ms|s|m|h)(?![^0-9.])")
_UNITS: Final = {
    "ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": _NANO, "m": 60 * _NANO, "h": 3600 * _NANO,
}  # fmt: skip


def add_duration(left: int, right: int) -> Duration:
    """The sum of two spans in nanoseconds."""
    nanos = left + right
    if not INT_MIN <= nanos <= INT_MAX:
        raise Fault("integer overflow")
    return Duration(nanos)


def add_to_timestamp(time: Timestamp, nanos: int) -> Timestamp:
    return _in_range(Timestamp(time.nanos + nanos, time.offset))


def _in_range(time: Timestamp) -> Timestamp:
    if not _FIRST_SECOND <= time.nanos // _NANO <= _LAST_SECOND:
        raise Fault("timestamp overflow", "overflow")
    return time


def parse_timestamp(text: str) -> Timestamp:
    """RFC 3339, as Go's time package reads it. Raises Fault."""
    found = _TIMESTAMP.fullmatch(text)
    if found is None:
        raise not_convertible("string", "google.protobuf.Timestamp")
    year, month, day, hour, minute, second = (int(part) for part in found.groups()[:6])
    hours, minutes = int(found[10] or 0), int(found[11] or 0)
    offset = (hours * 60 + minutes) * (-60 if found[9] == "-" else 60)
    is_time = 1 <= month <= 12 and hour < 24 and minute < 60 and second < 60 and hours <= 24 and minutes <= 60
    if not is_time or not 1 <= day <= monthrange((year - 1) % 400 + 1, month)[1]:
        raise not_convertible("string", "google.protobuf.Timestamp")
    seconds = (_days(year, month, day) * 24 + hour) * 3600 + minute * 60 + second - offset
    return _in_range(Timestamp(seconds * _NANO + int((found[7] or "0")[:9].ljust(9, "0")), offset))


def format_timestamp(time: Timestamp) -> str:
    """RFC 3339 with as many digits as needed, in the zone the timestamp was written with."""
    seconds, nanos = divmod(time.nanos + time.offset * _NANO, _NANO)
    days, rest = divmod(seconds, _DAY)
    year, month, day = _date(days)
    fraction = f".{nanos:09d}".rstrip("0") if nanos else ""
    sign, minutes = ("-" if time.offset < 0 else "+"), abs(time.offset) // 60
    zone = f"{sign}{minutes // 60:02d}:{minutes % 60:02d}" if time.offset else "Z"
    clock = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{year:04d}-{month:02d}-{day:02d}T{clock}{fraction}{zone}"


def parse_duration(text: str) -> Duration:
    """A text such as `1h30m`, as Go's time package reads it. Raises Fault."""
    digits = text[1:] if text[:1] in ("-", "+") else text
    if digits == "0":
        return Duration(0)
    total, place = 0, 0
    while place < len(digits):
        found = _DURATION_PART.match(digits, place)
        if found is None or not (found[1] or found[3]):
            raise not_convertible("string", "google.protobuf.Duration")
        total += _part(found)
        if total > 2**63:
            raise not_convertible("string", "google.protobuf.Duration")
        place = found.end()
    if not digits or (total == 2**63 and text[0] != "-"):
        raise not_convertible("string", "google.protobuf.Duration")
    return Duration(-total if text[0] == "-" else total)


def _part(found: re.Match[str]) -> int:
    unit = _UNITS[found[4]]
    whole = int(found[1][:40] or "0") if len(found[1].lstrip("0")) < 40 else 2**64
    nanos = whole * unit
    if found[3]:
        digits = found[3][:18]  # beyond int64 Go ignores further digits
        nanos += int(float(int(digits)) * (float(unit) / 10.0 ** len(digits)))
    return nanos


def not_convertible(source: str, target: str) -> Fault:
    return Fault(f"type conversion error from '{source}' to '{target}'")


def from_seconds(seconds: int) -> Timestamp:
    return _in_range(Timestamp(seconds * _NANO))


def total_seconds(span: Duration) -> float:
    """The span in seconds, as Go computes it."""
    whole = abs(span.nanos) // _NANO
    part = abs(span.nanos) % _NANO
    seconds = float(whole) + float(part) / 1e9
    return -seconds if span.nanos < 0 else seconds


#
# datetime ends at the years 1 and 9999, local times may be a few hours beyond. All eras of 400 years are alike.

_ERA: Final = 146097
_FIRST_DAY: Final = date(1970, 1, 1).toordinal() - 4 * _ERA


def _days(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 in the proleptic Gregorian calendar."""
    era, year_of_era = divmod(year - 1, 400)
    return date(year_of_era + 1, month, day).toordinal() + (era - 4) * _ERA - _FIRST_DAY


def _date(days: int) -> tuple[int, int, int]:
    """Year, month and day of a number of days since 1970-01-01."""
    era, day_of_era = divmod(days + _FIRST_DAY - 1, _ERA)
    found = date.fromordinal(day_of_era + 1)
    return found.year + (era + 4) * 400, found.month, found.day


def _offset(time: Timestamp, zone: str) -> int:
    """Seconds east of UTC in a zone: a name such as Europe/Berlin, or +01:00. Raises Fault."""
    hours, colon, minutes = zone.partition(":")
    if not colon:
        return _named_offset(time, zone)
    if not re.fullmatch(r"[+-]?[0-9]{1,10}", hours) or not re.fullmatch(r"[+-]?[0-9]{1,10}", minutes):
        raise Fault(f"invalid time zone offset {shown(zone)!r}")
    sign = -1 if zone[0] == "-" else 1
    return (int(hours) * 60 + sign * int(minutes)) * 60


def _named_offset(time: Timestamp, zone: str) -> int:
    if zone in ("", "UTC", "Local"):
        return 0
    try:
        # A local time may be beyond what datetime knows; a day more or less is the same zone rule there.
        seconds = min(max(time.nanos // _NANO, _FIRST_SECOND + _DAY), _LAST_SECOND - _DAY)
        offset = (_EPOCH + timedelta(seconds=seconds)).astimezone(ZoneInfo(zone)).utcoffset()
    except (OSError, ValueError, KeyError, OverflowError):
        raise Fault(f"unknown time zone {shown(zone)}") from None
    return int(offset.total_seconds()) if offset is not None else 0


def _getter(name: str, read: Callable[[int], int]) -> None:
    """Declare a getter; `read` takes nanoseconds since 1970 of the local time."""

    def get(meter: Meter, time: Timestamp, zone: str | None = None) -> int:
        if zone is None:
            return read(time.nanos)
        meter.charge(_ZONE)
        return read(time.nanos + _offset(time, zone) * _NANO)

    LIBRARY.method(name, "timestamp -> int", "timestamp, string -> int", metered=True)(get)


def _date_of(nanos: int) -> tuple[int, int, int]:
    return _date(nanos // _NANO // _DAY)


_getter("getFullYear", lambda nanos: _date_of(nanos)[0])
_getter("getMonth", lambda nanos: _date_of(nanos)[1] - 1)
_getter("getDayOfYear", lambda nanos: nanos // _NANO // _DAY - _days(_date_of(nanos)[0], 1, 1))
_getter("getDayOfMonth", lambda nanos: _date_of(nanos)[2] - 1)
_getter("getDate", lambda nanos: _date_of(nanos)[2])
_getter("getDayOfWeek", lambda nanos: (nanos // _NANO // _DAY + 4) % 7)
_getter("getHours", lambda nanos: nanos // _NANO // 3600 % 24)
_getter("getMinutes", lambda nanos: nanos // _NANO // 60 % 60)
_getter("getSeconds", lambda nanos: nanos // _NANO % 60)
_getter("getMilliseconds", lambda nanos: nanos % _NANO // 10**6)


def _span(name: str, unit: int) -> None:
    def total(_: Meter, span: Duration) -> int:
        whole = abs(span.nanos) // unit
        return -whole if span.nanos < 0 else whole

    LIBRARY.method(name, "duration -> int", metered=True)(total)


for _name, _unit in (("getHours", "h"), ("getMinutes", "m"), ("getSeconds", "s"), ("getMilliseconds", "ms")):
    _span(_name, _UNITS[_unit])
