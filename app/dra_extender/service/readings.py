"""The metrics that are read from the service when Prometheus asks; what takes long is counted in between (`stock`)."""

from __future__ import annotations

from collections.abc import Iterator

from dra_extender.http.metrics import Reading
from dra_extender.service.engine import Engine
from dra_extender.service.gate import Gate
from dra_extender.service.status import Status
from dra_extender.unexpected import counts


def readings(status: Status, gate: Gate) -> Iterator[Reading]:
    """All of them; those of the engine once there is one."""
    yield Reading("ready", float(not gate.unready()))
    yield Reading("leader", float(status.leading))
    if status.engine is not None:
        yield from status.engine.following.readings()
        yield from _of_engine(status.engine)
    yield from of_process()


def _of_engine(engine: Engine) -> Iterator[Reading]:
    yield Reading("binds_in_flight", engine.extender.binds_under_way)
    placeholders = engine.cluster.placeholders
    yield Reading("unreadable_claims_holding", placeholders.complete)
    yield Reading("unreadable_claims_incomplete", placeholders.incomplete)
    yield Reading("binds_unfinished", len(engine.extender.pending_rollbacks))
    yield Reading("preemption_nominations", len(engine.extender.nominations))
    yield Reading("preemption_victims_stuck", engine.extender.stuck_victims)
    yield Reading("nominated_ahead", len(engine.extender.early_nominations))
    yield Reading("pods_known", len(engine.extender.view.pods))
    yield Reading("events_queued", engine.events.waiting)
    yield Reading("allocation_searches_total", engine.decisions.searches)
    yield Reading("worker_questions_open", engine.extender.open_questions)
    yield Reading("worker_starts_total", engine.workers.starts)
    yield from engine.stock.readings()
    yield Reading("violations", len(engine.audit.current))
    yield Reading("violations_reported_total", engine.audit.reported)
    yield Reading("events_sent_total", engine.events.sent)
    yield Reading("events_dropped_total", engine.events.dropped)


def of_process() -> Iterator[Reading]:
    """What is counted for the whole process, whichever service of it is asked."""
    for place, number in counts().items():
        yield Reading("unexpected_errors_total", number, place)
