"""Field errors of claims: the spec at creation, the status at every write to /status.

What is *not* checked is as important: that devices exist, are free or match the request is the allocator's business
alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import ip_interface
from typing import Final

from embedded_cluster.apiserver import names
from embedded_cluster.apiserver.statuses import (
    JSON,
    FieldError,
    duplicate,
    forbidden,
    immutable,
    invalid_value,
    required,
    too_long,
    too_many,
    unsupported,
)
from embedded_cluster.apiserver.strategy import Context
from embedded_cluster.apiserver.validation.parts import (
    MOST_CONFIGS,
    condition_problems,
    driver_problems,
    name_problems,
    opaque_problems,
    pool_problems,
    qualified_problems,
    raw_problems,
    required_name_problems,
    selector_problems,
    set_problems,
    toleration_problems,
)
from embedded_cluster.apiserver.validation.selectors import node_selector_problems

ADMIN_LABEL: Final = "resource.kubernetes.io/admin-access"
RESOURCE_GROUP: Final = "resource.k8s.io"
MOST_REQUESTS: Final = 32
MOST_SUBREQUESTS: Final = 8
MOST_CONSTRAINTS: Final = 32
MOST_RESULTS: Final = 32
MOST_CONSUMERS: Final = 256
MOST_BINDING_CONDITIONS: Final = 4
MOST_DEVICE_CONDITIONS: Final = 8
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def spec_problems(spec: JSON, at: str, context: Context) -> list[FieldError]:
    """Problems of a ResourceClaimSpec found at the path `at`."""
    devices = spec.get("devices") or {}
    where = f"{at}.devices"
    requests = devices.get("requests") or ()
    problems = set_problems(
        requests, f"{where}.requests", MOST_REQUESTS, _name, lambda request, at: _request_problems(request, at, context)
    )
    known = request_names(spec)
    problems += _constraints_problems(devices.get("constraints") or (), f"{where}.constraints", known)
    configs = devices.get("config") or ()
    if len(configs) > MOST_CONFIGS:
        problems.append(too_many(f"{where}.config", len(configs), MOST_CONFIGS))
    for index, config in enumerate(configs):
        problems += _reference_problems(config.get("requests") or (), f"{where}.config[{index}].requests", known)
        problems += opaque_problems(config, f"{where}.config[{index}]")
    return problems


def _name(item: JSON) -> str:
    name: str = item.get("name", "")
    return name


def request_names(spec: JSON) -> frozenset[str]:
    """Every way a request of the spec can be referred to: `request`, `request/subrequest`."""
    known: set[str] = set()
    for request in (spec.get("devices") or {}).get("requests") or ():
        name = request.get("name", "")
        known.add(name)
        known.update(f"{name}/{sub.get('name', '')}" for sub in request.get("firstAvailable") or ())
    return frozenset(known)


def _request_problems(request: JSON, at: str, context: Context) -> list[FieldError]:
    problems = name_problems(request.get("name"), f"{at}.name", names.dns_label)
    exactly, choices = request.get("exactly"), request.get("firstAvailable") or ()
    if (exactly is None) == (not choices):
        detail = "exactly one of `exactly` or `firstAvailable` is required"
        both = f"{detail}, but multiple fields are set"
        return [*problems, required(at, detail) if exactly is None else invalid_value(at, None, both)]
    if exactly is not None:
        return problems + _device_problems(exactly, f"{at}.exactly", context)
    return problems + set_problems(
        choices, f"{at}.firstAvailable", MOST_SUBREQUESTS, _name, lambda sub, at: _subrequest_problems(sub, at, context)
    )


def _subrequest_problems(sub: JSON, at: str, context: Context) -> list[FieldError]:
    return name_problems(sub.get("name"), f"{at}.name", names.dns_label) + _device_problems(sub, at, context)


def _device_problems(wanted: JSON, at: str, context: Context) -> list[FieldError]:
    problems = required_name_problems(wanted.get("deviceClassName"), f"{at}.deviceClassName", names.dns_subdomain)
    problems += selector_problems(wanted.get("selectors") or (), f"{at}.selectors")
    mode, count = wanted.get("allocationMode", ""), wanted.get("count", 0)
    if mode == "All":
        if count:
            problems.append(invalid_value(f"{at}.count", count, "must not be specified when allocationMode is 'All'"))
    elif mode == "ExactCount":
        if count <= 0:
            problems.append(invalid_value(f"{at}.count", count, "must be greater than zero"))
    else:
        problems.append(unsupported(f"{at}.allocationMode", mode, ("All", "ExactCount")))
    problems += toleration_problems(wanted.get("tolerations") or (), f"{at}.tolerations")
    return problems


def _constraints_problems(constraints: Sequence[JSON], at: str, known: frozenset[str]) -> list[FieldError]:
    if len(constraints) > MOST_CONSTRAINTS:
        return [too_many(at, len(constraints), MOST_CONSTRAINTS)]
    problems: list[FieldError] = []
    for index, constraint in enumerate(constraints):
        where = f"{at}[{index}]"
        problems += _reference_problems(constraint.get("requests") or (), f"{where}.requests", known)
        for kind in ("matchAttribute", "distinctAttribute"):
            if constraint.get(kind) is not None:
                problems += qualified_problems(constraint[kind], f"{where}.{kind}", domain_required=True)
                break
        else:
            both = 'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
            problems.append(required(where, both))  # as a real server has it, of none
    return problems


def _reference_problems(references: Sequence[str], at: str, known: frozenset[str]) -> list[FieldError]:
    return set_problems(
        references, at, MOST_REQUESTS, lambda name: name, lambda name, where: _named_problems(name, where, known)
    )


def _named_problems(name: str, at: str, known: frozenset[str]) -> list[FieldError]:
    """Of a request by its name, or of a subrequest by both names."""
    if name in known:
        return []
    parts = name.split("/")
    found = (
        [problem for part in parts for problem in name_problems(part, at, names.dns_label)] if len(parts) < 3 else []
    )
    detail = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
    return [*found, invalid_value(at, name, detail)]


def admin_access_problems(spec: JSON, namespace: str, context: Context, at: str) -> list[FieldError]:
    """Requests of a claim spec with adminAccess in a namespace whose label does not allow it."""
    requests = spec.get("devices", {}).get("requests") or ()
    asking = [index for index, request in enumerate(requests) if (request.get("exactly") or {}).get("adminAccess")]
    return _admin_problems(asking, namespace, context, f"{at}.requests")


def _admin_problems(asking: Sequence[int], namespace: str, context: Context, at: str) -> list[FieldError]:
    found = context.lookup("namespaces", "", namespace) or {}
    if not asking or found.get("metadata", {}).get("labels", {}).get(ADMIN_LABEL) == "true":
        return []
    why = f"admin access to devices requires the `{ADMIN_LABEL}: true` label on the containing namespace"
    return [forbidden(f"{at}[{index}].adminAccess", why) for index in asking]


# status


def status_problems(new: JSON, old: JSON, context: Context) -> list[FieldError]:
    """Problems of a write to /status; `new` has the spec and metadata of `old`."""
    status, before = new.get("status", {}), old.get("status", {})
    problems = _right_problems(status, before, new, context)
    if problems:
        return problems
    allocation, stored = status.get("allocation"), before.get("allocation")
    problems = _consumer_problems(status, before, deleting=bool(old["metadata"].get("deletionTimestamp")))
    if allocation is not None and stored is not None:
        if allocation != stored:
            problems.append(immutable("status.allocation", allocation))
    elif allocation is not None:
        problems += _allocation_problems(allocation, new, context)
    if status.get("devices") != before.get("devices"):
        problems += _device_status_problems(status)
    return problems


def _right_problems(status: JSON, before: JSON, claim: JSON, context: Context) -> list[FieldError]:
    """Writing allocation, reservedFor and device statuses needs more permissions than /status."""
    allowed, name, namespace = context.caller.allowed, claim["metadata"]["name"], claim["metadata"]["namespace"]
    verb, problems = context.verb, []
    bound = any(status.get(part) != before.get(part) for part in ("allocation", "reservedFor"))
    if bound and not allowed(verb, RESOURCE_GROUP, "resourceclaims", "binding", namespace, name):
        why = f'changing it requires resource="resourceclaims/binding", verb="{verb}" permission'
        problems.append(forbidden("status.allocation", why))
    if before.get("allocation") is None or status.get("allocation") is None:
        return problems
    for driver in sorted(_reporting_drivers(status, before)):
        verbs = (f"arbitrary-node:{verb}", f"associated-node:{verb}")
        if not any(allowed(each, RESOURCE_GROUP, "resourceclaims", "driver", namespace, driver) for each in verbs):
            why = f'driver {driver}: it requires resource="resourceclaims/driver", verb="{verbs[0]}" permission'
            problems.append(forbidden("status.devices", why))
    return problems


def _reporting_drivers(status: JSON, before: JSON) -> set[str]:
    """The drivers whose device statuses a write changes."""
    now, then = status.get("devices") or [], before.get("devices") or []
    return {entry.get("driver", "") for entry in (*now, *then) if entry not in now or entry not in then}


def _consumer_problems(status: JSON, before: JSON, *, deleting: bool) -> list[FieldError]:
    consumers, at = status.get("reservedFor") or (), "status.reservedFor"
    problems = set_problems(
        consumers, at, MOST_CONSUMERS, lambda consumer: consumer.get("uid", ""), _consumer_reference_problems
    )
    if consumers and status.get("allocation") is None:
        problems.append(forbidden(at, "may not be specified when `allocated` is not set"))
    if deleting:
        known = {consumer.get("uid") for consumer in before.get("reservedFor") or ()}
        if any(consumer.get("uid") not in known for consumer in consumers):
            problems.append(
                forbidden(
                    at, "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
                )
            )
    return problems


def _consumer_reference_problems(consumer: JSON, at: str) -> list[FieldError]:
    return [required(f"{at}.{part}") for part in ("resource", "name", "uid") if not consumer.get(part)]


def _allocation_problems(allocation: JSON, claim: JSON, context: Context) -> list[FieldError]:
    at = "status.allocation"
    devices = allocation.get("devices") or {}
    results, configs = devices.get("results") or [], devices.get("config") or ()
    known = request_names(claim["spec"])
    asking = [index for index, result in enumerate(results) if result.get("adminAccess")]
    problems = _admin_problems(asking, claim["metadata"]["namespace"], context, f"{at}.devices.results")
    if len(results) > MOST_RESULTS:
        problems.append(too_many(f"{at}.devices.results", len(results), MOST_RESULTS))
    for index, result in enumerate(results):
        problems += _result_problems(result, f"{at}.devices.results[{index}]", known)
    if len(configs) > 2 * MOST_CONFIGS:
        problems.append(too_many(f"{at}.devices.config", len(configs), 2 * MOST_CONFIGS))
    for index, config in enumerate(configs):
        where = f"{at}.devices.config[{index}]"
        if config.get("source") not in ("FromClass", "FromClaim"):
            source = config.get("source", "")
            problems.append(
                unsupported(f"{where}.source", source, ("FromClaim", "FromClass"))
                if source
                else required(f"{where}.source")
            )
        problems += _reference_problems(config.get("requests") or (), f"{where}.requests", known)
        problems += opaque_problems(config, where)
    if allocation.get("nodeSelector") is not None:
        problems += node_selector_problems(allocation["nodeSelector"], f"{at}.nodeSelector")
    return problems


def _result_problems(result: JSON, at: str, known: frozenset[str]) -> list[FieldError]:
    problems = _named_problems(result.get("request", ""), f"{at}.request", known)
    problems += name_problems(result.get("device"), f"{at}.device", names.dns_label)
    problems += driver_problems(result.get("driver"), f"{at}.driver")
    problems += pool_problems(result.get("pool"), f"{at}.pool")
    problems += toleration_problems(result.get("tolerations") or (), f"{at}.tolerations")
    problems += binding_condition_problems(result, at)
    share = result.get("shareID")
    if share is not None and not _UUID.fullmatch(share):
        problems.append(invalid_value(f"{at}.shareID", share, "must be a lowercase UUID in RFC 4122 format"))
    for key in result.get("consumedCapacity") or ():
        problems += qualified_problems(key, f"{at}.consumedCapacity[{key}]")
    return problems


def binding_condition_problems(part: JSON, at: str) -> list[FieldError]:
    """bindingConditions and bindingFailureConditions: both or neither, at most four each, no name twice."""
    wanted, failing = part.get("bindingConditions") or (), part.get("bindingFailureConditions") or ()
    problems: list[FieldError] = []
    for label, conditions in (("bindingConditions", wanted), ("bindingFailureConditions", failing)):
        problems += set_problems(
            conditions,
            f"{at}.{label}",
            MOST_BINDING_CONDITIONS,
            lambda name: name,
            lambda name, where: name_problems(name, where, names.qualified_name),
        )
    if bool(wanted) != bool(failing):
        missing, other = "bindingConditions", "bindingFailureConditions"
        if wanted:
            missing, other = other, missing
        problems.append(invalid_value(f"{at}.{missing}", None, f"{missing} are required to use {other}"))
    problems += [
        invalid_value(f"{at}.bindingFailureConditions[{index}]", name, "must not also be a binding condition")
        for index, name in enumerate(failing)
        if name in wanted
    ]
    return problems


def _device_status_problems(status: JSON) -> list[FieldError]:
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
    allocated = {_identity(result) for result in results}
    problems: list[FieldError] = []
    seen: set[tuple[str | None, ...]] = set()
    for index, entry in enumerate(status.get("devices") or ()):
        at, identity = f"status.devices[{index}]", _identity(entry)
        if identity in seen:
            problems.append(duplicate(at, "/".join(part or "" for part in identity)))
        seen.add(identity)
        if identity not in allocated:
            problems.append(
                invalid_value(
                    at, "/".join(part or "" for part in identity[:3]), "must be an allocated device in the claim"
                )
            )
        problems += condition_problems(entry.get("conditions") or (), f"{at}.conditions", MOST_DEVICE_CONDITIONS)
        if entry.get("data") is not None:
            problems += raw_problems(entry["data"], f"{at}.data", 10 * 1024)
        problems += _network_problems(entry.get("networkData") or {}, f"{at}.networkData")
    return problems


def _identity(entry: JSON) -> tuple[str | None, ...]:
    return entry.get("driver"), entry.get("pool"), entry.get("device"), entry.get("shareID")


def _network_problems(network: JSON, at: str) -> list[FieldError]:
    problems = [
        too_long(f"{at}.{part}", longest)
        for part, longest in (("interfaceName", 256), ("hardwareAddress", 128))
        if len(network.get(part, "")) > longest
    ]
    return problems + set_problems(
        network.get("ips") or (), f"{at}.ips", 16, lambda address: address, _address_problems
    )


def _address_problems(address: str, at: str) -> list[FieldError]:
    try:
        ip_interface(address)
    except ValueError:
        return [invalid_value(at, address, "must be a valid address in CIDR form")]
    return [] if "/" in address else [invalid_value(at, address, "must be a valid address in CIDR form")]
