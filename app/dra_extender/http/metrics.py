"""What the service counts, in the format of Prometheus.

One table defines every metric: it makes the metrics, and `markdown_table` makes the reference in docs/metrics.md,
which a test keeps current. What scheduling counts is defined in `scheduling.outcomes`. Labels are fixed texts, or
names of which so many are told at most (`service.stock`), so the number of series does not grow with the cluster.
Names follow the conventions of Prometheus: counters end in `_total`, units are base units and stand in the name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, get_args

import msgspec
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from dra_extender.http.crowds import CROWDED_CONNECTIONS
from dra_extender.scheduling import outcomes
from dra_extender.scheduling.outcomes import L, LabelledCounter, Step
from dra_extender.unexpected import PLACES, unexpected

PREFIX = "dra_extender_"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 600.0)

_WAITS = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 4 * 3600.0, 24 * 3600.0)

OTHER = "other"
"""Stands for the names that are not told by themselves."""
UNDIAGNOSED = "not diagnosed"
"""Stands for the rule that refuses a pod, before it was found out."""

VerbName = Literal["filter", "prioritize", "preempt", "bind", "advise"]
VerbResult = Literal["ok", "error", "malformed", "forbidden", "forwarded", "unavailable", "broken"]

VERB_RESULTS: dict[VerbResult, str] = {
    "ok": "",
    "error": "the answer says what is wrong",
    "malformed": "the request cannot be understood",
    "forbidden": "the client is not one of the allowed ones",
    "forwarded": "the leader was asked",
    "unavailable": "no decision may be made now",
    "broken": "a bug",
}


class Spec(msgspec.Struct, frozen=True):
    """One metric. `read` ones are taken from the service's state at each scrape, others are counted as we go.

    `values` are the values of the last label where they are fixed, each with its meaning.
    """

    name: str
    type: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    read: bool = False
    values: tuple[tuple[str, str], ...] = ()
    buckets: tuple[float, ...] = _BUCKETS

    @property
    def documentation(self) -> str:
        """The help text with the values of the label and their meaning."""
        if not self.values:
            return self.help
        return f"{self.help}: {', '.join(_described(value, meaning) for value, meaning in self.values)}"


def _pairs(values: Mapping[L, str]) -> tuple[tuple[str, str], ...]:
    return tuple(values.items())


def _described(value: str, meaning: str) -> str:
    return f"{value} ({meaning})" if meaning else value


def _read(name: str, type_: Literal["counter", "gauge"], help_: str, label: str = "") -> Spec:
    return Spec(name, type_, help_, (label,) if label else (), read=True)


_OUTCOMES: tuple[LabelledCounter[Any], ...] = (*outcomes.OUTCOMES, CROWDED_CONNECTIONS)

_STATES: tuple[tuple[str, str], ...] = (
    ("free", ""),
    ("shared", "claims have shares of it"),
    ("used", "a claim has it alone"),
    ("blocked", "others have taken counters that it needs"),
    ("tainted", "nobody has it, and a taint keeps pods away"),
    ("unusable", "nothing is allocated of its pool, or of it"),
)

SPECS: tuple[Spec, ...] = (
    Spec("verb_duration_seconds", "histogram", "time from the headers of a verb's request to its answer", ("verb",)),
    Spec(
        "verb_requests_total",
        "counter",
        "requests of the verbs",
        ("verb", "result"),
        values=tuple(VERB_RESULTS.items()),
    ),
    *(
        Spec(outcome.name, "counter", outcome.help, (outcome.label,), values=_pairs(outcome.values))
        for outcome in _OUTCOMES
    ),
    Spec("bind_step_duration_seconds", "histogram", "steps of a bind", ("step",), values=_pairs(outcomes.STEPS)),
    Spec("event_loop_lag_seconds", "histogram", "how late the event loop runs what is due; long means it is blocked"),
    _read(
        "ready", "gauge", "1 when calls of the verbs are answered here: by this replica, or by the leader that it asks"
    ),
    _read("leader", "gauge", "1 when this replica holds the lease, or when there is no election"),
    _read("objects", "gauge", "objects known from the watches", "kind"),
    _read("undecodable_objects", "gauge", "objects that cannot be understood and are left out", "kind"),
    _read("unreadable_claims_holding", "gauge", "claims that cannot be decoded and whose devices are known and in use"),
    _read(
        "unreadable_claims_incomplete",
        "gauge",
        "claims that cannot be decoded and may have devices that cannot be told; nothing is offered of their pools",
    ),
    _read("watch_gap_seconds", "gauge", "time since the kind was last being watched; 0 while it is", "kind"),
    _read("lists_total", "counter", "complete lists; more than one means that events were missed", "kind"),
    _read("stuck_watches_total", "counter", "lists that were begun because watches made no progress", "kind"),
    _read("watches_total", "counter", "watches started", "kind"),
    _read("watch_events_total", "counter", "watch events, bookmarks included", "kind"),
    _read("binds_in_flight", "gauge", "binds that have begun and not ended"),
    _read("binds_unfinished", "gauge", "failed binds that have not taken back what they wrote; the devices stay held"),
    _read("preemption_nominations", "gauge", "pods for which other pods make room, and devices are kept"),
    _read("preemption_victims_stuck", "gauge", "pods that were told to make room and did not go in time"),
    _read("nominated_ahead", "gauge", "pods that are nominated ahead of kube-scheduler's queue and not bound yet"),
    _read("pods_known", "gauge", "pods that are remembered: those that wait, and those that use devices"),
    _read("events_queued", "gauge", "Kubernetes events waiting to be written"),
    _read(
        "allocation_searches_total",
        "counter",
        "searches for devices on a node by filter and prioritize, and for them at the start; others came from memory",
    ),
    _read("worker_questions_open", "gauge", "questions that worker processes have not answered yet"),
    _read("worker_starts_total", "counter", "worker processes started, those that replace a stopped one included"),
    Spec(
        "devices",
        "gauge",
        "devices that drivers publish, by driver (the 20 with the most; the rest is other) and state",
        ("driver", "state"),
        read=True,
        values=_STATES,
    ),
    Spec(
        "class_devices",
        "gauge",
        "devices that a class selects, by class (the 50 with the most devices; the rest is other) and state; a device "
        "that several classes select counts for each; the states are those of devices",
        ("device_class", "state"),
        read=True,
    ),
    Spec(
        "share_capacity",
        "gauge",
        "capacity of the devices that may be shared, are usable and have no taint, in its own unit (memory: bytes)",
        ("driver", "capacity"),
        read=True,
    ),
    Spec("share_capacity_free", "gauge", "the part of it that no claim has", ("driver", "capacity"), read=True),
    Spec(
        "pending_pods",
        "gauge",
        "pods that wait because they were refused, by the rule that refuses them, as the diagnosis calls it",
        ("rule",),
        read=True,
        values=((UNDIAGNOSED, "it was not found out yet"),),
    ),
    Spec(
        "device_wait_seconds",
        "histogram",
        "time from the creation of a pod that uses devices to its binding here, in whole seconds",
        buckets=_WAITS,
    ),
    _read("violations", "gauge", "conflicts between stored allocations, whichever allocator wrote them"),
    _read("violations_reported_total", "counter", "violations reported, short ones included"),
    _read("events_sent_total", "counter", "Kubernetes events written"),
    _read("events_dropped_total", "counter", "Kubernetes events dropped: refused, or too many at once"),
    Spec(
        "unexpected_errors_total",
        "counter",
        "errors outside every plan, each a bug to report, by place",
        ("where",),
        read=True,
        values=_pairs(PLACES),
    ),
)

_BY_NAME = {spec.name: spec for spec in SPECS}


class Reading(msgspec.Struct, frozen=True):
    """A value of a metric that is read at a scrape."""

    name: str
    value: float
    label: str | tuple[str, ...] = ""

    @property
    def labels(self) -> tuple[str, ...]:
        """The values of all labels."""
        return self.label if isinstance(self.label, tuple) else (self.label,) if self.label else ()


class _Readings(Collector):
    """Asks the service for its state at each scrape."""

    def __init__(self, read: Callable[[], Iterable[Reading]]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        families = {spec.name: _family(spec) for spec in SPECS if spec.read and spec.labels}  # there may be no series
        for reading in self._read():
            spec = _BY_NAME.get(reading.name)
            if spec is None or not spec.read or len(reading.labels) != len(spec.labels):
                unexpected("metrics", ValueError(f"{reading.name} with label {reading.label!r} is not declared"))
                continue
            if spec.name not in families:
                families[spec.name] = _family(spec)
            families[spec.name].add_metric(reading.labels, reading.value)
        yield from families.values()


def _family(spec: Spec) -> GaugeMetricFamily | CounterMetricFamily:
    kind = GaugeMetricFamily if spec.type == "gauge" else CounterMetricFamily
    return kind(PREFIX + spec.name, spec.documentation, labels=spec.labels)


class Metrics:
    """All metrics of one service. Is the observer that scheduling reports to.

    A value that is not declared for a label is an unexpected error: refused in tests, counted in production.
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self._registry)
        counters = {spec.name: self._counter(spec) for spec in SPECS if spec.type == "counter" and not spec.read}
        # Every series is there from the start, so that a first occurrence shows as an increase.
        self._outcomes = {
            (outcome.name, value): counters[outcome.name].labels(value)
            for outcome in _OUTCOMES
            for value in outcome.values
        }
        self._requests = {
            (verb, result): counters["verb_requests_total"].labels(verb, result)
            for verb in get_args(VerbName)
            for result in VERB_RESULTS
        }
        histograms = {spec.name: self._histogram(spec) for spec in SPECS if spec.type == "histogram"}
        self._steps = {step: histograms["bind_step_duration_seconds"].labels(step) for step in outcomes.STEPS}
        self._durations = {verb: histograms["verb_duration_seconds"].labels(verb) for verb in get_args(VerbName)}
        self._lag = histograms["event_loop_lag_seconds"]
        self._waits = histograms["device_wait_seconds"]

    def read_from(self, read: Callable[[], Iterable[Reading]]) -> None:
        """Where the values of `read` metrics come from."""
        self._registry.register(_Readings(read))

    def count(self, outcome: LabelledCounter[L], value: L) -> None:
        """An outcome of scheduling came about once more."""
        series = self._outcomes.get((outcome.name, value))
        if series is None:
            unexpected("metrics", ValueError(f"{outcome.name} with {outcome.label}={value!r} is not declared"))
        else:
            series.inc()

    def took(self, step: Step, seconds: float) -> None:
        """A step of a bind is done."""
        series = self._steps.get(step)
        if series is None:
            unexpected("metrics", ValueError(f"bind_step_duration_seconds with step={step!r} is not declared"))
        else:
            series.observe(seconds)

    def waited(self, seconds: float) -> None:
        """A pod that uses devices was bound so long after it was created."""
        self._waits.observe(seconds)

    def answered(self, verb: VerbName, result: VerbResult, seconds: float) -> None:
        """A verb was answered."""
        series = self._requests.get((verb, result))
        if series is None:
            unexpected("metrics", ValueError(f"verb_requests_total with {verb!r}, {result!r} is not declared"))
        else:
            series.inc()
            self._durations[verb].observe(seconds)

    def lagged(self, seconds: float) -> None:
        """The event loop ran something so much later than it was due."""
        self._lag.observe(seconds)

    def exposition(self) -> bytes:
        """What a scrape gets."""
        return generate_latest(self._registry)

    def _counter(self, spec: Spec) -> Counter:
        return Counter(PREFIX + spec.name, spec.documentation, spec.labels, registry=self._registry)

    def _histogram(self, spec: Spec) -> Histogram:
        return Histogram(
            PREFIX + spec.name, spec.documentation, spec.labels, registry=self._registry, buckets=spec.buckets
        )


def markdown_table() -> str:
    """The reference of all metrics as a table."""
    rows = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    for spec in SPECS:
        labels = ", ".join(f"`{label}`" for label in spec.labels)
        rows.append(f"| `{PREFIX}{spec.name}` | {spec.type} | {labels} | {spec.documentation} |")
    return "\n".join(rows) + "\n"
