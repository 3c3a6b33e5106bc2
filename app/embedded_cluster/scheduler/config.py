"""What the scheduler reads of a KubeSchedulerConfiguration: its names, extenders and backoffs.

As in scheduler_config/secondary-scheduler.yaml, DynamicResources is enabled at preEnqueue only: the scheduler allocates
nothing, and pods wait outside the queue until their claims exist.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class ExtenderConfig(msgspec.Struct, frozen=True):
    """One entry of `extenders`, which gets names of nodes. `timeout`: seconds for one call, reading included."""

    url_prefix: str
    timeout: float = 5.0
    filter_verb: str = ""
    preempt_verb: str = ""
    prioritize_verb: str = ""
    weight: int = 0
    bind_verb: str = ""

    def url(self, verb: str) -> str:
        return f"{self.url_prefix.rstrip('/')}/{verb}"


class SchedulerConfig(msgspec.Struct, frozen=True):
    """The configuration; pods with another schedulerName are left alone."""

    scheduler_names: tuple[str, ...] = ("default-scheduler",)
    extenders: tuple[ExtenderConfig, ...] = ()
    percentage_of_nodes_to_score: int = 0
    pod_initial_backoff_seconds: float = 1
    pod_max_backoff_seconds: float = 10


def takeover(base: str, names: Iterable[str] = ("dra-scheduler",)) -> SchedulerConfig:
    """The configuration that scheduler_config/secondary-scheduler.yaml describes, for an extender at `base`."""
    prefix = f"{base.rstrip('/')}/scheduler"
    return SchedulerConfig(
        scheduler_names=tuple(names),
        percentage_of_nodes_to_score=100,
        extenders=(
            ExtenderConfig(
                prefix,
                timeout=3.0,
                filter_verb="filter",
                prioritize_verb="prioritize",
                preempt_verb="preempt",
                weight=5,
            ),
            ExtenderConfig(prefix, timeout=30.0, bind_verb="bind"),
        ),
    )
