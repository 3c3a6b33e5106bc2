"""Where the processor time of the service goes, by part, as a profile has it.

Promises: every function's own time is counted once: with the part that its file belongs to, or, for built-in functions
and libraries that serve several parts, with the parts that call it, in proportion.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pstats import Stats
from typing import Any, Final

PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "requests of kube-scheduler: HTTP and JSON": (
        "/dra_extender/http/",
        "/uvicorn/",
        "/starlette/",
        "/fastapi/",
        "/httptools/",
        "/dra_extender/service/replica.py",
    ),
    "requests to the API server: HTTP, TLS and JSON": (
        "/aiohttp/", "/yarl/", "/multidict/", "/ssl.py", "/dra_extender/kube/client.py", "/dra_extender/kube/writer.py",
        "/dra_extender/kube/client.py", "/dra_extender/kube/credentials.py",
    ),
    "watches, and what is known of the cluster": (
        "/dra_extender/kube/", "/dra_extender/api/", "/dra_extender/devices/",
        "/dra_extender/scheduling/handle.py",
        "/dra_extender/devices/pods.py", "/dra_extender/scheduling/requeue.py", "/dra_extender/scheduling/idle.py",
    ),
    "nomination ahead of the queue": ("/dra_extender/scheduling/earlynomination/",),
    "binding": ("/dra_extender/scheduling/bind/", "/dra_extender/scheduling/release/"),
    "decisions": (
        "/dra_extender/allocation/", "/dra_extender/cel/", "/dra_extender/placement/", "/dra_extender/scheduling/",
    ),
    "events, metrics, logs": ("/prometheus_client/", "/structlog/", "/dra_extender/service/"),
    "event loop": ("/uvloop/", "/asyncio/"),
}  # fmt: skip
"""Pieces of paths; the first that a file has counts."""
OTHER: Final = "other"

_Function = tuple[str, int, str]


def shares(stats: Stats) -> dict[str, float]:
    """Seconds by part, the largest first."""
    table: Mapping[_Function, tuple[int, int, float, float, Mapping[_Function, Any]]] = stats.stats  # type: ignore[attr-defined]
    known: dict[_Function, Mapping[str, float]] = {}

    def owners(function: _Function) -> Mapping[str, float]:
        """The parts whose the function's own time is, with weights that add up to 1."""
        if function not in known:
            known[function] = {OTHER: 1.0}  # what is called by itself only
            part = _part(function[0])
            known[function] = {part: 1.0} if part else callers(function)
        return known[function]

    def callers(function: _Function) -> Mapping[str, float]:
        calls = {caller: found[2] for caller, found in table[function][4].items() if caller in table}
        total = sum(calls.values())
        if not total:
            return {OTHER: 1.0}
        found: defaultdict[str, float] = defaultdict(float)
        for caller, seconds in calls.items():
            for part, weight in owners(caller).items():
                found[part] += weight * seconds / total
        return found

    counted: defaultdict[str, float] = defaultdict(float)
    for function, (_, _, own, _, _) in table.items():
        for part, weight in owners(function).items():
            counted[part] += own * weight
    return dict(sorted(counted.items(), key=lambda item: -item[1]))


def _part(file: str) -> str:
    return next((part for part, pieces in PARTS.items() if any(piece in file for piece in pieces)), "")


def markdown(rows: Mapping[str, Mapping[str, float]], pods: int) -> str:
    """A column per row of the benchmark: milliseconds per pod."""
    parts = [*PARTS, OTHER]
    lines = ["| part | " + " | ".join(rows) + " |", "|---|" + "---:|" * len(rows)]
    for part in parts:
        cells = [f"{found.get(part, 0.0) / pods * 1e3:.2f}" for found in rows.values()]
        lines.append(f"| {part} | " + " | ".join(cells) + " |")
    totals = [f"**{sum(found.values()) / pods * 1e3:.2f}**" for found in rows.values()]
    return "\n".join([*lines, "| **together** | " + " | ".join(totals) + " |"])
