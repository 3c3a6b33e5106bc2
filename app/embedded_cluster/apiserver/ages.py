"""How long ago: time spans as kubectl shows them."""

from __future__ import annotations

from typing import Final

from dra_extender.api.times import parse_time

UNKNOWN: Final = "<unknown>"


def duration(seconds: float) -> str:
    """A time span as kubectl shows it: 45s, 3m20s, 5h2m, 12d."""
    total = int(seconds)
    if total < -1:
        return "<invalid>"
    if total < 120:
        return f"{max(total, 0)}s"
    minutes, hours, days = total // 60, total // 3600, total // 86400
    if minutes < 10:
        return _two(minutes, "m", total % 60, "s")
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    return _two(days // 365, "y", days % 365, "d") if days < 8 * 365 else f"{days // 365}y"


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"


def since(moment: str | None, now: float) -> str:
    """The age of a timestamp."""
    began = parse_time(moment or "")
    return UNKNOWN if began is None else duration(now - began.timestamp())
