"""Timestamps and durations.

The answers were observed on upstream's own evaluator (dynamic-resource-allocation 0.36.2).
"""

from collections.abc import Callable

import pytest

OBSERVED = [
    ('{duration("1s"): 1} == {duration("1s"): 1}', "true"),
    ('duration("1s") in {duration("1s"): 1}', "true"),
    ("timestamp(0) in {timestamp(0): 1}", "true"),
    ('duration("1h") + timestamp(0) == timestamp(3600)', "true"),
    ('timestamp("9999-12-31T23:59:59Z") + duration("1s") == timestamp(0) || true', "true"),
    ('timestamp("9999-12-31T23:59:59Z") - timestamp("0001-01-01T00:00:00Z") == duration("1s")', "error"),
    ('timestamp(0) - duration("1s") < timestamp(0)', "true"),
    ('-dyn(duration("1s")) == duration("-1s")', "true"),
    ('[duration("1s"), duration("2s")].sum() == duration("3s")', "true"),
    ('string(timestamp("2023-01-02T03:04:05.5+02:30")) == "2023-01-02T03:04:05.5+02:30"', "true"),
    ('string(timestamp("2023-01-02T03:04:05+00:00")) == "2023-01-02T03:04:05Z"', "true"),
    ('timestamp("2023-02-29T00:00:00Z") == timestamp(0)', "reject"),
    ('timestamp(string("2023-02-29T00:00:00Z")) == timestamp(0)', "reject"),
    ('timestamp("2023-01-02") == timestamp(0)', "reject"),
    ('timestamp(1) == timestamp("1970-01-01T00:00:01Z")', "true"),
    ("timestamp(253402300800) == timestamp(0)", "reject"),
    ('int(timestamp("1969-12-31T23:59:59.5Z")) == -1', "true"),
    ('timestamp("2023-05-14T10:30:45.123Z").getFullYear() == 2023', "true"),
    ('timestamp("2023-05-14T10:30:45.123Z").getMonth() == 4', "true"),
    ('timestamp("2023-05-14T10:30:45.123Z").getDate() == 14', "true"),
    ('timestamp("2023-05-14T10:30:45.123Z").getDayOfMonth() == 13', "true"),
    ('timestamp("2023-05-14T10:30:45.123Z").getDayOfWeek() == 0', "true"),
    ('timestamp("2023-05-14T10:30:45.123Z").getDayOfYear() == 133', "true"),
    ('timestamp("2023-05-14T10:30:45.123Z").getHours("Europe/Berlin") == 12', "true"),
    ('timestamp("2023-05-14T10:30:45.123Z").getHours("-05:30") == 5', "true"),
    ('timestamp("2023-05-14T10:30:45.123Z").getMinutes() == 30', "true"),
    ('timestamp("2023-05-14T10:30:45.123Z").getSeconds() == 45', "true"),
    ('timestamp("2023-05-14T10:30:45.123Z").getMilliseconds() == 123', "true"),
    ('timestamp("9999-12-31T23:59:59Z").getFullYear("Asia/Kolkata") == 10000', "true"),
    ('timestamp(0).getHours("Nope/Nope") == 0', "error"),
    ('timestamp(0).getHours("+aa:00") == 0', "error"),
    ('duration("1h30m").getMinutes() == 90', "true"),
    ('duration("-1.5s").getSeconds() == -1', "true"),
    ('duration("1.5s").getMilliseconds() == 1500', "true"),
    ('string(duration("1h30m")) == "5400s"', "true"),
    ('string(duration("1.5s")) == "1.5s"', "true"),
    ('duration("1d") == duration("24h")', "reject"),
    ('duration("") == duration("0s")', "reject"),
    ('duration("0") == duration("0s")', "true"),
    ('duration("1µs") == duration("1us")', "true"),
    ('duration("2562047h47m16.854775808s") > duration("0s")', "reject"),
    ('duration("-2562047h47m16.854775808s") < duration("0s")', "true"),
    ('int(duration("1s")) == 1000000000', "true"),
    ('duration("1s") < duration("2s")', "true"),
    ('[duration("2s"), duration("1s")].max() == duration("2s")', "true"),
]


@pytest.mark.parametrize(("expression", "answer"), OBSERVED)
def test_times_behave_as_upstream(verdict: Callable[..., str], expression: str, answer: str) -> None:
    assert verdict(expression) == answer
