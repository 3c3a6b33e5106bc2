"""Field errors of device classes."""

from __future__ import annotations

from collections.abc import Iterable

from embedded_cluster.apiserver import names
from embedded_cluster.apiserver.statuses import JSON, Problem, invalid_value, too_many
from embedded_cluster.apiserver.strategy import Context
from embedded_cluster.apiserver.validation.parts import MOST_CONFIGS, opaque_problems, selector_problems


def problems(spec: JSON, context: Context) -> list[Problem]:
    found = selector_problems(spec.get("selectors") or (), "spec.selectors", context)
    configs = spec.get("config") or ()
    if len(configs) > MOST_CONFIGS:
        found.append(too_many("spec.config", len(configs), MOST_CONFIGS))
    for index, config in enumerate(configs):
        found += opaque_problems(config, f"spec.config[{index}]")
    return [*found, *_extended_name_problems(spec.get("extendedResourceName"))]


def _extended_name_problems(name: str | None) -> Iterable[Problem]:
    if name is None:
        return
    where = "spec.extendedResourceName"
    domain, slash, _ = name.partition("/")
    native = not slash or domain == "kubernetes.io" or domain.endswith(".kubernetes.io") or name.startswith("requests.")
    if native or names.qualified_name(name) or names.qualified_name(f"requests.{name}"):
        yield invalid_value(where, name, "must be a valid extended resource name")
