"""Field errors of probes and of what runs after the start and before the stop of a container.

Rules: Kubernetes 1.36, pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from embedded_cluster.apiserver import names
from embedded_cluster.apiserver.statuses import JSON, Problem, forbidden, invalid_value, required, unsupported
from embedded_cluster.apiserver.validation.parts import negative_problems

PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_ONCE: Final = ("livenessProbe", "startupProbe")
"""Probes that succeed at the first success."""

_COUNTS: Final = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
_SCHEMES: Final = ("HTTP", "HTTPS")


def problems(container: JSON, at: str, grace: int) -> list[Problem]:
    """Of the lifecycle and the probes of a container that gets `grace` seconds to stop."""
    found: list[Problem] = []
    for moment in ("postStart", "preStop"):
        handler = (container.get("lifecycle") or {}).get(moment)
        if handler is not None:
            found += _handler_problems(handler, f"{at}.lifecycle.{moment}", grace)
    for name in PROBES:
        if name in container:
            found += _probe_problems(container[name], f"{at}.{name}", grace, once=name in _ONCE)
    return found


def _probe_problems(probe: JSON, at: str, grace: int, *, once: bool) -> list[Problem]:
    found = _handler_problems(probe, at, grace) + negative_problems(probe, at, _COUNTS)
    period = probe.get("terminationGracePeriodSeconds")
    if period is not None and period <= 0:
        found.append(invalid_value(f"{at}.terminationGracePeriodSeconds", period, "must be greater than 0"))
    if once and probe["successThreshold"] != 1:
        found.append(invalid_value(f"{at}.successThreshold", probe["successThreshold"], "must be 1"))
    if not once and period is not None:
        detail = "must not be set for readinessProbes"
        found.append(invalid_value(f"{at}.terminationGracePeriodSeconds", period, detail))
    return found


def _handler_problems(handler: JSON, at: str, grace: int) -> list[Problem]:
    found: list[Problem] = []
    seen = False
    for kind, check in _HANDLERS:
        if kind not in handler:
            continue
        if seen:
            found.append(forbidden(f"{at}.{kind}", "may not specify more than 1 handler type"))
        else:
            found += check(handler[kind], f"{at}.{kind}")
        seen = True
    if "sleep" in handler:
        found += _sleep_problems(handler["sleep"], f"{at}.sleep", grace, alone=not seen)
    elif not seen:
        found.append(required(at, "must specify a handler type"))
    return found


def _exec_problems(action: JSON, at: str) -> list[Problem]:
    return [] if action.get("command") else [required(f"{at}.command")]


def _http_problems(action: JSON, at: str) -> list[Problem]:
    found = port_problems(action.get("port", 0), f"{at}.port")
    if action["scheme"] not in _SCHEMES:
        found.append(unsupported(f"{at}.scheme", action["scheme"], _SCHEMES))
    for header in action.get("httpHeaders") or ():
        if wrong := names.http_header(header.get("name", "")):
            found.append(invalid_value(f"{at}.httpHeaders", header.get("name", ""), wrong))
    return found


def _port_action_problems(action: JSON, at: str) -> list[Problem]:
    return port_problems(action.get("port", 0), f"{at}.port")


def _sleep_problems(action: JSON, at: str, grace: int, *, alone: bool) -> list[Problem]:
    if not alone:
        return [forbidden(at, "may not specify more than 1 handler type")]
    seconds = action.get("seconds", 0)
    if 0 <= seconds <= grace:
        return []
    detail = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
    return [invalid_value(at, seconds, detail)]


_HANDLERS: Final[tuple[tuple[str, Callable[[JSON, str], list[Problem]]], ...]] = (
    ("exec", _exec_problems),
    ("httpGet", _http_problems),
    ("tcpSocket", _port_action_problems),
    ("grpc", _port_action_problems),
)


def port_problems(port: int | str, at: str) -> list[Problem]:
    """A port by its number or by its name."""
    if isinstance(port, str):
        return [invalid_value(at, port, wrong) for wrong in names.port_name(port)]
    return number_problems(port, at)


def number_problems(port: int, at: str) -> list[Problem]:
    """A port by its number."""
    return [] if 1 <= port <= 65535 else [invalid_value(at, port, "must be between 1 and 65535, inclusive")]
