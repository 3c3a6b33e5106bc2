"""The metrics that are read from the service when Prometheus asks, and cost nothing in between."""

from __future__ import annotations

from collections.abc import Iterator

from app.http.metrics import Reading
from app.service.engine import Engine
from app.service.gate import Gate
from app.service.status import Status


def readings(status: Status, gate: Gate) -> Iterator[Reading]:
    """All of them; those of the engine once there is one."""
    yield Reading("ready", float(not gate.unavailable()))
    yield Reading("leading", float(status.leading))
    if status.engine is not None:
        yield from status.engine.following.readings()
        yield from _of_engine(status.engine)


def _of_engine(engine: Engine) -> Iterator[Reading]:
    yield Reading("size", engine.extender.binds_under_way, "binds")
    yield Reading("size", len(engine.extender.view.pods), "pods")
    yield Reading("size", engine.events.waiting, "events")
    yield Reading("searches_total", engine.decisions.searches)
    yield Reading("violations", len(engine.audit.current))
    yield Reading("violations_told_total", engine.audit.reported)
    yield Reading("events_sent_total", engine.events.sent)
    yield Reading("events_dropped_total", engine.events.dropped)
