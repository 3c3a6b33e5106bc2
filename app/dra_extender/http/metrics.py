"""The metrics of the service, in the format of Prometheus.

One table defines every metric; `make reference` writes docs/metrics.md from it. `scheduling.outcomes` defines what
scheduling counts. Promises: labels have fixed values, or a bounded number of names (`service.devicemetrics`), so the
number of series does not grow with the cluster. Names follow the conventions of Prometheus: counters end in `_total`,
and names contain base units.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import product
from typing import Any, Final, Literal, get_args

import msgspec
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from dra_extender.insight.devicereport.report import STATES
from dra_extender.plaintext import printable
from dra_extender.scheduling import outcomes
from dra_extender.scheduling.outcomes import UNDIAGNOSED, L, LabelledCounter, Reading, Step
from dra_extender.unexpected import PLACES, unexpected

PREFIX = "dra_extender_"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 600.0)

_WAITS = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 4 * 3600.0, 24 * 3600.0)

VerbName = Literal["filter", "prioritize", "preempt", "bind", "advise"]
VerbResult = Literal["ok", "error", "malformed", "forbidden", "forwarded", "unavailable", "broken"]

VERB_RESULTS: Final[dict[VerbResult, str]] = {
    "ok": "",
    "error": "the response names an error",
    "malformed": "the request is invalid",
    "forbidden": "the client is not an allowed client",
    "forwarded": "the leader responded",
    "unavailable": "no decision may be made now",
    "broken": "a bug",
}


class Spec(msgspec.Struct, frozen=True):
    """One metric. `read`: the value is read from the service at each scrape; other metrics are counted as events
    happen. `values`: the values of the last label with their meanings, where they are fixed.
    """

    name: str
    type: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    read: bool = False
    values: Mapping[Any, str] = {}
    buckets: tuple[float, ...] = _BUCKETS

    @property
    def documentation(self) -> str:
        """The help text with the values of the label and their meanings."""
        if not self.values:
            return self.help
        values = (f"{value} ({meaning})" if meaning else value for value, meaning in self.values.items())
        return f"{self.help}: {', '.join(values)}"


def _read(name: str, type_: Literal["counter", "gauge"], help_: str, label: str = "") -> Spec:
    return Spec(name, type_, help_, (label,) if label else (), read=True)


OverLimit = Literal["idle_closed", "probes_only", "refused"]

CONNECTIONS_OVER_LIMIT: Final = LabelledCounter[OverLimit](
    "connections_over_limit_total",
    "new connections to an address that already had --max-connections",
    "result",
    {
        "idle_closed": "an idle connection was closed for it",
        "probes_only": "all others are busy, so this one may only send probes",
        "refused": "closed at once",
    },
)

ExpansionResult = Literal["all", "some", "none", "late", "error"]

EXPANSIONS: Final = LabelledCounter[ExpansionResult](
    "expansions_total",
    "calls of cluster-autoscaler's expander, by the options that it kept",
    "result",
    {"all": "", "some": "", "none": "no pod fits", "late": "all, as time was up", "error": "all; the call was invalid"},
)

_COUNTERS: tuple[LabelledCounter[Any], ...] = (*outcomes.OUTCOMES, CONNECTIONS_OVER_LIMIT, EXPANSIONS)

SPECS: Final[tuple[Spec, ...]] = (
    Spec("verb_duration_seconds", "histogram", "time from the headers of a verb's request to its response", ("verb",)),
    Spec("verb_requests_total", "counter", "requests of the verbs", ("verb", "result"), values=VERB_RESULTS),
    *(Spec(counter.name, "counter", counter.help, (counter.label,), values=counter.values) for counter in _COUNTERS),
    Spec("bind_step_duration_seconds", "histogram", "steps of a bind", ("step",), values=outcomes.STEPS),
    Spec("event_loop_lag_seconds", "histogram", "delay of timers on the event loop; large values mean it is blocked"),
    _read("ready", "gauge", "1 while this replica, or the leader that it forwards to, answers calls of the verbs"),
    _read("leader", "gauge", "1 while this replica holds the lease, or when leader election is off"),
    _read("set_backs_total", "counter", "times that the API server showed an older state than before"),
    _read("objects", "gauge", "objects known from the watches", "kind"),
    _read("undecodable_objects", "gauge", "objects that cannot be decoded and are ignored", "kind"),
    _read(
        "unreadable_claims_incomplete",
        "gauge",
        "claims that cannot be decoded and whose devices are not all known; no device of their pools is offered",
    ),
    _read("watch_gap_seconds", "gauge", "time since the kind was last watched; 0 while it is", "kind"),
    _read("lists_total", "counter", "complete lists; more than one means that events were missed", "kind"),
    _read("binds_unfinished", "gauge", "failed binds whose rollback is not finished; their devices stay allocated"),
    _read("preemption_nominations", "gauge", "pods that are nominated and wait for their victims to go"),
    _read("preemption_victims_stuck", "gauge", "evicted pods that have not terminated in time"),
    _read(
        "nominated_ahead", "gauge", "pods that were nominated before kube-scheduler tried them and are not bound yet"
    ),
    _read(
        "allocation_searches_total",
        "counter",
        "searches for devices on a node; all other answers came from the equivalence cache",
    ),
    _read("worker_questions_open", "gauge", "tasks that worker processes have not answered yet"),
    Spec(
        "devices",
        "gauge",
        "published devices by driver (the 20 with the most devices; all others count as other) and state",
        ("driver", "state"),
        read=True,
        values=STATES,
    ),
    Spec(
        "class_devices",
        "gauge",
        "devices that a DeviceClass selects, by class (the 50 with the most devices; all others count as other) and "
        "state, as in devices; a device of several classes counts for each",
        ("device_class", "state"),
        read=True,
    ),
    Spec(
        "share_capacity",
        "gauge",
        "capacity of usable shareable devices without taints, in the unit of the capacity (memory: bytes)",
        ("driver", "capacity"),
        read=True,
    ),
    Spec("share_capacity_free", "gauge", "the free part of share_capacity", ("driver", "capacity"), read=True),
    Spec(
        "pending_pods",
        "gauge",
        "pods that were refused and wait, by the rule that refuses them, as in the diagnosis",
        ("rule",),
        read=True,
        values={UNDIAGNOSED: "the diagnosis is not finished"},
    ),
    Spec(
        "device_wait_seconds",
        "histogram",
        "time from the creation of a pod that uses devices to its binding here, in whole seconds",
        buckets=_WAITS,
    ),
    Spec(
        "gang_wait_seconds",
        "histogram",
        "time from the creation of the first pod of a gang to the binding of the last one here, in whole seconds",
        buckets=_WAITS,
    ),
    _read("shadow_pods_total", "counter", "pods in the record of shadow mode, by rule (docs/adopt.md)", "rule"),
    _read("violations", "gauge", "conflicts between stored allocations, by whichever allocator"),
    _read("violations_reported_total", "counter", "conflicts between stored allocations that were reported"),
    _read("events_dropped_total", "counter", "Kubernetes events dropped: rejected, or too many at once"),
    Spec(
        "unexpected_errors_total",
        "counter",
        "unexpected errors, by place; each is a bug to report",
        ("where",),
        read=True,
        values=PLACES,
    ),
)

_BY_NAME = {spec.name: spec for spec in SPECS}


def _undeclared(name: str, labels: tuple[str, ...]) -> None:
    unexpected("metrics", ValueError(f"{name} with labels {labels} is not declared"))


class _Readings(Collector):
    def __init__(self, read: Callable[[], Iterable[Reading]]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        families = {spec.name: _family(spec) for spec in SPECS if spec.read and spec.labels}  # there may be no series
        for reading in self._read():
            spec = _BY_NAME.get(reading.name)
            if spec is None or not spec.read or len(reading.labels) != len(spec.labels):
                _undeclared(reading.name, reading.labels)
                continue
            if spec.name not in families:
                families[spec.name] = _family(spec)
            families[spec.name].add_metric([printable(label) for label in reading.labels], reading.value)
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
        # Every series is there from the start, so that a first occurrence shows as an increase.
        self._series = {
            (spec.name, *labels): metric.labels(*labels) if labels else metric
            for spec, metric in ((spec, self._metric(spec)) for spec in SPECS if not spec.read)
            for labels in product(*(get_args(VerbName) if name == "verb" else spec.values for name in spec.labels))
        }

    def read_from(self, read: Callable[[], Iterable[Reading]]) -> None:
        """Read the values of `read` metrics from this function."""
        self._registry.register(_Readings(read))

    def count(self, outcome: LabelledCounter[L], value: L) -> None:
        if (series := self._known(outcome.name, value)) is not None:
            series.inc()

    def took(self, step: Step, seconds: float) -> None:
        if (series := self._known("bind_step_duration_seconds", step)) is not None:
            series.observe(seconds)

    def waited(self, seconds: float, *, gang: bool = False) -> None:
        """A pod that uses devices, or all of a gang, was bound these seconds after its creation."""
        self._series["gang_wait_seconds" if gang else "device_wait_seconds",].observe(seconds)

    def answered(self, verb: VerbName, result: VerbResult, seconds: float) -> None:
        if (series := self._known("verb_requests_total", verb, result)) is not None:
            series.inc()
            self._series["verb_duration_seconds", verb].observe(seconds)

    def lagged(self, seconds: float) -> None:
        """A timer of the event loop was these seconds late."""
        self._series["event_loop_lag_seconds",].observe(seconds)

    def exposition(self) -> bytes:
        return generate_latest(self._registry)

    def _known(self, name: str, *labels: str) -> Any:
        """The series; None if its labels are not declared."""
        series = self._series.get((name, *labels))
        if series is None:
            _undeclared(name, labels)
        return series

    def _metric(self, spec: Spec) -> Any:
        if spec.type == "counter":
            return Counter(PREFIX + spec.name, spec.documentation, spec.labels, registry=self._registry)
        return Histogram(
            PREFIX + spec.name, spec.documentation, spec.labels, registry=self._registry, buckets=spec.buckets
        )
