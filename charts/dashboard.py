"""The Grafana dashboard: one row per question, one panel per metric that answers it.

Promises: the same text each time, and only metrics that the service has (a test compares).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from charts.reference import CHART

FILE = CHART / "files" / "dashboard.json"
_ALL = 'namespace=~"$namespace"'
_WIDTH, _HEIGHT, _PER_ROW = 8, 8, 3


class Panel(NamedTuple):
    """`lines` are queries with their legends; units are those of Grafana. SELECT stands for the chosen namespace."""

    title: str
    unit: str
    lines: tuple[tuple[str, str], ...]
    why: str = ""


def _rate(metric: str, by: str) -> str:
    return f"sum by ({by}) (rate(dra_extender_{metric}{{SELECT}}[$__rate_interval]))"


def _quantile(metric: str, by: str = "", quantile: float = 0.99) -> str:
    kept = f"le, {by}" if by else "le"
    rate = f"rate(dra_extender_{metric}_bucket{{SELECT}}[$__rate_interval])"
    return f"histogram_quantile({quantile}, sum by ({kept}) ({rate}))"


def _greatest(metric: str, by: str) -> str:
    return f"max by ({by}) (dra_extender_{metric}{{SELECT}})"


ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "Does it serve?",
        (
            Panel("Ready", "short", ((_greatest("ready", "pod"), "{{pod}}"),)),
            Panel("Leader", "short", ((_greatest("leader", "pod"), "{{pod}}"),)),
            Panel(
                "Watches behind",
                "s",
                ((_greatest("watch_gap_seconds", "pod, kind"), "{{pod}} {{kind}}"),),
                "time without a working watch of the kind",
            ),
        ),
    ),
    (
        "What happens to pods?",
        (
            Panel("Binds", "reqps", ((_rate("bind_results_total", "result"), "{{result}}"),)),
            Panel("Answers of filter", "reqps", ((_rate("filter_results_total", "result"), "{{result}}"),)),
            Panel(
                "Pending pods",
                "short",
                ((_greatest("pending_pods", "rule"), "{{rule}}"),),
                "by rule",
            ),
        ),
    ),
    (
        "Which devices are left?",
        (
            Panel("Devices", "short", ((_greatest("devices", "driver, state"), "{{driver}} {{state}}"),)),
            Panel(
                "Free devices of classes",
                "short",
                (
                    (
                        'max by (device_class) (dra_extender_class_devices{state="free", SELECT})',
                        "{{device_class}}",
                    ),
                ),
            ),
            Panel(
                "Free part of shared devices",
                "percentunit",
                (
                    (
                        f"{_greatest('share_capacity_free', 'driver, capacity')} / "
                        f"{_greatest('share_capacity', 'driver, capacity')}",
                        "{{driver}} {{capacity}}",
                    ),
                ),
            ),
        ),
    ),
    (
        "How long does it take?",
        (
            Panel(
                "Time from creation to binding",
                "s",
                (
                    (_quantile("device_wait_seconds", quantile=0.5), "median"),
                    (_quantile("device_wait_seconds"), "99th percentile"),
                ),
                "of pods that use devices",
            ),
            Panel("Verbs, 99th percentile", "s", ((_quantile("verb_duration_seconds", "verb"), "{{verb}}"),)),
            Panel(
                "Steps of binds, 99th percentile", "s", ((_quantile("bind_step_duration_seconds", "step"), "{{step}}"),)
            ),
        ),
    ),
    (
        "Who else writes?",
        (
            Panel("Devices allocated twice", "short", ((_greatest("violations", "pod"), "{{pod}}"),)),
            Panel("Conflicts", "reqps", ((_rate("conflicts_total", "reason"), "{{reason}}"),)),
            Panel(
                "Unused allocations cleared", "reqps", ((_rate("allocations_cleared_total", "reason"), "{{reason}}"),)
            ),
        ),
    ),
    (
        "What goes wrong?",
        (
            Panel("Objects that cannot be decoded", "short", ((_greatest("undecodable_objects", "kind"), "{{kind}}"),)),
            Panel(
                "Requests that failed",
                "reqps",
                (
                    (
                        'sum by (verb, result) (rate(dra_extender_verb_requests_total{result!="ok", SELECT}'
                        "[$__rate_interval]))",
                        "{{verb}} {{result}}",
                    ),
                ),
            ),
            Panel("Unexpected errors", "short", ((_rate("unexpected_errors_total", "where"), "{{where}}"),)),
        ),
    ),
    (
        "How hard does it work?",
        (
            Panel(
                "Event loop late, 99th percentile",
                "s",
                ((_quantile("event_loop_lag_seconds", "pod"), "{{pod}}"),),
                "high values mean that it is blocked",
            ),
            Panel("Answers of workers", "reqps", ((_rate("worker_answers_total", "result"), "{{result}}"),)),
            Panel(
                "Memory",
                "bytes",
                ((f'max by (pod) (process_resident_memory_bytes{{job=~".*dra-extender.*", {_ALL}}})', "{{pod}}"),),
            ),
        ),
    ),
    (
        "Gangs",
        (
            Panel("Plans", "reqps", ((_rate("gang_plans_total", "result"), "{{result}}"),)),
            Panel(
                "Time from the first pod to the last bind",
                "s",
                (
                    (_quantile("gang_wait_seconds", quantile=0.5), "median"),
                    (_quantile("gang_wait_seconds"), "99th percentile"),
                ),
            ),
        ),
    ),
    (
        "Preemption",
        (
            Panel("Pods evaluated", "reqps", ((_rate("preemptions_total", "result"), "{{result}}"),)),
            Panel("Nominations", "short", ((_greatest("preemption_nominations", "pod"), "{{pod}}"),)),
            Panel("Victims", "reqps", ((_rate("preemption_victims_total", "result"), "{{result}}"),)),
        ),
    ),
)


def _query(text: str) -> str:
    return text.replace("SELECT", _ALL)


def queries() -> list[str]:
    """All expressions, for tests."""
    return [_query(query) for _, panels in ROWS for panel in panels for query, _ in panel.lines]


def _panels() -> Iterator[dict[str, Any]]:
    top = number = 0
    for title, panels in ROWS:
        number += 1
        place = {"x": 0, "y": top, "w": _WIDTH * _PER_ROW, "h": 1}
        yield {"id": number, "type": "row", "title": title, "collapsed": False, "panels": [], "gridPos": place}
        top += 1
        for column, panel in enumerate(panels):
            number += 1
            yield {
                "id": number,
                "type": "timeseries",
                "title": panel.title,
                "description": panel.why,
                "datasource": {"type": "prometheus", "uid": "${datasource}"},
                "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
                "gridPos": {"x": column * _WIDTH, "y": top, "w": _WIDTH, "h": _HEIGHT},
                "targets": [
                    {"refId": chr(ord("A") + index), "expr": _query(query), "legendFormat": legend}
                    for index, (query, legend) in enumerate(panel.lines)
                ],
            }
        top += _HEIGHT


def text() -> str:
    """The dashboard as Grafana imports it."""
    variables = [
        {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"},
        {
            "name": "namespace",
            "type": "query",
            "label": "Namespace",
            "datasource": {"type": "prometheus", "uid": "${datasource}"},
            "query": "label_values(dra_extender_ready, namespace)",
            "refresh": 2,
            "includeAll": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        },
    ]
    made = {
        "uid": "dra-extender",
        "title": "dra-extender",
        "tags": ["kubernetes", "dra"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": variables},
        "panels": list(_panels()),
    }
    return json.dumps(made, indent=1) + "\n"
