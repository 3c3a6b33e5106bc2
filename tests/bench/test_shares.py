"""Whose the time of a function is."""

from __future__ import annotations

from pstats import Stats
from typing import Any

import pytest

from bench.shares import OTHER, PARTS, markdown, shares

SERVING, CLIENT, WATCHES, *_ = PARTS
FUNCTIONS = {
    "route": ("/x/app/dra_extender/http/verbs.py", 1, "route"),
    "patch": ("/x/aiohttp/client.py", 1, "patch"),
    "observe": ("/x/app/dra_extender/devices/ledger.py", 1, "observe"),
    "join": ("/lib/json.py", 1, "join"),
    "encode": ("~", 0, "<encode>"),
    "main": ("/lib/main.py", 1, "main"),
}


def profiled(**table: Any) -> Stats:
    stats = Stats.__new__(Stats)
    stats.stats = {FUNCTIONS[name]: found for name, found in table.items()}  # type: ignore[attr-defined]
    return stats


def own(seconds: float, **callers: float) -> tuple[int, int, float, float, dict[Any, Any]]:
    return 1, 1, seconds, seconds, {FUNCTIONS[name]: (1, 1, weight, weight) for name, weight in callers.items()}


def test_what_several_parts_call_is_theirs_in_proportion() -> None:
    stats = profiled(
        route=own(1.0, main=1.0),
        patch=own(2.0),
        observe=own(4.0),
        join=own(3.0, route=1.0, patch=2.0),
        encode=own(6.0, join=3.0, observe=3.0),
        main=own(8.0),
    )
    found = shares(stats)
    assert found == pytest.approx({SERVING: 3.0, CLIENT: 6.0, WATCHES: 7.0, OTHER: 8.0})


def test_what_only_calls_itself_is_nobodys() -> None:
    assert shares(profiled(join=own(1.0, encode=1.0), encode=own(1.0, join=1.0))) == {OTHER: 2.0}


def test_a_row_is_a_column_in_milliseconds_per_pod() -> None:
    lines = markdown({"500 nodes": {SERVING: 0.3, OTHER: 0.1}, "5,000 nodes": {SERVING: 0.6}}, 100).splitlines()
    assert lines[0] == "| part | 500 nodes | 5,000 nodes |"
    assert f"| {SERVING} | 3.00 | 6.00 |" in lines
    assert lines[-2:] == [f"| {OTHER} | 1.00 | 0.00 |", "| **together** | **4.00** | **6.00** |"]
