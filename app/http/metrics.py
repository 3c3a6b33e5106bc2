"""What the service counts, in the format of Prometheus.

One table defines every metric: it makes the metrics, and `markdown_table` makes the reference in docs/metrics.md,
which a test keeps current. Labels are fixed texts, never names of objects, so the number of series does not grow with
the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import msgspec
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from app.scheduling import outcomes

PREFIX = "dra_extender_"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_FAST = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 600.0)


class Spec(msgspec.Struct, frozen=True):
    """One metric. `read` ones are taken from the service's state when somebody asks, others are counted as we go."""

    name: str
    type: Literal["counter", "gauge", "histogram"]
    help: str
    label: str = ""
    read: bool = False


SPECS: tuple[Spec, ...] = (
    Spec("verb_seconds", "histogram", "time from the first byte of a verb's request to its answer", "verb"),
    Spec(
        "verb_answers_total",
        "counter",
        "answers by verb and outcome: ok, error (said in the answer), malformed, unavailable (503), broken (a bug)",
        "verb,outcome",
    ),
    Spec(
        "filtered_total",
        "counter",
        "filter calls: untouched (no claims), fits, refused, repeated (answered from memory), error",
        "result",
    ),
    Spec(
        "bound_total",
        "counter",
        "bind calls: bound, replayed, joined, refused, conflict, failed, waiting, cancelled, late, broken",
        "result",
    ),
    Spec(
        "conflicts_total",
        "counter",
        "somebody was there first: claim (changed meanwhile), rival (the device was taken), binding (bound elsewhere)",
        "kind",
    ),
    Spec("unknown_outcomes_total", "counter", "writes whose reply was lost, by kind of write", "write"),
    Spec(
        "undone_total", "counter", "claim writes taken back: deallocated, unreserved, fenced, left, gone, failed", "how"
    ),
    Spec("doorbell_total", "counter", "attempts to wake refused pods: rung, failed", "result"),
    Spec(
        "cleared_total",
        "counter",
        "unused allocations cleared: in_the_way, idle, abandoned, leftover; or failed to",
        "why",
    ),
    Spec("step_seconds", "histogram", "parts of a bind: bind, finalizer, status, own_write_on_watch, binding", "step"),
    Spec("loop_lag_seconds", "histogram", "how late the event loop runs what is due; long means something blocks it"),
    Spec("ready", "gauge", "1 when the verbs are served", read=True),
    Spec("leading", "gauge", "1 when this replica holds the lease, or when there is no election", read=True),
    Spec("objects", "gauge", "objects known, by kind", "kind", read=True),
    Spec("poisoned_objects", "gauge", "objects that cannot be understood and are left out, by kind", "kind", read=True),
    Spec(
        "watch_behind_seconds", "gauge", "seconds since a kind was last being watched; 0 while it is", "kind", read=True
    ),
    Spec(
        "lists_total",
        "counter",
        "complete lists of a kind; more than one means that events were missed",
        "kind",
        read=True,
    ),
    Spec("watches_total", "counter", "watches of a kind that were started", "kind", read=True),
    Spec("watch_events_total", "counter", "watch events of a kind, bookmarks included", "kind", read=True),
    Spec("size", "gauge", "entries of internal tables and caches, by name", "of", read=True),
    Spec(
        "searches_total",
        "counter",
        "searches for devices on a node by filter and prioritize; their other answers came from memory",
        read=True,
    ),
    Spec("violations", "gauge", "claims that hold what another claim holds, by whoever wrote them", read=True),
    Spec("violations_told_total", "counter", "violations that were told of, however short they were", read=True),
    Spec("events_sent_total", "counter", "Kubernetes events written", read=True),
    Spec("events_dropped_total", "counter", "Kubernetes events dropped: refused, or too many at once", read=True),
)

_BY_NAME = {spec.name: spec for spec in SPECS}

OBSERVED: dict[str, str] = {
    outcomes.FILTERED: "filtered_total",
    outcomes.BOUND: "bound_total",
    outcomes.CONFLICTS: "conflicts_total",
    outcomes.UNKNOWN: "unknown_outcomes_total",
    outcomes.UNDONE: "undone_total",
    outcomes.RUNG: "doorbell_total",
    outcomes.CLEARED: "cleared_total",
}
"""What scheduling counts, and which metric that is."""

STEPS = frozenset(
    {
        outcomes.BIND_SECONDS,
        outcomes.FINALIZER_SECONDS,
        outcomes.STATUS_SECONDS,
        outcomes.WATCH_SECONDS,
        outcomes.BINDING_SECONDS,
    }
)


class Reading(msgspec.Struct, frozen=True):
    """A value of a metric that is read when somebody asks."""

    name: str
    value: float
    label: str = ""


class _Readings(Collector):
    """Asks the service for its state at each scrape."""

    def __init__(self, read: Callable[[], Iterable[Reading]]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        families: dict[str, GaugeMetricFamily | CounterMetricFamily] = {}
        for reading in self._read():
            spec = _BY_NAME[reading.name]
            family = families.get(spec.name)
            if family is None:
                kind = GaugeMetricFamily if spec.type == "gauge" else CounterMetricFamily
                family = families[spec.name] = kind(
                    PREFIX + spec.name, spec.help, labels=[spec.label] if spec.label else []
                )
            family.add_metric([reading.label] if spec.label else [], reading.value)
        yield from families.values()


class Metrics:
    """All metrics of one service. Is the observer that scheduling reports to."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self._registry)
        self._counters = {spec.name: self._counter(spec) for spec in SPECS if spec.type == "counter" and not spec.read}
        self._histograms = {spec.name: self._histogram(spec) for spec in SPECS if spec.type == "histogram"}

    def read_from(self, read: Callable[[], Iterable[Reading]]) -> None:
        """Where the values of `read` metrics come from."""
        self._registry.register(_Readings(read))

    def count(self, name: str, label: str = "") -> None:
        """Something that scheduling observed happened once more."""
        metric = OBSERVED.get(name)
        if metric is not None:
            self._counters[metric].labels(label).inc()

    def took(self, name: str, seconds: float) -> None:
        """A part of a bind is done."""
        if name in STEPS:
            self._histograms["step_seconds"].labels(name).observe(seconds)

    def answered(self, verb: str, outcome: str, seconds: float) -> None:
        """A verb was answered."""
        self._counters["verb_answers_total"].labels(verb, outcome).inc()
        self._histograms["verb_seconds"].labels(verb).observe(seconds)

    def lagged(self, seconds: float) -> None:
        """The event loop ran something so much later than it was due."""
        self._histograms["loop_lag_seconds"].observe(seconds)

    def exposition(self) -> bytes:
        """What a scrape gets."""
        return generate_latest(self._registry)

    def _counter(self, spec: Spec) -> Counter:
        return Counter(PREFIX + spec.name, spec.help, _labels(spec), registry=self._registry)

    def _histogram(self, spec: Spec) -> Histogram:
        return Histogram(PREFIX + spec.name, spec.help, _labels(spec), registry=self._registry, buckets=_FAST)


def markdown_table() -> str:
    """The reference of all metrics as a table."""
    rows = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    for spec in SPECS:
        labels = ", ".join(f"`{label}`" for label in _labels(spec))
        rows.append(f"| `{PREFIX}{spec.name}` | {spec.type} | {labels} | {spec.help} |")
    return "\n".join(rows) + "\n"


def _labels(spec: Spec) -> list[str]:
    return spec.label.split(",") if spec.label else []
