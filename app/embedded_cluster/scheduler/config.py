"""KubeSchedulerConfiguration as kube-scheduler reads it, as far as extenders and queueing are concerned.

The files in scheduler_config/ are used as they are; `relocate` points their extenders at another address. Decoding is
strict, as in kube-scheduler: an unknown field is an error, and so is what its validation refuses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import yaml

from dra_extender.api.resource import EXTENDED_RESOURCE_CLASS_PREFIX

API_VERSION, KIND = "kubescheduler.config.k8s.io/v1", "KubeSchedulerConfiguration"
DYNAMIC_RESOURCES = "DynamicResources"
DEFAULT_HTTP_TIMEOUT = 5.0

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")


class ConfigError(Exception):
    """A configuration that kube-scheduler, or this stand-in for it, would not start with."""


class ManagedResource(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    name: str
    ignored_by_scheduler: bool = False


class ExtenderConfig(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One entry of `extenders`."""

    url_prefix: str
    filter_verb: str = ""
    preempt_verb: str = ""
    prioritize_verb: str = ""
    weight: int = 0
    bind_verb: str = ""
    enable_https: bool = msgspec.field(default=False, name="enableHTTPS")
    tls_config: dict[str, Any] = msgspec.field(default_factory=dict)
    http_timeout: str = ""
    node_cache_capable: bool = False
    managed_resources: tuple[ManagedResource, ...] = ()
    ignorable: bool = False

    @property
    def timeout(self) -> float:
        """Seconds for one call, dialling and reading included."""
        return duration(self.http_timeout) or DEFAULT_HTTP_TIMEOUT

    def url(self, verb: str) -> str:
        return f"{self.url_prefix.rstrip('/')}/{verb}"


class Plugin(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    weight: int = 0


class PluginSet(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    enabled: tuple[Plugin, ...] = ()
    disabled: tuple[Plugin, ...] = ()


class Profile(msgspec.Struct, frozen=True, rename="camel"):
    scheduler_name: str = "default-scheduler"
    percentage_of_nodes_to_score: int | None = None
    plugins: dict[str, PluginSet] = msgspec.field(default_factory=dict)

    @property
    def allocates_in_tree(self) -> bool:
        """True when the in-tree plugin would allocate claims beside the extender."""
        return not any(
            plugin.name in (DYNAMIC_RESOURCES, "*") for plugin in self.plugins.get("multiPoint", PluginSet()).disabled
        )

    @property
    def gates_claims(self) -> bool:
        """True when pods stay out of the queue until their claims exist."""
        enabled = self.plugins.get("preEnqueue", PluginSet()).enabled
        return self.allocates_in_tree or any(plugin.name == DYNAMIC_RESOURCES for plugin in enabled)


class SchedulerConfig(msgspec.Struct, frozen=True, rename="camel"):
    """The whole configuration; fields that the stand-in does not use are ignored."""

    api_version: str = API_VERSION
    kind: str = KIND
    profiles: tuple[Profile, ...] = (Profile(),)
    extenders: tuple[ExtenderConfig, ...] = ()
    percentage_of_nodes_to_score: int = 0
    pod_initial_backoff_seconds: float = 1
    pod_max_backoff_seconds: float = 10

    @property
    def scheduler_names(self) -> frozenset[str]:
        return frozenset(profile.scheduler_name for profile in self.profiles)

    def profile(self, name: str) -> Profile:
        return next(profile for profile in self.profiles if profile.scheduler_name == name)


_KNOWN = {
    "apiVersion", "kind", "profiles", "extenders", "percentageOfNodesToScore", "podInitialBackoffSeconds",
    "podMaxBackoffSeconds", "clientConnection", "leaderElection", "parallelism", "delayCacheUntilActive",
    "enableProfiling", "enableContentionProfiling",
}  # fmt: skip


def load(source: str | Path) -> SchedulerConfig:
    """Read a configuration file. Raises ConfigError naming the file and the field."""
    path = Path(source)
    try:
        return parse(path.read_text())
    except (OSError, ConfigError) as problem:
        raise ConfigError(f"{path}: {problem}") from None


def parse(text: str) -> SchedulerConfig:
    """A configuration from YAML. Raises ConfigError."""
    try:
        document = yaml.safe_load(text)
        if not isinstance(document, dict):
            raise ConfigError("not a YAML mapping")
        unknown = sorted(set(document) - _KNOWN)
        if unknown:
            raise ConfigError(f"unknown field {unknown[0]!r}")
        config = msgspec.convert(document, SchedulerConfig)
    except (yaml.YAMLError, msgspec.ValidationError) as problem:
        raise ConfigError(str(problem)) from None
    check(config)
    return config


def check(config: SchedulerConfig) -> None:
    """What kube-scheduler validates about extenders and queueing. Raises ConfigError."""
    if (config.api_version, config.kind) != (API_VERSION, KIND):
        raise ConfigError(f"must be a {KIND} of {API_VERSION}")
    if len(config.scheduler_names) < len(config.profiles):
        raise ConfigError("profiles: two of the same schedulerName")
    if config.pod_initial_backoff_seconds <= 0 or config.pod_max_backoff_seconds < config.pod_initial_backoff_seconds:
        raise ConfigError("podMaxBackoffSeconds must not be below podInitialBackoffSeconds, which must be positive")
    if sum(1 for extender in config.extenders if extender.bind_verb) > 1:
        raise ConfigError("extenders: only one can implement bind")
    names: set[str] = set()
    for number, extender in enumerate(config.extenders):
        where = f"extenders[{number}]"
        if extender.prioritize_verb and extender.weight <= 0:
            raise ConfigError(f"{where}.weight: must have a positive weight applied to it")
        if extender.http_timeout:
            duration(extender.http_timeout)
        if not extender.node_cache_capable:
            raise ConfigError(f"{where}.nodeCacheCapable: false is not imitated here; the extender refuses it too")
        for managed in extender.managed_resources:
            if managed.name in names or managed.name.startswith(EXTENDED_RESOURCE_CLASS_PREFIX):
                raise ConfigError(f"{where}.managedResources: {managed.name} is listed twice or cannot be managed")
            names.add(managed.name)
    for profile in config.profiles:
        if profile.allocates_in_tree:
            raise ConfigError(
                f"profile {profile.scheduler_name}: {DYNAMIC_RESOURCES} must be disabled in plugins.multiPoint; "
                "the embedded scheduler allocates nothing itself"
            )


def relocate(config: SchedulerConfig, base: str) -> SchedulerConfig:
    """The same configuration with all extenders at another address, for example http://127.0.0.1:8888, without TLS."""
    moved = tuple(
        msgspec.structs.replace(
            extender,
            url_prefix=base.rstrip("/") + urlsplit(extender.url_prefix).path,
            enable_https=False,
            tls_config={},
        )
        for extender in config.extenders
    )
    return msgspec.structs.replace(config, extenders=moved)


def serve_also(config: SchedulerConfig, names: Iterable[str]) -> SchedulerConfig:
    """The same configuration with more profiles, copies of the first under other names."""
    first = config.profiles[0]
    more = tuple(
        msgspec.structs.replace(first, scheduler_name=name) for name in names if name not in config.scheduler_names
    )
    return msgspec.structs.replace(config, profiles=config.profiles + more)


def takeover(base: str, names: Iterable[str] = ("dra-scheduler",)) -> SchedulerConfig:
    """The configuration that scheduler_config/secondary-scheduler.yaml describes, for an extender at `base`."""
    plugins = {
        "multiPoint": PluginSet(disabled=(Plugin(DYNAMIC_RESOURCES),)),
        "preEnqueue": PluginSet(enabled=(Plugin(DYNAMIC_RESOURCES),)),
    }
    prefix = f"{base.rstrip('/')}/scheduler"
    return SchedulerConfig(
        profiles=tuple(Profile(name, plugins=plugins) for name in names),
        percentage_of_nodes_to_score=100,
        extenders=(
            ExtenderConfig(
                prefix,
                filter_verb="filter",
                prioritize_verb="prioritize",
                preempt_verb="preempt",
                weight=5,
                http_timeout="3s",
                node_cache_capable=True,
            ),
            ExtenderConfig(prefix, bind_verb="bind", http_timeout="30s", node_cache_capable=True),
        ),
    )


def duration(text: str) -> float:
    """Seconds of a Go duration such as 300ms, 3s or 1m30s; 0 for an empty text. Raises ConfigError."""
    if text in ("", "0"):
        return 0.0
    parts = list(_DURATION.finditer(text))
    if "".join(part[0] for part in parts) != text:
        raise ConfigError(f"{text!r} is not a duration (for example 300ms, 3s, 1m30s)")
    return sum(float(part[1]) * _UNITS[part[2]] for part in parts)
